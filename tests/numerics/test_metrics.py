import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, precision_score, recall_score

from repair.core.errors import DataError
from repair.numerics.metrics import (
    agreement,
    choice_accuracy,
    mean_reciprocal_rank,
    median_rank,
    rank_of_truth,
    recall_at_k,
)
from tests import reference


@given(
    scores=st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=1, max_size=12),
    picks=st.sets(st.integers(0, 11), min_size=1, max_size=4),
)
def test_rank_equals_brute_force(scores, picks):
    truth = [index for index in picks if index < len(scores)] or [0]
    found = rank_of_truth(scores, truth)
    best = reference.order(scores, set(range(len(scores))) - set(truth))[0]
    assert found.rank == reference.rank(scores, set(truth), best)
    assert found.n_ties == reference.ties(scores, set(truth), best)
    assert found.if_ties_won <= found.rank <= found.if_ties_lost == found.if_ties_won + found.n_ties


def test_a_collapsed_encoder_gets_chance():
    ranks = [rank_of_truth(np.zeros(10), [query]).rank for query in range(10)]
    assert recall_at_k(ranks, 1) == pytest.approx(0.1)
    assert rank_of_truth(np.zeros(10), [7]).if_ties_won == 1
    assert rank_of_truth(np.zeros(10), [7]).if_ties_lost == 10


def test_further_ground_truths_do_not_stand_in_the_way():
    assert rank_of_truth([0.9, 0.8, 0.7], truth=[0, 1]).rank == 1
    assert rank_of_truth([0.7, 0.9, 0.8], truth=[0, 2]).rank == 2


def test_worked_example_of_the_averages():
    ranks = [1, 1, 2, 5, 11]
    assert [recall_at_k(ranks, k) for k in (1, 5, 10)] == [0.4, 0.8, 0.8]
    assert mean_reciprocal_rank(ranks) == pytest.approx((1 + 1 + 1 / 2 + 1 / 5 + 1 / 11) / 5)
    assert median_rank(ranks) == 2.0


@pytest.mark.parametrize("ranks", [[], [0, 1], [[1, 2]]])
def test_ranks_that_are_none(ranks):
    for metric in (lambda r: recall_at_k(r, 1), mean_reciprocal_rank, median_rank):
        with pytest.raises(DataError, match="ranks: need at least one"):
            metric(ranks)


def test_choice_accuracy_counts_ties_as_wrong():
    assert choice_accuracy(np.zeros((5, 4)), np.zeros(5, dtype=int)) == 0.0
    assert choice_accuracy([[0.1, 0.2, 0.3], [0.3, 0.1, 0.3]], [2, 0]) == 0.5
    with pytest.raises(DataError, match="NaN"):
        choice_accuracy([[np.nan, 0.0]], [0])
    with pytest.raises(DataError, match=r"need \(n, n_choices\)"):
        choice_accuracy([0.1, 0.2], [0])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_agreement_equals_scikit_learn(pairs):
    predicted, actual = (np.array(column) for column in zip(*pairs, strict=True))
    found = agreement(predicted, actual)
    assert found.accuracy == pytest.approx(accuracy_score(actual, predicted))
    assert (found.precision is None) == (not predicted.any())
    assert (found.recall is None) == (not actual.any())
    if found.precision is not None:
        assert found.precision == pytest.approx(precision_score(actual, predicted))
    if found.recall is not None:
        assert found.recall == pytest.approx(recall_score(actual, predicted))
    one_thing = len({*predicted.tolist(), *actual.tolist()}) == 1
    assert (found.kappa is None) == one_thing
    if not one_thing:
        assert found.kappa == pytest.approx(cohen_kappa_score(predicted, actual))
    counts = (found.true_positives, found.false_positives, found.false_negatives, found.true_negatives)
    assert sum(counts) == found.n == len(pairs)


def test_agreement_needs_pairs():
    with pytest.raises(DataError, match="predicted and actual"):
        agreement([True], [True, False])
    with pytest.raises(DataError, match="n > 0"):
        agreement([], [])
