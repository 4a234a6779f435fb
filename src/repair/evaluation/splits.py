"""The splits whose sizes everybody knows: what they must hold, and a refusal where they do not.

A number on "COCO 5k" is comparable only if it is of those 5,000 images and 25,010 captions. Half of the published
disagreements come from a split that silently was another one: train mixed in, five captions an image where there are
six, a thousand images taken for five thousand.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.numerics.cosines import IntArray

ALL, FIRST_FIVE, FIRST = "all", "first_five", "first"
MOST: Mapping[str, int | None] = {ALL: None, FIRST_FIVE: 5, FIRST: 1}  # captions an image


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSplit:
    """Sizes of a published split. `first_five` is what remains of `n_captions` with at most five an image."""

    n_images: int
    n_captions: int
    first_five: int
    source: str


KNOWN = {
    "coco_5k": KnownSplit(n_images=5000, n_captions=25_010, first_five=25_000, source="Karpathy's test split of COCO"),
    "flickr30k": KnownSplit(n_images=1000, n_captions=5000, first_five=5000, source="Karpathy's test split"),
    "flickr30k_val": KnownSplit(n_images=1014, n_captions=5070, first_five=5070, source="Karpathy's val split"),
    "flickr8k": KnownSplit(n_images=1000, n_captions=5000, first_five=5000, source="Karpathy's test split"),
    "flickr8k_val": KnownSplit(n_images=1000, n_captions=5000, first_five=5000, source="Karpathy's val split"),
}


def first_captions(owner: npt.ArrayLike, most: int = 5) -> IntArray:
    """Positions of each image's first `most` captions, in the order of the input.

    Example:
        >>> first_captions([0, 0, 0, 1], most=2).tolist()
        [0, 1, 3]
    """
    owners = np.asarray(owner, dtype=np.int64)
    order = np.argsort(owners, kind="stable")
    number = np.empty_like(order)
    sizes = np.bincount(owners)
    number[order] = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.flatnonzero(number < most)


def problem_with(name: str, *, n_images: int, n_captions: int, captions: str = ALL) -> str | None:
    """What keeps data of this size from being the known split `name`; None if nothing does, or nothing is known.

    Example:
        >>> problem_with("coco_5k", n_images=5000, n_captions=25_010) is None
        True
    """
    known = KNOWN.get(name)
    if known is None:
        return None
    wanted = {ALL: known.n_captions, FIRST_FIVE: known.first_five, FIRST: known.n_images}[captions]
    if (n_images, n_captions) == (known.n_images, wanted):
        return None
    return (
        f"{name} is {known.n_images:,} images with {wanted:,} captions ({known.source}), "
        f"these are {n_images:,} with {n_captions:,}"
    )


def require_unmixed(split: str, hashes: Sequence[str], others: Mapping[str, Sequence[str]]) -> None:
    """Refuse a split that shares pictures with another split of the same data: a score on it says little.

    Args:
        split: Its name.
        hashes: Content hashes of its images.
        others: The same of the other splits, by name.

    Raises:
        DataError: naming the split that is mixed in, and how many images.
    """
    own = set(hashes)
    for name, theirs in others.items():
        shared = own & set(theirs)
        if shared:
            raise DataError(
                f'split "{split}": {len(shared)} of its {len(own)} images are in split "{name}" as well (equal files): '
                "take them out of one, or say retrieval(allow_mixed=True)"
            )
