"""Running top-k lists and running ranks of one direction, fed tile by tile; the order is (-score, index)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.ports import FloatArray
from repair.numerics.cosines import IntArray, pair_scores

NO_ITEM = -1
EMPTY = np.int64(2**63 - 1)  # the key of no item: sorts behind every other
_INDEX = np.int64(2**32 - 1)
_SIGN = np.int32(2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One direction of a search over n queries and N items; row i is query i.

    `indices` and `scores` have shape (n, min(k, N)), best first. Where a query has fewer non-matching items than that,
    the rest is index -1 and score -inf. The probe arrays have the shape (n, m) of the probes asked for: rank among the
    non-matching items (a matching probe is ranked as if it alone were added), the number of *other* non-matching items
    of equal score, how many of those stand above it by index, and its score. So with all ties won the rank would be
    probe_ranks - probe_ties_above, with all lost that + probe_ties. A probe of -1 has rank 0, no ties, score -inf.
    """

    indices: IntArray
    scores: FloatArray
    probe_ranks: IntArray
    probe_ties: IntArray
    probe_ties_above: IntArray
    probe_scores: FloatArray


class Side:
    """Running top-k and running ranks of one direction.

    An item is one int64 key: its score's bits, made to sort as integers with the best first, above its index. So
    integers compare as the order says, and none are equal. Tiles arrive with ascending item index: an item that only
    equals the current k-th score can never get in.
    """

    def __init__(self, n_queries: int, n_items: int, k: int, probes: "Probes") -> None:
        self.k = min(k, n_items)
        self.keys = np.full((n_queries, self.k), EMPTY)
        self.floor = np.full(n_queries, -np.inf, dtype=np.float32)
        self.probes = probes

    def update(self, scores: FloatArray, query_start: int, item_start: int) -> None:
        span = slice(query_start, query_start + len(scores))
        self.probes.update(scores, span, item_start)
        if self.k:
            queries, keys = self._entering(scores, self.floor[span], item_start)
            queries += query_start
            merged = np.sort(np.concatenate([self.keys[queries], keys], axis=1), axis=1)[:, : self.k]
            self.keys[queries] = merged
            self.floor[queries] = _scores_of(merged[:, -1])

    def _entering(self, scores: FloatArray, floor: FloatArray, item_start: int) -> tuple[IntArray, IntArray]:
        """The queries that gain items from this tile, and those items' keys, padded to one width."""
        better = scores > floor[:, None]
        width = scores.shape[1]
        if 8 * np.count_nonzero(better) > scores.size and width > self.k:
            # Lists still nearly empty: raise the bar to the tile's own k-th score. Ties with it stay in.
            better &= scores >= np.partition(scores, width - self.k, axis=1)[:, width - self.k, None]
        query, item = _cells(better)
        queries, first, counts = np.unique(query, return_index=True, return_counts=True)
        keys = np.full((len(queries), counts.max(initial=0)), EMPTY)
        place = np.arange(len(query)) - np.repeat(first, counts)
        keys[np.repeat(np.arange(len(queries)), counts), place] = encode(scores[query, item], item + item_start)
        return queries, keys

    def result(self) -> Ranked:
        indices, scores = decode(self.keys)
        probes = self.probes
        return Ranked(
            indices=indices,
            scores=scores,
            probe_ranks=probes.ranks,
            probe_ties=probes.ties,
            probe_ties_above=probes.ties_above,
            probe_scores=np.where(probes.items == NO_ITEM, np.float32(-np.inf), probes.scores),
        )


@dataclass(frozen=True, slots=True)
class Probes:
    """Items whose rank is counted, (n, m): their scores, and the running counts."""

    items: IntArray
    scores: FloatArray
    ranks: IntArray
    ties: IntArray
    ties_above: IntArray

    def update(self, scores: FloatArray, span: slice, item_start: int) -> None:
        for column in range(self.items.shape[1]):
            level = self.scores[span, column, None]
            above = _count(scores > level)
            equal = _count(scores >= level) - above
            self.ranks[span, column] += above
            tied = np.flatnonzero(equal)
            if len(tied):  # rare, so only these rows are looked at item by item
                same = scores[tied] == level[tied]
                index = np.arange(scores.shape[1]) + item_start
                place = self.items[span, column][tied, None]
                tied_above = _count(same & (index < place))
                self.ranks[span, column][tied] += tied_above
                self.ties_above[span, column][tied] += tied_above
                self.ties[span, column][tied] += _count(same & (index != place))


def chosen_probes(queries: FloatArray, items: FloatArray, probes: IntArray | None, *, what: str) -> Probes:
    """Probes of every query, shape (n_queries, m), None for none. Raises DataError for another shape or range."""
    chosen = np.zeros((len(queries), 0), dtype=np.int64) if probes is None else np.array(probes, dtype=np.int64)
    if chosen.ndim != 2 or len(chosen) != len(queries):
        raise DataError(f"{what}: must have shape ({len(queries)}, m), not {chosen.shape}")
    if chosen.size and (chosen.min() < NO_ITEM or chosen.max() >= len(items)):
        raise DataError(f"{what}: must be -1 or an index below {len(items)}")
    query, place = np.nonzero(chosen != NO_ITEM)
    scores = np.full(chosen.shape, np.inf, dtype=np.float32)  # no score is above the +inf of an absent probe
    scores[query, place] = pair_scores(queries, items, query, chosen[query, place])
    return Probes(
        items=chosen,
        scores=scores,
        ranks=(chosen != NO_ITEM).astype(np.int64),
        ties=np.zeros(chosen.shape, dtype=np.int64),
        ties_above=np.zeros(chosen.shape, dtype=np.int64),
    )


def _count(cells: npt.NDArray[np.bool_]) -> IntArray:
    """True cells of each row. Summing bytes is faster than `count_nonzero` along an axis."""
    counts: IntArray = cells.view(np.uint8).sum(axis=1, dtype=np.int32).astype(np.int64)
    return counts


def _cells(mask: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """(query, item) of the true cells, by query; the mask is walked in the order of its memory."""
    if mask.flags.c_contiguous:
        query, item = np.divmod(np.flatnonzero(mask), mask.shape[1])
        return query, item
    item, query = np.divmod(np.flatnonzero(mask.T), mask.shape[0])
    by_query = np.argsort(query, kind="stable")
    return query[by_query], item[by_query]


def encode(scores: FloatArray, items: IntArray) -> IntArray:
    """Keys that sort as (-score, index) does; items below 2^32."""
    bits = (scores + np.float32(0)).view(np.int32)  # + 0 turns -0.0 into 0.0
    descending = ~np.where(bits < 0, bits ^ _SIGN, bits)
    return (descending.astype(np.int64) << 32) | items


def _scores_of(keys: IntArray) -> FloatArray:
    ascending = ~(keys >> 32).astype(np.int32)
    scores = np.where(ascending < 0, ascending ^ _SIGN, ascending).view(np.float32)
    return np.where(keys == EMPTY, np.float32(-np.inf), scores)


def decode(keys: IntArray) -> tuple[IntArray, FloatArray]:
    """Indices and scores; -1 and -inf for `EMPTY`."""
    return np.where(keys == EMPTY, np.int64(NO_ITEM), keys & _INDEX), _scores_of(keys)
