"""The door of a bench: where its runs and calls are looked for, and what is refused, each in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repair.core.errors import DataError, RepairError
from repair.reports.bench_tables import bench_tables
from repair.reports.benches import Bench, count, percent
from tests.reports.asking import asked_bench
from tests.reports.benches import bench

SCORES = {"RePair": [0.5, 0.6], "RePair 50%": [0.5, 0.5]}


def calls_of(folder: Path) -> tuple[str, ...]:
    (table,) = [table for table in bench_tables(Bench.open(folder)) if table.name == "Tables 10, 11"]
    return table.rows[0]


def test_a_moved_bench_has_its_own_runs_and_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another working directory, with the original gone, and beside an original whose calls are gone."""
    monkeypatch.chdir(tmp_path)
    asked_bench(Path("runs/one"))  # paths in its configs are relative
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    assert calls_of(tmp_path / "runs/one")[2] == "2"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "runs/one", copy)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree("runs/one/calls-seed-0")
    opened = Bench.open(copy)
    assert all(run.parent == copy for runs in opened.runs.values() for run in runs)
    assert calls_of(copy)[2] == "2"
    with pytest.raises(DataError, match=r"RePair-0: there is no ledger\.sqlite in .*calls-seed-0; put"):
        calls_of(tmp_path / "runs/one")


def test_a_ledger_of_other_runs_is_refused(tmp_path: Path) -> None:
    folder = asked_bench(tmp_path / "one")
    other = asked_bench(tmp_path / "two", seed=7)
    shutil.copy(other / "calls-seed-0/ledger.sqlite", folder / "calls-seed-0/ledger.sqlite")
    with pytest.raises(DataError, match=r"calls-seed-0/ledger\.sqlite does not hold its calls"):
        calls_of(folder)


def test_runs_that_are_not_beside_it_are_where_it_says(tmp_path: Path) -> None:
    folder = bench(tmp_path / "one", SCORES, {})
    (tmp_path / "alone").mkdir()
    shutil.copy(folder / "bench.json", tmp_path / "alone/bench.json")
    assert Bench.open(tmp_path / "alone").runs["RePair"][0].parent == folder
    shutil.rmtree(folder / "RePair-1")
    with pytest.raises(DataError, match=r"its run RePair-1 is neither at .*alone/RePair-1 nor at .*one/RePair-1"):
        Bench.open(tmp_path / "alone")


def test_a_file_of_a_bench_will_do(tmp_path: Path) -> None:
    folder = bench(tmp_path / "one", SCORES, {})
    assert Bench.open(folder / "bench.json").name == "one"
    (folder / "bench.json").rename(folder / "bench-1.json")
    assert Bench.open(folder / "bench-1.json").folder == folder
    for given in (folder, folder / "bench.json", folder / "RePair-0/config.toml", tmp_path / "none"):
        with pytest.raises(DataError, match="there is no such file"):
            Bench.open(given)


def without(*names: str) -> Callable[[Any], Any]:
    return lambda facts: {name: value for name, value in facts.items() if name not in names}


def having(**parts: Any) -> Callable[[Any], Any]:
    return lambda facts: {**facts, **parts}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda facts: {}, "bench: field required"),
        (lambda facts: [], "holds no bench but a JSON list"),
        (lambda facts: None, "holds no bench but a JSON NoneType"),
        *((without(name), f"{name}: field required") for name in ("bench", "seeds", "split", "rows", "runs")),
        (having(seeds=5), "seeds: input should be a valid list"),
        (having(seeds=[]), "seeds: list should have at least 1 item"),
        (having(seeds=[0]), "runs.RePair: 2 runs for 1 seeds"),
        *((having(suites=value), "suites: input should be a valid list") for value in (None, 5, "x")),
        (having(suites=[{}]), "suites.0.suite: field required"),
        (having(command=[1, 2]), "command.0: input should be a valid string"),
        (having(command=5), "command: input should be a valid list"),
        (having(bench="../x"), "bench: string should match"),
        (having(runs={}), "runs: dictionary should have at least 1 item"),
        (having(runs={"RePair": [], "RePair 50%": []}), "runs.RePair: list should have at least 1 item"),
        (lambda facts: {**facts, "rows": facts["rows"][:1]}, 'rows: none of "RePair", which has runs'),
        (lambda facts: {**facts, "runs": {"RePair": facts["runs"]["RePair"]}}, 'runs: none of "RePair 50%"'),
        (lambda facts: {**facts, "rows": [without("mean")(row) for row in facts["rows"]]}, "rows.0.mean: field req"),
        (lambda facts: {**facts, "rows": [{**row, "mean": {}} for row in facts["rows"]]}, "base has no mean R@1"),
        (having(equal={"match": "x", "budget_of": "RePair"}), "equal.match: input should be"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, change: Callable[[Any], Any], says: str) -> None:
    path = bench(tmp_path / "one", SCORES, {}) / "bench.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError) as caught:
        Bench.open(path.parent)
    line = str(caught.value)
    assert says in line
    assert line.startswith(f"{path}: ")
    assert line.endswith("run `repair bench` again, which keeps the runs that are done")
    assert "\n" not in line


def test_the_command_that_mends_is_the_benchs_own(tmp_path: Path) -> None:
    path = bench(tmp_path / "one", SCORES, {}, command=["repair", "bench", "a.toml"], suites=5) / "bench.json"
    with pytest.raises(DataError, match=r"run `repair bench a\.toml` again"):
        Bench.open(path)
    path.write_text('{"bench": ')
    with pytest.raises(DataError, match="cannot be read as JSON"):
        Bench.open(path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            lambda run: (run / "round-0/select.json").unlink(),
            r"select\.json: missing or damaged, so stage select of ro",
        ),
        (lambda run: (run / "round-0/select.json").write_text('{"round": 0, '), r"select\.json: missing or damaged"),
        (lambda run: shutil.rmtree(run / "round-0"), r"round-0/mine\.json: missing or damaged"),
        (lambda run: (run / "round-0/repairs.parquet").unlink(), r"repairs\.parquet: missing, and stage select left"),
        (lambda run: (run / "evaluation/eval.json").unlink(), r"eval\.json: missing .* the evaluation of the base"),
        (lambda run: (run / "run.json").unlink(), "its run RePair-1 is neither"),
        (lambda run: (run / "config.toml").write_text("x"), "config.toml"),
    ],
)
def test_a_damaged_run_is_one_line(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    folder = bench(tmp_path / "one", SCORES, {})
    damage(folder / "RePair-1")
    with pytest.raises(RepairError, match=says) as caught:
        Bench.open(folder)
    assert "\n" not in str(caught.value)


def test_cells() -> None:
    assert [count(value) for value in (0.5, 1.5, 2.5, 1234.4)] == ["1", "2", "3", "1,234"]
    assert (percent(0.25), percent(None)) == ("25.0 %", "–")
