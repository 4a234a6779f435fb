"""A bench file as it is read: every fault is one line, before any run; what the command line changes."""

from pathlib import Path

import pytest

from repair.core.errors import ConfigError, RunMismatch
from repair.core.progress import Silent
from repair.pipeline.bench import _keep_other, _require_choices, _run, load_plan, run_bench
from repair.pipeline.bench_file import read_bench
from repair.store.files import read_json, write_json
from tests.pipeline.tiny import config, run

BENCH = """
[data]
options = { n_train = 60, n_val = 15, n_test = 20 }
[bench]
seeds = [0, 2]
references = ["RePair"]
match = "samples"
fractions = { RePair = [0.5, 1.0] }
lr_grid = [1e-4, 1e-3]
tune_seeds = [0]
[bench.variants]
RePair = []
Vanilla = ["method.name=vanilla"]
NegCLIP = ["method.name=negclip"]
"""


class Told(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(BENCH)
    return path


def refused(path: Path, *settings: str, match: str | None = None, only: tuple[str, ...] = ()) -> str:
    """The one line that it is refused with, without the file's name."""
    with pytest.raises(ConfigError) as found:
        load_plan(path, settings, match=match, only=only)
    (line,) = str(found.value).splitlines()
    return line.removeprefix(f"{path}: ")


SEEDS = "must be a list of whole numbers from 0, each once, not"
SHARES = "a list of shares of the budget up to 1, 1.0 among them, no two of the same percent"
FRACTIONS = f"bench.fractions must be {SHARES}; or a table of such lists by variant, not"
RATES = "bench.lr_grid must be a list of numbers above 0, at most 1, each once, not"
REFERENCES = "bench.references must be a list of variants, each once, not"
VARIANTS = "bench.variants must be a table of two variants or more, each a list of settings, not"
OF_VARIANT = 'must be a list of settings, e.g. ["training.lr=1e-5"], not'
SETTINGS = 'bench.seed_settings must be a list of settings, each once, e.g. ["run.seed"], not'
PAPER = "must be a number or [i2t, t2i], in points, not"


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("bench.seds=[0]", 'unknown setting "bench.seds": did you mean "seeds"?'),
        ("bench.seeds=[]", f"bench.seeds {SEEDS} []"),
        ("bench.seeds=[0, true]", f"bench.seeds {SEEDS} [0, true]"),
        ("bench.seeds=[0, 0]", f"bench.seeds {SEEDS} [0, 0]"),
        ("bench.seeds=[-1]", f"bench.seeds {SEEDS} [-1]"),
        ("bench.seeds=3", f"bench.seeds {SEEDS} 3"),
        ("bench.tune_seeds=0", "bench.tune_seeds must be a list of some of bench.seeds, each once, not 0"),
        ("bench.tune_seeds=[]", "bench.tune_seeds must be a list of some of bench.seeds, each once, not []"),
        ("bench.tune_seeds=[0, 0]", "bench.tune_seeds must be a list of some of bench.seeds, each once, not [0, 0]"),
        ("bench.tune_seeds=[0.0]", "bench.tune_seeds must be a list of some of bench.seeds, each once, not [0.0]"),
        ("bench.tune_seeds=[7]", "bench.tune_seeds names 7, which is none of bench.seeds: [0, 2]"),
        ("bench.references=[]", f"{REFERENCES} []"),
        ("bench.references=5", f"{REFERENCES} 5"),
        ("bench.references=RePair", f'{REFERENCES} "RePair"'),
        ('bench.references=[["RePair"]]', f'{REFERENCES} [["RePair"]]'),
        ('bench.references=["RePair", "RePair"]', f'{REFERENCES} ["RePair", "RePair"]'),
        ('bench.references=["repair"]', 'bench.references names "repair": did you mean "RePair"?'),
        ("bench.budget_of=5", "bench.budget_of must be the name of a variant, not 5"),
        ('bench.budget_of=["RePair"]', 'bench.budget_of must be the name of a variant, not ["RePair"]'),
        ('bench.budget_of="NegCLP"', 'bench.budget_of names "NegCLP": did you mean "NegCLIP"?'),
        ('bench.budget_of="Vanilla"', "bench.budget_of must name a variant of method.name=repair"),
        ("bench.variants=5", f"{VARIANTS} 5"),
        ("bench.variants={A=[]}", f"{VARIANTS} {{ A = [] }}"),
        ("bench.variants={A=[], B=5}", f"bench.variants.B {OF_VARIANT} 5"),
        ("bench.variants={A=[], B=[5]}", f"bench.variants.B {OF_VARIANT} [5]"),
        ("bench.variants={A=[], B='x'}", f'bench.variants.B {OF_VARIANT} "x"'),
        ("bench.seed_settings=5", f"{SETTINGS} 5"),
        ("bench.seed_settings=[]", f"{SETTINGS} []"),
        ("bench.seed_settings=run.seed", f'{SETTINGS} "run.seed"'),
        ('bench.seed_settings=["run.sed"]', 'bench.seed_settings: --set: unknown setting "run.sed": did you mean'),
        ('bench.seed_settings=["run.n_workers"]', "bench.seed_settings: --set: run.n_workers: "),
        ('bench.seed_settings=["run.name"]', "bench.seed_settings: --set: run.name: "),
        ('bench.seed_settings=["calls.max_tokens"]', "RePair: its seeds would all be equal"),
        ("bench.paper=5", "bench.paper must be a table of differences by variant, not 5"),
        ("bench.paper=[1]", "bench.paper must be a table of differences by variant, not [1]"),
        ("bench.paper={NegCLIP=[1]}", f"bench.paper.NegCLIP {PAPER} [1]"),
        ("bench.paper={NegCLIP=nan}", f"bench.paper.NegCLIP {PAPER} nan"),
        ("bench.paper={NegCLIP=true}", f"bench.paper.NegCLIP {PAPER} true"),
        ('bench.paper={NegCLIP="-1"}', f'bench.paper.NegCLIP {PAPER} "-1"'),
        ("bench.paper={NegCLP=1.0}", 'bench.paper names "NegCLP": did you mean "NegCLIP"?'),
        ("bench.lr_grid=[true]", f"{RATES} [true]"),
        ("bench.lr_grid=[nan]", f"{RATES} [nan]"),
        ("bench.lr_grid=[2]", f"{RATES} [2]"),
        ("bench.lr_grid=[1e-4, 1e-4]", f"{RATES} [0.0001, 0.0001]"),
        ("bench.lr_grid=[1e-4, 1.000000001e-4]", RATES),  # one folder for both
        ("bench.lr_grid=1e-4", f"{RATES} 0.0001"),
        ("bench.fractions=[true]", f"{FRACTIONS} [true]"),
        ("bench.fractions=[]", f"{FRACTIONS} []"),
        ("bench.fractions=[0.5]", f"{FRACTIONS} [0.5]"),
        ("bench.fractions=[0.0, 1.0]", f"{FRACTIONS} [0.0, 1.0]"),
        ("bench.fractions=[0.001, 1.0]", f"{FRACTIONS} [0.001, 1.0]"),
        ("bench.fractions=[0.5, 0.5, 1.0]", f"{FRACTIONS} [0.5, 0.5, 1.0]"),
        ("bench.fractions=[0.5, 0.501, 1.0]", f"{FRACTIONS} [0.5, 0.501, 1.0]"),
        ("bench.fractions={NegCLIP=[0.5]}", f"bench.fractions.NegCLIP must be {SHARES}, not [0.5]"),
        ("bench.fractions={NegCLIP=0.5}", f"bench.fractions.NegCLIP must be {SHARES}, not 0.5"),
        ("bench.fractions={NegCLP=[1.0]}", 'bench.fractions names "NegCLP": did you mean "NegCLIP"?'),
        ('bench.match="tokens"', 'bench.match must be one of samples, calls, steps, not "tokens"'),
        ("bench.match=''", 'bench.match must be one of samples, calls, steps, not ""'),
        ('bench.split="tset"', 'RePair: bench.split must be a split that is evaluated, val or test'),
        ("bench.split=5", 'bench.split must be the name of a split, e.g. "test", not 5'),
        ('bench.suites=["wrld"]', 'bench.suites: unknown suite "wrld": did you mean "world"?'),
        ('bench.suites=["world(n=2"]', "bench.suites: cannot read suite"),
        ('bench.suites=["world", "world"]', "bench.suites must be a list of texts, each once"),
        ('bench.suites="world"', "bench.suites must be a list of texts, each once"),
        ("bench.suite_data=[1]", "bench.suite_data must be a text or a list of texts, not [1]"),
    ],
)  # fmt: skip
def test_wrong_settings_are_one_line(path: Path, setting: str, line: str) -> None:
    assert refused(path, setting).startswith(line)


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("A", "base"), 'the name "base" is the row of what every variant starts from'),
        (("A", "A 50%"), 'the name "A 50%" reads like a share of a budget'),
        (("A", "half, 50 %"), 'the name "half, 50 %" reads like a share of a budget'),
        (("A", "a|b"), 'the name "a|b" cannot stand in a table'),
        (("A", "a\\nb"), 'the name "a\\nb" cannot stand in a table'),
        (("A", " "), 'the name " " cannot stand in a table'),
        (("La+SC", "la sc"), 'the name "la sc" has the same folder as "La+SC"'),
        (("A", "calls"), 'the name "calls" has the folder of something else in a bench'),
        (("A", "A samples 100"), 'the name "A samples 100" has the folder of something else in a bench'),
    ],
)
def test_names_that_cannot_be_rows_or_folders(tmp_path: Path, names: tuple[str, ...], line: str) -> None:
    path = tmp_path / "names.toml"
    path.write_text("[bench.variants]\n" + "".join(f'"{name}" = []\n' for name in names))
    assert refused(path).startswith(f"bench.variants: {line}")


def test_each_fault_has_a_line(path: Path) -> None:
    with pytest.raises(ConfigError) as found:
        load_plan(path, ["bench.seeds=[true, true]", "bench.match=5", "bench.paper=5"])
    assert [line.split(" must ")[0] for line in str(found.value).splitlines()] == [
        f"{path}: bench.seeds",
        f"{path}: bench.match",
        f"{path}: bench.paper",
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ("method.name=negclp", 'B: unknown method "negclp": did you mean "negclip"?'),
        ("method.options.careful=true", 'B: unknown option "careful" of method "repair"'),
        ("encoder.name=smal", 'B: unknown encoder "smal"'),
        ("verification.options.rate=1", 'B: unknown option "rate" of verifier "world"'),
    ],
)
def test_choices_of_every_variant_are_checked_before_any_run(path: Path, changes: str, line: str) -> None:
    asked = [f"bench.variants={{RePair=[], B=['{changes}']}}", f"run.folder={path.parent}"]
    with pytest.raises(ConfigError) as found:
        run_bench(path, asked, progress=Silent())
    assert str(found.value).startswith(f"{path}: {line}")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ("training.lr", 'B: --set "training.lr": write --set section.key=value'),
        ("trainng.lr=1", 'B: --set: unknown section "trainng"'),
        ("training.lr=-1", "B: --set: training.lr: "),
        ("run.seed=3", "B: --set"),
    ],
)
def test_settings_of_a_variant(path: Path, changes: str, line: str) -> None:
    if changes == "run.seed=3":
        line = "B: its seeds would all be equal"
    assert refused(path, f"bench.variants={{RePair=[], B=['{changes}']}}").startswith(line)


@pytest.mark.parametrize(
    ("options", "said"),
    [("{'n_tst': 40}", 'unknown option "n_tst" of data source "world": did you mean "n_test"?'),
     ("{'n_test': '40'}", "n_test: input should be a valid integer, not '40'"),
     ("{'n_test': True}", "n_test: input should be a valid integer, not True")],
)  # fmt: skip
def test_options_of_a_suite_are_one_line_before_any_run(path: Path, options: str, said: str) -> None:
    asked = [f'bench.suites=["world(n=5, source={options})"]', f"run.folder={path.parent}"]
    with pytest.raises(ConfigError) as found:
        run_bench(path, asked, progress=Silent())
    assert str(found.value).startswith(f'{path}: bench.suites: option "source" of suite "world": {said}')
    assert len(str(found.value).splitlines()) == 1
    assert list(path.parent.iterdir()) == [path]


def test_steps_have_no_budget_to_share(path: Path) -> None:
    line = "bench.fractions are shares of a budget, and match=steps has none"
    assert refused(path, "bench.fractions=[0.5, 1.0]", match="steps").startswith(line)
    path.write_text(BENCH.replace('"samples"', '"steps"'))
    assert refused(path).startswith(line)
    path.write_text(BENCH.replace('match = "samples"', ""))
    assert refused(path).startswith(line)  # without a match it is steps


@pytest.mark.parametrize("asked", [{"match": "steps"}, {"overrides": ["bench.match=steps"]}])
def test_steps_on_the_command_line_leave_the_files_fractions_out(path: Path, asked: dict) -> None:
    found = read_bench(path, **asked)
    assert found.equal is not None
    assert set(found.equal.fractions.values()) == {(1.0,)}
    (note,) = found.notes
    assert "the file's fractions are left out" in note
    assert read_bench(path, match="calls").notes == ()


def test_match_on_the_command_line(path: Path) -> None:
    for match in ("", "tokens"):
        assert refused(path, match=match) == f'--match must be one of samples, calls, steps, not "{match}"'


def test_tuning_seeds_follow_seeds_of_the_command_line(path: Path) -> None:
    found = read_bench(path, ["bench.seeds=[1, 3]"])
    assert found.equal is not None
    assert found.equal.tune_seeds == (1,)
    (note,) = found.notes
    assert "chosen by seed 1, since seed 0 does not run" in note
    assert refused(path, "bench.seeds=[1]", "bench.tune_seeds=[0]").startswith("bench.tune_seeds names 0")
    path.write_text(BENCH.replace("tune_seeds = [0]", "tune_seeds = [0, 2]"))
    found = read_bench(path, ["bench.seeds=[1, 2]"])
    assert found.equal is not None
    assert found.equal.tune_seeds == (2,)


def test_some_variants_only_and_fractions_of_some(path: Path) -> None:
    plan = load_plan(path, ["bench.fractions={NegCLIP=[0.5, 1.0]}", "bench.paper={Vanilla=-1.0}"], only=["NegCLIP"])
    assert plan.variants == ("RePair", "NegCLIP")
    assert plan.equal is not None
    assert plan.equal.fractions["NegCLIP"] == (0.5, 1.0)
    assert plan.equal.fractions["RePair"] == (1.0,)
    assert refused(path, only=("negclip",)).startswith('--only names "negclip": did you mean "NegCLIP"?')


def test_the_table_of_another_command_line_is_kept(tmp_path: Path) -> None:
    def write(command: list[str]) -> list[str]:
        told = Told()
        _keep_other(tmp_path, command, progress=told)
        write_json(tmp_path / "bench.json", {"command": command})
        return told.lines

    assert write(["one"]) == []
    assert write(["one"]) == []
    assert write(["two"]) == [f"bench: the bench.json of another command line is kept as {tmp_path}/bench-1.json"]
    assert write(["one"]) == [f"bench: the bench.json of another command line is kept as {tmp_path}/bench-2.json"]
    found = {path.name: read_json(path)["command"] for path in tmp_path.iterdir()}
    assert found == {"bench.json": ["one"], "bench-1.json": ["one"], "bench-2.json": ["two"]}


def test_a_run_of_other_settings_says_what_can_be_done_in_a_bench(tmp_path: Path) -> None:
    run(tmp_path, "run.name=a", until="mine")
    with pytest.raises(RunMismatch) as found:
        _run(config(tmp_path, "run.name=a", "mining.top_k=2"), progress=Silent())
    line = f"copy the bench file under another name, or remove the run folder {tmp_path}/a"
    assert str(found.value).endswith(f"(mining.top_k 3 -> 2): {line}")


def test_choices_of_the_shipped_benches_are_there() -> None:
    for name in ("world", "methods"):
        path = Path(f"configs/bench-{name}.toml")
        _require_choices(path, load_plan(path), progress=Silent())
