"""Every rule of the compositional suites on hand-made scores and on small files of the published formats."""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from repair.core.errors import DataError
from repair.core.images import decode
from repair.evaluation.choice import evaluate_choice
from repair.evaluation.items import ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.judging import argmax_hits, margins, right
from repair.evaluation.pictures import FolderPictures
from repair.evaluation.suites.aro import SHUFFLES, Cut, aro_attribution, aro_relation, cleaned, dropped_relations
from repair.evaluation.suites.pairs import cola, winoground
from repair.evaluation.suites.sugarcrepe import SIZES, sugarcrepe, sugarcrepe_pp
from repair.evaluation.suites.valse import PHENOMENA, valse
from repair.evaluation.tagging import Word
from tests.evaluation.models import UNCERTAINTY, AllAlike, NamedPictures, TableModel


def run(suite, model=None, **options):
    options = {"allow_missing": True, "probe": False, **options}
    return evaluate_choice(suite, NamedPictures(), model or TableModel(), uncertainty=UNCERTAINTY, **options)


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def value(result, group, metric="accuracy"):
    return result.score(group, metric).value


# ------------------------------------------------------------------------------------------ rules


@pytest.mark.parametrize(
    ("rule", "shape", "wanted"),
    [
        (Rule.STRICT, (3, 1, 2), {"accuracy": 0.0}),
        (Rule.FIRST, (3, 1, 5), {"accuracy": 1.0}),
        (Rule.PAIRS, (3, 2, 2), {"text": 0.0, "image": 0.0, "group": 0.0}),
        (Rule.TRIPLE, (3, 1, 3), {"image_text": 0.0, "image_first": 0.0, "image_second": 0.0, "text_only": 0.0}),
    ],
)
def test_all_ties(rule, shape, wanted):
    """VG and SugarCrepe 0, Order 100, Winoground 0."""
    found = margins(rule, np.ones(shape), np.ones((shape[0], shape[2], shape[2])))
    assert {task: right(rule, margin).mean() for task, margin in found.items()} == wanted


def test_strict_choice():
    found = margins(Rule.STRICT, [[[0.5, 0.4, 0.3]], [[0.5, 0.5, 0.1]], [[0.2, 0.1, 0.3]]])["accuracy"]
    assert right(Rule.STRICT, found).tolist() == [True, False, False]
    assert right(Rule.FIRST, found).tolist() == [True, True, False]


def test_winoground_scores_by_hand():
    right_both = [[3, 1], [1, 3]]
    text_only = [[3, 2], [5, 6]]  # each image prefers its caption; caption 0 prefers image 1
    image_only = [[2, 3], [1, 4]]  # image 0 prefers caption 1; each caption prefers its image
    wrong_both = [[1, 2], [2, 1]]
    found = margins(Rule.PAIRS, [right_both, text_only, image_only, wrong_both])
    assert right(Rule.PAIRS, found["text"]).tolist() == [True, True, False, False]
    assert right(Rule.PAIRS, found["image"]).tolist() == [True, False, True, False]
    assert right(Rule.PAIRS, found["group"]).tolist() == [True, False, False, False]


def test_sugarcrepe_pp_by_hand():
    scores = [[[3, 2, 1]], [[3, 1, 2]], [[1, 3, 2]], [[2, 2, 2]]]
    between = np.array([[[1, 0.9, 0.8], [0.9, 1, 0.7], [0.8, 0.7, 1]], [[1, 0.6, 0.8], [0.6, 1, 0.7], [0.8, 0.7, 1]]])
    found = margins(Rule.TRIPLE, scores, between[[0, 1, 0, 0]])
    assert right(Rule.TRIPLE, found["image_text"]).tolist() == [True, False, False, False]
    assert right(Rule.TRIPLE, found["image_first"]).tolist() == [True, True, False, False]
    assert right(Rule.TRIPLE, found["image_second"]).tolist() == [True, False, True, False]
    assert right(Rule.TRIPLE, found["text_only"]).tolist() == [True, False, True, True]


def test_clip_benchmark_breaks_ties_by_index():
    found = argmax_hits(np.ones((1, 1, 2)))
    assert {name: bool(hits[0]) for name, hits in found.items()} == {"image_acc": True, "text_acc": True, "acc": True}
    pairs = argmax_hits(np.ones((1, 2, 2)))
    assert not pairs["text_acc"][0]  # the second image should choose the second text, and index 0 wins the tie


@pytest.mark.parametrize("scores", [np.ones((2, 2, 2)), np.ones((2, 1, 1)), np.full((1, 1, 2), np.nan)])
def test_scores_that_cannot_be_judged(scores):
    with pytest.raises(DataError, match=r"cannot be judged|NaN"):
        margins(Rule.STRICT, scores)


def test_averages_by_hand():
    """Groups of 1 (right) and 3 (one right): micro 2/4, macro (1 + 1/3) / 2."""
    items = tuple(
        Item(item_id=str(k), group="a" if k == 0 else "b", images=(f"{k}.jpg",), texts=(f"good {k}", f"bad {k}"))
        for k in range(4)
    )
    images = {f"{k}.jpg": [1, 0] for k in range(4)}
    good = {f"good {k}": [1, 0] if k < 2 else [0, 1] for k in range(4)}
    bad = {f"bad {k}": [1, 1] for k in range(4)}
    suite = ChoiceSuite(
        name="s",
        rule=Rule.STRICT,
        items=items,
        averages=(micro("micro", ("a", "b"), ("accuracy",)), macro("macro", ("a", "b"), ("accuracy",))),
        facts={},
    )
    result, outcomes = run(suite, TableModel(images, good | bad, dim=2))
    assert value(result, "micro") == 0.5
    assert value(result, "macro") == pytest.approx(2 / 3)
    assert (value(result, "a"), value(result, "b")) == (1.0, pytest.approx(1 / 3))
    assert [outcome.hit for outcome in outcomes] == [True, True, False, False]
    assert result.headline == "micro / accuracy"
    score = result.score("micro", "accuracy")
    assert (score.n, score.n_clusters, score.chance) == (4, 4, 0.5)
    assert score.low <= score.value <= score.high


def test_blind_is_what_the_texts_alone_decide():
    """Wrong texts lie far from all pictures, so the average picture is enough."""
    items = tuple(
        Item(item_id=str(k), group="g", images=(f"{k}.jpg",), texts=(f"good {k}", f"bad {k}")) for k in range(4)
    )
    angles = {f"{k}.jpg": [np.cos(0.1 * k), np.sin(0.1 * k)] for k in range(4)}
    texts = {f"good {k}": [1, 0.2] for k in range(4)} | {f"bad {k}": [-1, 0] for k in range(4)}
    suite = ChoiceSuite(
        name="s", rule=Rule.STRICT, items=items, averages=(micro("all", ("g",), ("accuracy",)),), facts={}
    )
    result, _ = run(suite, TableModel(angles, texts, dim=2))
    assert result.score("all", "accuracy").blind == 1.0
    alike, _ = run(suite, AllAlike())
    assert (value(alike, "all"), alike.score("all", "accuracy").blind) == (0.0, 0.0)
    assert alike.score("all", "accuracy").if_ties_won == 1.0
    assert alike.facts["n_tied"] == {"accuracy": 4}
    assert alike.facts["n_same_text"] == 0
    twice = replace(suite, items=(replace(items[0], texts=("good 0", "good 0")), *items[1:]))
    assert run(twice)[0].facts["n_same_text"] == 1


def test_the_probe_finds_a_mark_and_none_where_there_is_none():
    def suite(mark):
        words = [f"w{a} w{b}" for a in range(8) for b in range(8)]
        items = tuple(
            Item(item_id=str(k), group="g", images=(f"{k}.jpg",), texts=(text, f"{text}{mark}" if mark else words[-k]))
            for k, text in enumerate(words)
        )
        averages = (micro("all", ("g",), ("accuracy",)),)
        return ChoiceSuite(name="s", rule=Rule.STRICT, items=items, averages=averages, facts={})

    marked, _ = run(suite(" ."), probe=True)
    assert marked.score("all", "accuracy").probe == 1.0
    fair, _ = run(suite(""), probe=True)
    assert fair.score("all", "accuracy").probe < 0.7


# ------------------------------------------------------------------------------------------ missing pictures


def test_missing_pictures_are_counted_named_and_refused():
    items = tuple(
        Item(item_id=str(k), group="g", images=(f"{k // 2}.jpg",), texts=(f"t{k}", f"f{k}")) for k in range(6)
    )
    averages = (micro("all", ("g",), ("accuracy",)),)
    suite = ChoiceSuite(name="s", rule=Rule.STRICT, items=items, averages=averages, facts={})
    gone = NamedPictures(gone=["1.jpg"])
    options = {"uncertainty": UNCERTAINTY, "probe": False}
    with pytest.raises(
        DataError,
        match=r"1 images are missing or cannot be read \(1.jpg\), and 2 of 6 items with them.*--allow-missing",
    ):
        evaluate_choice(suite, gone, TableModel(), **options)
    result, outcomes = evaluate_choice(suite, gone, TableModel(), allow_missing=True, **options)
    assert (result.partial, result.n_items, result.n_run) == (True, 6, 4)
    assert (result.missing.n_images, result.missing.n_items, result.missing.images) == (1, 2, ["1.jpg"])
    assert len(outcomes) == 4
    with pytest.raises(DataError, match="nothing can be run"):
        evaluate_choice(suite, NamedPictures(["0.jpg", "1.jpg", "2.jpg"]), TableModel(), allow_missing=True, **options)


def test_pictures_are_found_by_path_by_name_and_by_coco_name(tmp_path):
    (tmp_path / "val2017").mkdir()
    Image.new("RGB", (8, 8), "red").save(tmp_path / "val2017" / "000000000042.jpg")
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        Image.new("RGB", (8, 8), "blue").save(tmp_path / place / "twice.png")
    pictures = FolderPictures(tmp_path)
    good = [
        "val2017/000000000042.jpg",
        "000000000042.jpg",
        "COCO_val2014_000000000042.jpg",
        "https://x.y/000000000042.jpg",
    ]
    assert pictures.missing([*good, "a/twice.png"]) == []
    assert pictures.missing(["twice.png", "no.jpg"]) == ["no.jpg", "twice.png"]  # two files of one name: which?
    with pytest.raises(DataError, match="the image folder"):
        FolderPictures(tmp_path / "nowhere").missing(["a.jpg"])


def test_crops_are_cut_as_the_box_says(tmp_path):
    picture = Image.new("RGB", (10, 6), "red")
    picture.paste("blue", (4, 2, 7, 5))
    picture.save(tmp_path / "a.png")
    pictures = FolderPictures(tmp_path)
    whole, crop = pictures.item("a.png"), pictures.item("a.png", (4, 2, 3, 3))
    cut = decode(crop.read(), where="crop")
    assert cut.size == (3, 3)
    assert cut.getcolors() == [(9, (0, 0, 255))]
    assert crop.content_hash != whole.content_hash
    for box in ((0, 0, 0, 3), (10, 0, 2, 2), (-3, 0, 3, 3)):
        with pytest.raises(DataError, match="holds nothing of"):
            pictures.item("a.png", box).read()
    assert decode(pictures.item("a.png", (8, 4, 4, 4)).read(), where="crop").size == (4, 4)  # black beyond it


def test_pictures_lie_below_their_folder_and_open(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "out.png")
    (root / "text.png").write_text("no picture")
    (root / "empty.jpg").touch()
    (root / "inside.png").symlink_to(tmp_path / "out.png")
    names = ["../out.png", str(tmp_path / "out.png"), "text.png", "empty.jpg", "a\0b.png", ".", "inside.png"]
    assert FolderPictures(root).missing(names) == sorted(names[:-1])


# ------------------------------------------------------------------------------------------ SugarCrepe


def sugarcrepe_files(folder, sizes):
    for split, n in sizes.items():
        entries = {
            str(k): {"filename": f"{k}.jpg", "caption": f"{split} {k}", "negative_caption": f"not {split} {k}"}
            for k in range(n)
        }
        write(folder / f"{split}.json", entries)
    return folder


def test_sugarcrepe_tells_its_versions_apart(tmp_path):
    for n, wanted in ((245, "current"), (246, "first release"), (200, "unknown")):
        sizes = {split: known[0] for split, known in SIZES.items()} | {"swap_obj": n}
        suite = sugarcrepe(data=sugarcrepe_files(tmp_path / str(n), sizes))
        assert wanted in suite.facts["version"]
        assert bool(suite.problems) == (n == 200)
    assert len(suite.items) == 7511 - 45
    assert "swap_obj has 200 items, published are 245 or 246" in suite.problems


def test_sugarcrepe_has_three_averages(tmp_path):
    sizes = {"replace_obj": 4, "replace_att": 2, "swap_obj": 2, "add_obj": 1}
    suite = sugarcrepe(data=sugarcrepe_files(tmp_path, sizes))
    assert any("replace_rel.json is missing" in problem for problem in suite.problems)
    right_texts = {f"replace_obj {k}" for k in range(4)} | {"swap_obj 0"}
    texts = {text: [1, 0] for text in right_texts} | {
        text: [0, 1] for item in suite.items for text in item.texts if text not in right_texts
    }
    for item in suite.items:
        if item.texts[0] not in right_texts:
            texts[item.texts[1]] = [1, 0]
    result, _ = run(suite, TableModel({f"{k}.jpg": [1, 0] for k in range(4)}, texts, dim=2))
    by_split = {"replace_obj": 1.0, "replace_att": 0.0, "swap_obj": 0.5, "add_obj": 0.0}
    assert {split: value(result, split) for split in by_split} == by_split
    assert value(result, "micro over all items") == pytest.approx(5 / 9)
    assert value(result, "mean of splits") == pytest.approx(1.5 / 4)
    assert value(result, "mean of families") == pytest.approx((4 / 6 + 0.5 + 0) / 3)
    exported = {row["dataset"]: row["metrics"]["text_acc"] for row in result.clip_benchmark}
    assert exported["sugar_crepe/swap_obj"] == 0.5


def test_sugarcrepe_pp_reads_its_files(tmp_path):
    rows = [{"id": 0, "filename": "0.jpg", "caption": "a", "caption2": "b", "negative_caption": "c"}]
    write(tmp_path / "swap_att.json", rows)
    suite = sugarcrepe_pp(data=tmp_path)
    assert suite.items[0].texts == ("a", "b", "c")
    result, outcomes = run(suite, TableModel({"0.jpg": [1, 0]}, {"a": [1, 0.1], "b": [1, -0.1], "c": [0, 1]}, dim=2))
    assert {outcome.task: outcome.hit for outcome in outcomes} == dict.fromkeys(
        ("image_text", "image_first", "image_second", "text_only"), True
    )
    assert result.score("mean of splits", "text_only").chance == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"0": {"filename": "a.jpg", "caption": ""}}', '"caption" must be text'),
        ('{"0": 3}', "item 0: not an object"),
        ('{"0": {"filename": "a.jpg", "caption": NaN}}', '"caption" must be text'),
        ("[" * 100_000, "not valid JSON"),
        ("3", "not a list or object of items"),
        ("{", "not valid JSON"),
    ],
)
def test_bad_files_are_named(tmp_path, content, message):
    (tmp_path / "swap_obj.json").write_text(content)
    with pytest.raises(DataError, match=message):
        sugarcrepe(data=tmp_path)


# ------------------------------------------------------------------------------------------ ARO


def boxed(n, **keys):
    base = {"image_path": "a.jpg", "bbox_x": 1, "bbox_y": 2, "bbox_w": 3, "bbox_h": 4}
    return [{**base, "true_caption": f"t{keys} {k}", "false_caption": f"f{keys} {k}", **keys} for k in range(n)]


def test_relation_drops_symmetric_names_and_has_no_least_count(tmp_path):
    assert len(dropped_relations()) == 157
    assert {"near", "next to", "with"} <= dropped_relations()
    path = write(
        tmp_path / "visual_genome_relation.json",
        boxed(3, relation_name="near") + boxed(1, relation_name="on") + boxed(3, relation_name="eating"),
    )
    suite = aro_relation(data=tmp_path)
    assert suite.items[0].box == (1, 2, 3, 4)
    assert suite.items[0].texts[0].startswith("t")  # the right one first, so a tie is wrong as in the published code
    assert (suite.facts["n_relations"], suite.facts["n_relations_kept"]) == (3, 2)
    texts = {item.texts[0]: [1, 0] for item in suite.items} | {item.texts[1]: [0, 1] for item in suite.items}
    for item in suite.items:
        if item.group != "on":
            texts[item.texts[0]], texts[item.texts[1]] = [0, 1], [1, 0]
    result, _ = run(suite, TableModel({"a.jpg (1, 2, 3, 4)": [1, 0]}, texts, dim=2))
    assert value(result, "macro over relations kept") == 0.5  # "on" 1 of 1, "eating" 0 of 3
    assert value(result, "micro over relations kept") == 0.25
    assert value(result, "macro over all relations") == pytest.approx(1 / 3)
    assert value(result, "micro over all items") == pytest.approx(1 / 7)
    assert path.name in suite.facts["files"]
    assert value(run(suite, AllAlike())[0], "micro over all items") == 0.0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"bbox_x": True}, "must be whole numbers"),
        ({"bbox_x": 1.5}, "must be whole numbers"),
        ({"bbox_x": "1"}, "must be whole numbers"),
        ({"bbox_x": float("inf")}, "must be whole numbers"),
        ({"bbox_w": 0}, "is empty"),
        ({"true_caption": None}, '"true_caption" must be text'),
    ],
)
def test_boxes_and_texts_are_checked_before_anything_is_run(tmp_path, entry, message):
    write(tmp_path / "visual_genome_relation.json", [{**boxed(1, relation_name="on")[0], **entry}])
    with pytest.raises(DataError, match=f"item 0.*{message}"):
        aro_relation(data=tmp_path)


def test_attribution_keeps_pairs_of_25_and_drops_those_of_24(tmp_path):
    write(
        tmp_path / "visual_genome_attribution.json",
        boxed(24, attributes=["red", "big"]) + boxed(25, attributes=["a", "b"]),
    )
    suite = aro_attribution(data=tmp_path)
    assert (suite.facts["n_pairs"], suite.facts["n_pairs_kept"]) == (2, 1)
    assert suite.averages[0].parts == (("a_b",),)
    result, _ = run(suite)
    assert result.score("macro over pairs of 25 and more", "accuracy").n == 25
    assert result.score("micro over all items", "accuracy").n == 49
    write(tmp_path / "visual_genome_attribution.json", boxed(24, attributes=["red", "big"]))
    with pytest.raises(DataError, match="no pair of attributes has 25 items"):
        aro_attribution(data=tmp_path)


WORDS = [
    Word(text, tag, text, " ")
    for text, tag in [
        ("a", "DT"),
        ("red", "JJ"),
        ("dog", "NN"),
        ("chases", "VBZ"),
        ("two", "CD"),
        ("fat", "JJ"),
        ("cats", "NNS"),
    ]
]


@pytest.mark.parametrize("seed", range(5))
def test_shuffles_move_what_they_should(seed):
    def shuffled(name):
        return SHUFFLES[name](Cut(WORDS, pieces), np.random.default_rng(seed))

    words = [word.text for word in WORDS]
    pieces = [word.upper() for word in words]  # whose words a shuffle moves: spaCy's, or NLTK's
    for number, name in enumerate(SHUFFLES):
        assert sorted(shuffled(name)) == sorted(words if number < 2 else pieces)
    pieces = words
    moved = shuffled("nouns_and_adjectives")
    assert [moved[k] for k in (0, 3, 4)] == ["a", "chases", "two"]
    assert {moved[2], moved[6]} == {"dog", "cats"}
    moved = shuffled("all_but_nouns_and_adjectives")
    assert [moved[k] for k in (1, 2, 5, 6)] == ["red", "dog", "fat", "cats"]
    moved = shuffled("within_threes")
    assert [sorted(moved[k : k + 3]) for k in (0, 3, 6)] == [sorted(words[k : k + 3]) for k in (0, 3, 6)]
    moved = " ".join(shuffled("threes"))
    assert all(block in moved for block in ("a red dog", "chases two fat"))


def test_captions_are_cleaned_as_published():
    assert cleaned('A "Dog" (brown): runs; fast~ * #1.  ') == "a dog brown runs fast 1"
    assert cleaned("w " * 40) == " ".join(["w"] * 30)


# ------------------------------------------------------------------------------------------ pairs, VALSE


def test_winoground_and_cola_read_their_files(tmp_path):
    rows = [
        {"id": 7, "image_0": "ex_7_img_0", "image_1": "ex_7_img_1", "caption_0": "a b", "caption_1": "b a", "tag": "x"}
    ]
    (tmp_path / "examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    suite = winoground(data=tmp_path)
    assert suite.items[0].images == ("ex_7_img_0.png", "ex_7_img_1.png")
    assert "has 1 items, published are 400" in suite.problems[0]
    model = TableModel({"ex_7_img_0.png": [1, 0], "ex_7_img_1.png": [0, 1]}, {"a b": [1, 0.2], "b a": [0.2, 1]}, dim=2)
    result, _ = run(suite, model)
    assert {task: value(result, "all items", task) for task in ("text", "image", "group")} == dict.fromkeys(
        ("text", "image", "group"), 1.0
    )
    assert result.score("all items", "group").chance == pytest.approx(1 / 6)
    assert result.score("all items", "text").blind == 0.0  # with one picture for both, both texts cannot win
    assert result.headline == "all items / group"
    links = [["https://x.y/1.jpg", "a b", "https://x.y/2.jpg", "b a"]]
    write(tmp_path / "COLA_multiobjects_matching_benchmark.json", links)
    found = cola(data=tmp_path)
    assert found.items[0].images == ("1.jpg", "2.jpg")
    assert found.averages[0].tasks[0] == "image"
    write(tmp_path / "COLA_multiobjects_matching_benchmark.json", [["a", "b"]])
    with pytest.raises(DataError, match="expected \\[image, caption, image, caption\\]"):
        cola(data=tmp_path)


def test_valse_keeps_what_two_of_three_people_chose(tmp_path):
    for names in PHENOMENA.values():
        for name in names:
            entries = {
                f"{name}{k}": {
                    "image_file": "a.jpg",
                    "caption": f"{name} {k}",
                    "foil": f"no {name} {k}",
                    "mturk": {"caption": k},
                }
                for k in range(4)
            }
            write(tmp_path / f"{name}.json", entries)
    suite = valse(data=tmp_path)
    assert (len(suite.items), suite.facts["n_not_validated"], suite.problems) == (22, 22, ())
    assert len(valse(data=tmp_path, validated=False).items) == 44
    result, _ = run(suite)
    write(tmp_path / "plurals.json", {"0": {"mturk": {"caption": "3"}}})
    with pytest.raises(DataError, match=r"item 0: .*must count votes"):
        valse(data=tmp_path)
    assert len(suite.averages[1].parts) == 7
    assert result.score("mean of instruments", "accuracy").n == 22
