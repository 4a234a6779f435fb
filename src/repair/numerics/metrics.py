"""Retrieval and agreement metrics: arrays in, one number out, each with a worked example.

**Ranks** start at 1. The rank of a query's ground truth is 1 + the number of non-matching items above it, in the order
(-score, index): equal scores stand by index. With more than one ground truth the best-ranked one counts, and the
others do not stand in its way (CLIP's "recall@k" is a hit rate: any own caption in the top k). `n_ties` beside a rank
says how many non-matching items score exactly the same, so the two bounds are known: rank with all ties won, and
rank with all ties lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Where a query's best ground truth stands. The bounds are what other tie rules would say."""

    rank: int
    n_ties: int
    if_ties_won: int
    if_ties_lost: int


def rank_of_truth(scores: npt.ArrayLike, truth: Sequence[int]) -> Rank:
    """The rank of one query's best ground truth, from the query's scores with all N items.

    For a whole split use `numerics.similarity.search_both`, which never holds all scores.

    Args:
        scores: Shape (N,).
        truth: Indices of the items that match; at least one.

    Raises:
        DataError: `truth` is empty.

    Example:
        Items 1 and 3 match, item 0 stands above both, item 2 ties with item 3 and has the lower index:

        >>> rank_of_truth([0.9, 0.1, 0.5, 0.5], truth=[1, 3])
        Rank(rank=3, n_ties=1, if_ties_won=2, if_ties_lost=3)
    """
    values = np.asarray(scores)
    matching = sorted({int(index) for index in truth})
    if not matching:
        raise DataError("truth: empty, a rank needs at least one ground truth")
    best = max(matching, key=lambda index: (values[index], -index))
    others = np.ones(len(values), dtype=bool)
    others[matching] = False
    above = int((others & (values > values[best])).sum())
    equal = others & (values == values[best])
    return Rank(
        rank=1 + above + int(equal[:best].sum()),
        n_ties=int(equal.sum()),
        if_ties_won=1 + above,
        if_ties_lost=1 + above + int(equal.sum()),
    )


def recall_at_k(ranks: npt.ArrayLike, k: int) -> float:
    """The share of queries whose ground truth has rank k or better, in [0, 1].

    Example:
        >>> recall_at_k([1, 3, 5, 12], k=5)
        0.75
    """
    return float((_ranks(ranks) <= k).mean())


def mean_reciprocal_rank(ranks: npt.ArrayLike) -> float:
    """The mean of 1 / rank, in (0, 1].

    Example:
        >>> mean_reciprocal_rank([1, 2, 4, 4])
        0.5
    """
    return float((1.0 / _ranks(ranks)).mean())


def median_rank(ranks: npt.ArrayLike) -> float:
    """The median rank; the mean of the middle two if the number of queries is even.

    Example:
        >>> median_rank([1, 9, 2, 3])
        2.5
    """
    return float(np.median(_ranks(ranks)))


def r_precision(hits: npt.ArrayLike, n_relevant: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Each query's R-precision: of its first R items the share that match, R being how many items match it at all.

    Args:
        hits: Whether the item at each place matches, best first, shape (n, m) with m at least the largest R; what
            stands behind place R does not count.
        n_relevant: R of each query, at least 1, shape (n,).

    Raises:
        DataError: shapes differ, an R is below 1, or a list is shorter than its R.

    Example:
        >>> r_precision([[1, 0, 1], [0, 1, 1]], [2, 3]).tolist()
        [0.5, 0.6666666666666666]
    """
    counted, sizes = _first_r(hits, n_relevant)
    found: npt.NDArray[np.float64] = counted.sum(axis=1) / sizes
    return found


def average_precision_at_r(hits: npt.ArrayLike, n_relevant: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Each query's term of mAP@R: (1 / R) Σ_{k ≤ R} precision(k) · [item k matches] (Musgrave et al. 2020).

    Arguments and errors are those of `r_precision`.

    Example:
        R = 3, items 1 and 3 match: (1/1 + 2/3) / 3

        >>> average_precision_at_r([[1, 0, 1]], [3]).round(4).tolist()
        [0.5556]
    """
    counted, sizes = _first_r(hits, n_relevant)
    precision = counted.cumsum(axis=1) / np.arange(1, counted.shape[1] + 1)
    found: npt.NDArray[np.float64] = (precision * counted).sum(axis=1) / sizes
    return found


def choice_accuracy(scores: npt.ArrayLike, answers: npt.ArrayLike) -> float:
    """The share of items whose right choice scores strictly above all other choices; a tie is wrong.

    Args:
        scores: Shape (n, n_choices).
        answers: Index of the right choice, shape (n,).

    Example:
        Right, wrong, and a tie:

        >>> choice_accuracy([[0.9, 0.1], [0.2, 0.3], [0.5, 0.5]], answers=[0, 0, 0])
        0.3333333333333333
    """
    table, right = np.asarray(scores, dtype=np.float64), np.asarray(answers, dtype=np.int64)
    if table.ndim != 2 or not len(table) or right.shape != (len(table),):
        raise DataError(
            f"scores of shape {table.shape} and answers of shape {right.shape}: need (n, n_choices) and (n,)"
        )
    if not np.isfinite(table).all():
        raise DataError("scores: hold NaN or infinity")
    own = table[np.arange(len(table)), right]
    others = table.copy()
    others[np.arange(len(table)), right] = -np.inf
    return float((own > others.max(axis=1)).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A binary judge against the truth. A rate is None where its denominator is zero."""

    n: int
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int
    precision: float | None  # of what the judge says yes to, the share that is so
    recall: float | None  # of what is so, the share the judge says yes to
    accuracy: float
    kappa: float | None  # Cohen's: agreement beyond chance; None if both always say the same one thing


def agreement(predicted: npt.ArrayLike, actual: npt.ArrayLike) -> Agreement:
    """Precision, recall, accuracy and Cohen's kappa of yes/no predictions. The positive class is True.

    Raises:
        DataError: the shapes differ, or there is nothing to compare.

    Example:
        >>> result = agreement([True, True, True, False], [True, True, False, False])
        >>> result.precision, result.recall, result.accuracy, result.kappa
        (0.6666666666666666, 1.0, 0.75, 0.5)
    """
    says, is_so = np.asarray(predicted, dtype=bool), np.asarray(actual, dtype=bool)
    if says.ndim != 1 or says.shape != is_so.shape or not len(says):
        raise DataError(f"predicted and actual: shapes {says.shape} and {is_so.shape}, need (n,) twice with n > 0")
    hit, extra = int((says & is_so).sum()), int((says & ~is_so).sum())
    missed, n = int((~says & is_so).sum()), len(says)
    right = n - extra - missed
    # Counts, not rates, so that chance agreement of exactly 1 is seen as such.
    by_chance = (hit + extra) * (hit + missed) + (n - hit - extra) * (n - hit - missed)
    return Agreement(
        n=n,
        true_positives=hit,
        false_positives=extra,
        false_negatives=missed,
        true_negatives=n - hit - extra - missed,
        precision=hit / (hit + extra) if hit + extra else None,
        recall=hit / (hit + missed) if hit + missed else None,
        accuracy=right / n,
        kappa=(n * right - by_chance) / (n * n - by_chance) if by_chance != n * n else None,
    )


def _first_r(hits: npt.ArrayLike, n_relevant: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """`hits` as numbers with everything behind place R set to 0, and R."""
    table, sizes = np.asarray(hits, dtype=np.float64), np.asarray(n_relevant, dtype=np.int64)
    if table.ndim != 2 or sizes.shape != (len(table),):
        raise DataError(f"hits of shape {table.shape} and n_relevant of shape {sizes.shape}: need (n, m) and (n,)")
    if len(sizes) and (sizes.min() < 1 or sizes.max() > table.shape[1]):
        raise DataError(f"n_relevant: must be from 1 to the {table.shape[1]} places of each list")
    return table * (np.arange(table.shape[1]) < sizes[:, None]), sizes


def _ranks(ranks: npt.ArrayLike) -> npt.NDArray[np.int64]:
    values = np.asarray(ranks, dtype=np.int64)
    if values.ndim != 1 or not len(values) or values.min() < 1:
        raise DataError("ranks: need at least one, all 1 or greater")
    return values
