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
from repair.numerics.ranking import EMPTY, NO_ITEM, Ranked, Side, chosen_probes, decode, encode

__all__ = [
    "BLOCK_SIZE",
    "NO_ITEM",
    "BestTruths",
    "Ranked",
    "Search",
    "best_truths",
    "checked_matches",
    "id_order",
    "search_both",
]

BLOCK_SIZE = 1024


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
    column_k: int | None = None,
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
        column_k: How many for the columns' queries, if not as many.
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
    k_of_columns = k if column_k is None else column_k
    if min(k, k_of_columns) < 0:
        raise ConfigError(f"k: must be at least 0, not {min(k, k_of_columns)}")
    left, right = quantise(rows, what="row embeddings"), quantise(columns, what="column embeddings")
    if left.shape[1] != right.shape[1]:
        raise DataError(
            f"row embeddings have dim {left.shape[1]}, column embeddings dim {right.shape[1]}: must be equal"
        )
    mask = checked_matches(matches, (len(left), len(right)))
    sides = (
        Side(len(left), len(right), k, chosen_probes(left, right, row_probes, what="row_probes")),
        Side(len(right), len(left), k_of_columns, chosen_probes(right, left, column_probes, what="column_probes")),
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
    of_rows, of_columns = np.full(len(left), EMPTY), np.full(len(right), EMPTY)
    np.minimum.at(of_rows, row, encode(scores, column))
    np.minimum.at(of_columns, column, encode(scores, row))
    row_index, row_score = decode(of_rows)
    column_index, column_score = decode(of_columns)
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


def _mask(tile: Tile, matches: Matches) -> None:
    """Matching cells of the tile become -inf, in place."""
    height, width = tile.scores.shape
    lines = matches.indptr[tile.row_start : tile.row_start + height + 1]
    columns = matches.indices[lines[0] : lines[-1]] - tile.column_start
    inside = (columns >= 0) & (columns < width)
    rows = np.repeat(np.arange(height), np.diff(lines))
    tile.scores[rows[inside], columns[inside]] = -np.inf
