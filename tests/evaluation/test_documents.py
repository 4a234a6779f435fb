"""Retrieval as a suite, guards, results files with their schema, exports, and comparisons of two results."""

import json

import numpy as np
import pytest

from repair.core.errors import DataError, StoreError
from repair.evaluation.choice import evaluate_choice
from repair.evaluation.document import Document, Missing, Outcome, SuiteResult, read_results, score_of, write_results
from repair.evaluation.drift import drift_scores, linear_cka, neighbour_overlap
from repair.evaluation.exports import clip_benchmark_rows, write_clip_benchmark
from repair.evaluation.gallery import Caption, RetrievalSuite
from repair.evaluation.items import ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.tables import document_lines
from repair.evaluation.versus import versus, versus_lines
from repair.evaluation.zeroshot import ZeroShotSuite
from repair.numerics.cosines import normalise
from repair.numerics.statistics import bootstrap_mean
from tests.evaluation.models import UNCERTAINTY, AllAlike, NamedPictures, TableModel


def captions(n_images=6, each=5):
    return tuple(
        Caption(caption_id=f"{i}.jpg#{k}", image=f"{i}.jpg", text=f"caption {k} of {i}")
        for i in range(n_images)
        for k in range(each)
    )


def model_of(n_images=6, each=5, noise=0.4, seed=0):
    rng = np.random.default_rng(seed)
    images = {f"{i}.jpg": rng.standard_normal(8) for i in range(n_images)}
    texts = {c.text: images[c.image] + noise * rng.standard_normal(8) for c in captions(n_images, each)}
    return TableModel(images, texts)


def document(*suites, spec="towers:here"):
    model = {"spec": spec, "name": "towers", "fingerprint": "b2:0123456789abcdef", "dim": 8, "logit_scale": 1.0}
    return Document(schema="repair-evaluation/1", model=model, settings={}, versions={}, suites=list(suites))


# ------------------------------------------------------------------------------------------ retrieval as a suite


def test_every_score_comes_with_its_split(tmp_path):
    suite = RetrievalSuite(name="retrieval", split="test", captions=captions())
    result, outcomes = suite.evaluate(NamedPictures(), model_of(), uncertainty=UNCERTAINTY)
    facts = result.facts
    assert (facts["split"], facts["n_images"], facts["n_captions"]) == ("test", 6, 30)
    assert facts["captions_per_image"] == {"min": 5, "mean": 5.0, "max": 5}
    assert facts["n_queries"] == {"image_to_text": 6, "text_to_image": 30}
    names = [score.metric for score in result.scores if score.group == "image_to_text"]
    assert names == ["R@1", "R@5", "R@10", "MRR", "median rank", "mAP@R", "R-precision"]
    hits = [outcome.hit for outcome in outcomes if outcome.task == "text_to_image"]
    assert np.mean(hits) == pytest.approx(result.score("text_to_image", "R@1").value)
    exported = result.clip_benchmark[0]["metrics"]
    assert exported["image_retrieval_recall@1"] == result.score("text_to_image", "R@1").value
    assert exported["text_retrieval_recall@5"] == result.score("image_to_text", "R@5").value
    text = "\n".join(document_lines(document(result)))
    assert "split test: 6 images, 30 captions (5 to 5 an image, mean 5.00)" in text
    assert "tied queries: 0 in image_to_text" in text


def test_a_known_split_of_another_size_is_refused_or_partial():
    suite = RetrievalSuite(name="flickr8k", split="test", captions=captions(), known="flickr8k")
    with pytest.raises(DataError, match=r"flickr8k is 1,000 images with 5,000 captions.*these are 6 with 30.*partial"):
        suite.evaluate(NamedPictures(), model_of(), uncertainty=UNCERTAINTY)
    result, _ = suite.evaluate(NamedPictures(), model_of(), uncertainty=UNCERTAINTY, allow_missing=True)
    assert result.partial
    assert clip_benchmark_rows(document(result)) == ([], ["flickr8k"])


def test_missing_images_take_their_captions_with_them():
    suite = RetrievalSuite(name="r", split="test", captions=captions(), set_aside=("5.jpg",))
    with pytest.raises(DataError, match="2 images are missing"):
        suite.evaluate(NamedPictures(["1.jpg"]), model_of(), uncertainty=UNCERTAINTY)
    result, outcomes = suite.evaluate(NamedPictures(["1.jpg"]), model_of(), uncertainty=UNCERTAINTY, allow_missing=True)
    assert (result.n_run, result.missing.n_items, result.partial) == (20, 10, True)
    assert not {"1.jpg", "5.jpg"} & {outcome.image for outcome in outcomes}


def test_subsets_and_first_five():
    six = captions(6, 6)
    suite = RetrievalSuite(name="r", split="test", captions=six, which_captions="first_five")
    result, _ = suite.evaluate(NamedPictures(), model_of(6, 6), uncertainty=UNCERTAINTY)
    assert (result.facts["n_captions"], result.n_run) == (30, 30)
    assert result.clip_benchmark == []  # which takes all captions
    suite = RetrievalSuite(name="r", split="test", captions=six, which_captions="first")
    result, outcomes = suite.evaluate(NamedPictures(), model_of(6, 6), uncertainty=UNCERTAINTY)
    assert (result.facts["n_images"], result.facts["n_captions"]) == (6, 6)
    assert {o.query for o in outcomes if o.query} == {f"caption 0 of {i}" for i in range(6)}
    picked = []
    for n in (2, 4):
        suite = RetrievalSuite(name="r", split="test", captions=six, n_images=n, subset_seed=1)
        result, outcomes = suite.evaluate(NamedPictures(), model_of(6, 6), uncertainty=UNCERTAINTY)
        assert result.facts["subset"] == {"n_images": n, "seed": 1}
        picked.append({outcome.image for outcome in outcomes})
    assert len(picked[1]) == 4
    assert picked[0] < picked[1]
    with pytest.raises(DataError, match="n_images must be from 1 to 6"):
        RetrievalSuite(name="r", split="t", captions=six, n_images=7).evaluate(
            NamedPictures(), model_of(6, 6), uncertainty=UNCERTAINTY
        )


def test_folds_are_a_suite_too():
    suite = RetrievalSuite(name="coco_1k", split="test", captions=captions(), n_folds=2)
    result, _ = suite.evaluate(NamedPictures(), model_of(), uncertainty=UNCERTAINTY)
    assert result.facts["n_folds"] == 2
    assert result.clip_benchmark == []
    assert "2 folds" in "\n".join(document_lines(document(result)))


# ------------------------------------------------------------------------------------------ guards


def classes_suite(**options):
    images = tuple((f"{label}/{k}.jpg", label) for label in ("cat", "dog") for k in range(3))
    return ZeroShotSuite(name="zeroshot", images=images, classes={"cat": "cat", "dog": "dog"}, facts={}, **options)


def test_prompts_are_averaged_after_normalising():
    suite = classes_suite(prompts=("a {}.", "the {}."))
    texts = {"a cat.": [10, 0], "the cat.": [0, 1], "a dog.": [-1, 0], "the dog.": [0, -1]}
    images = {name: [1, 1] if label == "cat" else [-1, -1] for name, label in suite.images}
    images["dog/0.jpg"] = [0.1, 1]
    result, outcomes = suite.evaluate(NamedPictures(), TableModel(images, texts, dim=2), uncertainty=UNCERTAINTY)
    assert result.score("all images", "top-1").value == pytest.approx(5 / 6)
    assert result.score("mean of classes", "top-1").value == pytest.approx((1 + 2 / 3) / 2)
    wrong = [outcome for outcome in outcomes if not outcome.hit]
    assert [(outcome.item, outcome.got, outcome.rank) for outcome in wrong] == [("dog/0.jpg", "cat", 2)]
    # the mean of (1,0) and (0,1), not of (10,0) and (0,1): the margin is that of a diagonal
    assert outcomes[0].margin == pytest.approx(2.0, abs=1e-6)
    assert result.clip_benchmark[0]["metrics"]["acc1"] == pytest.approx(5 / 6)


def test_a_collapsed_model_gets_one_class_right():
    result, outcomes = classes_suite().evaluate(NamedPictures(), AllAlike(), uncertainty=UNCERTAINTY)
    assert result.score("all images", "top-1").value == 0.5
    assert result.facts["n_tied"] == 6
    assert {outcome.got for outcome in outcomes} == {"cat"}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"prompts": ("a photo",)}, "must have one {}"), ({"classes": {"cat": "cat"}}, "at least 2")],
)
def test_zeroshot_refuses(options, message):
    with pytest.raises(DataError, match=message):
        ZeroShotSuite(**{"name": "z", "images": (), "classes": {"a": "a", "b": "b"}, "facts": {}, **options})


def test_drift_of_a_turned_space():
    """A rotation moves every vector and no neighbour: cosines fall, overlap and CKA stay 1."""
    before = normalise(np.random.default_rng(0).standard_normal((40, 6)))
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0].astype(np.float32)
    after = normalise(before @ turn)
    scores = {
        score.metric: score.value for score in drift_scores(before, after, group="images", uncertainty=UNCERTAINTY)
    }
    assert scores["cosine"] < 0.6
    assert scores["neighbours"] > 0.98
    assert scores["CKA"] == pytest.approx(1.0, abs=1e-5)
    same = {score.metric: score.value for score in drift_scores(before, before, group="texts", uncertainty=UNCERTAINTY)}
    assert same == pytest.approx({"cosine": 1.0, "neighbours": 1.0, "cosine, lowest 5 %": 1.0, "CKA": 1.0}, abs=1e-6)
    other = drift_scores(before, after[:, :3], group="images", uncertainty=UNCERTAINTY)
    assert "cosine" not in {score.metric for score in other}  # of another dimension, cosines mean nothing
    with pytest.raises(DataError, match="need the same 3 items"):
        drift_scores(before, after[:5], group="images", uncertainty=UNCERTAINTY)


def test_neighbours_by_hand():
    before = normalise([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]])
    after = normalise([[1, 0], [0, 1], [0.9, 0.1], [0.1, 0.9]])
    assert neighbour_overlap(before, after, k=1).tolist() == [0.0, 0.0, 0.0, 0.0]
    assert neighbour_overlap(before, before, k=1).tolist() == [1.0] * 4
    assert linear_cka(before, np.ones_like(before)) == 0.0


# ------------------------------------------------------------------------------------------ files


def outcome(item="1", hit=True, **changes):
    facts = {
        "suite": "s", "group": "g", "task": "accuracy", "item": item, "cluster": item, "image": f"{item}.jpg",
        "query": "", "expected": "right", "got": "right" if hit else "wrong", "hit": hit, "rank": None, "margin": 0.1,
    }  # fmt: skip
    return Outcome(**{**facts, **changes})


def suite_result(**changes):
    score = score_of("all", "accuracy", bootstrap_mean([1, 0], [0, 1], seed=0, n_resamples=20), chance=0.5, blind=0.5)
    facts = {
        "suite": "s", "kind": "choice", "partial": False, "n_items": 2, "n_run": 2, "missing": Missing(),
        "headline": "all / accuracy", "facts": {"tie_rule": "strict", "n_tied": 0}, "pictures": {}, "scores": [score],
    }  # fmt: skip
    return SuiteResult(**{**facts, **changes})


def test_results_are_read_back_and_keep_to_their_schema(tmp_path):
    rows = [outcome("1"), outcome("2", hit=False)]
    write_results(tmp_path, document(suite_result()), rows, {"s": [{"item": "1", "texts": ["a", "b"]}]})
    found, outcomes = read_results(tmp_path)
    assert found == document(suite_result())
    assert outcomes == rows
    lines = (tmp_path / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["hit"] for line in lines] == [True, False]
    assert json.loads((tmp_path / "scores.jsonl").read_text())["value"] == 0.5
    assert json.loads((tmp_path / "s-texts.jsonl").read_text())["texts"] == ["a", "b"]
    schema = json.loads((tmp_path / "schema.json").read_text())
    content = json.loads((tmp_path / "results.json").read_text())
    assert set(schema["required"]) <= set(content)
    assert set(schema["$defs"]["Score"]["properties"]) == set(content["suites"][0]["scores"][0])
    before = (tmp_path / "results.json").read_bytes()
    write_results(tmp_path, document(suite_result()), rows)
    assert (tmp_path / "results.json").read_bytes() == before


def test_results_of_another_form_are_refused(tmp_path):
    with pytest.raises(StoreError, match="cannot read"):
        read_results(tmp_path)
    (tmp_path / "results.json").write_text('{"schema": "repair-evaluation/1"}')
    with pytest.raises(DataError, match="not a results file of this version: model"):
        read_results(tmp_path)
    content = document().model_dump(by_alias=True) | {"schema": "other/9"}
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match='of the form "other/9"'):
        read_results(tmp_path)


def test_export_has_clip_benchmarks_keys_and_leaves_partial_suites_out(tmp_path):
    row = {"dataset": "sugar_crepe/swap_obj", "task": "image_caption_selection", "metrics": {"text_acc": 0.5}}
    good, partial = suite_result(clip_benchmark=[row]), suite_result(suite="p", partial=True, clip_benchmark=[row])
    rows, left_out = clip_benchmark_rows(document(good, partial))
    assert left_out == ["p"]
    assert rows == [{**row, "model": "towers", "pretrained": "here", "language": "en"}]
    (path,) = write_clip_benchmark(tmp_path, rows)
    assert path.name == "sugar_crepe-swap_obj_here_towers_en_image_caption_selection.json"
    assert json.loads(path.read_text()) == rows[0]


def test_tables_show_interval_chance_and_blind():
    text = "\n".join(
        document_lines(document(suite_result(partial=True, missing=Missing(n_images=1, images=["a.jpg"]))))
    )
    assert "PARTIAL" in text
    assert "missing: 1 images" in text
    assert "[0.00, 100.00]" in text
    assert text.count("50.00") >= 3


# ------------------------------------------------------------------------------------------ two results


def test_two_models_item_by_item():
    before = [outcome(str(k), hit=k < 6) for k in range(12)]
    after = [outcome(str(k), hit=k >= 2, margin=0.3) for k in range(12)]
    (found,) = versus([before], [after], n_bootstrap=200)
    assert (found.before, found.after) == (0.5, pytest.approx(10 / 12))
    counts = {"fixed": 6, "newly_broken": 2, "still_failing": 0, "still_right": 4, "only_before": 0, "only_after": 0}
    assert found.counts == counts
    assert found.difference.estimate == pytest.approx(4 / 12)
    assert found.p_mcnemar == pytest.approx(0.2890625)
    assert [one.before.item for one in found.changed if one.move == "newly_broken"] == ["0", "1"]
    facts = {"a": {"name": "x"}, "b": {"name": "y"}, "partial": {"A": "", "B": "s"}, "comparisons": [found.to_json()]}
    text = "\n".join(versus_lines(json.loads(json.dumps(facts))))
    assert "+33.33" in text
    assert "B is partial: s" in text


def test_differences_are_of_the_scores_themselves():
    """Whatever a result prints, a comparison tests: B's and A's figures are equal to the scores of their results."""
    suites = [
        RetrievalSuite(name="folds", split="test", captions=captions()[:-1], n_folds=2),
        RetrievalSuite(name="whole", split="test", captions=captions()),
        classes_suite(),
        two_groups(),
    ]
    for suite in suites:
        run = suite.evaluate if hasattr(suite, "evaluate") else lambda *a, **k: evaluate_choice(two_groups(), *a, **k)
        (first, rows), (second, others) = (
            run(NamedPictures(), model_of(noise=noise, seed=seed), uncertainty=UNCERTAINTY)
            for noise, seed in ((0.8, 1), (0.6, 2))
        )
        found = versus([rows], [others], scores={suite.name: first.from_items}, n_bootstrap=20)
        assert {(one.group, one.metric) for one in found} == {(one.group, one.metric) for one in first.from_items}
        for one in found:
            assert one.before == pytest.approx(first.score(one.group, one.metric).value)
            assert one.after == pytest.approx(second.score(one.group, one.metric).value)
            assert one.difference.estimate == pytest.approx(one.after - one.before)
        assert sum(one.changed is not None for one in found) == len({one.task for one in found})
    assert {"mean", "all", "a", "b"} == {one.group for one in found}
    assert [one.p_mcnemar is None for one in found] == [True, False, False, False]  # none for a macro average


def two_groups():
    items = tuple(
        Item(item_id=str(k), group="ab"[k > 0], images=(f"{k}.jpg",), texts=(f"caption 0 of {k}", f"no {k}"))
        for k in range(6)
    )
    averages = (macro("mean", ("a", "b"), ("accuracy",)), micro("all", ("a", "b"), ("accuracy",)))
    return ChoiceSuite(name="choice", rule=Rule.STRICT, items=items, averages=averages, facts={})


def test_items_of_other_texts_are_not_compared():
    before = [outcome("1"), outcome("2"), outcome("3")]
    after = [outcome("1"), outcome("2", expected="another text")]
    (found,) = versus([before], [after], n_bootstrap=20)
    assert (found.difference.n, found.counts["only_before"], found.counts["only_after"]) == (1, 2, 1)
    with pytest.raises(DataError, match="no item in common"):
        versus([[outcome("1")]], [[outcome("2")]])
    with pytest.raises(DataError, match="no suite in common"):
        versus([[outcome("1")]], [[outcome("1", suite="t")]])


def test_seeds_are_combined():
    runs = [[outcome(str(k), hit=(k + s) % 3 > 0) for k in range(9)] for s in range(3)]
    better = [[outcome(str(k), hit=(k + s) % 4 > 0) for k in range(9)] for s in range(3)]
    (found,) = versus(runs, better, n_bootstrap=50)
    assert found.p_mcnemar is None
    assert found.seeds.n == 3
    gains = [np.mean([o.hit for o in b]) - np.mean([o.hit for o in a]) for a, b in zip(runs, better, strict=True)]
    assert found.seeds.mean == pytest.approx(np.mean(gains))
    assert found.difference.estimate == pytest.approx(np.mean(gains))
