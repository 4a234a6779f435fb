"""Which captions match which images, by labels and by what follows from them.

An image matches

1. its *own* captions,
2. its *extra* positives (a file of further human-verified pairs, such as ECCV Caption or CxC),
3. the captions under 1 and 2 of its *near-duplicate* images,
4. every caption that reads the same (`core.texts.folded`) as one under 1–3.

As a product of incidence matrices: (D · Dᵀ) · (O + E) · (T · Tᵀ), with O ownership, E the extra positives, D images by
class of near-duplicates and T captions by class of equal text. Both are classes: a near-duplicate of a
near-duplicate is one. Matching pairs are never negatives.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from repair.core.errors import DataError
from repair.core.texts import folded
from repair.numerics.cosines import IntArray, Matches


def caption_classes(texts: Sequence[str]) -> IntArray:
    """Equal numbers for captions that read the same, in order of first appearance; shape (n,).

    Example:
        >>> caption_classes(["A cat.", "a dog", "a cat"]).tolist()
        [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(folded(text), len(numbers)) for text in texts], dtype=np.int64)


def image_classes(near_duplicates: npt.ArrayLike, n_images: int) -> IntArray:
    """For each image the lowest index among its near-duplicates, itself included; shape (n_images,).

    Args:
        near_duplicates: Pairs of image indices, shape (n, 2), in any order.
        n_images: How many images there are.

    Raises:
        DataError: an index is out of range.

    Example:
        >>> image_classes([(3, 1), (0, 3)], n_images=5).tolist()
        [0, 0, 2, 0, 4]
    """
    pairs = _indices(np.asarray(near_duplicates).reshape(-1, 2), n_images, what="near_duplicates")
    _, label = csgraph.connected_components(_incidence(pairs[:, 0], pairs[:, 1], (n_images, n_images)), directed=False)
    _, first = np.unique(label, return_index=True)
    lowest: IntArray = first.astype(np.int64)[label]
    return lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """The relation as a CSR array (n_images, n_captions), and how many pairs each reason adds to those before it."""

    pairs: Matches = field(repr=False)
    truth: Matches = field(repr=False)  # own captions only
    n_own: int
    n_extra: int
    n_near_duplicate: int
    n_identical_caption: int


def matching_pairs(
    owner: npt.ArrayLike,
    texts: Sequence[str],
    *,
    n_images: int,
    near_duplicates: npt.ArrayLike = (),
    extra_positives: Iterable[tuple[int, int]] = (),
) -> Matching:
    """All matching pairs of a split.

    Args:
        owner: Each caption's image, as an index, shape (n_captions,).
        texts: The captions.
        n_images: How many images there are.
        near_duplicates: Pairs of image indices, shape (n, 2), in either order or both.
        extra_positives: (image index, caption index) pairs.

    Raises:
        DataError: lengths differ, or an index is out of range.

    Example:
        Image 2 is a near-duplicate of image 0; images 0 and 1 share a caption's text:

        >>> found = matching_pairs([0, 1, 1, 2], ["a dog", "A dog.", "a red dog", "one dog"], n_images=3,
        ...                        near_duplicates=[(0, 2)])
        >>> found.pairs.toarray().astype(int).tolist()
        [[1, 1, 0, 1], [1, 1, 1, 0], [1, 1, 0, 1]]
        >>> found.n_own, found.n_extra, found.n_near_duplicate, found.n_identical_caption
        (4, 0, 2, 3)
    """
    owners = _indices(owner, n_images, what="owner")
    if owners.ndim != 1 or len(owners) != len(texts):
        raise DataError(f"owner: {owners.shape} for {len(texts)} captions, need one image index for each caption")
    n_captions, captions = len(texts), np.arange(len(texts))
    truth = _incidence(owners, captions, (n_images, n_captions))
    extra = np.array(sorted(set(extra_positives)), dtype=np.int64).reshape(-1, 2)
    labelled = truth + _incidence(
        _indices(extra[:, 0], n_images, what="extra_positives (images)"),
        _indices(extra[:, 1], n_captions, what="extra_positives (captions)"),
        (n_images, n_captions),
    )
    in_twins = _incidence(np.arange(n_images), image_classes(near_duplicates, n_images), (n_images, n_images))
    same_text = caption_classes(texts)
    in_text = _incidence(captions, same_text, (n_captions, int(same_text.max(initial=-1)) + 1))
    of_images = _product(in_twins, _product(in_twins.T.tocsr(), labelled))
    pairs = _product(_product(of_images, in_text), in_text.T.tocsr())
    return Matching(
        pairs=pairs,
        truth=truth,
        n_own=truth.nnz,
        n_extra=labelled.nnz - truth.nnz,
        n_near_duplicate=of_images.nnz - labelled.nnz,
        n_identical_caption=pairs.nnz - of_images.nnz,
    )


def _incidence(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Matches:
    matrix = sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _product(left: Matches, right: Matches) -> Matches:
    """The boolean product, with sorted indices. Counted in int32: a sum of booleans could wrap to False."""
    product = (left.astype(np.int32) @ right.astype(np.int32)).astype(bool)
    product.sort_indices()
    return product


def _indices(values: npt.ArrayLike, n: int, *, what: str) -> IntArray:
    indices = np.asarray(values)
    if indices.size and (indices.dtype.kind not in "iu" or indices.min() < 0 or indices.max() >= n):
        raise DataError(f"{what}: must be indices from 0 to {n - 1}")
    return indices.astype(np.int64)
