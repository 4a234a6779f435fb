"""Mine: each query's high-ranked items that do not match it, both directions (system stage 1).

All orders are those of `numerics.similarity`: (-score, id). A failure's `false_positive_rank` counts non-matching
items only, and so does its `ground_truth_rank`, so `outranks` is exactly false_positive_rank < ground_truth_rank.

Failures come image_to_text first, then hardest first: by (false_positive_rank, -score, query id, false-positive id).
A failure's id depends on direction, query and false positive only: mined again in a later round, it keeps its id.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from repair.core.errors import ConfigError, DataError, suggest
from repair.core.identity import derive_rng, derive_seed, hash_value, short
from repair.core.ports import FloatArray
from repair.core.records import Direction, Failure
from repair.numerics.cosines import IntArray, Matches
from repair.numerics.matching import Matching
from repair.numerics.similarity import NO_ITEM, Ranked, best_truths, id_order, search_both

Strategy = Literal["top_k", "outranking", "random"]
STRATEGIES: tuple[Strategy, ...] = ("top_k", "outranking", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionSummary:
    """What one direction found and what it dropped: n_candidates = the three n_over_… + n_kept."""

    n_queries: int
    n_without_truth: int  # queries without a ground truth: not mined
    n_tied_truths: int  # queries whose best ground truth ties with a non-matching item
    n_candidates: int  # pairs the strategy chose
    n_over_query_cap: int
    n_over_item_cap: int
    n_over_budget: int
    n_kept: int
    n_outranking: int  # of those kept


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningSummary:
    """Counts of one mining; the n_masked_… are pairs taken out before ranking, by the reason that was met first."""

    strategy: str
    n_masked_own: int
    n_masked_extra: int
    n_masked_near_duplicate: int
    n_masked_identical_caption: int
    directions: Mapping[str, DirectionSummary]


class Mined(NamedTuple):
    failures: tuple[Failure, ...]
    summary: MiningSummary


def mine(
    image_embeddings: npt.ArrayLike,
    text_embeddings: npt.ArrayLike,
    *,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    matching: Matching,
    strategy: Strategy = "top_k",
    directions: Sequence[Direction] = tuple(Direction),
    top_k: int = 3,
    max_per_query: int = 3,
    max_per_item: int = 20,
    max_failures: int | None = None,
    seed: int = 0,
) -> Mined:
    """The failures of a split.

    Args:
        image_embeddings: Unit norm or zero, shape (n_images, dim).
        text_embeddings: Unit norm or zero, shape (n_captions, dim).
        image_ids: Unique, in the order of the embeddings; the order itself does not matter.
        caption_ids: Likewise.
        matching: Which captions match which images, by position (`numerics.matching.matching_pairs`). Ground truths
            are own captions; everything that matches is taken out before ranking.
        strategy: top_k: the `top_k` best non-matching items of each query (the paper). outranking: those of them that
            stand above the query's best ground truth. random: `top_k` drawn non-matching items (ablation w/o Failure).
        directions: Which to mine.
        top_k: K_mine.
        max_per_query: Failures kept per query.
        max_per_item: Failures kept per false-positive item. Both caps are applied in one walk through all candidates,
            hardest first (random: in the order drawn): one that a cap refuses makes room for a later one.
        max_failures: Failures kept per direction, a seeded subsample of what the caps leave; a smaller budget keeps a
            subset of what a larger one keeps. None: all.
        seed: Of `random` and of the subsample.

    Raises:
        DataError: shapes or ids do not fit, or embeddings are not finite.
        ConfigError: an unknown strategy, or a limit below 1.
    """
    _check_settings(strategy, top_k, max_per_query, max_per_item, max_failures)
    images, captions = id_order(image_ids, what="image_ids"), id_order(caption_ids, what="caption_ids")
    z_images, z_texts = _permuted(image_embeddings, images, "image"), _permuted(text_embeddings, captions, "caption")
    shape = (len(images), len(captions))
    if matching.pairs.shape != shape:
        raise DataError(f"matching: made for {matching.pairs.shape} images and captions, there are {shape}")
    pairs, truth = matching.pairs[images][:, captions].tocsr(), matching.truth[images][:, captions].tocsr()
    best = best_truths(z_images, z_texts, truth)
    image_names, caption_names = [image_ids[i] for i in images], [caption_ids[i] for i in captions]
    sides = {
        Direction.IMAGE_TO_TEXT: _Queries(image_names, caption_names, best.rows, pairs),
        Direction.TEXT_TO_IMAGE: _Queries(caption_names, image_names, best.columns, pairs.T.tocsr()),
    }
    drawn = {d: _draw(side, d, top_k, seed) for d, side in sides.items() if strategy == "random" and d in directions}
    probes = {d: np.column_stack([side.truths, *([drawn[d]] if d in drawn else [])]) for d, side in sides.items()}
    found = search_both(
        z_images,
        z_texts,
        k=0 if strategy == "random" else top_k,
        matches=pairs,
        row_probes=probes[Direction.IMAGE_TO_TEXT],
        column_probes=probes[Direction.TEXT_TO_IMAGE],
    )
    ranked = {Direction.IMAGE_TO_TEXT: found.rows, Direction.TEXT_TO_IMAGE: found.columns}
    failures: list[Failure] = []
    summaries: dict[str, DirectionSummary] = {}
    for direction in (d for d in Direction if d in directions):
        candidates = _candidates(ranked[direction], sides[direction], drawn.get(direction), strategy)
        kept, summaries[direction] = _limited(
            candidates,
            sides[direction],
            direction,
            max_per_query=max_per_query,
            max_per_item=max_per_item,
            max_failures=max_failures,
            seed=seed,
        )
        failures += kept
    summary = MiningSummary(
        strategy=strategy,
        n_masked_own=matching.n_own,
        n_masked_extra=matching.n_extra,
        n_masked_near_duplicate=matching.n_near_duplicate,
        n_masked_identical_caption=matching.n_identical_caption,
        directions=summaries,
    )
    return Mined(tuple(failures), summary)


def budget_order(failure_id: str, *, seed: int) -> tuple[int, str]:
    """A sort key: of a direction's failures, `max_failures` keeps those that come first by it."""
    return derive_seed(seed, "mining.budget", failure_id), failure_id


@dataclass(frozen=True, slots=True)
class _Queries:
    """One direction's names, in id order, each query's best ground truth (-1: none) and matching items."""

    query_ids: list[str]
    item_ids: list[str]
    truths: IntArray
    matches: Matches


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Query, item and so on of each candidate, in the order in which caps look at them."""

    query: IntArray
    item: IntArray
    rank: IntArray
    score: FloatArray
    truth_ranks: IntArray  # by query, as are the next two
    truth_scores: FloatArray
    n_tied_truths: int


def _draw(side: _Queries, direction: Direction, k: int, seed: int) -> IntArray:
    """`k` distinct non-matching items of each query in random order, -1 where there are fewer; shape (n_queries, k)."""
    n_items = len(side.item_ids)
    drawn = np.full((len(side.query_ids), k), NO_ITEM, dtype=np.int64)
    for query, query_id in enumerate(side.query_ids):
        matching = side.matches.indices[side.matches.indptr[query] : side.matches.indptr[query + 1]]
        rng = derive_rng(seed, "mining.random", direction, query_id)
        # Of so many distinct items at least k do not match, and those come in uniformly random order.
        some = rng.choice(n_items, size=min(n_items, k + len(matching)), replace=False)
        others = some[~np.isin(some, matching)][:k]
        drawn[query, : len(others)] = others
    return drawn


def _candidates(ranked: Ranked, side: _Queries, drawn: IntArray | None, strategy: Strategy) -> _Candidates:
    if drawn is None:
        items, scores = ranked.indices, ranked.scores
        ranks = np.broadcast_to(np.arange(1, items.shape[1] + 1), items.shape)
    else:
        items, scores, ranks = drawn, ranked.probe_scores[:, 1:], ranked.probe_ranks[:, 1:]
    truth_ranks = ranked.probe_ranks[:, 0]
    chosen = (items != NO_ITEM) & (side.truths != NO_ITEM)[:, None]
    if strategy == "outranking":
        chosen &= ranks < truth_ranks[:, None]
    query, place = np.nonzero(chosen)
    item, score = items[chosen], scores[chosen]
    walk = np.lexsort((item, query, -score, place))
    return _Candidates(
        query=query[walk],
        item=item[walk],
        rank=ranks[chosen][walk],
        score=score[walk],
        truth_ranks=truth_ranks,
        truth_scores=ranked.probe_scores[:, 0],
        n_tied_truths=int((ranked.probe_ties[:, 0] > 0).sum()),
    )


def _limited(
    candidates: _Candidates,
    side: _Queries,
    direction: Direction,
    *,
    max_per_query: int,
    max_per_item: int,
    max_failures: int | None,
    seed: int,
) -> tuple[list[Failure], DirectionSummary]:
    """The candidates that the caps and the budget leave, as failures in order, and the counts."""
    chosen, n_over_query, n_over_item = _capped(candidates, side, max_per_query, max_per_item)
    ids = {row: _failure_id(direction, side, candidates, row) for row in chosen}
    if len(set(ids.values())) < len(ids):
        raise DataError(f"mining: two failures of {direction} share an id by chance; lower mining.max_per_query")
    kept = list(chosen)
    if max_failures is not None and len(chosen) > max_failures:
        kept.sort(key=lambda row: budget_order(ids[row], seed=seed))
        del kept[max_failures:]
    kept.sort(
        key=lambda row: (candidates.rank[row], -candidates.score[row], candidates.query[row], candidates.item[row])
    )
    failures = list(_failures(kept, ids, candidates, side, direction))
    return failures, DirectionSummary(
        n_queries=len(side.query_ids),
        n_without_truth=int((side.truths == NO_ITEM).sum()),
        n_tied_truths=candidates.n_tied_truths,
        n_candidates=len(candidates.query),
        n_over_query_cap=n_over_query,
        n_over_item_cap=n_over_item,
        n_over_budget=len(chosen) - len(kept),
        n_kept=len(kept),
        n_outranking=sum(failure.outranks for failure in failures),
    )


def _capped(
    candidates: _Candidates, side: _Queries, max_per_query: int, max_per_item: int
) -> tuple[list[int], int, int]:
    """Rows of the candidates that both caps let in, and how many each refused."""
    room_of_query, room_of_item = [max_per_query] * len(side.query_ids), [max_per_item] * len(side.item_ids)
    chosen, n_over_query, n_over_item = [], 0, 0
    for row, (query, item) in enumerate(zip(candidates.query.tolist(), candidates.item.tolist(), strict=True)):
        if not room_of_query[query]:
            n_over_query += 1
        elif not room_of_item[item]:
            n_over_item += 1
        else:
            room_of_query[query] -= 1
            room_of_item[item] -= 1
            chosen.append(row)
    return chosen, n_over_query, n_over_item


def _failures(
    rows: Sequence[int], ids: Mapping[int, str], candidates: _Candidates, side: _Queries, direction: Direction
) -> Iterator[Failure]:
    for row in rows:
        query, rank = int(candidates.query[row]), int(candidates.rank[row])
        truth_rank = int(candidates.truth_ranks[query])
        yield Failure(
            failure_id=ids[row],
            direction=direction,
            query_id=side.query_ids[query],
            false_positive_id=side.item_ids[candidates.item[row]],
            ground_truth_id=side.item_ids[side.truths[query]],
            false_positive_rank=rank,
            ground_truth_rank=truth_rank,
            false_positive_score=float(candidates.score[row]),
            ground_truth_score=float(candidates.truth_scores[query]),
            outranks=rank < truth_rank,
        )


def _failure_id(direction: Direction, side: _Queries, candidates: _Candidates, row: int) -> str:
    """i2t- or t2i- and 12 hex digits of the content hash of direction, query id and false-positive id."""
    names = [str(direction), side.query_ids[candidates.query[row]], side.item_ids[candidates.item[row]]]
    return f"{direction.short}-{short(hash_value(names))}"


def _permuted(embeddings: npt.ArrayLike, order: IntArray, what: str) -> npt.NDArray[np.floating]:
    rows = np.asarray(embeddings)
    if rows.ndim != 2 or len(rows) != len(order):
        raise DataError(f"{what} embeddings: shape {rows.shape} for {len(order)} ids, need one row for each id")
    permuted: npt.NDArray[np.floating] = rows[order]
    return permuted


def _check_settings(strategy: str, top_k: int, max_per_query: int, max_per_item: int, max_failures: int | None) -> None:
    if strategy not in STRATEGIES:
        raise ConfigError(f'mining.strategy "{strategy}": {suggest(strategy, STRATEGIES)}')
    limits = {
        "top_k": top_k,
        "max_per_query": max_per_query,
        "max_per_item": max_per_item,
        "max_failures": 1 if max_failures is None else max_failures,
    }
    for name, value in limits.items():
        if value < 1:
            raise ConfigError(f"mining.{name}: must be at least 1, not {value}")
