"""Benches written by hand: a bench.json whose numbers are known, and run folders whose stages left empty tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repair.config import load_config
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Grid,
    Instruction,
    Link,
    Repair,
    ScoredCandidate,
    Verdict,
)
from repair.core.synthesis import Sample
from repair.reports.view import RunView
from repair.store.files import write_json
from repair.store.run_folder import RunFolder
from repair.store.tables import write_table

TABLES: dict[str, list[tuple[str, type[Any]]]] = {
    "mine": [("failures", Failure)],
    "verify": [("verdicts", Verdict)],
    "instruct": [("instructions", Instruction)],
    "edit": [("candidates", Candidate)],
    "select": [("scored", ScoredCandidate), ("repairs", Repair)],
    "link": [("links", Link)],
    "grids": [("grids", Grid)],
    "samples": [("samples", Sample)],
}


def run(folder: Path, name: str, *settings: str, rounds: Sequence[float] = ()) -> Path:
    """A run whose stages have all finished and left nothing; for each of `rounds`, its R@1 both ways on test."""
    overrides = [f"run.folder={folder}", f"run.name={name}", f"pipeline.rounds={max(len(rounds), 1)}", *settings]
    config = load_config(None, overrides=overrides, environment={})
    made = RunFolder.open(
        config.run_path(),
        config_toml=config.to_toml(),
        fingerprint=config.fingerprint(),
        settings=config.flat(),
        versions={"repair-clip": "0"},
    )
    made.close()
    with RunView.open(config.run_path()) as view:
        steps = view.steps
    for step in steps:
        finish(config.run_path(), step.stage, round=step.round)
    for number, value in enumerate(rounds):
        sides = {str(direction): {"metrics": {"R@1": {"value": value}}} for direction in Direction}
        write_json(config.run_path() / "evaluation" / f"round-{number}.json", {"splits": {"test": sides}})
    return config.run_path()


def finish(run: Path, stage: str, records: Sequence[Any] = (), *, round: int | None = 0, **summary: Any) -> None:
    """Write a stage's state, and its tables: `records` in the one of their type."""
    place = run / ("evaluation" if round is None else f"round-{round}")
    tables = dict(TABLES.get(stage, ()))
    for name, record_type in tables.items():
        write_table(place / f"{name}.parquet", [one for one in records if type(one) is record_type], record_type)
    outputs = {f"{place.name}/{name}.parquet": "b2:0" for name in tables}
    state = {"round": round, "stage": stage, "key": "k", "outputs": outputs, "summary": summary}
    write_json(place / f"{stage}.json", state)


def row(variant: str, values: Sequence[float]) -> dict[str, Any]:
    """Of bench.json: R@1 of the seeds, the same both ways."""
    seeds = {name: list(values) for name in ("i2t R@1", "t2i R@1", "mean R@1")}
    mean = {name: float(np.mean(values)) for name in seeds}
    return {"variant": variant, "mean": mean, "seeds": seeds, "differences": {}, "paper": None}


def bench(
    folder: Path,
    scores: Mapping[str, Sequence[float]],
    settings: Mapping[str, Sequence[str]],
    *,
    rounds: Mapping[str, Sequence[Sequence[float]]] | None = None,
    **more: Any,
) -> Path:
    """bench.json of `scores` by variant and seed; runs with `settings`, by the variant's name without its share;
    `rounds`: of some variants, R@1 by seed and round."""
    n_seeds = len(next(iter(scores.values())))
    runs = {}
    for variant in scores:
        whole = variant if not variant.endswith("%") else variant.rsplit(" ", 1)[0]
        slug = "".join(c if c.isalnum() else "-" for c in variant)
        by_round = (rounds or {}).get(variant, [()] * n_seeds)
        runs[variant] = [
            str(run(folder, f"{slug}-{seed}", *settings.get(whole, ()), rounds=by_round[seed]))
            for seed in range(n_seeds)
        ]
    facts = {
        "bench": folder.name,
        "split": "test",
        "seeds": list(range(n_seeds)),
        "references": ["RePair"],
        "rows": [row("base", [0.1] * n_seeds), *(row(name, values) for name, values in scores.items())],
        "runs": runs,
        **more,
    }
    write_json(folder / "bench.json", facts)
    return folder
