"""Which calls of a ledger a run asked for itself.

In a shared ledger (`run.calls`) other runs ask about the same failures: with another round, another selection, another
backend. A run's own requests follow from its tables: what it asked about which failure, with the seed that the request
had. Where a ledger holds more of them than the run can have asked (another backend, or another edit checked), those
whose answer the run holds come first, then the oldest.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from repair import editing, instruction, verification
from repair.core.calls import Attempt
from repair.core.errors import DataError
from repair.core.identity import canonical_json, derive_seed
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Grid,
    Instruction,
    Repair,
    RepairStatus,
    ScoredCandidate,
)
from repair.core.synthesis import Sample
from repair.methods.method import call_owner
from repair.pipeline.asking import PLAN_TASK
from repair.pipeline.registries import METHODS
from repair.pipeline.stages_repair import SELECTED_TASK
from repair.pipeline.stages_train import CELL_TASK
from repair.reports.view import RunView
from repair.selection import Rejection
from repair.store.tables import read_table

_SAMPLES = "samples"
_ALL_ANCHORS = "*"  # for whom a builder asks once
_MANY = 1 << 30


class Row(NamedTuple):
    """What is needed of an attempt to tell whose it is. `answer`: the edit itself, as text in JSON or by its hash."""

    key: str
    task: str
    failure_id: str
    seed: int | None
    answer: str | None


class Request(NamedTuple):
    failure_id: str
    task: str
    seed: int


@dataclass(slots=True)
class Wanted:
    """How many different calls of one request a run made at most, and with which answers where it is known."""

    n: int = 1
    answers: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Asked:
    """`requests` by failure, task and seed; `owners`: the builders' anchors. `n_sure`: calls that were certainly made
    and so must be in the ledger."""

    requests: Mapping[Request, Wanted]
    owners: Set[str]
    n_sure: int

    def own(self, rows: Iterable[Row]) -> set[str]:
        """Keys of those rows, oldest first, that are the run's own."""
        keys: set[str] = set()
        found: dict[Request, dict[str, bool]] = defaultdict(dict)
        for row in rows:
            if row.failure_id in self.owners:
                keys.add(row.key)
            elif row.seed is not None:
                request = Request(row.failure_id, row.task, row.seed)
                wanted = self.requests.get(request)
                if wanted is not None:
                    known = found[request].get(row.key, False)
                    found[request][row.key] = known or row.answer in wanted.answers
        for request, by_key in found.items():
            first = sorted(by_key, key=lambda key: not by_key[key])  # stable: the oldest first
            keys.update(first[: self.requests[request].n])
        return keys


def rows_of(attempts: Iterable[Attempt]) -> list[Row]:
    return [
        Row(
            one.call.key,
            one.call.task,
            one.call.failure_id,
            one.call.seed,
            (one.blob or one.value) if one.call.task in (editing.TEXT_TASK, editing.IMAGE_TASK) else None,
        )
        for one in attempts
    ]


def asked_of(view: RunView) -> Asked:
    """What a run asked, by its tables. Of a stage that has not finished: whatever it can have asked."""
    requests: dict[Request, Wanted] = {}
    seed, n_sure = view.config.run.seed, 0
    for round in view.rounds:
        for failure_id, task, index, answer in _of_round(view, round):
            request = Request(failure_id, task, derive_seed(seed, task, failure_id) + index)
            wanted = requests.setdefault(request, Wanted())
            if answer is not None:
                wanted.answers.add(answer)
        n_sure += _n_sure(view, round)
    for failure_id, n in _n_checks(view).items():
        requests[Request(failure_id, SELECTED_TASK, derive_seed(seed, SELECTED_TASK, failure_id))] = Wanted(n)
    owners = _owners(view)
    state = view.states.get((0, _SAMPLES))
    if state is not None:
        builders = [part for part in state.summary.values() if isinstance(part, dict)]
        n_sure += sum(int(part.get("calls", 0)) for part in builders)
    return Asked(requests, owners, n_sure)


def own_keys(view: RunView, rows: Sequence[Row]) -> set[str]:
    """The keys of a run's own calls in its ledger.

    Raises DataError if the run made calls and the ledger is missing, or holds none of them.
    """
    asked = asked_of(view)
    keys = asked.own(rows)
    if asked.n_sure and not keys:
        places = " or ".join(str(place) for place in view.calls_places)
        what = "does not hold its calls" if view.ledger is not None else "is missing"
        raise DataError(
            f"{view.folder.path}: its ledger {what}: looked in {places}; put the folder of calls back beside the runs"
        )
    return keys


# ---------------------------------------------------------------------------------------------- what the tables tell

_Question = tuple[str, str, int, str | None]  # failure id, task, index, answer


def _of_round(view: RunView, round: int) -> Iterator[_Question]:
    """Every question of a round but the checks of selected edits."""
    config = view.config
    failures = view.table(round, Failure)
    fused, asks = config.calls.plan == "fused", config.verification.enabled
    if fused:
        yield from ((one.failure_id, PLAN_TASK, 0, None) for one in failures)
    elif asks:
        yield from ((one.failure_id, verification.TASK, 0, None) for one in failures)
    directions = {one.failure_id: one.direction for one in failures}
    done = {name for number, name in view.states if number == round}
    if not fused:
        told = [one.failure_id for one in view.table(round, Instruction)] if "instruct" in done else list(directions)
        yield from ((failure_id, instruction.TASK, 0, None) for failure_id in told)
    if "edit" in done:
        for one in view.table(round, Candidate):
            task = _edit_task(directions[one.failure_id])
            if task == editing.IMAGE_TASK or not fused:
                yield one.failure_id, task, one.index, one.key if one.text is None else canonical_json(one.text)
    else:
        for failure_id, direction in directions.items():
            yield from ((failure_id, _edit_task(direction), k, None) for k in range(config.editing.n_candidates))
    if config.grids.verify_cells:
        pairs = {(i, t) for grid in view.table(round, Grid) for i in grid.images for t in grid.texts}
        yield from ((f"cell-{image}-{text}", CELL_TASK, 0, None) for image, text in sorted(pairs))


def _n_sure(view: RunView, round: int) -> int:
    verified = view.config.verification.enabled and (round, "verify") in view.states
    failures = len(view.table(round, Failure)) if verified else 0
    return failures + len(view.table(round, Instruction))


def _n_checks(view: RunView) -> dict[str, int]:
    """How many different edits of each failure the verifier was asked about, over all rounds."""
    if not view.config.selection.verify_candidates:
        return {}
    checked: dict[str, set[str]] = defaultdict(set)
    open_ended: set[str] = set()
    for round in view.rounds:
        if (round, "select") not in view.states:
            open_ended |= {one.failure_id for one in view.table(round, Failure)}
        for one in view.table(round, ScoredCandidate):
            if one.rejected == Rejection.REFUSED and one.key is not None:
                checked[one.failure_id].add(one.key)
        for repair in view.table(round, Repair):
            if repair.status is RepairStatus.REPAIRED and repair.key is not None:
                checked[repair.failure_id].add(repair.key)
    return {failure_id: len(keys) for failure_id, keys in checked.items()} | dict.fromkeys(open_ended, _MANY)


def _owners(view: RunView) -> set[str]:
    """For whom the run's builders asked: every caption that they kept a sample of, rejected or not."""
    method = METHODS.build(view.config.method.name, options=view.config.method.options)
    path = view.folder.folder(0) / f"{_SAMPLES}.parquet"
    if not method.builders or (0, _SAMPLES) not in view.states:
        return set()
    names = {builder.name for builder in method.builders}
    found = {call_owner(name, _ALL_ANCHORS) for name in names}
    return found | {call_owner(one.builder, one.caption_id) for one in read_table(path, Sample) if one.builder in names}


def _edit_task(direction: Direction) -> str:
    return editing.TEXT_TASK if direction is Direction.IMAGE_TO_TEXT else editing.IMAGE_TASK
