"""The stages in their order: what each reads, what it writes, and which settings can change that.

A stage's key is the content hash of everything its outputs depend on: the settings it reads, the files it reads, and
the fingerprints of data, encoder and backends. A finished stage with the current key is kept; any other runs again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.identity import hash_value

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """`inputs` are stages of the same round whose outputs it reads; `settings` are sections or "section.key".

    `version`: raise it when the stage computes something else from the same inputs.
    """

    name: str
    run: "Callable[[Any, Any], Work]"  # (workbench, round)
    settings: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()  # stages of all earlier rounds whose outputs it reads too
    base: tuple[str, ...] = ()  # run-level stages whose outputs it reads
    version: int = 1


@dataclass(frozen=True, slots=True)
class Work:
    """What a stage left: files below the run folder, and what it did and dropped, in numbers."""

    outputs: tuple[Path, ...]
    summary: Summary = field(default_factory=dict)


def stage_key(
    stage: Stage, config: Config, *, round: int | None, inputs: Mapping[str, str], facts: Mapping[str, Any]
) -> str:
    """`inputs`: path → content hash of the files read; `facts`: fingerprints of what the files do not show."""
    return hash_value(
        {
            "version": stage.version,
            "stage": stage.name,
            "round": round,
            "seed": config.run.seed,
            "settings": read_settings(stage, config),
            "inputs": dict(inputs),
            "facts": dict(facts),
        }
    )


def read_settings(stage: Stage, config: Config) -> dict[str, Any]:
    """The settings that the stage declares to read, without those that only say how to run."""
    return {
        name: value
        for name, value in config.identity().items()
        if name in stage.settings or name.split(".")[0] in stage.settings
    }
