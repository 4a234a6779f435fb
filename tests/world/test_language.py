"""Captions: parsing undoes saying, written captions are true, varied, short and of few words."""

import dataclasses

import numpy as np
import pytest

from repair.core.errors import DataError
from repair.world.claims import Claim, Phrase, holds
from repair.world.distance import n_told
from repair.world.language import parse, parse_said, say, write_captions
from repair.world.parsing import Said
from repair.world.vocabulary import ACTIONS, CATEGORIES, COLOURS, QUANTITIES, RELATIONS, SETTINGS, SIZES
from repair.world.wording import Wording
from tests.world.oracle import brute_force_holds, random_claim, random_scene


def test_parse_undoes_say_for_any_claim_and_wording():
    seen: set[object] = set()
    for seed in range(3000):
        rng = np.random.default_rng(seed)
        claim = random_claim(rng, ["man", "dog", "bird", "car", "tree", "umbrella", "box", "kite"])
        text = say(claim, rng=rng)
        said = parse_said(text)
        assert said.claim == claim, text
        assert say(said.claim, said.wording) == text
        assert parse(say(claim)) == claim
        for phrase in claim.phrases:
            seen |= {phrase.quantity, phrase.colour, phrase.size, phrase.action}
        seen |= {claim.setting, *claim.relations}
    assert seen >= {*QUANTITIES, *COLOURS, *SIZES, *ACTIONS, *SETTINGS, *RELATIONS, None}


def test_every_noun_has_both_numbers():
    for category in CATEGORIES:
        for quantity in QUANTITIES:
            claim = Claim(phrases=(Phrase(category=category, quantity=quantity),))
            assert parse(say(claim)) == claim


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A small brown dog running, in a park.", None),
        ("  two   KIDS in scarlet are jumping at night. ", "two children in red jumping at night"),
        ("there is a hound dashing left of an automobile", "a dog running to the left of a car"),
        ("in the dark, a pair of little kitties asleep", "two small cats sleeping at night"),
        (
            "a lady wearing violet over a crate that is on top of a bike",
            "a woman in purple above a box that is on a bicycle",
        ),
    ],
)
def test_synonyms_mean_the_same(text, same):
    if same is None:
        with pytest.raises(DataError):
            parse(text)
    else:
        assert parse(text) == parse(same)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dog",
        "a dogs",
        "two dog",
        "a pink dog",
        "a red man",
        "a dog waving",
        "a dog running running",
        "a dog and",
        "a dog near a cat",
        "a dog in a forest",
        "a dog on a box on a car",
        "a dog is",
        "3 dogs",
        "a dog; a cat",
        "five dogs in a park",
        "a dog in a park in a room",
        "a dog, a dog, a dog, a dog and a dog",
    ],
)
def test_text_outside_the_grammar_is_refused(text):
    with pytest.raises(DataError):
        parse(text)


def test_the_message_says_where_parsing_stopped():
    with pytest.raises(DataError, match="expected a noun in the singular at “pig in a park”"):
        parse("a big pig in a park")


def test_written_captions_are_true_and_short():
    words: set[str] = set()
    told = np.zeros(5)
    for seed in range(600):
        rng = np.random.default_rng(seed)
        scene = random_scene(rng)
        captions = write_captions(scene, rng)
        assert len(captions) == 5
        for text in captions:
            assert holds(scene, parse(text)), (scene, text)
            assert brute_force_holds(scene, parse(text)), (scene, text)
            assert len(text.split()) <= 32
            words |= set(text.replace(",", "").split())
        told += [n_told(parse(text)) for text in captions]
    assert len(words) < 200
    told /= 600
    assert told[0] > told[4] + 1  # the first tells more than the last
    assert all(told > 5)


def test_captions_under_describe():
    """Most scenes have more facts than any of their captions tells."""
    short = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        scene = random_scene(rng)
        n_facts = 1 + sum(4 + (thing.action is not None) for thing in scene.things)
        short += max(n_told(parse(text)) for text in write_captions(scene, rng)) < n_facts
    assert short > 200


def test_saying_a_changed_claim_keeps_the_other_words():
    said = parse_said("in the dark, a little hound dashing left of an automobile")
    new = dataclasses.replace(
        said.claim, phrases=(dataclasses.replace(said.claim.phrases[0], colour="black"), said.claim.phrases[1])
    )
    assert say(new, said.wording) == "in the dark, a little black hound dashing left of an automobile"


def test_a_wording_that_does_not_fit_is_ignored():
    said = Said(parse("a dog"), Wording({("noun", 0): "pony", ("colour", 0): "golden"}))
    assert say(said.claim, said.wording) == "a dog"
