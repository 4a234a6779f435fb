"""Retrieval in several small galleries, averaged: "COCO 1k" is five folds of 1,000 images of COCO 5k, in file order.

Easier than one big gallery, and often printed beside it without a word. Folds are contiguous, as in VSE++ and all that
followed it. A score is the mean of the folds' scores; where folds differ by a few captions, each query weighs so that
every fold counts alike. Intervals resample images over all folds.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.records import Direction
from repair.evaluation.embedding import Uncertainty
from repair.evaluation.results import DirectionResult, Recall, RetrievalResult
from repair.evaluation.retrieval import evaluate_retrieval
from repair.numerics.statistics import N_RESAMPLES, bootstrap_group_mean


def evaluate_folds(
    image_embeddings: npt.ArrayLike,
    text_embeddings: npt.ArrayLike,
    *,
    image_ids: Sequence[str],
    caption_ids: Sequence[str],
    owner: npt.ArrayLike,
    split: str,
    n_folds: int = 5,
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
    **options: Any,
) -> RetrievalResult:
    """As `evaluate_retrieval` (which takes `options`), in `n_folds` galleries of equal numbers of images.

    The median rank is the mean of the folds' medians.

    Raises:
        DataError: as `evaluate_retrieval`, and if the images cannot be parted into equal folds.
    """
    images, texts, owners = np.asarray(image_embeddings), np.asarray(text_embeddings), np.asarray(owner)
    if n_folds < 2 or len(image_ids) % n_folds or not len(image_ids):
        raise DataError(f"{len(image_ids)} images cannot be parted into {n_folds} folds of equal size")
    size = len(image_ids) // n_folds
    captions_of = [np.flatnonzero(owners // size == fold) for fold in range(n_folds)]
    folds = [
        evaluate_retrieval(
            images[fold * size : (fold + 1) * size],
            texts[captions],
            image_ids=image_ids[fold * size : (fold + 1) * size],
            caption_ids=[caption_ids[int(c)] for c in captions],
            owner=owners[captions] - fold * size,
            split=split,
            confidence=confidence,
            n_bootstrap=1,
            **options,
        )
        for fold, captions in enumerate(captions_of)
    ]
    uncertainty = Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed)
    image_starts = [fold * size for fold in range(n_folds)]
    sizes = np.bincount(owners)
    return replace(
        folds[0],
        n_images=len(image_ids),
        n_captions=len(caption_ids),
        captions_per_image=(int(sizes.min()), float(sizes.mean()), int(sizes.max())),
        n_folds=n_folds,
        n_bootstrap=n_bootstrap,
        seed=seed,
        directions={
            direction: _together(
                [fold.directions[direction] for fold in folds], captions_of, image_starts, direction, uncertainty
            )
            for direction in Direction
        },
    )


def _together(
    folds: Sequence[DirectionResult],
    captions_of: Sequence[npt.NDArray[np.int64]],
    image_starts: Sequence[int],
    direction: Direction,
    uncertainty: Uncertainty,
) -> DirectionResult:
    """One direction of all folds, with positions of the whole input; queries in its order."""

    def images(fold: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return positions + image_starts[fold]

    def captions(fold: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return captions_of[fold][positions]

    asks, finds = (images, captions) if direction is Direction.IMAGE_TO_TEXT else (captions, images)
    queries = np.concatenate([asks(f, side.queries) for f, side in enumerate(folds)])
    order = np.argsort(queries)

    def joined(parts: Sequence[Any]) -> Any:
        return np.concatenate(list(parts))[order]

    member = joined([np.full(side.n_queries, f) for f, side in enumerate(folds)])
    clusters = joined([images(f, side.clusters) for f, side in enumerate(folds)])
    ranks, n_ties = joined([side.ranks for side in folds]), joined([side.n_ties for side in folds])
    average_precision = joined([side.average_precision for side in folds])
    precision_at_r = joined([side.precision_at_r for side in folds])

    def mean(values: Any) -> Any:
        return bootstrap_group_mean(values, member, clusters, **uncertainty)

    def recall(k: int) -> Recall:
        parts = [side.recall_at(k) for side in folds]
        return Recall(
            k=k,
            interval=mean(ranks <= k),
            if_ties_won=float(np.mean([part.if_ties_won for part in parts])),
            if_ties_lost=float(np.mean([part.if_ties_lost for part in parts])),
        )

    return replace(
        folds[0],
        n_queries=len(queries),
        n_tied_queries=sum(side.n_tied_queries for side in folds),
        recall=tuple(recall(part.k) for part in folds[0].recall),
        mrr=mean(1 / ranks),
        median_rank=float(np.mean([side.median_rank for side in folds])),
        map_at_r=mean(average_precision),
        r_precision=mean(precision_at_r),
        queries=queries[order],
        ranks=ranks,
        n_ties=n_ties,
        top1=joined([finds(f, side.top1) for f, side in enumerate(folds)]),
        clusters=clusters,
        average_precision=average_precision,
        precision_at_r=precision_at_r,
    )
