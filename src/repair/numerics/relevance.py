"""Where all matching items of a query stand, not only the best: the first R places that mAP@R and R-precision need.

A search leaves matching items out (`numerics.similarity`). They are put back here: a matching item's place is its rank
among the query's matching items plus the number of non-matching ones above it, and that number is exact as long as
the search's lists are at least R long. So nothing beyond R places is ever held.
"""

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.ports import FloatArray
from repair.numerics.cosines import IntArray, Matches, pair_scores
from repair.numerics.ranking import EMPTY, NO_ITEM, Ranked, encode

_PAIRS_AT_ONCE = 100_000


def first_r(
    queries: FloatArray, items: FloatArray, matches: Matches, ranked: Ranked
) -> tuple[npt.NDArray[np.bool_], IntArray]:
    """Whether each of a query's first places holds a matching item, in the order (-score, index) over all items.

    Args:
        queries: Quantised embeddings, shape (n_queries, dim).
        items: Likewise, shape (n_items, dim).
        matches: CSR array (n_queries, n_items).
        ranked: This direction of a search that left `matches` out, with k at least the largest number of matches.

    Returns:
        (hits, n_matches): shape (n_queries, largest number of matches), False behind a query's own number; and that
        number, shape (n_queries,).

    Raises:
        DataError: the lists of `ranked` are too short.

    Example:
        >>> from scipy.sparse import csr_array
        >>> from repair.numerics.similarity import search_both
        >>> x, y = np.float32([[1, 0]]), np.float32([[1, 0], [0.8, 0.6], [0.6, 0.8]])
        >>> truth = csr_array([[True, False, True]])
        >>> first_r(x, y, truth, search_both(x, y, k=2, matches=truth).rows)[0].tolist()  # 0, then 1, then 2
        [[True, False]]
    """
    n_matches = np.diff(matches.indptr).astype(np.int64)
    width = int(n_matches.max(initial=0))
    if ranked.indices.shape[1] < min(width, len(items)):
        raise DataError(f"first_r: lists of {ranked.indices.shape[1]} items, need {width}")
    query = np.repeat(np.arange(len(queries)), n_matches)
    item = matches.indices.astype(np.int64)
    keys = encode(pair_scores(queries, items, query, item), item)
    place = _own_rank(query, keys) + _others_above(ranked, query, keys)
    hits = np.zeros((len(queries), width), dtype=bool)
    inside = place <= n_matches[query]
    hits[query[inside], place[inside] - 1] = True
    return hits, n_matches


def _own_rank(query: IntArray, keys: IntArray) -> IntArray:
    """The rank of each pair among the pairs of its query, from 1; `query` is ascending."""
    order = np.lexsort((keys, query))
    starts = np.searchsorted(query, query)  # where each pair's query begins
    rank = np.empty(len(query), dtype=np.int64)
    rank[order] = np.arange(len(query)) - starts + 1
    return rank


def _others_above(ranked: Ranked, query: IntArray, keys: IntArray) -> IntArray:
    """How many items of the query's list stand before each pair."""
    listed = np.where(ranked.indices == NO_ITEM, EMPTY, encode(ranked.scores, np.maximum(ranked.indices, 0)))
    above = np.empty(len(query), dtype=np.int64)
    for start in range(0, len(query), _PAIRS_AT_ONCE):
        span = slice(start, start + _PAIRS_AT_ONCE)
        above[span] = (listed[query[span]] < keys[span, None]).sum(axis=1)
    return above
