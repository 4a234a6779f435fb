"""Equal budgets in a bench: how many samples or calls the reference used, and what that allows each variant."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeVar

from repair.config import Config
from repair.core.errors import ConfigError
from repair.core.records import (
    Candidate,
    Failure,
    Instruction,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Verdict,
)
from repair.methods.method import Method
from repair.mining import budget_order
from repair.pipeline.questions import CELL_TASK, Question, RoundTables, questions
from repair.pipeline.registries import METHODS
from repair.store.tables import read_table

Match = Literal["samples", "calls", "steps"]
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Use:
    """What the reference used: `n` samples or calls, of which `n_cells` are checks of grid cells.

    `n_failures`, of samples only: the verified failures that its grids hold, those without an edit included.

    `within`, of calls only: at m - 1, how many are about the first m failures of each direction and round, in the order
    in which mining.max_failures = m keeps them. Never falls; its last is n - n_cells.
    """

    n: int
    n_cells: int = 0
    n_failures: int = 0
    within: Sequence[int] = ()


def last_stage(config: Config, match: Match) -> str:
    """Up to where the reference must have run for its use to be known."""
    return "grids" if match == "calls" and config.grids.verify_cells else "select"


def reference_use(config: Config, match: Match) -> Use:
    """Samples the reference trains on, or calls it asks for, in all its rounds; it has run up to `last_stage`.

    A sample is a repaired failure; failures without an edit also stand in grids, unless links.unrepaired_negatives is
    off, and are counted apart. A call is a distinct request about a failure or a cell of a grid, also one that the
    ledger answers; calls are counted from the run's own tables, since a ledger that variants share holds what the
    others asked as well. Under `steps` only the encoded items of a step are equal, which they always are: 0.

    Raises StoreError if a table is missing, or one is damaged.
    """
    if match == "steps":
        return Use(0)
    folders = [config.run_path() / f"round-{round}" for round in range(config.pipeline.rounds)]
    if match == "samples":
        repairs = [repair for folder in folders for repair in _table(folder, "repairs", Repair)]
        every = {repair.failure_id for repair in repairs}
        repaired = {repair.failure_id for repair in repairs if repair.status is RepairStatus.REPAIRED}
        return Use(len(repaired), n_failures=len(every if config.links.unrepaired_negatives else repaired))
    return _calls(folders, config)


def _calls(folders: Sequence[Path], config: Config) -> Use:
    first: dict[Question, int] = {}  # the least mining.max_failures that lets it be asked; 0 for checks of cells
    for folder in folders:
        tables = _tables(folder, config)
        places = _places(tables.failures, seed=config.run.seed)
        for question in questions(tables, config):
            place = 0 if question.task == CELL_TASK else places[question.failure_id]
            first[question] = min(place, first.get(question, place))
    n_at = Counter(first.values())
    within = tuple(accumulate(n_at[place] for place in range(1, max(n_at, default=0) + 1)))
    return Use(len(first), n_cells=n_at[0], within=within)


def _tables(folder: Path, config: Config) -> RoundTables:
    """Those of a round that has run up to `last_stage`."""
    return RoundTables(
        done={"instruct", "edit", "select"},
        failures=_table(folder, "failures", Failure),
        instructions=_table(folder, "instructions", Instruction),
        candidates=_table(folder, "candidates", Candidate),
        scored=_table(folder, "scored", ScoredCandidate),
        repairs=_table(folder, "repairs", Repair),
        cells=_table(folder, "cells", Verdict) if config.grids.verify_cells else [],
    )


def _table(folder: Path, name: str, record_type: type[Record]) -> list[Record]:
    return read_table(folder / f"{name}.parquet", record_type)


def _places(failures: Sequence[Failure], *, seed: int) -> dict[str, int]:
    """By failure id: the least mining.max_failures that keeps it."""
    ordered = sorted(failures, key=lambda failure: budget_order(failure.failure_id, seed=seed))
    n_before = Counter[str]()
    places = {}
    for failure in ordered:
        n_before[failure.direction] += 1
        places[failure.failure_id] = n_before[failure.direction]
    return places


def allowance(config: Config, match: Match, use: Use, fraction: float) -> list[str]:
    """The settings that hold a variant to a `fraction` of the reference's `use`.

    A method whose samples are the failures themselves (FP as HN) is allowed as many as the reference's grids hold, also
    those that were not repaired. A method that needs no calls is not held back by a budget of calls. RePair itself, and
    a method that trains on failures, is held to a share of calls by the failures it mines: in each direction and round,
    as many as the reference could have asked about within it. They are counted among those that the reference did
    mine, so the share binds however far it stayed below its cap.

    At the whole budget of calls a variant of RePair is held by nothing, and one that asks more about each failure (w/o
    QC) asks for more calls than the reference did: what it will ask depends on answers that only it will get.

    What is guaranteed is the share, not each call. A smaller mining.max_failures keeps a subset of what a larger one
    keeps, and what is asked about a failure does not depend on others; so the reference itself, in one round and
    without checks of cells, never asks for more than the share (but one failure a direction is always kept), and with
    one failure more in each direction it would. Elsewhere the share is met about, since what will be asked is not known
    before:

    - later rounds mine with other weights than the reference's did, and are taken to cost what they cost it;
    - checks of cells follow the number of grids, not of failures: as many as the reference made are set apart;
    - a variant of RePair that differs in more than its share asks other questions, or about other failures.

    Raises ConfigError if the checks of cells alone exceed the share: no number of failures would hold it.
    """
    if match == "steps":
        return []
    n = max(int(use.n * fraction), 1)
    method = _method(config)
    if method.failures and match == "samples":
        return [f"method.max_samples={max(int(use.n_failures * fraction), 1)}"]
    if not (method.is_repair or method.failures):
        return [f"method.max_{match}={n}"]
    if match == "samples":
        return [f"grids.max_samples={n}"]
    return [] if fraction == 1 else [f"mining.max_failures={_max_failures(config, use, n, fraction)}"]


def _max_failures(config: Config, use: Use, n: int, fraction: float) -> int:
    """The largest number of failures a direction and round whose calls are at most `n`, but 1 at least."""
    n_cells = use.n_cells if config.grids.verify_cells else 0
    if n_cells >= n:
        raise ConfigError(
            f"bench.fractions: {fraction:g} of {use.n:,} calls are not enough for the {n_cells:,} checks of grid cells "
            "alone, which fewer failures do not lessen: leave this share out, or set grids.verify_cells=false or fewer "
            "grids (training.n_steps, training.grids_per_step)"
        )
    return min(max(bisect_right(use.within, n - n_cells), 1), config.mining.max_failures)


def has_samples(config: Config) -> bool:
    """Whether a smaller budget of samples would change anything. Raises ConfigError for an unknown method."""
    if config.method.name == "repair":
        return config.training.loss != "vanilla"
    method = _method(config)
    return bool(method.builders or method.failures)


def _method(config: Config) -> Method:
    method: Method = METHODS.build(config.method.name, options=config.method.options)
    return method


def best_rate(scores: Mapping[float, float]) -> float:
    """The learning rate with the best score on val; the smaller one of equals."""
    return min(scores, key=lambda rate: (-scores[rate], rate))
