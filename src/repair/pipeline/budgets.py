"""Equal budgets in a bench: how many samples or calls the reference used, and what that allows each variant."""

from collections.abc import Mapping
from typing import Literal, get_args

from repair.config import Config
from repair.core.errors import ConfigError, suggest
from repair.core.progress import Progress
from repair.core.records import Candidate, Failure, Instruction, Repair, RepairStatus
from repair.methods.method import Method
from repair.pipeline.registries import METHODS
from repair.store.tables import read_table

Match = Literal["samples", "calls", "steps"]
_LAST_STAGE = "select"  # of the reference, to know what it uses


def checked_match(name: object, *, where: str) -> Match:
    """Raises ConfigError for another name."""
    if name not in get_args(Match):
        raise ConfigError(f"{where}: match={name!r}: {suggest(str(name), get_args(Match))}")
    return name  # type: ignore[return-value]


def reference_use(config: Config, match: Match, *, progress: Progress) -> int:
    """Samples the reference trains on, or calls it asks for, in its first round; run up to `select` if need be.

    A sample is a repaired failure. Calls are requests, also those that the ledger answers. Under `steps` only the
    encoded items of a step are equal, which they always are: 0.
    """
    if match == "steps":
        return 0
    from repair.pipeline.run import run_pipeline

    run_pipeline(config, until=_LAST_STAGE, reuse=False, progress=progress)
    folder = config.run_path() / "round-0"
    repairs = read_table(folder / "repairs.parquet", Repair)
    if match == "samples":
        return sum(repair.status is RepairStatus.REPAIRED for repair in repairs)
    n_failures = len(read_table(folder / "failures.parquet", Failure))
    n_instructions = len(read_table(folder / "instructions.parquet", Instruction))
    candidates = read_table(folder / "candidates.parquet", Candidate)
    if config.calls.plan == "fused":  # one call answers verdict, instruction and caption edits
        return n_failures + sum(candidate.text is None for candidate in candidates)
    return n_failures * config.verification.enabled + n_instructions + len(candidates)


def allowance(config: Config, match: Match, use: int, fraction: float) -> list[str]:
    """The settings that hold a variant to a `fraction` of the reference's `use`.

    A method that needs no calls is not held back by a budget of calls. RePair itself is held by the failures it mines.
    """
    if match == "steps":
        return []
    n = max(int(use * fraction), 1)
    if config.method.name != "repair":
        return [f"method.max_{match}={n}"]
    if match == "samples":
        return [f"grids.max_samples={n}"]
    return [] if fraction == 1 else [f"mining.max_failures={max(int(config.mining.max_failures * fraction), 1)}"]


def has_samples(config: Config) -> bool:
    """Whether a smaller budget of samples would change anything. Raises ConfigError for an unknown method."""
    if config.method.name == "repair":
        return config.training.loss != "vanilla"
    method: Method = METHODS.build(config.method.name, options=config.method.options)
    return bool(method.builders or method.failures)


def best_rate(scores: Mapping[float, float]) -> float:
    """The learning rate with the best score on val; the smaller one of equals."""
    return min(scores, key=lambda rate: (-scores[rate], rate))
