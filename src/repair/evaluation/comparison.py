"""Two models on the same queries: which failures were fixed, which are new, and whether the gain is more than noise."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repair.core.errors import DataError
from repair.evaluation.results import DirectionResult
from repair.numerics.cosines import IntArray
from repair.numerics.statistics import N_RESAMPLES, Difference, bootstrap_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`after` against `before`, one direction. The four arrays of query positions part all queries."""

    k: int
    recall: Difference  # of R@k
    mrr: Difference
    fixed: IntArray = field(repr=False)  # a miss at k before, a hit after
    newly_broken: IntArray = field(repr=False)
    still_failing: IntArray = field(repr=False)
    still_right: IntArray = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Counts, and {"value", "low", "high", "p_value"} of both differences."""
        counts = {
            f"n_{name}": len(getattr(self, name)) for name in ("fixed", "newly_broken", "still_failing", "still_right")
        }
        return {f"R@{self.k}": _difference_json(self.recall), "MRR": _difference_json(self.mrr), **counts}


def compare(
    before: DirectionResult,
    after: DirectionResult,
    *,
    k: int = 1,
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Differences with intervals from resampled images, both models on the same resample, and where queries went.

    Raises:
        DataError: the two are not of the same direction and queries.
    """
    if before.direction is not after.direction or not np.array_equal(before.clusters, after.clusters):
        raise DataError(f"compare: {before.direction} and {after.direction} are not of the same queries")
    hit_before, hit_after = before.ranks <= k, after.ranks <= k

    def difference(first: Any, second: Any) -> Difference:
        return bootstrap_difference(
            first, second, before.clusters, seed=seed, confidence=confidence, n_resamples=n_bootstrap
        )

    return Comparison(
        k=k,
        recall=difference(hit_before, hit_after),
        mrr=difference(1 / before.ranks, 1 / after.ranks),
        fixed=np.flatnonzero(~hit_before & hit_after),
        newly_broken=np.flatnonzero(hit_before & ~hit_after),
        still_failing=np.flatnonzero(~hit_before & ~hit_after),
        still_right=np.flatnonzero(hit_before & hit_after),
    )


def _difference_json(difference: Difference) -> dict[str, float]:
    return {
        "value": difference.estimate,
        "low": difference.low,
        "high": difference.high,
        "p_value": difference.p_value,
    }
