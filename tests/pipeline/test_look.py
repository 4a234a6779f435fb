"""Where a run's calls are found after it was moved: by every command that looks at it, and what is said if nowhere."""

import shutil
from pathlib import Path

import pytest

from repair.config import Config, load_config
from repair.core.errors import DataError
from repair.core.progress import Silent
from repair.core.records import Direction, Repair, RepairStatus
from repair.pipeline.doctor import checks
from repair.pipeline.export import export, export_lines
from repair.pipeline.look import lineage, lineage_lines, run_status, status_lines
from repair.pipeline.material import gather
from repair.pipeline.places import BLOBS, LEDGER, calls_file, calls_places, config_at
from repair.pipeline.run import run_pipeline
from repair.pipeline.sweep import plan
from repair.reports.html import report_facts
from repair.reports.view import RunView
from repair.store.run_folder import RunFolder
from repair.store.tables import read_table
from tests.pipeline.tiny import run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and the calls that it shares, moved since they were made."""
    folder = tmp_path_factory.mktemp("made")
    run(folder / "first", f"run.calls={folder}/first/calls-seed-0")
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


@pytest.fixture
def without_calls(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "run", tmp_path / "alone" / "run")
    return tmp_path / "alone" / "run"


def edited_image(path: Path) -> str:
    """The failure of a caption whose false positive was repaired."""
    repairs = read_table(path / "round-0" / "repairs.parquet", Repair)
    kept = [one for one in repairs if one.status is RepairStatus.REPAIRED and one.direction is Direction.TEXT_TO_IMAGE]
    return kept[0].failure_id


def test_every_command_finds_what_moved_with_the_run(made: Path, tmp_path: Path) -> None:
    path = made / "run"
    status = run_status(path)
    assert status["calls"]
    assert status["pair_costs"]
    assert status["calls_missing"] is None
    found = lineage(path, edited_image(path), images=tmp_path / "pictures")
    assert found["calls"]
    assert "candidate_0" in found["images"]
    assert found["missing"] == []
    material = gather(path, None)
    images = {key for grid in material.grids for key in grid.images if key.startswith("b2:")}
    assert images
    assert all(material.read(key).startswith(b"\x89PNG") for key in images)
    assert "missing" not in export(path, "model", tmp_path / "model", round=None, force=False)
    assert report_facts(path)["calls"]["missing"] == []


@pytest.mark.parametrize("shared", [True, False])
def test_a_moved_run_goes_on_where_it_is_and_asks_nothing_again(shared: bool, tmp_path: Path) -> None:
    calls = [f"run.calls={tmp_path}/first/calls-seed-0"] if shared else []
    run(tmp_path / "first", *calls, until="verify")
    (tmp_path / "first").rename(tmp_path / "moved")
    path = tmp_path / "moved" / "run"
    before = run_status(path)["calls"]
    config = config_at(path / "config.toml", overrides=["calls.concurrency=2"])
    assert config.run_path() == path
    assert config.calls.concurrency == 2
    run_pipeline(config, until="instruct", reuse=False, progress=Silent())
    assert not (tmp_path / "first" / "run").exists()
    assert not (tmp_path / "first" / "calls-seed-0").exists()
    after = {row["task"]: row for row in run_status(path)["calls"]}
    assert [after[row["task"]] for row in before] == before
    assert "instruct" in after
    template = config_at(path / "config.toml", overrides=["run.name=another"])
    assert template.run_path() == tmp_path / "moved" / "another"
    folder, _ = plan(path / "config.toml", [], "training.lr", ["1e-4", "2e-4"])
    assert folder == tmp_path / "moved" / "run-sweep"
    found = {check["name"]: check["finding"] for check in checks(path / "config.toml", [], progress=Silent())}
    assert found["run folder"].startswith(f"{path},")


def test_the_config_of_a_run_that_stands_where_it_was_made_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(Path("runs"), until="mine")
    path = Path("runs", "run", "config.toml")
    assert config_at(path) == config_at(path.absolute()) == load_config(path)
    monkeypatch.chdir("/")  # what it calls "runs" is not here
    assert config_at(tmp_path / path).run_path() == tmp_path / "runs" / "run"


def test_where_no_place_has_them_one_line_names_the_places(without_calls: Path, tmp_path: Path) -> None:
    beside = without_calls.parent / "calls-seed-0"
    named = load_config(without_calls / "config.toml", environment={}).run.calls
    no_ledger, no_blobs = (f"there is no {name} in {beside} or {named}" for name in (LEDGER, BLOBS))
    assert f"no call is on record: {no_ledger}" in status_lines(run_status(without_calls))
    lines = lineage_lines(lineage(without_calls, edited_image(without_calls), images=tmp_path / "pictures"))
    assert lines[-2:] == [f"  missing         {no_ledger}", f"  missing         {no_blobs}"]
    exported = export_lines(export(without_calls, "model", tmp_path / "model", round=None, force=False))
    assert exported[1].endswith(no_ledger)
    material = gather(without_calls, None)
    with pytest.raises(DataError, match=no_blobs):
        [material.read(key) for grid in material.grids for key in grid.images if key.startswith("b2:")]
    missing = report_facts(without_calls)["calls"]["missing"]
    assert missing == [f"calls cannot be counted: {no_ledger}", f"edited images cannot be shown: {no_blobs}"]


# ---------------------------------------------------------------------------------------------- the rule itself


def places(path: Path, **section: str) -> list[str]:
    """Where calls are looked for, of a run now in `path`; with `folder`, `name` and `calls` as it was made with."""
    config = load_config(None, overrides=[f"run.{name}={value}" for name, value in section.items()], environment={})
    return [str(place) for place in calls_places(RunFolder(path, {}, None), config)]


def test_an_unshared_ledger_is_in_the_run() -> None:
    assert places(Path("/new/a"), folder="/old", name="a") == ["/new/a"]


def test_what_moved_together_is_tried_first() -> None:
    old = {"folder": "/old/runs", "name": "a"}
    assert places(Path("/old/runs/a"), calls="/old/runs/calls", **old) == ["/old/runs/calls"]
    assert places(Path("/new/a"), calls="/old/runs/calls", **old) == ["/new/calls", "/old/runs/calls"]
    assert places(Path("/new/b/a"), calls="/old/x/calls", **old) == ["/new/x/calls", "/old/x/calls", "/new/b/calls"]


def test_relative_places_are_as_seen_from_the_run() -> None:
    old = {"folder": "runs/one", "name": "a"}
    assert places(Path("/new/a"), calls="runs/one/calls", **old) == ["/new/calls", "runs/one/calls"]
    assert places(Path("/new/a"), calls="/shared/calls", **old) == ["/shared/calls", "/new/calls"]
    assert places(Path("runs/one/a"), calls="runs/one/calls", **old) == ["runs/one/calls"]


def test_the_first_that_has_the_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config.model_validate({"run": {"folder": "old", "name": "a", "calls": "old/calls"}})
    folder = RunFolder(tmp_path / "new" / "a", {}, None)
    assert calls_file(folder, config, LEDGER) is None
    for place in ("old/calls", "new/calls"):
        Path(place).mkdir(parents=True)
    Path("old/calls", LEDGER).touch()
    Path("old/calls", BLOBS).touch()
    assert calls_file(folder, config, LEDGER) == Path("old/calls", LEDGER)
    Path("new/calls", LEDGER).touch()
    view = RunView(folder, config)
    assert view.calls_file(LEDGER) == tmp_path / "new/calls" / LEDGER
    assert view.calls_file(BLOBS) == Path("old/calls", BLOBS)
