"""What a retrieval evaluation found, and its JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from repair.core.errors import ConfigError
from repair.core.records import Direction
from repair.numerics.cosines import IntArray
from repair.numerics.statistics import Interval

FloatArray64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """R@k with its interval, and what it would be if all ties were won, or lost."""

    k: int
    interval: Interval
    if_ties_won: float
    if_ties_lost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectionResult:
    """One direction. Arrays have one entry per query, in the order of the input.

    Every item is a query, except that with extended positives those without any are none: `queries` says which are.
    """

    direction: Direction
    n_queries: int
    n_items: int
    n_tied_queries: int  # queries whose best own item ties with a non-matching one
    recall: tuple[Recall, ...]
    mrr: Interval
    median_rank: float
    map_at_r: Interval
    r_precision: Interval
    queries: IntArray = field(repr=False)  # positions in the input
    ranks: IntArray = field(repr=False)
    n_ties: IntArray = field(repr=False)
    top1: IntArray = field(repr=False)  # the item that stands first, matching or not, as a position in the input
    clusters: IntArray = field(repr=False)  # the query's image: what a bootstrap resamples
    average_precision: FloatArray64 = field(repr=False)  # each query's term of mAP@R
    precision_at_r: FloatArray64 = field(repr=False)

    def recall_at(self, k: int) -> Recall:
        """R@k. Raises ConfigError if it was not asked for."""
        for recall in self.recall:
            if recall.k == k:
                return recall
        raise ConfigError(f"R@{k} was not computed: add {k} to evaluation.recall_at")

    def to_json(self) -> dict[str, Any]:
        """Counts, `metrics` (name to value with interval), and R@k under the other tie rules; no arrays."""
        metrics: dict[str, Any] = {f"R@{recall.k}": interval_json(recall.interval) for recall in self.recall}
        metrics |= {"MRR": interval_json(self.mrr), "median rank": self.median_rank}
        metrics |= {"mAP@R": interval_json(self.map_at_r), "R-precision": interval_json(self.r_precision)}
        return {
            "n_queries": self.n_queries,
            "n_items": self.n_items,
            "n_tied_queries": self.n_tied_queries,
            "metrics": metrics,
            "if_ties_won": {f"R@{recall.k}": recall.if_ties_won for recall in self.recall},
            "if_ties_lost": {f"R@{recall.k}": recall.if_ties_lost for recall in self.recall},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Both directions on one split, with everything a reader needs to compare the numbers."""

    split: str
    n_images: int
    n_captions: int
    captions_per_image: tuple[int, float, int]  # min, mean, max
    positives: str  # what counts as matching: "own", or the name of extended positives
    n_folds: int  # 1: one gallery; else the scores are means over as many galleries
    tie_rule: str
    confidence: float
    n_bootstrap: int
    seed: int
    directions: Mapping[Direction, DirectionResult]

    def to_json(self) -> dict[str, Any]:
        """{"split", …, "image_to_text": {"metrics": {"R@1": {"value", "low", "high"}, …}, …}, "text_to_image": …}."""
        least, mean, most = self.captions_per_image
        facts: dict[str, Any] = {
            "split": self.split,
            "n_images": self.n_images,
            "n_captions": self.n_captions,
            "captions_per_image": {"min": least, "mean": mean, "max": most},
            "positives": self.positives,
            "n_folds": self.n_folds,
            "tie_rule": self.tie_rule,
            "confidence": self.confidence,
            "n_bootstrap": self.n_bootstrap,
            "seed": self.seed,
        }
        return facts | {str(direction): result.to_json() for direction, result in self.directions.items()}


def interval_json(interval: Interval) -> dict[str, float]:
    """{"value", "low", "high"}."""
    return {"value": interval.estimate, "low": interval.low, "high": interval.high}
