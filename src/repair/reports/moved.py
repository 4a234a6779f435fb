"""Queries of the test split that were fixed, newly broken or still fail: what stood first, before and after."""

from collections.abc import Sequence
from dataclasses import dataclass

from repair.core.identity import derive_rng
from repair.core.records import Direction
from repair.pipeline.evaluating import QueryRank
from repair.reports.outcomes import query_moves
from repair.reports.shown import Shower, Shown
from repair.reports.view import RunView

_N_EXAMPLES = 3  # of each move and direction


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedQuery:
    """A query with what stood first for it before and after, and its own items."""

    direction: Direction
    move: str
    query: Shown
    first_before: Shown
    first_after: Shown
    own: tuple[Shown, ...]
    rank_before: int
    rank_after: int


def moved_queries(view: RunView, shower: Shower) -> dict[str, list[MovedQuery]]:
    """Up to three examples of each move and direction, a seeded draw; empty before the second evaluation."""
    if len(view.evaluations) < 2 or view.source is None:
        return {}
    first, last = view.evaluations[0], view.evaluations[-1]
    found: dict[str, list[MovedQuery]] = {}
    for direction in Direction:
        moves = query_moves(first.ranks, last.ranks, split=view.config.data.test_split, direction=direction)
        for move in ("fixed", "newly_broken", "still_failing"):
            rng = derive_rng(view.config.run.seed, "report", "moves", str(direction), move)
            rows = [moves[move][i] for i in rng.permutation(len(moves[move]))[:_N_EXAMPLES]]
            found.setdefault(move, []).extend(_moved(view, shower, move, old, new) for old, new in rows)
    return found


def _moved(view: RunView, shower: Shower, move: str, old: QueryRank, new: QueryRank) -> MovedQuery:
    asks_image = old.direction is Direction.IMAGE_TO_TEXT
    if asks_image:
        own = view.own_captions.get(old.query_id, [])
    else:
        own = [view.captions(old.split)[old.query_id].image_id]
    return MovedQuery(
        direction=old.direction,
        move=move,
        query=shower.item(old.query_id, "query", is_image=asks_image),
        first_before=_first(shower, old, own, "first before"),
        first_after=_first(shower, new, own, "first after"),
        own=tuple(shower.item(key, "own", is_image=not asks_image) for key in own),
        rank_before=old.rank,
        rank_after=new.rank,
    )


def _standing(row: QueryRank, own: Sequence[str]) -> str:
    """What can be said of the item that stands first: labels first, then the truth where it is known."""
    if row.top1_id in own:
        return "own, but not true" if row.top1_true is False else "own"
    if row.top1_true is None:
        return "not own"
    return "not own, but true" if row.top1_true else "wrong"


def _first(shower: Shower, row: QueryRank, own: Sequence[str], role: str) -> Shown:
    note = _standing(row, own)
    return shower.item(row.top1_id, role, is_image=row.direction is Direction.TEXT_TO_IMAGE, note=note)
