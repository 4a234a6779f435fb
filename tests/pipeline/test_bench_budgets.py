"""A bench at equal budgets: budgets from the reference's use, learning rates from val, tables from the folders."""

import json
from pathlib import Path

import pytest

from repair.core.progress import Silent
from repair.core.synthesis import Sample
from repair.evaluation.document import read_results
from repair.pipeline.bench import load_plan, run_bench
from repair.pipeline.bench_lines import bench_lines
from repair.pipeline.budgets import allowance, best_rate, reference_use
from repair.pipeline.stages_repair import SELECTED_TASK
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


@pytest.mark.parametrize("plan", ["staged", "fused"])
def test_calls_are_those_that_the_run_asked(tmp_path: Path, plan: str) -> None:
    """With the check of selected edits, and whatever others asked on a shared ledger."""
    checked = (f"run.calls={tmp_path}/calls", f"calls.plan={plan}", "selection.verify_candidates=true")
    run_tiny(tmp_path, *checked, "run.name=a", until="select")
    settings = config(tmp_path, *checked, "run.name=a")
    use = reference_use(settings, "calls")
    with Ledger.view(tmp_path / "calls" / "ledger.sqlite") as ledger:
        calls = [logged.attempt.call for logged in ledger.attempts()]
    assert use == len({call.key for call in calls})
    assert any(call.task == SELECTED_TASK for call in calls)
    run_tiny(tmp_path, *checked, "run.name=b", "editing.n_candidates=5", "mining.max_failures=15", until="select")
    assert reference_use(settings, "calls") == use


def test_what_a_budget_allows() -> None:
    repair, other = config(Path("x")), config(Path("x"), "method.name=laclip")
    assert allowance(other, "samples", 100, 0.5) == ["method.max_samples=50"]
    assert allowance(other, "calls", 100, 1.0) == ["method.max_calls=100"]
    assert allowance(other, "steps", 100, 1.0) == []
    assert allowance(repair, "samples", 100, 0.2) == ["grids.max_samples=20"]
    assert allowance(repair, "calls", 100, 1.0) == []
    assert allowance(repair, "calls", 100, 0.5) == ["mining.max_failures=6"]
    assert best_rate({1e-4: 0.5, 1e-5: 0.5, 1e-3: 0.4}) == 1e-5


def test_every_shipped_bench_file_is_good() -> None:
    for path in sorted(Path("configs").glob("bench-*.toml")):
        plan = load_plan(path)
        assert len(plan.variants) > 2
    for match in ("samples", "calls", "steps"):  # as configs/bench-methods.toml offers
        assert load_plan(Path("configs/bench-methods.toml"), match=match).notes == (NOTE if match == "steps" else ())
