"""Near-duplicate images: by embedding, by pixels, or by both.

Two photos of one burst, or one photo saved twice, match the same captions: mined against each other they make false
failures. An embedding finds them as far as the encoder separates what a caption would tell apart: an encoder that has
not learned colour calls a red and a blue ball the same. A difference hash looks at brightness only, and never at
meaning. `numerics.matching` takes the pairs of either.

Pairs are int64 arrays (n, 2), lower index first, sorted.
"""

import numpy as np
import numpy.typing as npt

from repair.core.errors import ConfigError, DataError
from repair.numerics.cosines import IntArray, quantise, tiles
from repair.numerics.similarity import BLOCK_SIZE

HashArray = npt.NDArray[np.uint64]
_GRID = (8, 9)  # rows, columns of brightness cells; each row gives 8 comparisons
_GREY = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601


def embedding_duplicates(
    embeddings: npt.ArrayLike, *, threshold: float = 0.98, block_size: int = BLOCK_SIZE
) -> IntArray:
    """Pairs of rows whose cosine is at least `threshold`.

    Args:
        embeddings: Unit norm or zero, shape (n, dim). A row of zeros is a duplicate of nothing.
        threshold: Above 0; above 1 it finds nothing.
        block_size: Speed and memory only.

    Raises:
        DataError: embeddings are not finite or longer than 1.
        ConfigError: threshold is not above 0.

    Example:
        >>> embedding_duplicates([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).tolist()
        [[0, 2]]
    """
    if not threshold > 0:
        raise ConfigError(f"threshold: must be above 0, or every image matches every caption; not {threshold}")
    if threshold > 1:
        return _sorted_pairs([])
    # A unit vector in float32 may be short of 1 by a few parts in 10^8: equal rows must pass a threshold of 1.
    level = np.float32(threshold) - np.float32(1e-6)
    rows = quantise(embeddings)
    found = []
    for tile in tiles(rows, rows, block_size=block_size):
        if tile.column_start >= tile.row_start:
            row, column = np.nonzero(tile.scores >= level)
            found.append(np.stack([row + tile.row_start, column + tile.column_start], axis=1))
    return _sorted_pairs(found)


def dhash(pixels: npt.ArrayLike) -> np.uint64:
    """The difference hash of a decoded image: 64 bits, each "this cell is darker than its right neighbour".

    The image is averaged down to 8 rows of 9 cells of grey, so size, format, compression and overall brightness do not
    matter. A picture without contrast has hash 0, like every other such picture.

    Args:
        pixels: uint8, shape (height, width) or (height, width, 3).

    Raises:
        DataError: another type or shape, or an empty image.

    Example:
        >>> ramp = np.tile(np.arange(0, 252, 7, dtype=np.uint8), (16, 1))
        >>> hex(dhash(ramp)), hex(dhash(ramp[:, ::-1]))
        ('0xffffffffffffffff', '0x0')
    """
    image = np.asarray(pixels)
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or not image.size or image.shape[2:] not in ((), (3,)):
        raise DataError(f"dhash: need uint8 (height, width) or (height, width, 3), not {image.dtype} {image.shape}")
    grey = image @ _GREY if image.ndim == 3 else image.astype(np.float64)
    for axis, n_cells in enumerate(_GRID):
        grey = np.repeat(grey, -(-n_cells // grey.shape[axis]), axis=axis)  # an image smaller than the grid
        edges = np.arange(n_cells + 1) * grey.shape[axis] // n_cells
        sizes = np.diff(edges).reshape((-1, 1) if axis == 0 else (1, -1))
        grey = np.add.reduceat(grey, edges[:-1], axis=axis) / sizes
    bits = (grey[:, :-1] < grey[:, 1:]).ravel()
    return np.uint64(int.from_bytes(np.packbits(bits).tobytes(), "big"))


def hash_duplicates(hashes: npt.ArrayLike, *, max_distance: int = 4) -> IntArray:
    """Pairs of hashes that differ in at most `max_distance` of 64 bits; hash 0 (no contrast) pairs with nothing.

    A `max_distance` of -1 finds nothing.

    Example:
        >>> hash_duplicates(np.array([0b1111, 0b1000, 0b1110], dtype=np.uint64), max_distance=1).tolist()
        [[0, 2]]
    """
    codes = np.asarray(hashes, dtype=np.uint64)
    found = []
    for start in range(0, len(codes), BLOCK_SIZE):
        block = codes[start : start + BLOCK_SIZE]
        near = np.bitwise_count(block[:, None] ^ codes[None, start:]) <= max_distance
        near &= (block != 0)[:, None] & (codes[start:] != 0)[None]
        row, column = np.nonzero(near)
        found.append(np.stack([row, column], axis=1) + start)
    return _sorted_pairs(found)


def _sorted_pairs(parts: list[IntArray]) -> IntArray:
    pairs = np.concatenate([*parts, np.zeros((0, 2), dtype=np.int64)])
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
