"""`repair sweep`: one setting over several values, the best chosen on val; test is reported for the chosen one only.

The paper's learning rates for pretrained CLIP are the default. Runs share calls and caches, so only training is paid
for again. Each is a run folder of its own and resumes like any other.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.config import Config, load_config, toml_literal
from repair.core.errors import ConfigError
from repair.core.progress import Progress
from repair.core.records import Direction
from repair.pipeline.places import config_at
from repair.store.files import read_json, write_json

PAPER_RATES = "training.lr=1e-5,5e-6,2e-6,1e-6"


def run_sweep(path: Path, overrides: Sequence[str], values: str, *, progress: Progress) -> dict[str, Any]:
    """Run what is not finished, then choose. Also written to `sweep.json` in the sweep's folder.

    `values`: "section.key=value,value,…". Raises ConfigError if it is not of that form or a value is refused.
    """
    from repair.pipeline.run import run_pipeline

    name, choices = parse_values(values)
    folder, configs = plan(path, overrides, name, choices)
    rows: list[dict[str, Any]] = []
    for choice, config in configs.items():
        progress.say(f"sweep: {name}={choice}")
        run_pipeline(config, until=None, reuse=False, progress=progress)
        rows.append(
            {"value": choice, "run": str(config.run_path()), "val": mean_recall_of(config, config.data.val_split)}
        )
    best = max(rows, key=lambda row: row["val"])  # the first of equals
    chosen = configs[best["value"]]
    table = {
        "sweep": name,
        "val_split": chosen.data.val_split,
        "rows": rows,
        "chosen": best["value"],
        "test_split": chosen.data.test_split,
        "test": mean_recall_of(chosen, chosen.data.test_split),
    }
    write_json(folder / "sweep.json", table)
    return table


def parse_values(text: str) -> tuple[str, list[str]]:
    """Name and values of "section.key=value,value,…"."""
    name, equals, rest = text.partition("=")
    choices = [value.strip() for value in rest.split(",") if value.strip()]
    if not equals or "." not in name or len(choices) < 2 or len(set(choices)) < len(choices):
        raise ConfigError(
            f'--values "{text}": write section.key=value,value,… with two values or more, e.g. {PAPER_RATES}'
        )
    if name.strip().startswith("run."):
        raise ConfigError(f'--values "{text}": each value has a run of its own, so settings of [run] cannot be swept')
    return name.strip(), choices


def plan(path: Path, overrides: Sequence[str], name: str, choices: Sequence[str]) -> tuple[Path, dict[str, Config]]:
    """The sweep's folder, and a config for each value."""
    root = config_at(path, overrides=overrides)
    folder = Path(root.run.folder) / f"{root.run.name}-sweep"
    configs = {}
    for choice in choices:
        slug = "".join(c if c.isalnum() else "-" for c in f"{name.split('.')[-1]}-{choice}")
        places = [
            f"run.folder={toml_literal(str(folder))}",
            f"run.name={slug}",
            f"run.calls={toml_literal(str(folder / 'calls'))}",
            f"run.cache={toml_literal(str(root.cache_path()))}",
        ]
        configs[choice] = load_config(path, overrides=[*overrides, f"{name}={choice}", *places])
    return folder, configs


def mean_recall_of(config: Config, split: str) -> float:
    """R@1 after the last round, mean of both directions."""
    path = config.run_path() / "evaluation" / f"round-{config.pipeline.rounds - 1}.json"
    facts = read_json(path)["splits"][split]
    found = []
    for direction in Direction:
        value = facts[str(direction)]["metrics"]["R@1"]
        found.append(value["value"] if isinstance(value, Mapping) else value)
    return float(sum(found) / len(found))


def sweep_lines(table: Mapping[str, Any]) -> list[str]:
    lines = [f"| {table['sweep']} | mean R@1 on {table['val_split']} | |", "|---|---|---|"]
    for row in table["rows"]:
        lines.append(
            f"| {row['value']} | {100 * row['val']:.2f} | {'chosen' if row['value'] == table['chosen'] else ''} |"
        )
    return [*lines, "", f"chosen {table['chosen']}: mean R@1 on {table['test_split']} {100 * table['test']:.2f}"]
