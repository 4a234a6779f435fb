"""What is true beyond the labels: the share of queries whose first item satisfies the truth, labelled or not."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.numerics.statistics import N_RESAMPLES, Interval, bootstrap_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueRecall:
    """True R@1, and for each query whether its first item is true of it."""

    interval: Interval
    hits: npt.NDArray[np.bool_] = field(repr=False)


def true_recall_at_1(
    top1: npt.ArrayLike,
    holds: Callable[[int, int], bool],
    *,
    clusters: npt.ArrayLike,
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
) -> TrueRecall:
    """True R@1 of one direction.

    Args:
        top1: Each query's first item, as `DirectionResult.top1`, shape (n_queries,).
        holds: Whether (query position, item position) is true; asked once per query. The caller knows which of
            the two is the image.
        clusters: Each query's image, as `DirectionResult.clusters`.
        confidence: Level of the interval, from `n_bootstrap` resamples of images, drawn by `seed`.
        n_bootstrap: See `confidence`.
        seed: See `confidence`.

    Raises:
        DataError: there is no query, or the shapes differ.

    Example:
        >>> true_recall_at_1([0, 2, 2, 1], lambda query, item: item == 2, clusters=[0, 1, 2, 3]).interval.estimate
        0.5
    """
    items = np.asarray(top1)
    if items.ndim != 1 or not len(items):
        raise DataError(f"true R@1: top1 of shape {items.shape}, need one item for each query")
    hits = np.array([bool(holds(query, int(item))) for query, item in enumerate(items)])
    interval = bootstrap_mean(hits, clusters, seed=seed, confidence=confidence, n_resamples=n_bootstrap)
    return TrueRecall(interval=interval, hits=hits)
