"""Failures shown one by one: how they were chosen, and everything on record about each."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from repair.core.identity import derive_rng
from repair.core.records import (
    Criterion,
    Direction,
    ErrorType,
    Failure,
    Instruction,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Verdict,
)
from repair.reports.choosing import in_turn
from repair.reports.measuring import Vectors, before_and_after
from repair.reports.shown import Shower, Shown
from repair.reports.standing import Standings, standings
from repair.reports.view import RunView

_N_OTHER = 2  # shown of each way to be dropped or to stay unrepaired, per direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One item against the query: cosine and rank, before and after training; None where unknown."""

    name: str
    score_before: float | None
    score_after: float | None
    rank_before: int | None = None
    rank_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """One candidate edit."""

    index: int
    shown: Shown | None
    gain: float | None
    closeness: float | None
    rejected: str | None
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One failure."""

    failure: Failure
    outcome: str
    query: Shown
    false_positive: Shown
    ground_truth: Shown
    edit: Shown | None
    verdict: Verdict | None
    instruction: Instruction | None
    repair: Repair | None
    others: tuple[Attempted, ...]
    lines: tuple[Line, ...]


@dataclass(slots=True)
class Records:
    """A round's tables by failure id."""

    failures: dict[str, Failure]
    verdicts: dict[str, Verdict]
    instructions: dict[str, Instruction]
    repairs: dict[str, Repair]
    scored: dict[str, list[ScoredCandidate]] = field(default_factory=dict)

    @classmethod
    def of(cls, view: RunView, round: int) -> "Records":
        found = cls(
            {f.failure_id: f for f in view.table(round, Failure)},
            {v.failure_id: v for v in view.table(round, Verdict)},
            {i.failure_id: i for i in view.table(round, Instruction)},
            {r.failure_id: r for r in view.table(round, Repair)},
        )
        for candidate in view.table(round, ScoredCandidate):
            found.scored.setdefault(candidate.failure_id, []).append(candidate)
        return found


def gallery(view: RunView, shower: Shower) -> dict[str, Any] | None:
    """The cards of the last round that has verdicts: {"round", "groups": [{"name", "outcome", "cards"}, …],
    "standings"}. None before any verdict."""
    rounds = [round for round in view.rounds if (round, "verify") in view.states]
    if not rounds:
        return None
    round = rounds[-1]
    records = Records.of(view, round)
    chosen = choose(records, n_repaired=view.config.report.n_failures, seed=view.config.run.seed)
    ids = [failure_id for group in chosen.values() for failure_id in group]
    ranks = standings(view, round, [records.failures[i] for i in ids])
    before, after = before_and_after(view, round, **_items(view, records, ids))
    groups = []
    for outcome, group in chosen.items():
        cards = [_card(shower, records, i, outcome, (before, after), ranks) for i in group]
        groups.append({"outcome": outcome, "cards": cards})
    return {"round": round, "groups": groups, "standings": ranks}


def choose(records: Records, *, n_repaired: int, seed: int) -> dict[str, list[str]]:
    """Failure ids by outcome, each group a seeded draw and never by looks.

    Of the repaired, half of each direction where there are enough, and within a direction one of each error type in
    turn. Of each way to be dropped or not repaired, two of each direction.
    """
    order = derive_rng(seed, "report", "gallery").permutation(len(records.failures))
    failures = [list(records.failures.values())[i] for i in order]
    by_outcome: dict[str, dict[Direction, list[str]]] = {}
    for failure in failures:
        name = outcome_of(records, failure.failure_id)
        if name is not None:
            by_outcome.setdefault(name, {d: [] for d in Direction})[failure.direction].append(failure.failure_id)
    chosen: dict[str, list[str]] = {}
    repaired = by_outcome.pop("repaired", None)
    if repaired is not None and n_repaired:
        queues = [_by_type(records, repaired[direction]) for direction in Direction]
        chosen["repaired"] = sorted(
            in_turn(queues, n_repaired), key=lambda i: list(Direction).index(records.failures[i].direction)
        )
    order_of = [*map(str, Criterion), *(str(s) for s in RepairStatus if s is not RepairStatus.REPAIRED)]
    for name in sorted(by_outcome, key=order_of.index):
        chosen[name] = [i for direction in Direction for i in by_outcome[name][direction][:_N_OTHER]]
    return chosen


def outcome_of(records: Records, failure_id: str) -> str | None:
    """The criterion that dropped a failure, or what became of its repair; None if neither is known yet."""
    verdict, repair = records.verdicts.get(failure_id), records.repairs.get(failure_id)
    if verdict is not None and verdict.criterion is not None:
        return str(verdict.criterion)
    return None if repair is None else str(repair.status)


def _by_type(records: Records, ids: Sequence[str]) -> list[str]:
    """One of each error type in turn, each failure once."""
    types = {i: records.instructions[i].error_types if i in records.instructions else () for i in ids}
    queues = [[i for i in ids if kind in types[i]] for kind in ErrorType]
    return in_turn([*queues, [i for i in ids if not types[i]]], len(ids))


def _items(view: RunView, records: Records, ids: Sequence[str]) -> dict[str, Any]:
    """Every image and caption that the cards compare."""
    images: set[str] = set()
    texts: dict[str, str] = {}
    for failure_id in ids:
        failure, repair = records.failures[failure_id], records.repairs.get(failure_id)
        asks_image = failure.direction is Direction.IMAGE_TO_TEXT
        items = [failure.false_positive_id, failure.ground_truth_id]
        if repair is not None and repair.key is not None:
            items.append(repair.key)
        queries, found = ({failure.query_id}, set(items)) if asks_image else (set(items), {failure.query_id})
        images |= queries
        for key in found:
            text = repair.text if repair is not None and key == repair.key else view.text(key)
            if text is not None:
                texts[key] = text
    return {"images": sorted(images), "texts": texts}


def _card(
    shower: Shower,
    records: Records,
    failure_id: str,
    outcome: str,
    models: tuple[Vectors | None, Vectors | None],
    ranks: Standings,
) -> Card:
    failure, repair = records.failures[failure_id], records.repairs.get(failure_id)
    asks_image = failure.direction is Direction.IMAGE_TO_TEXT
    edit = None
    attempted = []
    for candidate in records.scored.get(failure_id, []):
        selected = repair is not None and repair.candidate_index == candidate.index
        shown = _edit(shower, failure, candidate)
        if selected:
            edit = shown
        attempted.append(
            Attempted(
                index=candidate.index,
                shown=None if selected else shown,
                gain=candidate.gain,
                closeness=candidate.closeness,
                rejected=candidate.rejected,
                selected=selected,
            )
        )
    return Card(
        failure=failure,
        outcome=outcome,
        query=shower.item(failure.query_id, "query", is_image=asks_image),
        false_positive=shower.item(failure.false_positive_id, "false positive", is_image=not asks_image),
        ground_truth=shower.item(failure.ground_truth_id, "ground truth", is_image=not asks_image),
        edit=edit,
        verdict=records.verdicts.get(failure_id),
        instruction=records.instructions.get(failure_id),
        repair=repair,
        others=tuple(attempted),
        lines=_lines(failure, repair, models, ranks),
    )


def _edit(shower: Shower, failure: Failure, candidate: ScoredCandidate) -> Shown | None:
    if candidate.key is None:
        return None
    if failure.direction is Direction.TEXT_TO_IMAGE:
        return shower.image(candidate.key, "edit", was=failure.false_positive_id)
    was = shower.view.text(failure.false_positive_id)
    return shower.caption(candidate.key, "edit", text=candidate.text, was=was)


def _lines(
    failure: Failure,
    repair: Repair | None,
    models: tuple[Vectors | None, Vectors | None],
    ranks: Standings,
) -> tuple[Line, ...]:
    def score(model: Vectors | None, key: str) -> float | None:
        if model is None:
            return None
        asks_image = failure.direction is Direction.IMAGE_TO_TEXT
        return model.score(failure.query_id, key) if asks_image else model.score(key, failure.query_id)

    before, after = models
    old, new = ranks.before.get(failure.failure_id), ranks.after.get(failure.failure_id)
    lines = [
        Line(
            name="false positive",
            score_before=failure.false_positive_score,
            score_after=score(after, failure.false_positive_id),
            rank_before=None if old is None else old.false_positive,
            rank_after=None if new is None else new.false_positive,
        ),
        Line(
            name="ground truth",
            score_before=failure.ground_truth_score,
            score_after=score(after, failure.ground_truth_id),
            rank_before=None if old is None else old.ground_truth,
            rank_after=None if new is None else new.ground_truth,
        ),
    ]
    if repair is not None and repair.key is not None:
        lines.insert(1, Line(name="edit", score_before=score(before, repair.key), score_after=score(after, repair.key)))
    return tuple(lines)
