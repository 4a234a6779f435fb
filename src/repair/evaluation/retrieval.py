"""Retrieval both ways: R@k, MRR and median rank, with the ranks they come from (system stage 8).

image_to_text: every image asks for captions, and any of its own is a hit. text_to_image: every caption asks for images,
and only its own is. All images and all captions of the split are the gallery, never one caption per image.

**Labelled scores count own captions only.** An identical caption of another image, a near-duplicate image or a caption
that happens to be true is a wrong answer here; what is true beyond the labels is `evaluation.truth`.

**Ties.** A rank is 1 + the number of non-matching items above the best own one in the order (-score, id): of equal
scores the lower id first. `n_ties` beside each rank counts non-matching items of exactly equal score, and every R@k
comes with what it would be if all ties were won, or lost. A collapsed encoder (all scores equal) gets chance, not 100%.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
from scipy import sparse

from repair.core.errors import ConfigError, DataError
from repair.core.records import Direction
from repair.evaluation.results import DirectionResult, Recall, RetrievalResult
from repair.numerics.cosines import IntArray, Matches
from repair.numerics.metrics import median_rank, recall_at_k
from repair.numerics.similarity import BLOCK_SIZE, Ranked, best_truths, id_order, search_both
from repair.numerics.statistics import N_RESAMPLES, bootstrap_mean

TIE_RULE = "rank = 1 + the non-matching items above the best own item by (-score, id)"


def evaluate_retrieval(
    image_embeddings: npt.ArrayLike,
    text_embeddings: npt.ArrayLike,
    *,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    owner: npt.ArrayLike,
    split: str,
    recall_at: Sequence[int] = (1, 5, 10),
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
    block_size: int = BLOCK_SIZE,
) -> RetrievalResult:
    """Both directions of one split; scores are made tile by tile, never all at once.

    Args:
        image_embeddings: Unit norm or zero, shape (n_images, dim).
        text_embeddings: Unit norm or zero, shape (n_captions, dim).
        image_ids: Unique; ties go by them, so the order of the input changes nothing but the order of the output.
        caption_ids: Likewise.
        owner: Each caption's image, as a position in `image_ids`, shape (n_captions,). Every image owns at least one.
        split: Its name, for the record.
        recall_at: The k of R@k.
        confidence: Level of the intervals, from `n_bootstrap` resamples of images, drawn by `seed`.
        n_bootstrap: See `confidence`.
        seed: See `confidence`.
        block_size: Speed and memory only.

    Raises:
        DataError: shapes, ids or owners do not fit, an image has no caption, or embeddings are not finite.
        ConfigError: a k below 1, or a confidence that is not between 0 and 1.

    Example:
        >>> result = evaluate_retrieval([[1, 0], [0, 1]], [[1, 0], [0.6, 0.8], [0.8, 0.6]], image_ids=["a", "b"],
        ...                             caption_ids=["a1", "a2", "b1"], owner=[0, 0, 1], split="test", recall_at=[1])
        >>> [side.ranks.tolist() for side in result.directions.values()]
        [[1, 2], [1, 2, 2]]
        >>> [side.recall_at(1).interval.estimate for side in result.directions.values()]
        [0.5, 0.3333333333333333]
    """
    if not recall_at or min(recall_at) < 1:
        raise ConfigError(f"recall_at: needs whole numbers from 1, not {list(recall_at)}")
    gallery = _Gallery(image_ids, caption_ids, owner)
    z_images = _rows(image_embeddings, gallery.images, "image")
    z_texts = _rows(text_embeddings, gallery.captions, "caption")
    best = best_truths(z_images, z_texts, gallery.truth)
    found = search_both(
        z_images,
        z_texts,
        k=1,
        matches=gallery.truth,
        row_probes=best.rows[:, None],
        column_probes=best.columns[:, None],
        block_size=block_size,
    )
    uncertainty = Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed)
    standings = {
        Direction.IMAGE_TO_TEXT: _standing(found.rows, best.rows, queries=gallery.images, items=gallery.captions),
        Direction.TEXT_TO_IMAGE: _standing(found.columns, best.columns, queries=gallery.captions, items=gallery.images),
    }
    clusters = {Direction.IMAGE_TO_TEXT: np.arange(len(gallery.images)), Direction.TEXT_TO_IMAGE: gallery.owner}
    sizes = np.bincount(gallery.owner)
    return RetrievalResult(
        split=split,
        n_images=len(gallery.images),
        n_captions=len(gallery.captions),
        captions_per_image=(int(sizes.min()), float(sizes.mean()), int(sizes.max())),
        tie_rule=TIE_RULE,
        confidence=confidence,
        n_bootstrap=n_bootstrap,
        seed=seed,
        directions={
            direction: _measured(direction, standing, clusters[direction], sorted(set(recall_at)), uncertainty)
            for direction, standing in standings.items()
        },
    )


class Uncertainty(TypedDict):
    """How intervals are made; the keywords of `numerics.statistics.bootstrap_mean`."""

    confidence: float
    n_resamples: int
    seed: int


class _Gallery:
    """The split in id order: `images` and `captions` are input positions, `truth` the own pairs in that order."""

    def __init__(self, image_ids: Sequence[str], caption_ids: Sequence[str], owner: npt.ArrayLike) -> None:
        self.images = id_order(image_ids, what="image_ids")
        self.captions = id_order(caption_ids, what="caption_ids")
        self.owner = _checked_owner(owner, len(self.images), len(self.captions))
        place = np.empty_like(self.images)
        place[self.images] = np.arange(len(self.images))
        own = place[self.owner[self.captions]], np.arange(len(self.captions))
        shape = (len(self.images), len(self.captions))
        self.truth: Matches = sparse.csr_array((np.ones(len(own[0]), dtype=bool), own), shape=shape)


class _Standing(NamedTuple):
    """One direction, by query in the order of the input."""

    ranks: IntArray
    if_ties_won: IntArray
    if_ties_lost: IntArray
    top1: IntArray
    n_items: int


def _standing(ranked: Ranked, truths: IntArray, *, queries: IntArray, items: IntArray) -> _Standing:
    """From id order back to the order of the input."""
    back = np.argsort(queries)
    ranks = ranked.probe_ranks[back, 0]
    won = ranks - ranked.probe_ties_above[back, 0]
    # A best own item of rank 1 stands first of all; else the first of the others does.
    top1 = np.where(ranks == 1, truths[back], ranked.indices[back, 0])
    return _Standing(
        ranks=ranks,
        if_ties_won=won,
        if_ties_lost=won + ranked.probe_ties[back, 0],
        top1=items[top1],
        n_items=len(items),
    )


def _measured(
    direction: Direction, standing: _Standing, clusters: IntArray, recall_at: Sequence[int], uncertainty: Uncertainty
) -> DirectionResult:
    ranks, won, lost = standing.ranks, standing.if_ties_won, standing.if_ties_lost
    return DirectionResult(
        direction=direction,
        n_queries=len(ranks),
        n_items=standing.n_items,
        n_tied_queries=int((won != lost).sum()),
        recall=tuple(
            Recall(
                k=k,
                interval=bootstrap_mean(ranks <= k, clusters, **uncertainty),
                if_ties_won=recall_at_k(won, k),
                if_ties_lost=recall_at_k(lost, k),
            )
            for k in recall_at
        ),
        mrr=bootstrap_mean(1 / ranks, clusters, **uncertainty),
        median_rank=median_rank(ranks),
        ranks=ranks,
        n_ties=lost - won,
        top1=standing.top1,
        clusters=clusters,
    )


def _rows(embeddings: npt.ArrayLike, order: IntArray, what: str) -> npt.NDArray[np.floating]:
    rows = np.asarray(embeddings)
    if rows.ndim != 2 or len(rows) != len(order):
        raise DataError(f"{what} embeddings: shape {rows.shape} for {len(order)} ids, need one row for each id")
    permuted: npt.NDArray[np.floating] = rows[order]
    return permuted


def _checked_owner(owner: npt.ArrayLike, n_images: int, n_captions: int) -> IntArray:
    owners = np.asarray(owner)
    if owners.shape != (n_captions,) or not n_captions or owners.dtype.kind not in "iu":
        raise DataError(f"owner: shape {owners.shape}, need one image position for each of {n_captions} captions")
    if owners.min() < 0 or owners.max() >= n_images:
        raise DataError(f"owner: positions must be from 0 to {n_images - 1}")
    without = n_images - len(np.unique(owners))
    if without:
        raise DataError(f"owner: {without} of {n_images} images have no caption, so they can be no query")
    return owners.astype(np.int64)
