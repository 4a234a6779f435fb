"""Exact search in both directions from one pass over similarity tiles, and the rank of chosen items.

**The order.** Items are ordered by (-score, index): higher score first, and among equal scores the lower index first.
Give items in the order of their ids and ties go by id. *Above* always means earlier in this order, so ranks, top-k
lists and "outranks" never contradict each other. Ties are also counted, so that a caller can say how much they matter.

**Matching pairs do not compete.** They are taken out before anything is ranked; a rank is 1 + the number of
non-matching items above.

Results are equal bytes for any `block_size` and number of threads, because scores are (see `numerics.cosines`). Memory
is a copy of the inputs, the outputs and about 16 bytes per cell of one tile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy import sparse

from repair.core.errors import ConfigError, DataError
from repair.core.ports import FloatArray
from repair.numerics.cosines import IntArray, Matches, Tile, pair_scores, quantise, tiles

BLOCK_SIZE = 1024
NO_ITEM = -1

_EMPTY = np.int64(2**63 - 1)  # sorts behind every item
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Both directions of one pass: rows asking for columns, and columns asking for rows."""

    rows: Ranked
    columns: Ranked


def search_both(
    rows: npt.ArrayLike,
    columns: npt.ArrayLike,
    *,
    k: int,
    matches: Matches | None = None,
    row_probes: IntArray | None = None,
    column_probes: IntArray | None = None,
    block_size: int = BLOCK_SIZE,
) -> Search:
    """The k best non-matching items of every row and of every column, and the ranks of the probes.

    Args:
        rows: Embeddings of unit norm or zero, shape (n_rows, dim).
        columns: Likewise, shape (n_columns, dim).
        k: How many items per query; 0 for ranks only.
        matches: CSR array (n_rows, n_columns) of the pairs to leave out; none by default.
        row_probes: For each row, columns whose rank is wanted, shape (n_rows, m), -1 for none.
        column_probes: For each column, rows whose rank is wanted, shape (n_columns, m), -1 for none.
        block_size: Rows and columns of a tile. Changes speed and memory, never the result.

    Raises:
        DataError: shapes do not fit, or embeddings are not finite or longer than 1.
        ConfigError: k is negative, or block_size below 1.

    Example:
        >>> found = search_both([[1.0, 0.0], [0.0, 1.0]], [[0.6, 0.8], [1.0, 0.0], [0.6, 0.8]], k=2)
        >>> found.rows.indices.tolist()  # row 1 ties between columns 0 and 2: the lower index first
        [[1, 0], [0, 2]]
        >>> found.columns.indices.tolist()
        [[1, 0], [0, 1], [1, 0]]
    """
    if k < 0:
        raise ConfigError(f"k: must be at least 0, not {k}")
    left, right = quantise(rows, what="row embeddings"), quantise(columns, what="column embeddings")
    if left.shape[1] != right.shape[1]:
        raise DataError(
            f"row embeddings have dim {left.shape[1]}, column embeddings dim {right.shape[1]}: must be equal"
        )
    mask = checked_matches(matches, (len(left), len(right)))
    sides = (
        _Side(len(left), len(right), k, _probes(left, right, row_probes, what="row_probes")),
        _Side(len(right), len(left), k, _probes(right, left, column_probes, what="column_probes")),
    )
    for tile in tiles(left, right, block_size=block_size):
        _mask(tile, mask)
        sides[0].update(tile.scores, tile.row_start, tile.column_start)
        sides[1].update(tile.scores.T, tile.column_start, tile.row_start)
    return Search(rows=sides[0].result(), columns=sides[1].result())


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTruths:
    """The best-ranked ground truth of every row and column: index (-1 if it has none) and score (-inf)."""

    rows: IntArray
    row_scores: FloatArray
    columns: IntArray
    column_scores: FloatArray


def best_truths(rows: npt.ArrayLike, columns: npt.ArrayLike, truth: Matches) -> BestTruths:
    """For each row the first, in the order (-score, index), of the columns that `truth` pairs it with; and conversely.

    Args:
        rows: Embeddings of unit norm or zero, shape (n_rows, dim).
        columns: Likewise, shape (n_columns, dim).
        truth: CSR array (n_rows, n_columns).

    Example:
        >>> from scipy.sparse import csr_array
        >>> best = best_truths([[1.0, 0.0]], [[0.0, 1.0], [0.6, 0.8]], csr_array([[True, True]]))
        >>> best.rows.tolist(), best.columns.tolist()
        ([1], [0, 0])
    """
    left, right = quantise(rows, what="row embeddings"), quantise(columns, what="column embeddings")
    pairs = checked_matches(truth, (len(left), len(right))).tocoo()
    row, column = pairs.coords[0].astype(np.int64), pairs.coords[1].astype(np.int64)
    scores = pair_scores(left, right, row, column)
    of_rows, of_columns = np.full(len(left), _EMPTY), np.full(len(right), _EMPTY)
    np.minimum.at(of_rows, row, _encode(scores, column))
    np.minimum.at(of_columns, column, _encode(scores, row))
    row_index, row_score = _decode(of_rows)
    column_index, column_score = _decode(of_columns)
    return BestTruths(rows=row_index, row_scores=row_score, columns=column_index, column_scores=column_score)


def checked_matches(matches: Matches | None, shape: tuple[int, int]) -> Matches:
    """`matches` as a CSR array of bool without stored zeros; empty for None. Raises DataError for another shape."""
    if matches is None:
        return sparse.csr_array(shape, dtype=bool)
    if tuple(matches.shape) != shape:
        raise DataError(f"matches: shape {tuple(matches.shape)}, but there are {shape[0]} rows and {shape[1]} columns")
    clean = sparse.csr_array(matches).astype(bool)
    clean.sum_duplicates()
    clean.eliminate_zeros()
    return clean


def id_order(ids: Sequence[str], *, what: str) -> IntArray:
    """Positions of `ids` in ascending order of the ids, so that ties by index become ties by id.

    Raises:
        DataError: an id occurs twice.

    Example:
        >>> id_order(["b", "c", "a"], what="image_ids").tolist()
        [2, 0, 1]
    """
    order = sorted(range(len(ids)), key=ids.__getitem__)
    for before, after in pairwise(order):
        if ids[before] == ids[after]:
            raise DataError(f'{what}: "{ids[after]}" occurs twice, ids must be unique')
    return np.array(order, dtype=np.int64)


# ------------------------------------------------------------------------- one direction, fed tile by tile


class _Side:
    """Running top-k and running ranks of one direction.

    An item is one int64 key: its score's bits, made to sort as integers with the best first, above its index. So
    integers compare as the order says, and none are equal. Tiles arrive with ascending item index: an item that only
    equals the current k-th score can never get in.
    """

    def __init__(self, n_queries: int, n_items: int, k: int, probes: "_Probes") -> None:
        self.k = min(k, n_items)
        self.keys = np.full((n_queries, self.k), _EMPTY)
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
        keys = np.full((len(queries), counts.max(initial=0)), _EMPTY)
        place = np.arange(len(query)) - np.repeat(first, counts)
        keys[np.repeat(np.arange(len(queries)), counts), place] = _encode(scores[query, item], item + item_start)
        return queries, keys

    def result(self) -> Ranked:
        indices, scores = _decode(self.keys)
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
class _Probes:
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


def _probes(queries: FloatArray, items: FloatArray, probes: IntArray | None, *, what: str) -> _Probes:
    chosen = np.zeros((len(queries), 0), dtype=np.int64) if probes is None else np.array(probes, dtype=np.int64)
    if chosen.ndim != 2 or len(chosen) != len(queries):
        raise DataError(f"{what}: must have shape ({len(queries)}, m), not {chosen.shape}")
    if chosen.size and (chosen.min() < NO_ITEM or chosen.max() >= len(items)):
        raise DataError(f"{what}: must be -1 or an index below {len(items)}")
    query, place = np.nonzero(chosen != NO_ITEM)
    scores = np.full(chosen.shape, np.inf, dtype=np.float32)  # no score is above the +inf of an absent probe
    scores[query, place] = pair_scores(queries, items, query, chosen[query, place])
    return _Probes(
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


def _mask(tile: Tile, matches: Matches) -> None:
    """Matching cells of the tile become -inf, in place."""
    height, width = tile.scores.shape
    lines = matches.indptr[tile.row_start : tile.row_start + height + 1]
    columns = matches.indices[lines[0] : lines[-1]] - tile.column_start
    inside = (columns >= 0) & (columns < width)
    rows = np.repeat(np.arange(height), np.diff(lines))
    tile.scores[rows[inside], columns[inside]] = -np.inf


def _encode(scores: FloatArray, items: IntArray) -> IntArray:
    bits = (scores + np.float32(0)).view(np.int32)  # + 0 turns -0.0 into 0.0
    descending = ~np.where(bits < 0, bits ^ _SIGN, bits)
    return (descending.astype(np.int64) << 32) | items


def _scores_of(keys: IntArray) -> FloatArray:
    ascending = ~(keys >> 32).astype(np.int32)
    scores = np.where(ascending < 0, ascending ^ _SIGN, ascending).view(np.float32)
    return np.where(keys == _EMPTY, np.float32(-np.inf), scores)


def _decode(keys: IntArray) -> tuple[IntArray, FloatArray]:
    return np.where(keys == _EMPTY, np.int64(NO_ITEM), keys & _INDEX), _scores_of(keys)
