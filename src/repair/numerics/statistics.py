"""Uncertainty: bootstrap over images, paired differences, proportions, and several seeds.

Queries of one image are not independent (five captions of one hard photo fail together), so what is resampled is
images, with all their queries: a *cluster* bootstrap. Every function is seeded and gives equal bytes for equal input.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse, stats

from repair.core.errors import ConfigError, DataError
from repair.core.identity import derive_rng

N_RESAMPLES = 2000
_CELLS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An estimate with its confidence interval; `n` items in `n_clusters` independent groups."""

    estimate: float
    low: float
    high: float
    confidence: float
    n: int
    n_clusters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What `after` gains over `before` on the same items. `p_value` is two-sided."""

    estimate: float
    low: float
    high: float
    confidence: float
    p_value: float
    n: int
    n_clusters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Several runs that differ by seed. Spread and interval are None for a single run, which shows none."""

    n: int
    mean: float
    sd: float | None  # of one run (n - 1 in the denominator)
    low: float | None
    high: float | None
    confidence: float
    p_value: float | None = None  # of paired differences only: t-test against zero


def bootstrap_mean(
    values: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """The mean of `values` with a percentile interval from resampled clusters.

    Args:
        values: One number per query (a hit 0/1, a reciprocal rank), shape (n,).
        clusters: The query's image, as integers, shape (n,).
        seed: Names the random numbers.
        confidence: In (0, 1).
        n_resamples: How many resamples.

    Raises:
        DataError: nothing to resample, shapes differ, or a value is not finite.
        ConfigError: confidence is not between 0 and 1, or n_resamples not positive.

    Example:
        >>> hits, images = [1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 2, 2]
        >>> result = bootstrap_mean(hits, images, seed=0)
        >>> result.estimate, result.low, result.high, result.n_clusters
        (0.5, 0.0, 1.0, 3)
    """
    return bootstrap_means([values], clusters, seed=seed, confidence=confidence, n_resamples=n_resamples)[0]


def bootstrap_means(
    columns: Sequence[npt.ArrayLike],
    clusters: npt.ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> list[Interval]:
    """`bootstrap_mean` of several values of the same queries, all on the same resamples, drawn once."""
    tables = [_by_cluster(values, clusters) for values in columns]
    if not tables:
        return []
    sums = np.stack([table[1] for table in tables], axis=1)
    means = _resampled_means(sums, tables[0][2], seed=seed, n_resamples=n_resamples)
    found = []
    for (numbers, _, _), resampled in zip(tables, means.T, strict=True):
        low, high = _percentiles(resampled, confidence)
        found.append(
            Interval(
                estimate=float(numbers.mean()),
                low=low,
                high=high,
                confidence=confidence,
                n=len(numbers),
                n_clusters=len(sums),
            )
        )
    return found


def bootstrap_group_mean(
    values: npt.ArrayLike,
    groups: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Interval:
    """The unweighted mean of the means of groups (a macro average), with a percentile interval from resampled clusters.

    Args:
        values: One number per item, shape (n,).
        groups: The item's group, as integers, shape (n,). One group gives `bootstrap_mean`.
        clusters: The item's image, as integers, shape (n,); a cluster may lie in several groups. A group that a
            resample leaves empty is left out of that resample.
        seed: As in `bootstrap_mean`.
        confidence: Likewise.
        n_resamples: Likewise.

    Raises:
        DataError: nothing to resample, shapes differ, or a value is not finite.

    Example:
        One group has 1 of 1 right, the other 1 of 3:

        >>> round(bootstrap_group_mean([1, 1, 0, 0], [0, 1, 1, 1], [0, 1, 2, 3], seed=0).estimate, 4)
        0.6667
    """
    estimate, means, n, n_clusters = _group_means(values, groups, clusters, seed=seed, n_resamples=n_resamples)
    low, high = _percentiles(means, confidence)
    return Interval(estimate=estimate, low=low, high=high, confidence=confidence, n=n, n_clusters=n_clusters)


def mcnemar(before: npt.ArrayLike, after: npt.ArrayLike) -> float:
    """Two-sided p-value of McNemar's exact test on right/wrong of two models on the same items; 1 if none differs.

    Items are taken as independent: where several belong to one image, `bootstrap_difference` is the sounder test.

    Example:
        Of six items that differ, all were gained:

        >>> mcnemar([0, 0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1, 1])
        0.03125
    """
    first, second = np.asarray(before, dtype=bool), np.asarray(after, dtype=bool)
    if first.shape != second.shape or first.ndim != 1:
        raise DataError(f"mcnemar: shapes {first.shape} and {second.shape}, must be the same items")
    gained, lost = int((~first & second).sum()), int((first & ~second).sum())
    if not gained + lost:
        return 1.0
    return float(stats.binomtest(gained, gained + lost, 0.5).pvalue)


def bootstrap_difference(
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Difference:
    """mean(after) - mean(before) of two models on the same queries, resampling images for both alike.

    The p-value inverts the percentile interval: twice the smaller share of resamples on either side of zero (a
    resample of exactly zero counts on both), with one resample added, at most 1; so never below 2 / (n_resamples + 1).

    Example:
        >>> result = bootstrap_difference([0, 0, 1, 0], [1, 1, 1, 0], [0, 1, 2, 3], seed=0)
        >>> result.estimate, result.low, result.high
        (0.5, 0.0, 1.0)
    """
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if first.shape != second.shape:
        raise DataError(f"before and after: shapes {first.shape} and {second.shape}, must be the same queries")
    return bootstrap_group_difference(
        first,
        second,
        np.zeros(len(first), dtype=np.int64),
        clusters,
        seed=seed,
        confidence=confidence,
        n_resamples=n_resamples,
    )


def bootstrap_group_difference(
    before: npt.ArrayLike,
    after: npt.ArrayLike,
    groups: npt.ArrayLike,
    clusters: npt.ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    n_resamples: int = N_RESAMPLES,
) -> Difference:
    """`bootstrap_difference` of a macro average: the mean over groups of the groups' mean gains.

    Arguments as in `bootstrap_group_mean` and `bootstrap_difference`.

    Raises:
        DataError: nothing to resample, shapes differ, or a value is not finite.

    Example:
        One group gains 1 of 1, the other 1 of 3:

        >>> before, after = [0, 0, 1, 0], [1, 1, 1, 0]
        >>> round(bootstrap_group_difference(before, after, [0, 1, 1, 1], [0, 1, 2, 3], seed=0).estimate, 4)
        0.6667
    """
    first, second = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    if first.shape != second.shape:
        raise DataError(f"before and after: shapes {first.shape} and {second.shape}, must be the same items")
    estimate, means, n, n_clusters = _group_means(second - first, groups, clusters, seed=seed, n_resamples=n_resamples)
    low, high = _percentiles(means, confidence)
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return Difference(
        estimate=estimate,
        low=low,
        high=high,
        confidence=confidence,
        p_value=min(1.0, 2 * (tail + 1) / (n_resamples + 1)),
        n=n,
        n_clusters=n_clusters,
    )


def wilson_interval(n_hits: int, n: int, *, confidence: float = 0.95) -> Interval:
    """The share n_hits / n with Wilson's score interval: sound for few items and for shares of 0 and 1.

    Raises:
        DataError: n is not positive, or n_hits is not in 0 … n.

    Example:
        >>> result = wilson_interval(8, 10)
        >>> result.estimate, round(result.low, 4), round(result.high, 4)
        (0.8, 0.4902, 0.9433)
    """
    if n < 1 or not 0 <= n_hits <= n:
        raise DataError(f"wilson_interval: {n_hits} hits of {n}, need 0 ≤ n_hits ≤ n and n ≥ 1")
    _check_confidence(confidence)
    found = stats.binomtest(n_hits, n).proportion_ci(confidence_level=confidence, method="wilson")
    return Interval(
        estimate=n_hits / n, low=float(found.low), high=float(found.high), confidence=confidence, n=n, n_clusters=n
    )


def combine_seeds(values: Sequence[float], *, confidence: float = 0.95) -> Seeds:
    """Mean, standard deviation and t-interval of one number over several seeds.

    Raises:
        DataError: no value, or one is not finite.

    Example:
        >>> result = combine_seeds([40.0, 41.0, 42.0])
        >>> result.mean, result.sd, round(result.low, 3), round(result.high, 3)
        (41.0, 1.0, 38.516, 43.484)
    """
    numbers = np.asarray(values, dtype=np.float64)
    _check_confidence(confidence)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise DataError("seeds: need at least one value, all finite")
    n, mean = len(numbers), float(numbers.mean())
    if n == 1:
        return Seeds(n=1, mean=mean, sd=None, low=None, high=None, confidence=confidence)
    sd = float(numbers.std(ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * sd / n**0.5
    return Seeds(n=n, mean=mean, sd=sd, low=mean - half, high=mean + half, confidence=confidence)


def paired_seeds(before: Sequence[float], after: Sequence[float], *, confidence: float = 0.95) -> Seeds:
    """after - before, seed by seed: mean, standard deviation, t-interval, and the p-value of a paired t-test.

    Pairing takes out what both runs of a seed share (base checkpoint, data order). All differences equal and not zero
    gives p = 0, all zero p = 1.

    Raises:
        DataError: the lengths differ, there is no value, or one is not finite.

    Example:
        >>> result = paired_seeds([40.0, 45.0, 50.0], [41.0, 47.0, 53.0])
        >>> result.mean, result.sd, round(result.p_value, 4)
        (2.0, 1.0, 0.0742)
    """
    if len(before) != len(after):
        raise DataError(f"paired seeds: {len(before)} runs before, {len(after)} after, must be the same seeds")
    gains = [float(y) - float(x) for x, y in zip(before, after, strict=True)]
    found = combine_seeds(gains, confidence=confidence)
    if found.sd is None:
        return found
    if found.sd == 0:
        p_value = 1.0 if found.mean == 0 else 0.0
    else:
        p_value = float(2 * stats.t.sf(abs(found.mean) / (found.sd / found.n**0.5), found.n - 1))
    return Seeds(
        n=found.n,
        mean=found.mean,
        sd=found.sd,
        low=found.low,
        high=found.high,
        confidence=confidence,
        p_value=p_value,
    )


def _group_means(
    values: npt.ArrayLike, groups: npt.ArrayLike, clusters: npt.ArrayLike, *, seed: int, n_resamples: int
) -> tuple[float, npt.NDArray[np.float64], int, int]:
    """The mean of the groups' means, the same in each resample, and how many values and clusters there are."""
    numbers, members = np.asarray(values, dtype=np.float64), np.asarray(groups)
    _, all_sums, all_sizes = _by_cluster(values, clusters)  # checks
    if members.shape != numbers.shape:
        raise DataError(f"bootstrap: groups {members.shape} and values {numbers.shape}, must be the same items")
    _, group = np.unique(members, return_inverse=True)
    if not group.any():  # one group: a plain mean
        means = _resampled_means(all_sums[:, None], all_sizes, seed=seed, n_resamples=n_resamples)[:, 0]
        return float(numbers.mean()), means, len(numbers), len(all_sums)
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    shape = (len(all_sums), int(group.max()) + 1)
    sums = sparse.csr_array((numbers, (cluster, group)), shape=shape)
    sizes = sparse.csr_array((np.ones(len(numbers)), (cluster, group)), shape=shape)
    parts = []
    for counts in _resamples(shape[0], seed=seed, n_resamples=n_resamples):
        of_groups, in_groups = counts @ sums, counts @ sizes
        there = in_groups > 0
        means = np.divide(of_groups, in_groups, out=np.zeros_like(of_groups), where=there)
        parts.append(means.sum(axis=1) / there.sum(axis=1))
    of_each = np.bincount(group, weights=numbers) / np.bincount(group)
    return float(of_each.mean()), np.concatenate(parts), len(numbers), shape[0]


def _by_cluster(
    values: npt.ArrayLike, clusters: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The values, and the sum and size of each cluster."""
    numbers, groups = np.asarray(values, dtype=np.float64), np.asarray(clusters)
    if numbers.ndim != 1 or numbers.shape != groups.shape or not len(numbers):
        raise DataError(f"bootstrap: values {numbers.shape} and clusters {groups.shape}, need (n,) twice with n > 0")
    if not np.isfinite(numbers).all():
        raise DataError("bootstrap: a value is NaN or infinite")
    _, place = np.unique(groups, return_inverse=True)
    sums = np.bincount(place, weights=numbers).astype(np.float64)
    return numbers, sums, np.bincount(place).astype(np.float64)


def _resampled_means(
    sums: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], *, seed: int, n_resamples: int
) -> npt.NDArray[np.float64]:
    """Means of m values in each resample, (n_resamples, m); `sums` (n_clusters, m), `sizes` (n_clusters,)."""
    table = np.column_stack([sums, sizes])
    totals = np.concatenate([counts @ table for counts in _resamples(len(sums), seed=seed, n_resamples=n_resamples)])
    means: npt.NDArray[np.float64] = totals[:, :-1] / totals[:, -1:]
    return means


def _resamples(n: int, *, seed: int, n_resamples: int) -> Iterator[npt.NDArray[np.float64]]:
    """How often each of `n` clusters is drawn, (step, n), until `n_resamples` rows have come."""
    if n_resamples < 1:
        raise ConfigError(f"n_resamples: must be at least 1, not {n_resamples}")
    rng = derive_rng(seed, "bootstrap")
    step = max(1, _CELLS_AT_ONCE // n)
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        drawn = rng.integers(0, n, size=(rows, n))
        drawn += np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _percentiles(means: npt.NDArray[np.float64], confidence: float) -> tuple[float, float]:
    _check_confidence(confidence)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence: must be between 0 and 1, not {confidence}")
