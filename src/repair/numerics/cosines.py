"""Exact cosines: the score of a pair is one number, whatever computes it.

A float32 matrix product gives the same pair another last bit in another tile shape, thread count or machine, so
duplicates stop being ties and orders drift. Here embeddings are first rounded to multiples of 2^-26. Products are then
multiples of 2^-52, and for unit vectors every partial sum stays below 2 in magnitude (Cauchy–Schwarz): all of them
fit the 53 bits of a float64 exactly, in any order of summation. A pair's score is that exact sum, rounded once to
float32. The rounding of a component is at most 2^-27, less than float32 itself loses at scores above 0.25.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from repair.core.errors import ConfigError, DataError
from repair.core.ports import FloatArray

IntArray = npt.NDArray[np.int64]
Matches = Any  # scipy.sparse.csr_array (n_rows, n_columns); a stored, non-zero entry says that the pair matches

_GRAIN = float(2**26)
_MAX_NORM = 1.01  # room for float16 embeddings; the proof above needs a product of norms below 2
_ROWS_AT_ONCE = 8192


def normalise(embeddings: npt.ArrayLike) -> FloatArray:
    """Rows scaled to unit norm, float32, shape (n, dim); a row of zeros stays zeros.

    Raises:
        DataError: not two-dimensional, or a value is NaN or infinite.

    Example:
        >>> normalise([[3.0, 4.0], [0.0, 0.0]]).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    source = _matrix(embeddings, what="embeddings")
    out = np.empty(source.shape, dtype=np.float32)
    for start in range(0, len(source), _ROWS_AT_ONCE):
        rows = source[start : start + _ROWS_AT_ONCE].astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        out[start : start + _ROWS_AT_ONCE] = rows / np.where(norms > 0, norms, 1.0)
    return out


def quantise(embeddings: npt.ArrayLike, *, what: str = "embeddings") -> FloatArray:
    """A float32 copy, every component rounded to a multiple of 2^-26 (exact from 0.125 up).

    Raises:
        DataError: not two-dimensional, a value is NaN or infinite, or a row is longer than 1.01.
    """
    grains = _matrix(embeddings, what=what).astype(np.float32)
    for start in range(0, len(grains), _ROWS_AT_ONCE):
        rows = grains[start : start + _ROWS_AT_ONCE]
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        if norms.size and norms.max() > _MAX_NORM:
            worst = start + int(norms.argmax())
            raise DataError(f"{what}: row {worst} has norm {norms.max():.4g}, must be at most 1: normalise them first")
    grains *= np.float32(_GRAIN)
    np.rint(grains, out=grains)
    grains *= np.float32(1.0 / _GRAIN)
    return grains


class Tile(NamedTuple):
    """Scores of rows `row_start …` with columns `column_start …`."""

    row_start: int
    column_start: int
    scores: FloatArray  # (n_rows, n_columns) of this tile


def tiles(rows: FloatArray, columns: FloatArray, *, block_size: int) -> Iterator[Tile]:
    """All scores of two `quantise`d matrices, tile by tile: row blocks outside, column blocks inside, ascending.

    A tile's scores may be changed in place and are overwritten by the next tile: allocating 12 MB anew for each costs
    more than a small matrix product.
    """
    if block_size < 1:
        raise ConfigError(f"block_size: must be at least 1, not {block_size}")
    cells = min(block_size, max(len(rows), 1)) * min(block_size, max(len(columns), 1))
    exact, rounded = np.empty(cells, dtype=np.float64), np.empty(cells, dtype=np.float32)
    for row_start in range(0, len(rows), block_size):
        block = rows[row_start : row_start + block_size].astype(np.float64)
        for column_start in range(0, len(columns), block_size):
            other = columns[column_start : column_start + block_size].astype(np.float64)
            shape = (len(block), len(other))
            size = shape[0] * shape[1]
            products, scores = exact[:size].reshape(shape), rounded[:size].reshape(shape)
            np.matmul(block, other.T, out=products)
            np.copyto(scores, products, casting="same_kind")
            yield Tile(row_start, column_start, scores)


def pair_scores(rows: FloatArray, columns: FloatArray, row: IntArray, column: IntArray) -> FloatArray:
    """Scores of the pairs (row[i], column[i]) of two `quantise`d matrices, float32 (n,): the bits `tiles` gives."""
    out = np.empty(len(row), dtype=np.float32)
    for start in range(0, len(row), _ROWS_AT_ONCE):
        span = slice(start, start + _ROWS_AT_ONCE)
        left, right = rows[row[span]].astype(np.float64), columns[column[span]].astype(np.float64)
        out[span] = np.einsum("ij,ij->i", left, right)
    return out


def _matrix(embeddings: npt.ArrayLike, *, what: str) -> npt.NDArray[Any]:
    matrix = np.asarray(embeddings)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise DataError(f"{what}: must be numbers of shape (n, dim), not {matrix.dtype} of shape {matrix.shape}")
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        finite = np.isfinite(matrix[start : start + _ROWS_AT_ONCE]).all(axis=1)
        if not finite.all():
            raise DataError(f"{what}: row {start + int(finite.argmin())} holds NaN or infinity")
    return matrix
