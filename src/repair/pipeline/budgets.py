"""Equal budgets in a bench: how many samples or calls the reference used, and what that allows each variant."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from repair.config import Config
from repair.core.records import Candidate, Direction, Failure, Instruction, Repair, RepairStatus, ScoredCandidate
from repair.methods.method import Method
from repair.pipeline.registries import METHODS
from repair.selection import Rejection
from repair.store.tables import read_table

Match = Literal["samples", "calls", "steps"]
LAST_STAGE = "select"  # of the reference, to know what it uses


def reference_use(config: Config, match: Match) -> int:
    """Samples the reference trains on, or calls it asks for, in all its rounds; it has run up to LAST_STAGE.

    A sample is a repaired failure. A call is a distinct request about a failure, also one that the ledger answers;
    calls are counted from the run's own tables, since a ledger that variants share holds what the others asked as well.
    Under `steps` only the encoded items of a step are equal, which they always are: 0.
    """
    if match == "steps":
        return 0
    folders = [config.run_path() / f"round-{round}" for round in range(config.pipeline.rounds)]
    if match == "samples":
        repairs = [repair for folder in folders for repair in read_table(folder / "repairs.parquet", Repair)]
        return len({repair.failure_id for repair in repairs if repair.status is RepairStatus.REPAIRED})
    return len({asked for folder in folders for asked in _asked(folder, config)})


def _asked(folder: Path, config: Config) -> Iterator[tuple[str, str, int | str | None]]:
    """Each request of a round: its task, its failure, and the number of the edit it makes or the content it checks.

    Under the fused plan one call answers verdict, instruction and caption edits.
    """
    fused = config.calls.plan == "fused"
    images = set()
    for failure in read_table(folder / "failures.parquet", Failure):
        if failure.direction is Direction.TEXT_TO_IMAGE:
            images.add(failure.failure_id)
        if fused or config.verification.enabled:
            yield "verify", failure.failure_id, 0
    if not fused:
        for told in read_table(folder / "instructions.parquet", Instruction):
            yield "instruct", told.failure_id, 0
    for candidate in read_table(folder / "candidates.parquet", Candidate):
        if candidate.failure_id in images or not fused:
            yield "edit", candidate.failure_id, candidate.index
    if config.selection.verify_candidates:  # asked about what it refused, and about what is selected
        for scored in read_table(folder / "scored.parquet", ScoredCandidate):
            if scored.rejected == Rejection.REFUSED:
                yield "check", scored.failure_id, scored.key
        for repair in read_table(folder / "repairs.parquet", Repair):
            if repair.candidate_index is not None:
                yield "check", repair.failure_id, repair.key


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
