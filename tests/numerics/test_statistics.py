import numpy as np
import pytest
from scipy import stats

from repair.core.errors import ConfigError, DataError
from repair.numerics.statistics import (
    bootstrap_difference,
    bootstrap_group_mean,
    bootstrap_mean,
    bootstrap_means,
    combine_seeds,
    mcnemar,
    paired_seeds,
    wilson_interval,
)


def photos(rng, n, per_image, rate):
    """Hits that are the same for all captions of an image: as dependent as can be."""
    return np.repeat(rng.random(n) < rate, per_image).astype(float), np.repeat(np.arange(n), per_image)


def test_bootstrap_agrees_with_scipy_where_clusters_are_single_queries():
    rng = np.random.default_rng(0)
    values = rng.random(300)
    ours = bootstrap_mean(values, np.arange(300), seed=0, n_resamples=4000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=4000, method="percentile", rng=rng).confidence_interval
    assert ours.low == pytest.approx(theirs.low, abs=0.003)
    assert ours.high == pytest.approx(theirs.high, abs=0.003)
    assert ours.estimate == pytest.approx(values.mean())


def test_clusters_are_resampled_whole():
    """Five equal captions an image say no more than one: the interval must be as wide as that of the images alone."""
    hits, images = photos(np.random.default_rng(1), 200, 5, 0.4)
    whole = bootstrap_mean(hits, images, seed=0)
    alone = bootstrap_mean(hits[::5], images[::5], seed=0)
    wrong = bootstrap_mean(hits, np.arange(1000), seed=0)
    assert (whole.low, whole.high) == (alone.low, alone.high)
    assert whole.high - whole.low > 1.8 * (wrong.high - wrong.low)
    assert (whole.n, whole.n_clusters) == (1000, 200)


def test_unequal_clusters_weigh_by_their_queries():
    values, clusters = [1.0] * 9 + [0.0], [0] * 9 + [1]
    found = bootstrap_mean(values, clusters, seed=0)
    assert found.estimate == 0.9  # the mean over queries, not over clusters


def test_coverage_is_near_the_confidence():
    covered = 0
    for trial in range(200):
        hits, images = photos(np.random.default_rng(trial), 150, 3, 0.5)
        found = bootstrap_mean(hits, images, seed=trial, n_resamples=400, confidence=0.9)
        covered += found.low <= 0.5 <= found.high
    assert 0.83 <= covered / 200 <= 0.96


def test_order_of_queries_does_not_matter_but_the_seed_does():
    rng = np.random.default_rng(2)
    values, clusters = rng.integers(0, 2, 60).astype(float), rng.integers(0, 20, 60)
    shuffled = rng.permutation(60)
    first = bootstrap_mean(values, clusters, seed=3)
    assert bootstrap_mean(values[shuffled], clusters[shuffled], seed=3) == first
    assert bootstrap_mean(values, clusters, seed=3) == first
    assert bootstrap_mean(values * 0.7, clusters, seed=4).low != bootstrap_mean(values * 0.7, clusters, seed=3).low


def test_difference_is_paired():
    """A shift of every query by the same amount has no spread, however much the queries differ among themselves."""
    before = np.random.default_rng(3).random(100)
    found = bootstrap_difference(before, before + 0.25, np.arange(100), seed=0)
    assert found.low == pytest.approx(0.25)
    assert found.high == pytest.approx(0.25)
    assert found.p_value == pytest.approx(2 / 2001)


def test_no_difference_has_p_of_one():
    found = bootstrap_difference([1, 0, 1], [1, 0, 1], [0, 1, 2], seed=0)
    assert (found.estimate, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_p_value_is_small_only_where_there_is_a_difference():
    rng = np.random.default_rng(4)
    before = rng.random(400) < 0.5
    flipped = rng.random(400)
    better = before | (flipped < 0.15)
    as_good = before ^ (flipped < 0.15)
    clusters = np.arange(400)
    assert bootstrap_difference(before, better, clusters, seed=0).p_value < 0.01
    assert bootstrap_difference(before, as_good, clusters, seed=0).p_value > 0.05
    worse = bootstrap_difference(better, before, clusters, seed=0)
    assert worse.high < 0
    assert worse.p_value < 0.01


def test_wilson_interval_equals_its_formula():
    z = stats.norm.ppf(0.975)
    for n_hits, n in ((0, 7), (3, 7), (7, 7), (40, 200)):
        share = n_hits / n
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
        found = wilson_interval(n_hits, n)
        assert found.low == pytest.approx(middle - half, abs=1e-12)
        assert found.high == pytest.approx(middle + half, abs=1e-12)


def test_seeds_equal_scipy():
    before, after = [40.1, 41.7, 39.9, 42.0], [41.0, 41.9, 41.2, 42.4]
    found = paired_seeds(before, after)
    theirs = stats.ttest_rel(after, before)
    interval = theirs.confidence_interval(0.95)
    assert found.p_value == pytest.approx(theirs.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.mean == pytest.approx(np.mean(after) - np.mean(before))
    assert combine_seeds(after).sd == pytest.approx(np.std(after, ddof=1))


def test_one_seed_has_no_spread():
    found = paired_seeds([1.0], [3.0])
    assert (found.n, found.mean) == (1, 2.0)
    assert (found.sd, found.low, found.high, found.p_value) == (None, None, None, None)


def test_equal_differences():
    assert paired_seeds([1.0, 2.0], [2.0, 3.0]).p_value == 0.0
    assert paired_seeds([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: bootstrap_mean([], [], seed=0), DataError, "n > 0"),
        (lambda: bootstrap_mean([1.0], [0, 1], seed=0), DataError, r"need \(n,\) twice"),
        (lambda: bootstrap_mean([np.nan], [0], seed=0), DataError, "NaN or infinite"),
        (lambda: bootstrap_mean([1.0], [0], seed=0, confidence=95), ConfigError, "between 0 and 1, not 95"),
        (lambda: bootstrap_mean([1.0], [0], seed=0, n_resamples=0), ConfigError, "n_resamples: must be at least 1"),
        (lambda: bootstrap_difference([1.0], [1.0, 2.0], [0], seed=0), DataError, "must be the same queries"),
        (lambda: wilson_interval(3, 2), DataError, "3 hits of 2"),
        (lambda: wilson_interval(0, 0), DataError, "n ≥ 1"),
        (lambda: combine_seeds([]), DataError, "at least one value"),
        (lambda: combine_seeds([np.inf]), DataError, "all finite"),
        (lambda: paired_seeds([1.0], [1.0, 2.0]), DataError, "must be the same seeds"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_several_means_share_their_resamples():
    rng = np.random.default_rng(5)
    first, second, clusters = rng.random(50), rng.integers(0, 2, 50), rng.integers(0, 12, 50)
    together = bootstrap_means([first, second], clusters, seed=1)
    assert together == [bootstrap_mean(first, clusters, seed=1), bootstrap_mean(second, clusters, seed=1)]
    assert bootstrap_means([], clusters, seed=1) == []


def test_one_group_is_the_mean():
    rng = np.random.default_rng(6)
    values, clusters = rng.integers(0, 2, 80), rng.integers(0, 30, 80)
    found = bootstrap_group_mean(values, np.zeros(80, dtype=int), clusters, seed=2)
    plain = bootstrap_mean(values, clusters, seed=2)
    assert (found.estimate, found.low, found.high) == pytest.approx((plain.estimate, plain.low, plain.high))
    assert (found.n, found.n_clusters) == (plain.n, plain.n_clusters)


def test_groups_count_alike_whatever_their_size():
    values = np.array([1.0] * 99 + [0.0])
    found = bootstrap_group_mean(values, [0] * 99 + [1], np.arange(100), seed=0)
    assert found.estimate == 0.5
    assert found.high == 1.0  # resamples that miss the one item of group 1 have no mean of it
    with pytest.raises(DataError, match="groups"):
        bootstrap_group_mean(values, [0, 1], np.arange(100), seed=0)


def test_macro_interval_agrees_with_scipy():
    """Clusters are single items and groups are fixed: a stratified statistic, resampled over all items."""
    rng = np.random.default_rng(7)
    values, groups = rng.random(200), np.repeat([0, 1, 2], [20, 60, 120])
    found = bootstrap_group_mean(values, groups, np.arange(200), seed=0, n_resamples=4000)

    def macro(rows):
        return np.mean([values[rows][groups[rows] == g].mean() for g in range(3)])

    theirs = stats.bootstrap(
        (np.arange(200),), macro, n_resamples=2000, method="percentile", vectorized=False, rng=rng
    ).confidence_interval
    assert found.low == pytest.approx(theirs.low, abs=0.01)
    assert found.high == pytest.approx(theirs.high, abs=0.01)


def test_mcnemar_is_the_binomial_test_of_what_differs():
    before, after = [1] * 5 + [0] * 12 + [1] * 30, [0] * 5 + [1] * 12 + [1] * 30
    assert mcnemar(before, after) == pytest.approx(stats.binomtest(12, 17).pvalue)
    assert mcnemar([1, 0], [1, 0]) == 1.0
    with pytest.raises(DataError, match="same items"):
        mcnemar([1], [1, 0])
