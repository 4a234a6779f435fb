"""Which calls of a ledger a run asked for itself.

In a shared ledger (`run.calls`) other runs ask about the same failures: with another round, another selection, another
backend. A run's own requests follow from its tables: what it asked about which failure or cell, with the seed that the
request had. Where a ledger holds more of them than the run can have asked (another backend, another edit checked, or
another best ground truth), those whose answer the run holds come first, then the oldest.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from repair import editing
from repair.core.calls import Attempt
from repair.core.errors import DataError
from repair.core.identity import derive_seed
from repair.core.records import (
    Candidate,
    Failure,
    Instruction,
    Repair,
    ScoredCandidate,
)
from repair.core.synthesis import Sample
from repair.methods.method import call_owner
from repair.pipeline.places import LEDGER
from repair.pipeline.questions import SELECTED_TASK, Question, RoundTables, questions
from repair.reports.view import RunView

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
    """What a run asked, by its tables. Of a stage that has not finished: whatever it can have asked.

    Questions that differ only in the edit that is checked, or in the best ground truth that a later round found, have
    one seed: they are calls of one request.
    """
    asked: dict[Request, list[Question]] = defaultdict(list)
    seed, n_sure = view.config.run.seed, 0
    for round in view.rounds:
        for one in questions(_tables(view, round), view.config):
            request = Request(one.failure_id, one.task, derive_seed(seed, one.task, one.failure_id) + one.index)
            asked[request].append(one)
        n_sure += _n_sure(view, round)
    requests = {request: _wanted(found) for request, found in asked.items()}
    owners = _owners(view)
    state = view.states.get((0, _SAMPLES))
    if state is not None:
        builders = [part for part in state.summary.values() if isinstance(part, dict)]
        n_sure += sum(int(part.get("calls", 0)) for part in builders)
    return Asked(requests, owners, n_sure)


def _wanted(found: Sequence[Question]) -> Wanted:
    """What the questions of one request, of all rounds, come to."""
    any_edit = any(one.task == SELECTED_TASK and one.edit is None for one in found)
    answers = {one.answer for one in found if one.answer is not None}
    return Wanted(n=_MANY if any_edit else len(set(found)), answers=answers)


def own_keys(view: RunView, rows: Sequence[Row]) -> set[str]:
    """The keys of a run's own calls in its ledger.

    Raises DataError if the run made calls and the ledger is missing, or holds none of them.
    """
    asked = asked_of(view)
    keys = asked.own(rows)
    if asked.n_sure and not keys:
        path = view.calls_file(LEDGER)
        what = f"{path} does not hold its calls" if path else view.no_calls_file(LEDGER)
        raise DataError(f"{view.folder.path}: {what}; put the folder of calls back beside the runs")
    return keys


# ---------------------------------------------------------------------------------------------- what the tables tell


def _tables(view: RunView, round: int) -> RoundTables:
    return RoundTables(
        done={name for number, name in view.states if number == round},
        failures=view.table(round, Failure),
        instructions=view.table(round, Instruction),
        candidates=view.table(round, Candidate),
        scored=view.table(round, ScoredCandidate),
        repairs=view.table(round, Repair),
        cells=view.cells(round),
    )


def _n_sure(view: RunView, round: int) -> int:
    verified = view.config.verification.enabled and (round, "verify") in view.states
    failures = len(view.table(round, Failure)) if verified else 0
    return failures + len(view.table(round, Instruction))


def _owners(view: RunView) -> set[str]:
    """For whom the run's builders asked: every caption that they kept a sample of, rejected or not."""
    names = {builder.name for builder in view.method.builders}
    if (0, _SAMPLES) not in view.states:
        return set()
    found = {call_owner(name, _ALL_ANCHORS) for name in names}
    return found | {call_owner(one.builder, one.caption_id) for one in view.table(0, Sample) if one.builder in names}
