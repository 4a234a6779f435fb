"""Guard: how far a model's space has moved from a reference model's, on the same pictures and texts.

*Cosine*: the mean cosine of an item's two vectors; only where both models have one dimension, and only meaningful where
one was tuned from the other (two trainings from scratch have no common axes). *Neighbours*: the mean overlap of an
item's ten nearest neighbours among the same items, in both spaces; 1 is unchanged, whatever the axes. *CKA*:
linear centred kernel alignment (Kornblith et al. 2019), unchanged by rotation and scale.
"""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from repair.core.errors import DataError
from repair.core.ports import FloatArray
from repair.evaluation.document import Score, score_of
from repair.evaluation.embedding import Uncertainty
from repair.numerics.cosines import quantise
from repair.numerics.similarity import search_both
from repair.numerics.statistics import bootstrap_means

N_NEIGHBOURS = 10


def drift_scores(before: FloatArray, after: FloatArray, *, group: str, uncertainty: Uncertainty) -> list[Score]:
    """Cosine, neighbours and CKA of one kind of item.

    Args:
        before: The reference's unit rows, shape (n, dim).
        after: The model's unit rows of the same items, shape (n, its dim).
        group: "images" or "texts".
        uncertainty: How intervals are made; items are resampled.

    Raises:
        DataError: the two are not of the same items, or there are fewer than 3.
    """
    if len(before) != len(after) or len(before) < 3:
        raise DataError(f"drift of {group}: {len(before)} and {len(after)} vectors, need the same 3 items or more")
    columns: dict[str, npt.NDArray[np.float64]] = {}
    if before.shape[1] == after.shape[1]:
        columns["cosine"] = np.einsum("ij,ij->i", before.astype(np.float64), after.astype(np.float64))
    columns["neighbours"] = neighbour_overlap(before, after)
    intervals = bootstrap_means(list(columns.values()), np.arange(len(before)), **uncertainty)
    scores = [score_of(group, name, interval) for name, interval in zip(columns, intervals, strict=True)]
    if "cosine" in columns:
        scores.append(
            Score(
                group=group,
                metric="cosine, lowest 5 %",
                value=float(np.quantile(columns["cosine"], 0.05)),
                n=len(before),
            )
        )
    scores.append(Score(group=group, metric="CKA", value=linear_cka(before, after), n=len(before)))
    return scores


def neighbour_overlap(before: FloatArray, after: FloatArray, k: int = N_NEIGHBOURS) -> npt.NDArray[np.float64]:
    """The share of each item's `k` nearest neighbours (fewer, if there are fewer) that both spaces have, shape (n,)."""
    k = min(k, len(before) - 1)
    first, second = (_neighbours(rows, k) for rows in (before, after))
    return np.array([len(set(a) & set(b)) / k for a, b in zip(first.tolist(), second.tolist(), strict=True)])


def linear_cka(before: FloatArray, after: FloatArray) -> float:
    """Linear CKA in [0, 1]; 1 for equal spaces up to rotation and scale, 0 if one of them has no spread.

    Example:
        >>> x = np.float32([[1, 0], [0, 1], [-1, 0]])
        >>> round(linear_cka(x, x @ np.float32([[0, 1], [-1, 0]])), 6)
        1.0
    """
    x = before.astype(np.float64) - before.mean(axis=0, dtype=np.float64)
    y = after.astype(np.float64) - after.mean(axis=0, dtype=np.float64)
    spread = float(np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))
    return float(np.linalg.norm(x.T @ y) ** 2) / spread if spread > 0 else 0.0


def _neighbours(rows: FloatArray, k: int) -> npt.NDArray[np.int64]:

    z = quantise(rows)
    itself = sparse.csr_array(sparse.eye_array(len(z), dtype=bool))
    return search_both(z, z, k=k, column_k=0, matches=itself).rows.indices
