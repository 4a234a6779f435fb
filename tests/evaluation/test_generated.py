"""Texts that are made here: Order shuffles and half-truths, with real tags."""

import json
import re
from collections import Counter
from functools import partial

import pytest

from repair.core.errors import DataError
from repair.core.records import Pair
from repair.evaluation.suites.aro import coco_order, shuffled_items
from repair.evaluation.suites.generated import read_items, rows_of
from repair.evaluation.suites.halftruth import COLOURS
from repair.evaluation.suites.halftruth import half_truths as make_half_truths
from repair.evaluation.suites.halftruth_matched import matched_half_truths as make_matched
from repair.evaluation.tagging import pieces

pytest.importorskip("spacy", reason="the suites extra is not installed")
pytest.importorskip("punkt", reason="the suites extra is not installed")
CAPTIONS = ["A red dog chases two fat cats in the old park.", "Dog.", "A boy (with a hat) eats an apple near a car!"]

half_truths = partial(make_half_truths, name="halftruth", seed=0, max_items=10)
matched_half_truths = partial(make_matched, name="halftruth_matched", seed=0, max_items=10)


@pytest.fixture
def blip(tmp_path):
    path = tmp_path / "coco_karpathy_test.json"
    path.write_text(
        json.dumps([{"image": "a.jpg", "caption": CAPTIONS[:2]}, {"image": "b.jpg", "caption": CAPTIONS[2:]}])
    )
    return path


def test_order_is_seeded_hashed_saved_and_read_back(blip, tmp_path):
    suite = coco_order(data=blip)
    assert [len(item.texts) for item in suite.items] == [5, 5, 5]
    assert suite.items[0].texts[0] == "a red dog chases two fat cats in the old park"
    for item in suite.items:
        assert all(sorted(text.split()) == sorted(item.texts[0].split()) for text in item.texts)
    assert set(suite.items[1].texts) == {"dog"}
    assert suite.facts["n_unchanged_shuffles"] >= 4  # a caption of one word cannot be shuffled: a tie, counted right
    assert coco_order(data=blip).facts["texts_hash"] == suite.facts["texts_hash"]
    assert coco_order(data=blip, seed=2).facts["texts_hash"] != suite.facts["texts_hash"]
    saved = tmp_path / "coco_order-texts.jsonl"
    saved.write_text("".join(json.dumps(row) + "\n" for row in rows_of(suite)))
    again = coco_order(data=blip, texts=saved)
    assert (again.items, again.facts["texts_hash"]) == (suite.items, suite.facts["texts_hash"])
    saved.write_text(saved.read_text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="is not of the captions"):
        coco_order(data=blip, texts=saved)
    saved.write_text("{}\n")
    with pytest.raises(DataError, match="line 1: not a row"):
        read_items(saved)
    assert "published are 25,010" in suite.problems[0]


def test_words_are_cut_as_nltk_cuts_them():
    """Sentences by Punkt ("Mr." ends none), words by the Treebank rules, quotes as `` and ''."""
    wanted = "Mr. Fox ca n't run . He says `` no '' !"
    assert list(pieces(['Mr. Fox can\'t run. He says "no"!', ""])) == [wanted.split(), []]


def test_a_captions_shuffles_do_not_depend_on_its_neighbours():
    rows = [(str(k), "a.jpg", caption) for k, caption in enumerate(CAPTIONS)]
    assert shuffled_items(rows, seed=1)[2] == shuffled_items(rows[2:], seed=1)[0]


def pairs():
    things = ["a ball", "a car", "a tree", "a boat", "a kite", "a horse"]
    places = ["on the beach", "in the park", "at the station", "on a bridge"]
    found = []
    for i in range(24):
        thing, place = things[i % 6], places[i % 4]
        for k, text in enumerate((f"A dog with {thing}.", f"A brown dog runs {place} .", "The dog looks up")):
            found.append(Pair(image_id=f"{i}.jpg", caption_id=f"{i}.jpg#{k}", text=text, split="test"))
    return found


def test_half_truths_add_one_detail_that_no_caption_has():
    suite = half_truths(pairs())
    own = {}
    for pair in pairs():
        own.setdefault(pair.image_id, []).append(pair.text)
    assert suite.facts["n_by_split"] == {"attribute": 10, "object": 10, "place": 10}
    for item in suite.items:
        text, longer = item.texts
        assert text in own[item.images[0]]
        said = " ".join(own[item.images[0]]).lower()
        added = [
            word
            for word in longer.lower().replace(".", "").split()
            if word not in text.lower().replace(".", "").split()
        ]
        if item.group == "attribute":
            colours = [word for word in added if word in COLOURS]
            assert len(colours) == 1
            assert colours[0] not in said
        else:
            assert added[-1] not in said
            assert longer.endswith(text[-1]) or text.endswith("up")
    again = half_truths(pairs())
    assert again.items == suite.items
    assert half_truths(pairs(), seed=1).items != suite.items


def test_matched_half_truths_give_words_alone_nothing():
    """Both texts are of one length, each detail is right as often as wrong, and it is right of its own image only."""
    suite = matched_half_truths(pairs())
    assert suite.items == matched_half_truths(pairs()).items
    own = {}
    for pair in pairs():
        own.setdefault(pair.image_id, []).append(pair.text.lower())
    assert set(suite.facts["n_by_split"]) == {"object", "place"}  # all dogs are brown, so no colour is wrong
    right, wrong = Counter(), Counter()
    for item in suite.items:
        true, false = (re.sub(r"\W+", " ", text.lower()).split() for text in item.texts)
        assert len(true) == len(false)
        (told,), (untold,) = (
            [a for a, b in zip(x, y, strict=True) if a != b][-1:] for x, y in ((true, false), (false, true))
        )
        said = " ".join(own[item.images[0]])
        assert told in said
        assert untold not in said
        right[told] += 1
        wrong[untold] += 1
    assert right == wrong
    pairs_of = Counter(item.made_with for item in suite.items)
    assert set(pairs_of.values()) == {2}  # a text probe keeps both in one fold


def test_matched_colours_are_of_one_noun():
    found = []
    for i, colour in enumerate(("black", "brown", "black", "orange")):
        for k, text in enumerate((f"A {colour} dog runs.", "The dog looks at a tree", f"a {colour} and white cat")):
            found.append(Pair(image_id=f"{i}.jpg", caption_id=f"{i}#{k}", text=text, split="test"))
    items = [item for item in matched_half_truths(found).items if item.group == "attribute"]
    assert len(items) == 4
    for item in items:
        assert re.fullmatch(r"The (black|brown|orange) dog looks at a tree", item.texts[0])
        assert item.texts[0] != item.texts[1]
    with pytest.raises(DataError, match="no item can be made of 1 captions of 1 images"):
        matched_half_truths(found[:1])
    with pytest.raises(DataError, match="no item can be made of 1 captions of 1 images"):
        half_truths(found[:1])


def test_articles_follow_the_colour():
    suite = half_truths(pairs(), max_items=24)
    for item in suite.items:
        if item.group == "attribute" and item.texts[0].startswith("A dog"):
            first, second = item.texts[1].split()[:2]
            assert first == ("An" if second[0] in "aeiou" else "A")
