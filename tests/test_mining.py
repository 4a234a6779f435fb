from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.core.errors import ConfigError, DataError
from repair.core.records import Direction
from repair.mining import mine
from repair.numerics.cosines import normalise
from repair.numerics.matching import matching_pairs
from tests import reference

BOTH = tuple(Direction)


def split(seed, n_images=12, per_image=3, dim=4, ties=False):
    """A random multi-positive split with shared texts and a near-duplicate; ids are not in the order of the input."""
    rng = np.random.default_rng(seed)
    n_captions = n_images * per_image
    owner = rng.permutation(np.repeat(np.arange(n_images), per_image))

    def draw(n):
        return normalise(rng.integers(-1, 2, size=(n, dim)) if ties else rng.standard_normal((n, dim)))

    texts = [f"text {rng.integers(0, 3 * n_captions)}" for _ in range(n_captions)]
    return {
        "image_embeddings": draw(n_images),
        "text_embeddings": draw(n_captions),
        "image_ids": [f"i{number}" for number in rng.permutation(n_images)],
        "caption_ids": [f"c{number}" for number in rng.permutation(n_captions)],
        "matching": matching_pairs(
            owner, texts, n_images=n_images, near_duplicates=[(0, 1)], extra_positives=[(2, 0), (3, 1)]
        ),
    }


def shuffled(data, seed):
    """The same split with images and captions in another order."""
    rng = np.random.default_rng(seed)
    return taken(data, rng.permutation(len(data["image_ids"])), rng.permutation(len(data["caption_ids"])))


def taken(data, rows, columns):
    """The split's images `rows` and captions `columns`."""
    pairs = data["matching"]
    moved = type(pairs)(
        pairs=pairs.pairs[rows][:, columns],
        truth=pairs.truth[rows][:, columns],
        n_own=pairs.n_own,
        n_extra=pairs.n_extra,
        n_near_duplicate=pairs.n_near_duplicate,
        n_identical_caption=pairs.n_identical_caption,
    )
    return {
        "image_embeddings": data["image_embeddings"][rows],
        "text_embeddings": data["text_embeddings"][columns],
        "image_ids": [data["image_ids"][row] for row in rows],
        "caption_ids": [data["caption_ids"][column] for column in columns],
        "matching": moved,
    }


def table(data, direction):
    """Scores, matches, truth, query ids and item ids of one direction, plain and dense, items in id order."""
    rows, columns = np.argsort(data["image_ids"]), np.argsort(data["caption_ids"])
    scores = reference.exact_scores(data["image_embeddings"][rows], data["text_embeddings"][columns])
    matches = data["matching"].pairs.toarray()[rows][:, columns]
    truth = data["matching"].truth.toarray()[rows][:, columns]
    if direction is Direction.IMAGE_TO_TEXT:
        return scores, matches, truth, sorted(data["image_ids"]), sorted(data["caption_ids"])
    return scores.T, matches.T, truth.T, sorted(data["caption_ids"]), sorted(data["image_ids"])


def expected(data, direction, *, strategy, top_k, max_per_query, max_per_item):
    """The rows that mining must find, by brute force: a set of plain tuples."""
    scores, matches, truth, query_ids, item_ids = table(data, direction)
    candidates = []
    for query in range(len(query_ids)):
        out = set(np.flatnonzero(matches[query]))
        own = reference.order(scores[query], set(np.flatnonzero(~truth[query])))[0]
        own_rank = reference.rank(scores[query], out, own)
        for place, item in enumerate(reference.order(scores[query], out)[:top_k]):
            if strategy == "top_k" or place + 1 < own_rank:
                facts = (item_ids[own], own_rank, float(scores[query][own]))
                candidates.append((place + 1, -float(scores[query][item]), query, item, facts))
    of_query, of_item, kept = Counter(), Counter(), set()
    for rank, negative, query, item, facts in sorted(candidates):
        if of_query[query] < max_per_query and of_item[item] < max_per_item:
            of_query[query] += 1
            of_item[item] += 1
            kept.add((query_ids[query], item_ids[item], rank, -negative, *facts))
    return kept


def as_tuple(failure):
    return (
        failure.query_id,
        failure.false_positive_id,
        failure.false_positive_rank,
        failure.false_positive_score,
        failure.ground_truth_id,
        failure.ground_truth_rank,
        failure.ground_truth_score,
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    ties=st.booleans(),
    strategy=st.sampled_from(["top_k", "outranking"]),
    top_k=st.sampled_from([1, 3, 50]),
    max_per_query=st.sampled_from([1, 2, 50]),
    max_per_item=st.sampled_from([1, 3, 50]),
)
def test_mining_equals_brute_force(seed, ties, strategy, top_k, max_per_query, max_per_item):
    data = split(seed, ties=ties)
    limits = {"strategy": strategy, "top_k": top_k, "max_per_query": max_per_query, "max_per_item": max_per_item}
    found = mine(**data, **limits)
    for direction in BOTH:
        of_direction = [failure for failure in found.failures if failure.direction is direction]
        assert {as_tuple(failure) for failure in of_direction} == expected(data, direction, **limits)
        counts = found.summary.directions[direction]
        assert counts.n_kept == len(of_direction)
        assert counts.n_candidates == counts.n_kept + counts.n_over_query_cap + counts.n_over_item_cap
        assert counts.n_outranking == sum(failure.outranks for failure in of_direction)


@pytest.mark.parametrize("strategy", ["top_k", "outranking", "random"])
@pytest.mark.parametrize("ties", [False, True])
def test_order_of_the_input_does_not_matter(strategy, ties):
    data = split(5, ties=ties)
    limits = {"strategy": strategy, "top_k": 5, "max_per_query": 2, "max_per_item": 4, "max_failures": 12, "seed": 3}
    first = mine(**data, **limits)
    assert first.failures
    assert mine(**shuffled(data, 1), **limits) == first


def test_outranks_says_what_the_ranks_say():
    for ties in (False, True):
        for failure in mine(**split(6, ties=ties), top_k=50, max_per_query=50, max_per_item=50).failures:
            assert failure.outranks == (failure.false_positive_rank < failure.ground_truth_rank)
            if failure.false_positive_score != failure.ground_truth_score:
                assert failure.outranks == (failure.false_positive_score > failure.ground_truth_score)


def test_order_and_ids():
    failures = mine(**split(7)).failures
    keys = [
        (BOTH.index(f.direction), f.false_positive_rank, -f.false_positive_score, f.query_id, f.false_positive_id)
        for f in failures
    ]
    assert keys == sorted(keys)
    ids = [failure.failure_id for failure in failures]
    assert len(set(ids)) == len(ids)
    assert all(f.failure_id.startswith(f"{f.direction.short}-") and len(f.failure_id) == 16 for f in failures)


def test_ids_stay_when_the_model_changes():
    data = split(8)
    everything = {"top_k": 99, "max_per_query": 99, "max_per_item": 99}
    before = {(f.direction, f.query_id, f.false_positive_id): f.failure_id for f in mine(**data, **everything).failures}
    data["image_embeddings"] = data["image_embeddings"][::-1]
    after = {(f.direction, f.query_id, f.false_positive_id): f.failure_id for f in mine(**data, **everything).failures}
    assert before == after


def test_no_failure_matches_its_query():
    for strategy in ("top_k", "random"):
        data = split(9)
        for direction in BOTH:
            _, matches, _, query_ids, item_ids = table(data, direction)
            for failure in mine(**data, strategy=strategy, directions=[direction], top_k=50, max_per_query=50).failures:
                assert not matches[query_ids.index(failure.query_id), item_ids.index(failure.false_positive_id)]


def test_random_draws_evenly_from_what_does_not_match():
    data = split(10, n_images=6, per_image=2)
    seen = Counter()
    for seed in range(300):
        found = mine(**data, strategy="random", top_k=2, max_per_query=2, max_per_item=999, seed=seed)
        seen.update((f.query_id, f.false_positive_id) for f in found.failures if f.direction is BOTH[0])
    _, matches, _, query_ids, item_ids = table(data, BOTH[0])
    for query, query_id in enumerate(query_ids):
        others = [item_ids[item] for item in np.flatnonzero(~matches[query])]
        assert {item for q, item in seen if q == query_id} == set(others)
        counts = [seen[query_id, item] for item in others]
        share = 600 / len(others)
        assert sum((count - share) ** 2 / share for count in counts) < 40  # χ², at most 10 degrees of freedom
    assert all(f.false_positive_id != f.ground_truth_id for f in found.failures)


def test_random_ranks_and_scores_are_the_true_ones():
    data = split(11, ties=True)
    for direction in BOTH:
        scores, matches, _, query_ids, item_ids = table(data, direction)
        found = mine(**data, strategy="random", directions=[direction], top_k=4, max_per_query=3)
        assert found.failures
        assert any(failure.false_positive_rank > 4 for failure in found.failures)
        for failure in found.failures:
            query, item = query_ids.index(failure.query_id), item_ids.index(failure.false_positive_id)
            assert failure.false_positive_score == scores[query][item]
            out = set(np.flatnonzero(matches[query]))
            assert failure.false_positive_rank == reference.rank(scores[query], out, item)


def test_random_with_nothing_else_to_draw():
    data = split(12, n_images=4, per_image=1)
    found = mine(**data, strategy="random", top_k=10, max_per_query=10)
    for direction in BOTH:
        _, matches, *_ = table(data, direction)
        assert found.summary.directions[direction].n_candidates == (~matches).sum()


def test_budgets_nest():
    data, sets = split(13), []
    for budget in (1, 5, 17, 10_000, None):
        found = mine(**data, max_failures=budget, seed=2)
        for direction, counts in found.summary.directions.items():
            assert counts.n_kept == min(budget or 10_000, counts.n_kept + counts.n_over_budget), direction
        sets.append({failure.failure_id for failure in found.failures})
    assert all(small <= large for small, large in pairwise(sets))
    assert sets[3] == sets[4]
    other = {failure.failure_id for failure in mine(**data, max_failures=17, seed=3).failures}
    assert other != sets[2]


def test_budget_favours_the_same_failures_whatever_else_was_mined():
    data = split(15)
    limits = {"directions": [Direction.TEXT_TO_IMAGE], "max_per_item": 999, "max_failures": 20}
    everything = mine(**data, **limits).failures
    fewer = taken(data, np.arange(12), np.argsort(data["caption_ids"])[1:])
    without_one = {failure.failure_id for failure in mine(**fewer, **limits).failures}
    dropped = min(data["caption_ids"])
    assert {f.failure_id for f in everything if f.query_id != dropped} <= without_one


def test_directions():
    data = split(14)
    both = mine(**data)
    for direction in BOTH:
        alone = mine(**data, directions=[direction])
        assert alone.failures == tuple(f for f in both.failures if f.direction is direction)
        assert list(alone.summary.directions) == [direction]


def test_an_image_without_captions_is_an_item_but_no_query():
    found = mine(
        np.eye(3),
        np.eye(3)[:2],
        image_ids=["a", "b", "c"],
        caption_ids=["x", "y"],
        matching=matching_pairs([0, 1], ["one", "two"], n_images=3),
    )
    by_image = found.summary.directions[Direction.IMAGE_TO_TEXT]
    assert (by_image.n_queries, by_image.n_without_truth) == (3, 1)
    assert {f.query_id for f in found.failures if f.direction is Direction.IMAGE_TO_TEXT} == {"a", "b"}
    assert "c" in {f.false_positive_id for f in found.failures if f.direction is Direction.TEXT_TO_IMAGE}


def test_worked_example():
    """Image a's own caption scores 0.6; caption y (b's) scores 0.8 and outranks it; z reads like x, so it matches a."""
    found = mine(
        [[1.0, 0.0], [0.0, 1.0]],
        [[0.6, 0.8], [0.8, 0.6], [1.0, 0.0]],
        image_ids=["a", "b"],
        caption_ids=["x", "y", "z"],
        matching=matching_pairs([0, 1, 1], ["A dog.", "a cat", "a dog"], n_images=2),
        directions=[Direction.IMAGE_TO_TEXT],
    )
    (failure,) = found.failures
    assert as_tuple(failure) == ("a", "y", 1, np.float32(0.8), "x", 2, np.float32(0.6))
    assert failure.outranks
    assert (found.summary.n_masked_own, found.summary.n_masked_identical_caption) == (3, 2)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"strategy": "topk"}, ConfigError, 'mining.strategy "topk": did you mean "top_k"'),
        ({"top_k": 0}, ConfigError, "mining.top_k: must be at least 1, not 0"),
        ({"max_failures": 0}, ConfigError, "mining.max_failures: must be at least 1"),
        ({"image_ids": ["a"] * 12}, DataError, 'image_ids: "a" occurs twice'),
        ({"caption_ids": ["a"]}, DataError, "caption embeddings: shape .* for 1 ids"),
        ({"image_embeddings": np.full((12, 4), np.nan)}, DataError, "NaN"),
        ({"matching": matching_pairs([0], ["x"], n_images=1)}, DataError, r"matching: made for \(1, 1\)"),
    ],
)
def test_bad_input(changes, error, message):
    with pytest.raises(error, match=message):
        mine(**{**split(0), **changes})
