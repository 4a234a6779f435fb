import json

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.core.errors import ConfigError, DataError
from repair.core.records import Direction
from repair.evaluation.comparison import compare
from repair.evaluation.retrieval import evaluate_retrieval
from repair.evaluation.truth import true_recall_at_1
from repair.numerics.cosines import normalise
from repair.numerics.metrics import mean_reciprocal_rank, median_rank, recall_at_k
from tests import reference

I2T, T2I = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE


def split(seed, n_images=8, n_captions=20, dim=4, ties=False, signal=1.0):
    """A random multi-positive split; ids are not in the order of the input, captions of an image not adjacent."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.concatenate([np.arange(n_images), rng.integers(0, n_images, n_captions - n_images)]))
    images = rng.integers(-1, 2, (n_images, dim)) if ties else rng.standard_normal((n_images, dim))
    noise = rng.integers(-1, 2, (n_captions, dim)) if ties else rng.standard_normal((n_captions, dim))
    return {
        "image_embeddings": normalise(images),
        "text_embeddings": normalise(noise + signal * images[owner]),
        "image_ids": [f"i{number:03}" for number in rng.permutation(n_images)],
        "caption_ids": [f"c{number:03}" for number in rng.permutation(n_captions)],
        "owner": owner,
        "split": "test",
        "n_bootstrap": 100,
    }


def brute_force(data, direction):
    """(rank, if ties won, if ties lost, top1 id) of every query, in the order of the input."""
    scores = reference.exact_scores(data["image_embeddings"], data["text_embeddings"])
    own = np.arange(len(data["image_ids"]))[:, None] == np.asarray(data["owner"])[None]
    items = data["caption_ids"]
    if direction is T2I:
        scores, own, items = scores.T, own.T, data["image_ids"]
    rows = []
    for query in range(len(scores)):
        best = min(np.flatnonzero(own[query]), key=lambda j: (-scores[query, j], items[j]))
        others = [j for j in range(len(items)) if not own[query, j]]
        above = sum(scores[query, j] > scores[query, best] for j in others)
        equal = [j for j in others if scores[query, j] == scores[query, best]]
        first = min(range(len(items)), key=lambda j: (-scores[query, j], items[j]))
        by_id = sum(items[j] < items[best] for j in equal)
        rows.append((1 + above + by_id, 1 + above, 1 + above + len(equal), items[first]))
    return rows


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), ties=st.booleans(), block_size=st.sampled_from([1, 3, 1024]))
def test_ranks_equal_brute_force(seed, ties, block_size):
    data = split(seed, ties=ties)
    result = evaluate_retrieval(**data, block_size=block_size)
    for direction, found in result.directions.items():
        ranks, won, lost, first = (list(column) for column in zip(*brute_force(data, direction), strict=True))
        assert found.ranks.tolist() == ranks
        assert (found.n_ties == np.array(lost) - np.array(won)).all()
        items = data["caption_ids"] if direction is I2T else data["image_ids"]
        assert [items[item] for item in found.top1] == first
        for recall in found.recall:
            assert recall.interval.estimate == pytest.approx(recall_at_k(ranks, recall.k))
            assert recall.if_ties_won == recall_at_k(won, recall.k)
            assert recall.if_ties_lost == recall_at_k(lost, recall.k)
        assert found.mrr.estimate == pytest.approx(mean_reciprocal_rank(ranks))
        assert found.median_rank == median_rank(ranks)


def test_recall_equals_a_hit_rate_over_faiss():
    """CLIP's recall@k on 300 images and 1,500 captions without ties: is any own item among faiss's first k?"""
    data = split(0, n_images=300, n_captions=1500, dim=16)
    result = evaluate_retrieval(**data)
    images, texts, owner = data["image_embeddings"], data["text_embeddings"], data["owner"]
    for k in (1, 5, 10):
        index = faiss.IndexFlatIP(16)
        index.add(texts)
        hits = (owner[index.search(images, k)[1]] == np.arange(300)[:, None]).any(axis=1)
        assert result.directions[I2T].recall_at(k).interval.estimate == pytest.approx(hits.mean())
        index = faiss.IndexFlatIP(16)
        index.add(images)
        hits = (index.search(texts, k)[1] == owner[:, None]).any(axis=1)
        assert result.directions[T2I].recall_at(k).interval.estimate == pytest.approx(hits.mean())


def test_order_of_the_input_does_not_matter():
    data = split(1, ties=True)
    rows, columns = np.random.default_rng(0).permutation(8), np.random.default_rng(1).permutation(20)
    place = np.argsort(rows)
    moved = {
        **data,
        "image_embeddings": data["image_embeddings"][rows],
        "text_embeddings": data["text_embeddings"][columns],
        "image_ids": [data["image_ids"][row] for row in rows],
        "caption_ids": [data["caption_ids"][column] for column in columns],
        "owner": place[data["owner"][columns]],
    }
    first, second = evaluate_retrieval(**data), evaluate_retrieval(**moved)
    assert second.directions[I2T].ranks.tolist() == first.directions[I2T].ranks[rows].tolist()
    assert second.directions[T2I].ranks.tolist() == first.directions[T2I].ranks[columns].tolist()
    assert [columns[item] for item in second.directions[I2T].top1] == first.directions[I2T].top1[rows].tolist()


def test_a_collapsed_encoder_gets_chance():
    n = 20
    result = evaluate_retrieval(
        np.tile([1.0, 0.0], (n, 1)),
        np.tile([1.0, 0.0], (n, 1)),
        image_ids=[f"i{k:02}" for k in range(n)],
        caption_ids=[f"c{k:02}" for k in range(n)],
        owner=np.arange(n),
        split="test",
        n_bootstrap=100,
    )
    for found in result.directions.values():
        recall = found.recall_at(1)
        assert recall.interval.estimate == 1 / n
        assert (recall.if_ties_lost, recall.if_ties_won) == (0.0, 1.0)
        assert found.n_tied_queries == n


def test_an_identical_caption_of_another_image_is_a_tie():
    """Two images with one caption text: labels count own captions only, so one image loses by id, and that is said."""
    result = evaluate_retrieval(
        [[1.0, 0.0], [1.0, 0.0]],
        [[1.0, 0.0], [1.0, 0.0]],
        image_ids=["a", "b"],
        caption_ids=["a1", "b1"],
        owner=[0, 1],
        split="test",
        n_bootstrap=100,
    )
    assert result.directions[I2T].ranks.tolist() == [1, 2]
    assert result.directions[I2T].n_ties.tolist() == [1, 1]


def test_intervals_resample_images():
    data = split(2, n_images=60, n_captions=300, dim=8)
    found = evaluate_retrieval(**{**data, "n_bootstrap": 500}, seed=3)
    assert found.directions[T2I].recall_at(1).interval.n_clusters == 60
    assert found.directions[T2I].recall_at(1).interval.n == 300
    again = evaluate_retrieval(**{**data, "n_bootstrap": 500}, seed=3)
    assert found.to_json() == again.to_json()
    other = evaluate_retrieval(**{**data, "n_bootstrap": 500}, seed=4)
    assert found.to_json() != other.to_json()


def test_json_says_what_a_reader_needs():
    facts = json.loads(json.dumps(evaluate_retrieval(**split(3), recall_at=[5, 1]).to_json(), allow_nan=False))
    assert (facts["split"], facts["n_images"], facts["n_captions"]) == ("test", 8, 20)
    assert facts["captions_per_image"]["mean"] == 2.5
    assert "(-score, id)" in facts["tie_rule"]
    assert (facts["confidence"], facts["n_bootstrap"]) == (0.95, 100)
    for direction, n_queries, n_items in (("image_to_text", 8, 20), ("text_to_image", 20, 8)):
        side = facts[direction]
        assert (side["n_queries"], side["n_items"]) == (n_queries, n_items)
        assert list(side["metrics"]) == ["R@1", "R@5", "MRR", "median rank", "mAP@R", "R-precision"]
        recall = side["metrics"]["R@1"]
        assert recall["low"] <= recall["value"] <= recall["high"]
        assert side["if_ties_lost"]["R@1"] <= recall["value"] <= side["if_ties_won"]["R@1"]


def test_true_recall_asks_once_per_query():
    asked = []

    def holds(query, item):
        asked.append((query, item))
        return query == 0 or item == 7

    found = true_recall_at_1(np.array([3, 7, 5, 7]), holds, clusters=[0, 0, 1, 1], n_bootstrap=100)
    assert asked == [(0, 3), (1, 7), (2, 5), (3, 7)]
    assert found.hits.tolist() == [True, True, False, True]
    assert (found.interval.estimate, found.interval.n_clusters) == (0.75, 2)
    with pytest.raises(DataError, match="need one item for each query"):
        true_recall_at_1([], holds, clusters=[])


def test_true_recall_is_at_least_the_labelled_where_labels_are_true():
    data = split(4, n_images=30, n_captions=60)
    found = evaluate_retrieval(**data).directions[I2T]
    true = true_recall_at_1(found.top1, lambda query, item: data["owner"][item] == query, clusters=found.clusters)
    assert (true.hits == (found.ranks == 1)).all()


def test_comparison_parts_the_queries():
    weak, strong = split(5, n_images=60, n_captions=180, signal=0.3), split(5, n_images=60, n_captions=180, signal=2.0)
    before, after = evaluate_retrieval(**weak).directions, evaluate_retrieval(**strong).directions
    for direction in Direction:
        found = compare(before[direction], after[direction], n_bootstrap=200)
        parts = [found.fixed, found.newly_broken, found.still_failing, found.still_right]
        assert sorted(np.concatenate(parts).tolist()) == list(range(before[direction].n_queries))
        assert (before[direction].ranks[found.fixed] > 1).all()
        assert (after[direction].ranks[found.fixed] == 1).all()
        assert (after[direction].ranks[found.newly_broken] > 1).all()
        gain = (len(found.fixed) - len(found.newly_broken)) / before[direction].n_queries
        assert found.recall.estimate == pytest.approx(gain)
        assert found.recall.low > 0
        facts = json.loads(json.dumps(found.to_json()))
        assert facts["n_fixed"] == len(found.fixed)
        assert facts["R@1"]["value"] == found.recall.estimate
    with pytest.raises(DataError, match="not of the same queries"):
        compare(before[I2T], after[T2I])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"owner": np.zeros(20, dtype=int)}, DataError, "7 of 8 images have no caption"),
        ({"owner": np.zeros(3, dtype=int)}, DataError, "owner: shape"),
        ({"owner": np.full(20, 8)}, DataError, "positions must be from 0 to 7"),
        ({"image_ids": ["a"] * 8}, DataError, 'image_ids: "a" occurs twice'),
        ({"text_embeddings": np.zeros((3, 4))}, DataError, "caption embeddings: shape"),
        ({"image_embeddings": np.full((8, 4), np.inf)}, DataError, "NaN or infinity"),
        ({"recall_at": [0, 1]}, ConfigError, "recall_at: needs whole numbers from 1"),
        ({"confidence": 95.0}, ConfigError, "between 0 and 1"),
    ],
)
def test_bad_input(changes, error, message):
    with pytest.raises(error, match=message):
        evaluate_retrieval(**{**split(0), **changes})


def test_recall_that_was_not_asked_for():
    found = evaluate_retrieval(**split(0), recall_at=[1]).directions[I2T]
    with pytest.raises(ConfigError, match="R@5 was not computed: add 5 to evaluation"):
        found.recall_at(5)
