"""A bench at equal budgets: budgets from the reference's use, learning rates from val, tables from the folders."""

import json
from pathlib import Path

import pytest

from repair.core.errors import ConfigError
from repair.core.progress import Silent
from repair.core.synthesis import Sample
from repair.evaluation.document import read_results
from repair.pipeline.bench import load_plan, run_bench
from repair.pipeline.bench_lines import bench_lines
from repair.pipeline.budgets import allowance, best_rate
from repair.reports.bench_tables import bench_tables
from repair.reports.benches import Bench
from repair.reports.results_page import results_page
from repair.store.tables import read_table
from tests.pipeline.tiny import config

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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("bench")
    path = folder / "tiny.toml"
    path.write_text(BENCH)
    return folder, run_bench(path, [f"run.folder={folder}", f"run.cache={folder}/cache"], progress=Silent())


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
    assert list(by_method) == ["RePair", "Vanilla", "LaCLIP"]  # in the order of the bench
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


def test_what_a_budget_allows() -> None:
    repair, other = config(Path("x")), config(Path("x"), "method.name=laclip")
    assert allowance(other, "samples", 100, 0.5) == ["method.max_samples=50"]
    assert allowance(other, "calls", 100, 1.0) == ["method.max_calls=100"]
    assert allowance(other, "steps", 100, 1.0) == []
    assert allowance(repair, "samples", 100, 0.2) == ["grids.max_samples=20"]
    assert allowance(repair, "calls", 100, 1.0) == []
    assert allowance(repair, "calls", 100, 0.5) == ["mining.max_failures=6"]
    assert best_rate({1e-4: 0.5, 1e-5: 0.5, 1e-3: 0.4}) == 1e-5


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('bench.match="tokens"', "match='tokens'"),
        ("bench.fractions=[0.0]", "bench.fractions must be"),
        ("bench.fractions={LaCLP=[0.5]}", 'bench.fractions names "LaCLP"'),
        ("bench.lr_grid=[2]", "bench.lr_grid must be"),
        ("bench.tune_seeds=[7]", "bench.tune_seeds names 7"),
        ('bench.budget_of="LaCLP"', 'did you mean "LaCLIP"'),
        ("bench.paper={LaCLP=1.0}", 'did you mean "LaCLIP"'),
        ('bench.paper={LaCLIP="-1"}', "bench.paper.LaCLIP must be a number or"),
        ('bench.suites=["wrld"]', 'tiny.toml: bench.suites: unknown suite "wrld": did you mean "world"'),
        ('bench.suites=["world(n=2"]', "bench.suites: cannot read suite"),
        ('bench.suites=["world", "world"]', 'bench.suites names "world" twice'),
        ('bench.suites="world"', "bench.suites must be a list of texts"),
        ("bench.suite_data=[1]", "bench.suite_data must be a list of texts"),
    ],
)
def test_refused(tmp_path: Path, setting: str, message: str) -> None:
    (tmp_path / "tiny.toml").write_text(BENCH)
    with pytest.raises(ConfigError, match=message):
        load_plan(tmp_path / "tiny.toml", [setting])


def test_some_variants_only_and_fractions_of_some(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(BENCH + "FSC = ['method.name=fsc_clip']\n[bench.paper]\nLaCLIP = -1.0\n")
    plan = load_plan(tmp_path / "tiny.toml", ["bench.fractions={LaCLIP=[0.5]}"], only=["FSC"])
    assert plan.variants == ("RePair", "FSC")
    assert plan.equal is not None
    assert plan.equal.fractions["LaCLIP"] == (0.5,)
    assert plan.equal.fractions["RePair"] == (1.0,)
    with pytest.raises(ConfigError, match='--only names "FCS": did you mean "FSC"'):
        load_plan(tmp_path / "tiny.toml", only=["FCS"])


def test_every_shipped_bench_file_is_good() -> None:
    for path in sorted(Path("configs").glob("bench-*.toml")):
        plan = load_plan(path)
        assert len(plan.variants) > 2
