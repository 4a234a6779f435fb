"""A bench at equal budgets: budgets from the reference's use, learning rates from val, tables from the folders."""

import json
from collections import Counter
from pathlib import Path

import pytest

from repair.core.errors import ConfigError
from repair.core.progress import Silent
from repair.core.records import Failure
from repair.core.synthesis import Sample
from repair.evaluation.document import read_results
from repair.pipeline.bench import load_plan, run_bench
from repair.pipeline.bench_lines import bench_lines
from repair.pipeline.budgets import allowance, last_stage, reference_use
from repair.pipeline.questions import CELL_TASK, SELECTED_TASK
from repair.reports.bench_tables import bench_tables
from repair.reports.benches import Bench
from repair.reports.results_page import results_page
from repair.store.files import read_json
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.pipeline.tiny import config
from tests.pipeline.tiny import run as run_tiny

NOTE = ("bench: the file's fractions are left out, since match=steps has no budget to share",)
BENCH = """
[data]
options = { n_train = 60, n_val = 15, n_test = 20 }
[mining]
max_failures = 12
[training]
n_steps = 2
batch_pairs = 8
grids_per_step = 2
[evaluation]
n_bootstrap = 100
[bench]
seeds = [0]
references = ["RePair"]
match = "samples"
fractions = [0.5, 1.0]
lr_grid = [1e-4, 1e-3]
suites = ['world(n=2, source={"n_test": 12})']
[bench.variants]
RePair = []
Vanilla = ["method.name=vanilla"]
LaCLIP = ["method.name=laclip"]
"""


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def overrides(folder: Path) -> list[str]:
    return [f"run.folder={folder}", f"run.cache={folder}/cache"]


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, told: Told) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("bench")
    path = folder / "tiny.toml"
    path.write_text(BENCH)
    return folder, run_bench(path, overrides(folder), progress=told)


def test_what_is_said_on_the_way(finished: tuple[Path, dict], told: Told) -> None:
    folder, _ = finished
    lines = [line for line in told.lines if line.startswith("bench: ")]
    assert lines[0] == "bench: RePair, seed 0 (for the budget)"
    assert lines[1] == "bench: RePair, lr 0.0001, seed 0, for choosing on val"
    place = folder / "tiny"
    assert lines[-1] == f"bench: wrote {place}/bench.json; `repair tables {place}` prints the paper's tables from it"


def test_no_variant_uses_more_samples_than_the_reference(finished: tuple[Path, dict]) -> None:
    _, table = finished
    use = table["equal"]["budgets"][0]
    assert use > 2
    for variant, share in (("LaCLIP", 1.0), ("LaCLIP 50%", 0.5)):
        (run,) = table["runs"][variant]
        used = [s for s in read_table(Path(run) / "round-0" / "samples.parquet", Sample) if s.rejected is None]
        assert len(used) == int(use * share)
    assert [row["variant"] for row in table["rows"]][:3] == ["base", "RePair", "RePair 50%"]


def test_rates_are_chosen_on_val_and_each_run_has_its_own_folder(finished: tuple[Path, dict]) -> None:
    _, table = finished
    for variant, scores in table["equal"]["val"].items():
        best = max(scores.values())
        assert scores[f"{table['equal']['lr'][variant]:g}"] == best
    paths = [path for found in table["runs"].values() for path in found]
    assert len(set(paths)) == len(paths)
    assert "learning rates, chosen on val" in "\n".join(bench_lines(table))


def test_tables_are_made_from_the_folders_alone(finished: tuple[Path, dict]) -> None:
    folder, table = finished
    bench = Bench.open(folder / "tiny")
    found = {t.name: t for t in bench_tables(bench)}
    tables = {"Tables 1, 7, 8", "Table 3", "Table 9", "Tables 10, 11", "Table 12", "Table 16", "Table 17", "Table 18"}
    assert tables | {"Claims", "Comparisons", "Figures 7, 8", "Figure 9"} == set(found)
    results = found["Tables 1, 7, 8"]
    by_method = {row[0]: row for row in results.rows}
    assert list(by_method) == ["base", "RePair", "Vanilla", "LaCLIP"]  # in the order of the bench
    assert by_method["LaCLIP"][1:3] == ("T⁺", str(table["equal"]["budgets"][0]))
    assert by_method["LaCLIP"][-1] == "60.96 / 44.99"
    assert by_method["Vanilla"][1:3] == ("–", "0")
    page = results_page([bench], command=["repair", "tables", "x"])
    assert page.count("\n## ") == len(found)
    assert "repair bench tiny.toml --set " in page
    assert str(folder) not in page
    assert json.loads((folder / "tiny" / "bench.json").read_text())["runs"] == table["runs"]
    rows = {row[0]: row for row in found["Tables 10, 11"].rows}
    assert rows["LaCLIP"][4] == "1.00"
    assert rows["Vanilla"][2] == "0"


def test_every_run_and_the_base_are_judged_on_the_suites(finished: tuple[Path, dict]) -> None:
    folder, table = finished
    (suite,) = table["suites"]
    assert suite["suite"] == "world"
    assert list(suite["seeds"]) == ["base", *table["runs"]]
    assert all(list(scores) == suite["scores"] for scores in suite["seeds"].values())
    for variant, (run,) in table["runs"].items():
        document, _ = read_results(folder / "tiny" / "suites" / Path(run).name)
        (found,) = document.suites
        group, metric = found.headline.split(" / ")
        assert suite["seeds"][variant][found.headline] == [found.score(group, metric).value]


def test_again_it_is_the_same_table_and_another_command_line_keeps_it(finished: tuple[Path, dict]) -> None:
    folder, table = finished
    place, before = folder / "tiny", (folder / "tiny" / "bench.json").read_text()
    told = Told()
    run_bench(folder / "tiny.toml", overrides(folder), progress=told)
    assert (place / "bench.json").read_text() == before
    assert all("kept from before" in line for line in told.lines if not line.startswith("bench: "))
    run_bench(folder / "tiny.toml", overrides(folder), progress=told, only=["LaCLIP"])
    assert (place / "bench-1.json").read_text() == before
    assert list(read_json(place / "bench.json")["runs"]) == ["LaCLIP", "LaCLIP 50%", "RePair", "RePair 50%"]
    (place / "bench-1.json").rename(place / "bench.json")
    assert table["runs"] == read_json(place / "bench.json")["runs"]


def test_the_reference_at_its_whole_budget_is_repair_itself(finished: tuple[Path, dict]) -> None:
    """Its run is the one that the budget was read from; at half the budget it is held."""
    _, table = finished
    (whole,), (half,) = table["runs"]["RePair"], table["runs"]["RePair 50%"]
    lr = table["equal"]["lr"]["RePair"]
    assert Path(whole).name == f"repair-lr-{lr:g}-seed-0"
    assert read_json(Path(whole) / "run.json")["settings"]["grids.max_samples"] is None
    assert Path(half).name == f"repair-lr-{lr:g}-samples-50-seed-0"
    assert read_json(Path(half) / "run.json")["settings"]["grids.max_samples"] == table["equal"]["budgets"][0] // 2
    (vanilla,) = table["runs"]["Vanilla"]  # it has no samples: the same run at any budget
    assert Path(vanilla).name == f"vanilla-lr-{table['equal']['lr']['Vanilla']:g}-seed-0"


@pytest.mark.parametrize("plan, cells", [("staged", True), ("fused", False)])
def test_calls_are_those_that_the_run_asked(tmp_path: Path, plan: str, cells: bool) -> None:
    """With the checks of selected edits and of cells, and whatever others asked on a shared ledger."""
    checked = (f"run.calls={tmp_path}/calls", f"calls.plan={plan}", "selection.verify_candidates=true")
    checked += (f"grids.verify_cells={str(cells).lower()}",)
    settings = config(tmp_path, *checked, "run.name=a")
    run_tiny(tmp_path, *checked, "run.name=a", until=last_stage(settings, "calls"))
    use = reference_use(settings, "calls")
    with Ledger.view(tmp_path / "calls" / "ledger.sqlite") as ledger:
        calls = {logged.attempt.call.key: logged.attempt.call.task for logged in ledger.attempts()}
    assert use.n == len(calls)
    assert SELECTED_TASK in calls.values()
    assert use.n_cells == sum(task == CELL_TASK for task in calls.values())
    assert (use.n_cells > 0) == cells
    summary = read_json(settings.run_path() / "round-0" / "grids.json")["summary"] if cells else {}
    assert summary.get("cells_verified", 0) == use.n_cells  # not those of the grids as they were drawn anew
    run_tiny(tmp_path, *checked, "run.name=b", "editing.n_candidates=5", "mining.max_failures=15", until="select")
    assert reference_use(settings, "calls") == use


@pytest.mark.parametrize("plan", ["staged", "fused"])
def test_a_share_of_the_calls_binds_where_mining_is_below_its_cap(tmp_path: Path, plan: str) -> None:
    """And is met as closely as failures allow. With five captions an image, one direction has fewer failures."""
    small = (f"run.calls={tmp_path}/calls", f"calls.plan={plan}", "selection.verify_candidates=true", "mining.top_k=1")
    small += ("data.options={n_train=8, n_val=6, n_test=6}", "mining.max_failures=5000")
    whole = config(tmp_path, *small, "run.name=whole")
    run_tiny(tmp_path, *small, "run.name=whole", until="select")
    use = reference_use(whole, "calls")
    n_mined = Counter(one.direction for one in read_table(whole.run_path() / "round-0" / "failures.parquet", Failure))
    (held,) = allowance(whole, "calls", use, 0.5)
    m = int(held.removeprefix("mining.max_failures="))
    assert min(n_mined.values()) < m < max(n_mined.values()) < 5000
    run_tiny(tmp_path, *small, held, "run.name=half", until="select")
    used = reference_use(config(tmp_path, *small, held, "run.name=half"), "calls")
    assert used.within == use.within[:m]
    assert used.n <= use.n / 2 < use.within[m]


def test_a_share_below_the_checks_of_cells_is_refused_before_more_runs(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(BENCH.replace("fractions = [0.5, 1.0]", "fractions = [0.02, 1.0]"))
    with pytest.raises(ConfigError, match=r"bench\.fractions: 0\.02 of .* calls are not enough for the .* checks"):
        run_bench(
            path, [*overrides(tmp_path), "bench.suites=[]", "grids.verify_cells=true"], progress=Told(), match="calls"
        )
    (run,) = tmp_path.glob("tiny/*-seed-0/run.json")
    assert (run.parent / "round-0" / "grids.json").exists()
    assert not (run.parent / "round-0" / "train.json").exists()


def test_every_shipped_bench_file_is_good() -> None:
    for path in sorted(Path("configs").glob("bench-*.toml")):
        plan = load_plan(path)
        assert len(plan.variants) > 2
    for match in ("samples", "calls", "steps"):  # as configs/bench-methods.toml offers
        assert load_plan(Path("configs/bench-methods.toml"), match=match).notes == (NOTE if match == "steps" else ())
