"""Retrieval both ways: R@k, MRR, median rank, mAP@R and R-precision, with the ranks they come from (system stage 8).

image_to_text: every image asks for captions, and any of its own is a hit. text_to_image: every caption asks for images,
and only its own is. All images and all captions of the split are the gallery, never one caption per image.

**Labelled scores count own captions only.** An identical caption of another image, a near-duplicate image or a caption
that happens to be true is a wrong answer here, unless extended positives (ECCV Caption, CxC: `evaluation.extended`) say
otherwise; what is true beyond all labels is `evaluation.truth`.

**With several positives** R@k and MRR go by the best of them; mAP@R and R-precision look at the first R places, R being
how many positives a query has.

**Ties.** A rank is 1 + the number of non-matching items above the best own one in the order (-score, id): of equal
scores the lower id first. `n_ties` beside each rank counts non-matching items of exactly equal score, and every R@k
comes with what it would be if all ties were won, or lost. A collapsed encoder (all scores equal) gets chance, not 100%.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from repair.core.errors import ConfigError, DataError
from repair.core.records import Direction
from repair.evaluation.embedding import Uncertainty
from repair.evaluation.results import DirectionResult, FloatArray64, Recall, RetrievalResult
from repair.numerics.cosines import IntArray, Matches, quantise
from repair.numerics.metrics import average_precision_at_r, median_rank, r_precision, recall_at_k
from repair.numerics.relevance import first_r
from repair.numerics.similarity import (
    BLOCK_SIZE,
    NO_ITEM,
    Ranked,
    best_truths,
    checked_matches,
    id_order,
    search_both,
)
from repair.numerics.statistics import N_RESAMPLES, bootstrap_means

TIE_RULE = "rank = 1 + the non-matching items above the best own item by (-score, id)"


def evaluate_retrieval(
    image_embeddings: npt.ArrayLike,
    text_embeddings: npt.ArrayLike,
    *,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    owner: npt.ArrayLike,
    split: str,
    positives: Matches | None = None,
    positives_name: str = "own",
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
        positives: CSR array (n_images, n_captions) of all pairs that match, instead of the own ones. Images and
            captions without any are in the gallery but are no queries.
        positives_name: What these are, for the record.
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
    gallery = _Gallery(image_ids, caption_ids, owner, positives)
    z_images = quantise(_rows(image_embeddings, gallery.images, "image"), what="image embeddings")
    z_texts = quantise(_rows(text_embeddings, gallery.captions, "caption"), what="caption embeddings")
    best = best_truths(z_images, z_texts, gallery.truth)
    by_caption: Matches = gallery.truth.T.tocsr()
    found = search_both(
        z_images,
        z_texts,
        k=most_matches(gallery.truth),
        column_k=most_matches(by_caption),
        matches=gallery.truth,
        row_probes=best.rows[:, None],
        column_probes=best.columns[:, None],
        block_size=block_size,
    )
    i2t = first_r(z_images, z_texts, gallery.truth, found.rows)
    t2i = first_r(z_texts, z_images, by_caption, found.columns)
    standings = {
        Direction.IMAGE_TO_TEXT: _standing(found.rows, best.rows, i2t, queries=gallery.images, items=gallery.captions),
        Direction.TEXT_TO_IMAGE: _standing(
            found.columns, best.columns, t2i, queries=gallery.captions, items=gallery.images
        ),
    }
    uncertainty = Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed)
    clusters = {Direction.IMAGE_TO_TEXT: np.arange(len(gallery.images)), Direction.TEXT_TO_IMAGE: gallery.owner}
    sizes = np.bincount(gallery.owner)
    return RetrievalResult(
        split=split,
        n_images=len(gallery.images),
        n_captions=len(gallery.captions),
        captions_per_image=(int(sizes.min()), float(sizes.mean()), int(sizes.max())),
        positives=positives_name,
        n_folds=1,
        tie_rule=TIE_RULE,
        confidence=confidence,
        n_bootstrap=n_bootstrap,
        seed=seed,
        directions={
            direction: measured(
                direction, standing, clusters[direction][standing.queries], sorted(set(recall_at)), uncertainty
            )
            for direction, standing in standings.items()
        },
    )


def one_way(
    queries: npt.ArrayLike, items: npt.ArrayLike, truth: Matches, *, block_size: int = BLOCK_SIZE
) -> "Standing":
    """One direction only, with both sides in id order; every query needs an item that matches.

    Args:
        queries: Unit norm or zero, shape (n_queries, dim).
        items: Likewise, shape (n_items, dim).
        truth: CSR array (n_queries, n_items).
        block_size: Speed and memory only.
    """
    left, right = quantise(queries, what="queries"), quantise(items, what="items")
    best = best_truths(left, right, truth)
    found = search_both(
        left,
        right,
        k=most_matches(truth),
        column_k=0,
        matches=truth,
        row_probes=best.rows[:, None],
        block_size=block_size,
    )
    first = first_r(left, right, truth, found.rows)
    return _standing(found.rows, best.rows, first, queries=np.arange(len(left)), items=np.arange(len(right)))


def most_matches(truth: Matches) -> int:
    """The largest number of matching items of any row of a CSR array, at least 1."""
    return int(np.diff(truth.indptr).max(initial=1))


class _Gallery:
    """The split in id order: `images` and `captions` are input positions, `truth` the matching pairs in that order."""

    def __init__(
        self, image_ids: Sequence[str], caption_ids: Sequence[str], owner: npt.ArrayLike, positives: Matches | None
    ) -> None:
        self.images = id_order(image_ids, what="image_ids")
        self.captions = id_order(caption_ids, what="caption_ids")
        self.owner = _checked_owner(owner, len(self.images), len(self.captions))
        shape = (len(self.images), len(self.captions))
        if positives is None:
            own = self.owner, np.arange(len(self.owner))
            positives = sparse.csr_array((np.ones(len(self.owner), dtype=bool), own), shape=shape)
        pairs = checked_matches(positives, shape)
        if not pairs.nnz:
            raise DataError("positives: no pair matches, so there is no query")
        self.truth: Matches = pairs[self.images][:, self.captions]
        self.truth.sort_indices()


class Standing(NamedTuple):
    """One direction, by query in the order of the input."""

    queries: IntArray  # positions in the input
    ranks: IntArray
    if_ties_won: IntArray
    if_ties_lost: IntArray
    top1: IntArray
    average_precision: FloatArray64
    precision_at_r: FloatArray64
    n_items: int


def _standing(
    ranked: Ranked,
    truths: IntArray,
    first: tuple[npt.NDArray[np.bool_], IntArray],
    *,
    queries: IntArray,
    items: IntArray,
) -> Standing:
    """From id order back to the order of the input, without items that have nothing to find."""
    back = np.argsort(queries)
    back = back[truths[back] != NO_ITEM]
    ranks = ranked.probe_ranks[back, 0]
    won = ranks - ranked.probe_ties_above[back, 0]
    # A best own item of rank 1 stands first of all; else the first of the others does.
    top1 = np.where(ranks == 1, truths[back], ranked.indices[back, 0])
    hits, n_matches = first[0][back], first[1][back]
    return Standing(
        queries=queries[back],
        ranks=ranks,
        if_ties_won=won,
        if_ties_lost=won + ranked.probe_ties[back, 0],
        top1=items[top1],
        average_precision=average_precision_at_r(hits, n_matches),
        precision_at_r=r_precision(hits, n_matches),
        n_items=len(items),
    )


def measured(
    direction: Direction, standing: Standing, clusters: IntArray, recall_at: Sequence[int], uncertainty: Uncertainty
) -> DirectionResult:
    """Metrics with intervals of one direction; `clusters` is each query's image."""
    ranks, won, lost = standing.ranks, standing.if_ties_won, standing.if_ties_lost
    columns = [*(ranks <= k for k in recall_at), 1 / ranks, standing.average_precision, standing.precision_at_r]
    *recalls, mrr, map_at_r, precision = bootstrap_means(columns, clusters, **uncertainty)
    return DirectionResult(
        direction=direction,
        n_queries=len(ranks),
        n_items=standing.n_items,
        n_tied_queries=int((won != lost).sum()),
        recall=tuple(
            Recall(k=k, interval=interval, if_ties_won=recall_at_k(won, k), if_ties_lost=recall_at_k(lost, k))
            for k, interval in zip(recall_at, recalls, strict=True)
        ),
        mrr=mrr,
        median_rank=median_rank(ranks),
        map_at_r=map_at_r,
        r_precision=precision,
        queries=standing.queries,
        ranks=ranks,
        n_ties=lost - won,
        top1=standing.top1,
        clusters=clusters,
        average_precision=standing.average_precision,
        precision_at_r=standing.precision_at_r,
    )


def _rows(embeddings: npt.ArrayLike, order: IntArray, what: str) -> npt.NDArray[np.floating]:
    rows: npt.NDArray[np.floating] = np.asarray(embeddings)
    if rows.ndim != 2 or len(rows) != len(order):
        raise DataError(f"{what} embeddings: shape {rows.shape} for {len(order)} ids, need one row for each id")
    in_order = bool((order[1:] > order[:-1]).all())  # then a copy would only cost memory
    return rows if in_order else rows[order]


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
