"""A run of a few seconds on a very small world, from the shipped base checkpoint."""

from pathlib import Path
from typing import Any

from repair.config import Config, load_config
from repair.core.progress import Silent
from repair.pipeline.run import run_pipeline

SETTINGS = (
    "data.options={n_train=60, n_val=15, n_test=20}",
    "mining.max_failures=12",
    "training.n_steps=4",
    "training.batch_pairs=8",
    "training.grids_per_step=2",
    "training.checkpoint_every=2",
    "training.lr=1e-4",
    "evaluation.n_bootstrap=100",
)
TABLES = ("failures", "verdicts", "instructions", "candidates", "scored", "repairs", "links", "grids")


def overrides(folder: Path, *more: str) -> list[str]:
    return [*SETTINGS, f"run.folder={folder}", f"run.cache={folder}/cache", *more]


def config(folder: Path, *more: str) -> Config:
    return load_config(None, overrides=overrides(folder, *more), environment={})


def run(folder: Path, *more: str, until: str | None = None, reuse: bool = False) -> dict[str, Any]:
    return run_pipeline(config(folder, *more), until=until, reuse=reuse, progress=Silent())


def table_bytes(run_folder: Path, round: int = 0) -> dict[str, bytes]:
    """Everything of a round that must not depend on how it was run."""
    place = run_folder / f"round-{round}"
    found = {name: (place / f"{name}.parquet").read_bytes() for name in TABLES}
    found["weights"] = (place / "weights" / "model.safetensors").read_bytes()
    for path in sorted((run_folder / "evaluation").glob("*-ranks.parquet")):
        found[path.name] = path.read_bytes()
    return found
