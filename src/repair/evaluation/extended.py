"""COCO 5k re-scored with positives that people found later: ECCV Caption and CxC (and the original pairs).

COCO's labels hold 21 % (image to text) and 14 % (text to image) of the pairs that people call matching. The published
files are two JSON maps each: NAME_image_to_caption.json and NAME_caption_to_image.json, from a COCO id (as a string) to
a list of COCO ids. The gallery is always the 5,000 test images and 25,000 captions of the original maps; queries are
the keys of the maps (1,261 images and 1,332 captions for ECCV). ECCV reports mAP@R, R-precision and R@1, CxC R@k.

The two maps of one set are not each other's inverse (a query's list is complete, an item's occurrences are not), so
each direction is scored with its own. Two of ECCV's captions are beyond the first five of their images: with 25,000
captions they cannot be found, so they are left out and said; with all 25,010 they are there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from repair.core.errors import DataError
from repair.core.records import Direction
from repair.evaluation.embedding import Uncertainty
from repair.evaluation.results import DirectionResult, RetrievalResult
from repair.evaluation.retrieval import TIE_RULE, measured, one_way
from repair.numerics.cosines import IntArray, Matches
from repair.numerics.statistics import N_RESAMPLES
from repair.store.files import read_json

SETS = ("eccv", "cxc", "original")
_MAX_UNREACHABLE_RATE = 0.001  # of the listed items; more, and it is another gallery
_SIDES = {Direction.IMAGE_TO_TEXT: "image_to_caption", Direction.TEXT_TO_IMAGE: "caption_to_image"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Positives:
    """One set: for each direction, query id to the ids of all items that match it."""

    name: str
    lists: Mapping[Direction, Mapping[int, tuple[int, ...]]]


def read_positives(folder: Path, name: str) -> Positives:
    """The set `name` ("eccv", "cxc" or "original") from its two files in `folder`.

    Raises:
        DataError: an unknown name, a file that is missing, or one that is no map of ids.
    """
    if name not in SETS:
        raise DataError(f'extended positives: no set "{name}"; sets: {", ".join(SETS)}')
    return Positives(
        name=name,
        lists={direction: _read_map(folder / f"{name}_{side}.json") for direction, side in _SIDES.items()},
    )


def matches_of(
    lists: Mapping[int, Sequence[int]], queries: Sequence[int], items: Sequence[int], *, name: str
) -> Matches:
    """The lists as a CSR array (n_queries, n_items) over the ids of a gallery, without the few items it lacks.

    Raises:
        DataError: a query, or more than one item in a thousand, is not in the gallery.
    """
    row = {query: number for number, query in enumerate(queries)}
    column = {item: number for number, item in enumerate(items)}
    pairs = [(query, item) for query, found in lists.items() for item in found]
    strangers = [f"query {query}" for query in lists if query not in row]
    unreachable = {item for _, item in pairs if item not in column}
    if len(unreachable) > _MAX_UNREACHABLE_RATE * len({item for _, item in pairs}):
        strangers += [f"item {item}" for item in sorted(unreachable)]
    if strangers:
        raise DataError(
            f"{name} positives: {len(strangers)} ids are not in the gallery, e.g. {strangers[0]}: "
            "they are for COCO 5k (Karpathy's test split), with all captions"
        )
    there = [(row[query], column[item]) for query, item in pairs if item in column]
    place = np.array(there, dtype=np.int64).reshape(-1, 2)
    flags = np.ones(len(place), dtype=bool)
    return sparse.csr_array((flags, (place[:, 0], place[:, 1])), shape=(len(queries), len(items)))


def evaluate_extended(
    image_embeddings: npt.ArrayLike,
    text_embeddings: npt.ArrayLike,
    *,
    image_ids: Sequence[int],
    caption_ids: Sequence[int],
    owner: npt.ArrayLike,
    positives: Positives,
    split: str,
    recall_at: Sequence[int] = (1, 5, 10),
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
) -> RetrievalResult:
    """Both directions with extended positives; arguments as `evaluate_retrieval`, ids are COCO's.

    Raises:
        DataError: as `evaluate_retrieval`, and for positives that are not of this gallery.
    """
    images, texts, owners = np.asarray(image_embeddings), np.asarray(text_embeddings), np.asarray(owner)
    if len(owners) != len(texts) or len(images) != len(image_ids) or len(texts) != len(caption_ids):
        raise DataError(
            f"{len(images)} image embeddings for {len(image_ids)} ids, {len(texts)} caption embeddings for "
            f"{len(caption_ids)} ids and {len(owners)} owners"
        )
    uncertainty = Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed)
    sides = {
        Direction.IMAGE_TO_TEXT: _Side(images, image_ids, texts, caption_ids, np.arange(len(images))),
        Direction.TEXT_TO_IMAGE: _Side(texts, caption_ids, images, image_ids, owners),
    }
    sizes = np.bincount(owners)
    return RetrievalResult(
        split=split,
        n_images=len(images),
        n_captions=len(texts),
        captions_per_image=(int(sizes.min()), float(sizes.mean()), int(sizes.max())),
        positives=_named(positives, image_ids, caption_ids),
        n_folds=1,
        tie_rule=TIE_RULE,
        confidence=confidence,
        n_bootstrap=n_bootstrap,
        seed=seed,
        directions={
            direction: _scored(direction, side, positives, sorted(set(recall_at)), uncertainty)
            for direction, side in sides.items()
        },
    )


class _Side(NamedTuple):
    """One direction: who asks, what is found, and the image of each who asks."""

    queries: npt.NDArray[Any]
    query_ids: Sequence[int]
    items: npt.NDArray[Any]
    item_ids: Sequence[int]
    clusters: IntArray


def _scored(
    direction: Direction, side: _Side, positives: Positives, recall_at: Sequence[int], uncertainty: Uncertainty
) -> DirectionResult:
    """Only the queries that the positives speak of are searched for; the gallery is whole."""
    matches = matches_of(positives.lists[direction], side.query_ids, side.item_ids, name=positives.name)
    asked = np.flatnonzero(np.diff(matches.indptr))
    order = np.argsort(np.asarray(side.item_ids), kind="stable")  # ties go by COCO id
    truth = matches[asked][:, order]
    truth.sort_indices()
    standing = one_way(side.queries[asked], side.items[order], truth)
    standing = standing._replace(queries=asked, top1=order[standing.top1])
    return measured(direction, standing, side.clusters[asked], recall_at, uncertainty)


def _named(positives: Positives, image_ids: Sequence[int], caption_ids: Sequence[int]) -> str:
    known = {Direction.IMAGE_TO_TEXT: set(caption_ids), Direction.TEXT_TO_IMAGE: set(image_ids)}
    unreachable = {
        item for side, lists in positives.lists.items() for items in lists.values() for item in items
        if item not in known[side]
    }  # fmt: skip
    return positives.name if not unreachable else f"{positives.name}, {len(unreachable)} of them not in the gallery"


def _read_map(path: Path) -> dict[int, tuple[int, ...]]:
    if not path.is_file():
        raise DataError(f"extended positives: {path} is missing; it comes with the package eccv_caption")
    content = read_json(path)
    try:
        found = {int(key): tuple(int(item) for item in items) for key, items in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(f"extended positives: {path} is no map from a COCO id to a list of COCO ids") from error
    empty = [key for key, items in found.items() if not items]
    if empty or not found:
        raise DataError(f"extended positives: {path}: {len(empty)} of {len(found)} queries have no positive")
    return found
