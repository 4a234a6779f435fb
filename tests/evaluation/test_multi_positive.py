"""mAP@R, R-precision, extended positives, folds: against hand-made cases, brute force, scikit-learn, eccv_caption."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import precision_score

from repair.core.errors import DataError
from repair.core.records import Direction
from repair.evaluation.extended import Positives, evaluate_extended, matches_of, read_positives
from repair.evaluation.folds import evaluate_folds
from repair.evaluation.retrieval import evaluate_retrieval
from repair.evaluation.splits import first_captions, problem_with, require_unmixed
from repair.numerics.cosines import normalise
from repair.numerics.metrics import average_precision_at_r, r_precision
from tests import reference
from tests.evaluation.test_retrieval import split

I2T, T2I = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE
ECCV = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "eccv_caption"


def many(seed, n_images=7, n_captions=19, rate=0.2, ties=False):
    """A split, and random extended positives; some items have none."""
    data = split(seed, n_images=n_images, n_captions=n_captions, ties=ties)
    pairs = np.random.default_rng(seed + 1).random((n_images, n_captions)) < rate
    pairs[0, 0] = True
    return data, pairs


def by_hand(data, pairs, direction):
    """{query: (rank of the best positive, AP@R, R-precision)} by sorting all items by (-score, id)."""
    scores = reference.exact_scores(data["image_embeddings"], data["text_embeddings"])
    ids = data["caption_ids"]
    if direction is T2I:
        scores, pairs, ids = scores.T, pairs.T, data["image_ids"]
    found = {}
    for query in range(len(scores)):
        n = int(pairs[query].sum())
        if n:
            order = sorted(range(len(ids)), key=lambda j: (-scores[query, j], ids[j]))
            hits = [bool(pairs[query, j]) for j in order]
            precisions = [sum(hits[: k + 1]) / (k + 1) for k in range(n)]
            term = sum(p for p, hit in zip(precisions, hits, strict=False) if hit) / n
            found[query] = (hits.index(True) + 1, term, precisions[-1])
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), ties=st.booleans(), block_size=st.sampled_from([1, 4, 1024]))
def test_extended_positives_equal_brute_force(seed, ties, block_size):
    data, pairs = many(seed, ties=ties)
    result = evaluate_retrieval(**data, positives=sparse.csr_array(pairs), block_size=block_size)
    for direction, found in result.directions.items():
        wanted = by_hand(data, pairs, direction)
        assert found.queries.tolist() == list(wanted)
        assert found.ranks.tolist() == [rank for rank, _, _ in wanted.values()]
        assert found.average_precision == pytest.approx([term for _, term, _ in wanted.values()])
        assert found.precision_at_r == pytest.approx([precision for _, _, precision in wanted.values()])
        assert found.map_at_r.estimate == pytest.approx(found.average_precision.mean())


def test_recall_and_r_precision_equal_scikit_learn():
    """On random multi-positive data without ties: R-precision is scikit-learn's precision of the first R."""
    data, pairs = many(3, n_images=40, n_captions=150, rate=0.1)
    found = evaluate_retrieval(**data, positives=sparse.csr_array(pairs)).directions[I2T]
    scores = data["image_embeddings"] @ data["text_embeddings"].T
    for place, query in enumerate(found.queries):
        n = int(pairs[query].sum())
        first = np.isin(np.arange(scores.shape[1]), np.argsort(-scores[query])[:n])
        assert found.precision_at_r[place] == pytest.approx(precision_score(pairs[query], first))
    top5 = np.argsort(-scores, axis=1)[:, :5]
    hit = np.take_along_axis(pairs, top5, axis=1).any(axis=1)[found.queries]
    assert found.recall_at(5).interval.estimate == pytest.approx(hit.mean())


def clip_benchmark_recall(scores, positive, k):
    """CLIP_benchmark's published rule: a query hits if its recall among the first k is above 0."""
    hits = []
    for row, own in zip(scores, positive, strict=True):
        hits.append(own[np.argsort(-row, kind="stable")[:k]].sum() / own.sum() > 0)
    return float(np.mean(hits))


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_equals_clip_benchmark(k):
    data = split(5, n_images=60, n_captions=310, dim=8)
    result = evaluate_retrieval(**data)
    scores = data["image_embeddings"] @ data["text_embeddings"].T
    own = np.arange(60)[:, None] == data["owner"][None]
    i2t, t2i = (result.directions[d].recall_at(k).interval.estimate for d in (I2T, T2I))
    assert i2t == pytest.approx(clip_benchmark_recall(scores, own, k))
    assert t2i == pytest.approx(clip_benchmark_recall(scores.T, own.T, k))
    theirs = pytest.importorskip("clip_benchmark.metrics.zeroshot_retrieval", reason="clip-benchmark is not installed")
    import torch

    tensor, truth = torch.from_numpy(scores), torch.from_numpy(own)
    for found, x, y in ((i2t, tensor, truth), (t2i, tensor.T, truth.T)):
        recall = theirs.batchify(theirs.recall_at_k, x, y.contiguous(), 16, "cpu", k=k)
        assert found == pytest.approx(float((recall > 0).float().mean()))


def test_two_images_with_seven_captions():
    """Image 0 has three captions, image 1 four; the best own caption counts, all captions are the gallery."""
    angles = np.radians([0, 90])
    captions = np.radians([10, 50, 80, 85, 60, 30, 5])
    images, texts = (np.stack([np.cos(a), np.sin(a)], axis=1) for a in (angles, captions))
    owner = [0, 0, 0, 1, 1, 1, 1]
    result = evaluate_retrieval(
        images,
        texts,
        image_ids=["a", "b"],
        caption_ids=list("0123456"),
        owner=owner,
        split="test",
        recall_at=[1, 2],
    )
    i2t, t2i = result.directions[I2T], result.directions[T2I]
    assert i2t.ranks.tolist() == [2, 1]  # image 0 sees caption 6 (5°) first, then its own at 10°
    assert t2i.ranks.tolist() == [1, 2, 2, 1, 1, 2, 2]
    assert t2i.recall_at(1).interval.estimate == pytest.approx(3 / 7)
    # image 0: order 6, 0, 5, … and R = 3: (1/2) / 3; image 1: order 3, 2, 4, 1 and R = 4: (1 + 2/3) / 4
    assert i2t.average_precision == pytest.approx([1 / 6, (1 + 2 / 3) / 4])
    assert i2t.precision_at_r == pytest.approx([1 / 3, 1 / 2])
    assert (t2i.average_precision == (t2i.ranks == 1)).all()  # with one positive all three are R@1
    assert result.captions_per_image == (3, 3.5, 4)
    assert result.to_json()["positives"] == "own"


def test_metrics_refuse_what_they_cannot_do():
    with pytest.raises(DataError, match="n_relevant: must be from 1"):
        r_precision([[1, 0]], [3])
    with pytest.raises(DataError, match="need \\(n, m\\)"):
        average_precision_at_r([[1, 0]], [1, 1])
    with pytest.raises(DataError, match="no pair matches"):
        evaluate_retrieval(**split(0), positives=sparse.csr_array((8, 20), dtype=bool))


# ------------------------------------------------------------------------------------------ folds


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_folds_are_the_mean_of_galleries(seed):
    data = split(seed, n_images=12, n_captions=40)
    found = evaluate_folds(**data, n_folds=3)
    parts = []
    for fold in range(3):
        images = np.arange(4 * fold, 4 * fold + 4)
        captions = np.flatnonzero(np.isin(data["owner"], images))
        parts.append(
            evaluate_retrieval(
                data["image_embeddings"][images],
                data["text_embeddings"][captions],
                image_ids=[data["image_ids"][i] for i in images],
                caption_ids=[data["caption_ids"][c] for c in captions],
                owner=data["owner"][captions] - 4 * fold,
                split="test",
                n_bootstrap=10,
            )
        )
    assert (found.n_folds, found.n_images, found.n_captions) == (3, 12, 40)
    for direction in Direction:
        side, sides = found.directions[direction], [part.directions[direction] for part in parts]
        for k in (1, 5):
            wanted = np.mean([other.recall_at(k).interval.estimate for other in sides])
            assert side.recall_at(k).interval.estimate == pytest.approx(wanted)
        assert side.mrr.estimate == pytest.approx(np.mean([other.mrr.estimate for other in sides]))
        assert side.median_rank == pytest.approx(np.mean([other.median_rank for other in sides]))
        assert side.n_items == sides[0].n_items
        assert side.queries.tolist() == list(range(side.n_queries))
    assert found.directions[I2T].ranks.tolist() == [r for part in parts for r in part.directions[I2T].ranks]
    owner = data["owner"]
    assert (owner[found.directions[I2T].top1] // 4 == np.arange(12) // 4).all()  # never of another fold


def test_folds_must_be_equal():
    with pytest.raises(DataError, match="8 images cannot be parted into 3 folds"):
        evaluate_folds(**split(0), n_folds=3)


# ------------------------------------------------------------------------------------------ splits


def test_known_splits_say_what_they_must_hold():
    assert problem_with("coco_5k", n_images=5000, n_captions=25_010) is None
    assert problem_with("coco_5k", n_images=5000, n_captions=25_000, captions="first_five") is None
    assert "5,000 with 25,000" in problem_with("coco_5k", n_images=5000, n_captions=25_000)
    assert "1,000 images with 5,000 captions" in problem_with("flickr30k", n_images=1014, n_captions=5070)
    assert problem_with("mine", n_images=3, n_captions=4) is None
    owner = np.array([0, 1, 0, 0, 1, 0])
    assert first_captions(owner, most=2).tolist() == [0, 1, 2, 4]


def test_mixed_splits_are_refused():
    require_unmixed("test", ["a", "b"], {"train": ["c"]})
    with pytest.raises(DataError, match='1 of its 2 images are in split "train" as well'):
        require_unmixed("test", ["a", "b"], {"train": ["c", "b"]})


# ------------------------------------------------------------------------------------------ ECCV Caption and CxC


def coco_like(seed=0, n_images=12, n_captions=60):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(n_images), n_captions // n_images)
    return {
        "image_embeddings": normalise(rng.standard_normal((n_images, 6))),
        "text_embeddings": normalise(rng.standard_normal((n_captions, 6))),
        "image_ids": (100 + rng.permutation(n_images)).tolist(),
        "caption_ids": (900 + rng.permutation(n_captions)).tolist(),
        "owner": owner,
    }


def test_each_direction_is_scored_with_its_own_map():
    data = coco_like()
    images, captions = data["image_ids"], data["caption_ids"]
    positives = Positives(
        name="eccv",
        lists={
            I2T: {images[0]: (captions[5], captions[7]), images[3]: (captions[1],)},
            T2I: {captions[9]: (images[2], images[4])},
        },
    )
    found = evaluate_extended(**data, positives=positives, split="coco_5k")
    assert found.positives == "eccv"
    assert found.directions[I2T].queries.tolist() == [0, 3]
    assert found.directions[T2I].queries.tolist() == [9]
    assert found.directions[T2I].n_items == 12
    with pytest.raises(DataError, match=r"1 ids are not in the gallery, e\.g\. query 5"):
        matches_of({5: [captions[0]]}, images, captions, name="eccv")


@pytest.mark.data
@pytest.mark.skipif(not ECCV.is_dir(), reason=f"no ECCV Caption files at {ECCV}")
def test_scores_equal_the_eccv_caption_package():
    """Random embeddings of the whole COCO 5k gallery (5,000 × 25,000), both sets, both directions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip("eccv_caption._metrics", reason="eccv_caption is not installed")
    original = read_positives(ECCV, "original").lists[T2I]
    captions = list(original)
    images = sorted({found[0] for found in original.values()})
    place = {image: row for row, image in enumerate(images)}
    owner = np.array([place[original[caption][0]] for caption in captions])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5000, 16))
    data = {
        "image_embeddings": normalise(x),
        "text_embeddings": normalise(x[owner] + rng.standard_normal((25_000, 16))),
        "image_ids": images,
        "caption_ids": captions,
        "owner": owner,
    }
    scores = data["image_embeddings"] @ data["text_embeddings"].T
    for name, side, queries, items, table in (
        ("eccv", I2T, images, captions, scores),
        ("eccv", T2I, captions, images, scores.T),
        ("cxc", I2T, images, captions, scores),
    ):
        positives = read_positives(ECCV, name)
        known = set(items)
        lists = {q: tuple(i for i in found if i in known) for q, found in list(positives.lists[side].items())[:100]}
        other = {images[0]: (captions[0],)} if side is T2I else {captions[0]: (images[0],)}
        some = Positives(name=name, lists={side: lists, (I2T if side is T2I else T2I): other})
        found = evaluate_extended(**data, positives=some, split="coco_5k", n_bootstrap=10).directions[side]
        row = {query: number for number, query in enumerate(queries)}
        ranked = {q: [items[j] for j in np.argsort(-table[row[q]], kind="stable")[:100]] for q in lists}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = package.compute_eccv_metrics(ranked, {q: list(v) for q, v in lists.items()})
        assert found.map_at_r.estimate == pytest.approx(theirs["eccv_map_at_r"])
        assert found.r_precision.estimate == pytest.approx(theirs["eccv_rprecision"])
        assert found.recall_at(1).interval.estimate == pytest.approx(theirs["eccv_r1"])
