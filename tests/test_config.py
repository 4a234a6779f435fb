import tomllib
from pathlib import Path

import pytest

from repair.config import LATER, OPERATIONAL, Config, load_config, settings
from repair.core.errors import ConfigError

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))


def load(*overrides: str, environment: dict[str, str] | None = None) -> Config:
    return load_config(None, overrides=overrides, environment=environment or {})


def test_set_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[training]\nlr = 1e-6\nn_steps = 7\nbatch_pairs = 9\n")
    environment = {"REPAIR_TRAINING__LR": "2e-6", "REPAIR_TRAINING__N_STEPS": "8"}
    config = load_config(file, overrides=["training.lr=3e-6"], environment=environment)
    training = config.training
    assert (training.lr, training.n_steps, training.batch_pairs, training.grids_per_step) == (3e-6, 8, 9, 32)
    assert config.run.name == "c"


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("training.lrr=1", ['unknown setting "training.lrr"', 'did you mean "training.lr"?']),
        ("trainig.lr=1", ['unknown section "trainig"', 'did you mean "training"?']),
        ("training.lr=abc", ["training.lr", "'abc'"]),
        ("training.lr=-1", ["training.lr", "greater than 0", "-1"]),
        ("mining.strategy=hard", ["mining.strategy", "'top_k', 'outranking' or 'random'", "'hard'"]),
        ("training.keep=best", ["training.keep=best needs training.eval_every > 0"]),
        ("data.train_split=test", ["data.train_split", "also evaluated on"]),
        ("nonsense", ["--set section.key=value"]),
        ("training.lr.more=1", ['"training.lr" has no parts']),
    ],
)
def test_a_wrong_setting_is_one_clear_line(override: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(override)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_the_message_names_where_the_value_was_set(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[training]\nlr = 'fast'\n")
    with pytest.raises(ConfigError, match=r"c\.toml: training\.lr"):
        load_config(file, environment={})
    with pytest.raises(ConfigError, match="environment REPAIR_TRAINING__LR"):
        load(environment={"REPAIR_TRAINING__LR": "fast"})


@pytest.mark.parametrize(
    ("content", "part"),
    [("x = [", "not TOML"), ("lr = 1\n", "stands outside a section"), ("[bench]\n", "repair bench")],
)
def test_a_file_that_is_no_config(tmp_path: Path, content: str, part: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=part):
        load_config(file, environment={})


def test_missing_file_names_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="repair init"):
        load_config(tmp_path / "none.toml", environment={})


def test_options_can_be_set_one_by_one() -> None:
    config = load("data.options.n_train=5", 'data.options.nested.name="a b"')
    assert config.data.options == {"n_train": 5, "nested": {"name": "a b"}}


def test_resolved_toml_loads_back_to_the_same_config(tmp_path: Path) -> None:
    config = load('data.options.path="a \\"b\\" \\\\ c"', "data.options.deep={x=[1,2], y=true}", "calls.max_usd=1.5")
    file = tmp_path / f"{config.run.name}.toml"
    file.write_text(config.to_toml())
    assert load_config(file, environment={}) == config


def test_fingerprint_leaves_out_how_a_run_is_run_and_nothing_else() -> None:
    base = load()
    assert set(base.flat()) >= OPERATIONAL
    for override in ("run.name=other", "run.n_workers=7", "calls.concurrency=3", "calls.max_usd=2", "report.n_grids=1"):
        assert load(override).fingerprint() == base.fingerprint()
    for override in ("run.seed=1", "training.lr=2e-5", "mining.top_k=4", "data.options.n_train=5"):
        assert load(override).fingerprint() != base.fingerprint()


# The paper's ablations, each exactly one setting away from the default (system.md, "Ablations").
ABLATIONS = {
    "w/o Failure": "mining.strategy=random",
    "w/o Repair": "grids.use_edits=false",
    "w/o QC": "verification.enabled=false",
    "w/o PQC": "selection.rule=first",
    "Full Matrix": "training.loss=full_matrix",
    "budget": "grids.max_samples=100",
    "rounds": "pipeline.rounds=2",
}


@pytest.mark.parametrize("override", ABLATIONS.values(), ids=ABLATIONS.keys())
def test_each_ablation_is_one_setting_away_from_the_default(override: str) -> None:
    before, after = load().flat(), load(override).flat()
    assert [name for name in before if before[name] != after[name]] == [override.split("=")[0]]


def test_every_setting_has_a_meaning() -> None:
    rows = list(settings())
    assert len(rows) > 50
    assert all(description.endswith((".", ")")) for _, _, _, description in rows)


def test_every_shipped_config_loads() -> None:
    assert len(CONFIGS) >= 3
    for path in CONFIGS:
        content = tomllib.loads(path.read_text())
        if "bench" in content:
            from repair.pipeline.bench import load_plan

            assert load_plan(path).configs
        else:
            load_config(path, environment={})


def test_settings_that_came_later_name_another_run_only_where_they_are_set() -> None:
    base = load()
    assert set(base.flat()) >= LATER
    assert not set(base.identity()) & LATER
    changed = load("training.ema_decay=0.99")
    assert set(changed.identity()) - set(base.identity()) == {"training.ema_decay"}
    assert changed.fingerprint() != base.fingerprint()
    assert load("training.ema_decay=0.0").fingerprint() == base.fingerprint()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.patience=2"], "training.patience needs training.eval_every > 0"),
        (["training.wise_ft_curve=[0.5, 1.5]"], "training.wise_ft_curve: mixes lie between 0 and 1"),
        (["training.wise_ft=best"], "training.wise_ft=best chooses from training.wise_ft_curve"),
        (["training.wise_ft=1.5"], "training.wise_ft: .*a number from 0 to 1, or best"),
        (["training.wise_ft=bst"], "training.wise_ft: .*a number from 0 to 1, or best"),
    ],
)
def test_training_options_that_clash(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*overrides)
