"""Edits: true, minimal (no smaller edit exists, by exhaustive search), in the old words; and the edits that miss."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import permutations

import numpy as np
import pytest

from repair.core.errors import DataError
from repair.core.records import ErrorType
from repair.world.bad_edits import (
    overreaching_image_edit,
    overreaching_text_edit,
    wrong_image_edit,
    wrong_text_edit,
)
from repair.world.claims import Claim, Phrase, holds
from repair.world.differences import image_difference, text_difference
from repair.world.distance import caption_distance, n_facts, n_told, scene_distance, thing_distance
from repair.world.image_edits import minimal_image_edit
from repair.world.language import parse, say
from repair.world.scenes import CELLS, Place, Scene, Thing
from repair.world.text_edits import minimal_text_edits
from repair.world.vocabulary import ACTIONS, CATEGORIES, COLOURS, KINDS, QUANTITIES, RELATIONS, SETTINGS, SIZES
from tests.world.oracle import brute_force_holds, kinds_of, near_claim, random_claim, random_scene

CAT = Thing(kind="cat", colour="black", size="small", action="sitting", place=Place(0, 1))
BOX = Thing(kind="box", colour="brown", size="big", action=None, place=Place(0, 2))
DOG = Thing(kind="dog", colour="brown", size="big", action="running", place=Place(2, 2))
SCENE = Scene(setting="park", things=(CAT, BOX, DOG))


# ------------------------------------------------------------------------------- exhaustive searches


def claims_within(claim: Claim, n: int) -> Iterator[Claim]:
    """Every claim that can be made with up to `n` changed, dropped or said facts; mentions dropped whole."""
    raw = ([asdict(phrase) for phrase in claim.phrases], list(claim.relations), claim.setting)
    yield from _valid(_altered(raw, n, from_slot=0))
    for i, phrase in enumerate(claim.phrases):
        if len(claim.phrases) == 1:
            continue
        lost = [relation for relation in claim.relations[max(0, i - 1) : i + 1] if relation]
        price = len(lost) + sum(value is not None and value != "a" for value in asdict(phrase).values())
        if price <= n:
            links = list(claim.relations)
            links[max(0, i - 1) : i + 1] = [None] if 0 < i < len(claim.phrases) - 1 else []
            phrases = (*claim.phrases[:i], *claim.phrases[i + 1 :])
            yield from claims_within(replace(claim, phrases=phrases, relations=tuple(links)), n - price)


def _altered(raw, n: int, *, from_slot: int):
    yield raw
    if n == 0:
        return
    phrases, relations, setting = raw
    values = {
        "category": CATEGORIES,
        "quantity": tuple(QUANTITIES),
        "colour": (*COLOURS, None),
        "size": (*SIZES, None),
        "action": (*ACTIONS, None),
    }
    slots = [(i, name) for i in range(len(phrases)) for name in values]
    for k, (i, name) in enumerate(slots):
        if k < from_slot:
            continue
        for value in values[name]:
            if value != phrases[i][name]:
                new = [dict(phrase) for phrase in phrases]
                new[i][name] = value
                yield from _altered((new, relations, setting), n - 1, from_slot=k + 1)
    for i, old in enumerate(relations):
        k = len(slots) + i
        if k >= from_slot:
            for relation in (*RELATIONS, None):
                if relation != old:
                    new = [*relations[:i], relation, *relations[i + 1 :]]
                    yield from _altered((phrases, new, setting), n - 1, from_slot=k + 1)
    k = len(slots) + len(relations)
    if k >= from_slot:
        for other in (*SETTINGS, None):
            if other != setting:
                yield from _altered((phrases, relations, other), n - 1, from_slot=k + 1)


def _valid(raws) -> Iterator[Claim]:
    for phrases, relations, setting in raws:
        try:
            yield Claim(phrases=tuple(Phrase(**p) for p in phrases), relations=tuple(relations), setting=setting)
        except DataError:
            continue


def scenes_within(scene: Scene, n: int) -> Iterator[Scene]:
    """Every scene with up to `n` changed facts (fewer than a whole thing has)."""
    assert n < 4
    for things, setting in _redone(list(scene.things), scene.setting, n, from_slot=0):
        try:
            yield replace(scene, things=tuple(things), setting=setting)
        except DataError:
            continue


def _redone(things, setting, n: int, *, from_slot: int):
    yield things, setting
    if n == 0:
        return
    values = {
        "kind": tuple(KINDS),
        "colour": tuple(COLOURS),
        "size": tuple(SIZES),
        "action": (*ACTIONS, None),
        "place": CELLS,
    }
    slots = [(i, name) for i in range(len(things)) for name in values]
    for k, (i, name) in enumerate(slots):
        if k >= from_slot:
            for value in values[name]:
                if value != getattr(things[i], name):
                    new = [*things[:i], replace(things[i], **{name: value}), *things[i + 1 :]]
                    yield from _redone(new, setting, n - 1, from_slot=k + 1)
    if len(slots) >= from_slot:
        for other in SETTINGS:
            if other != setting:
                yield from _redone(things, other, n - 1, from_slot=len(slots) + 1)


def cases(n: int, *, most_things: int, most_phrases: int) -> Iterator[tuple[Scene, Claim, np.random.Generator]]:
    """Scenes with claims false of them: captions of scenes near by and claims with every quantity, by turns."""
    seed = 0
    while n:
        rng = np.random.default_rng(seed)
        seed += 1
        scene = random_scene(rng)
        claim = near_claim(rng, scene) if seed % 3 else random_claim(rng, kinds_of(scene))
        if len(scene.things) <= most_things and len(claim.phrases) <= most_phrases and not holds(scene, claim):
            n -= 1
            yield scene, claim, rng


# --------------------------------------------------------------------------------------------- texts


def test_text_edits_are_true_distinct_and_equally_near():
    n_alternatives = Counter()
    for scene, claim, rng in cases(400, most_things=4, most_phrases=4):
        text = say(claim, rng=rng)
        edits = minimal_text_edits(scene, text, 3)
        assert 1 <= len(edits) == len(set(edits)) <= 3
        assert all(brute_force_holds(scene, parse(edit)) for edit in edits), (scene, text, edits)
        distances = {caption_distance(claim, parse(edit)) for edit in edits}
        assert len(distances) == 1
        assert distances.pop() == text_difference(scene, text).n_facts > 0
        n_alternatives[len(edits)] += 1
    assert n_alternatives[3] > 100


def test_no_smaller_text_edit_exists():
    checked = Counter()
    for scene, claim, _ in cases(260, most_things=3, most_phrases=2):
        cost = text_difference(scene, say(claim)).n_facts
        if cost > 3 or (cost == 3 and checked[3] >= 12):
            continue
        for smaller in claims_within(claim, cost - 1):
            assert not holds(scene, smaller), (scene, claim, smaller)
        checked[cost] += 1
    assert checked[1] > 60
    assert checked[2] > 25
    assert checked[3] == 12


def test_a_true_caption_is_its_own_edit():
    assert minimal_text_edits(SCENE, "a KITTY seated on a crate.", 3) == ["a KITTY seated on a crate."]


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("there is a white kitty seated on a crate", "there is a black kitty seated on a crate"),
        ("a kitty to the right of a hound dashing", "a kitty to the left of a hound dashing"),
        ("two hounds with a crate on the grass", "a hound with a crate on the grass"),
        ("in a room, a small cat, a box and a dog", "in a park, a small cat, a box and a dog"),
        ("a pony dashing right of a crate", "a dog dashing right of a crate"),
        ("a cat is running on a large box", "a cat is sitting on a large box"),
        ("a cat on a box, a dog and a yellow umbrella", "a cat on a box and a dog"),
    ],
)
def test_edits_change_the_wrong_words_only(text, edited):
    assert minimal_text_edits(SCENE, text, 1) == [edited]


def test_replacing_comes_before_leaving_out():
    assert minimal_text_edits(SCENE, "a white cat", 5) == ["a black cat", "a cat"]


# -------------------------------------------------------------------------------------------- images


def test_image_edits_are_true_and_as_far_as_said():
    for scene, claim, rng in cases(250, most_things=4, most_phrases=4):
        try:
            edited = minimal_image_edit(scene, claim, rng=rng)
        except DataError:
            continue
        assert brute_force_holds(edited, claim), (scene, claim, edited)
        assert scene_distance(scene, edited) == image_difference(scene, say(claim)).n_facts > 0
        assert [thing.noise for thing in edited.things][: len(scene.things)] == [t.noise for t in scene.things]
        assert edited.noise == scene.noise


def test_no_smaller_image_edit_exists():
    checked = Counter()
    for scene, claim, rng in cases(260, most_things=3, most_phrases=3):
        try:
            cost = scene_distance(scene, minimal_image_edit(scene, claim, rng=rng))
        except DataError:
            cost = 4
        if cost > 3 and checked["far"] >= 3:
            continue
        if cost == 3 and checked[cost] >= 6:
            continue
        for smaller in scenes_within(scene, min(cost - 1, 2)):
            assert not holds(smaller, claim), (scene, claim, smaller)
        checked[cost if cost <= 3 else "far"] += 1
    assert checked[1] > 50
    assert checked[2] > 20
    assert checked[3] >= 3


def test_equally_small_image_edits_are_chosen_by_the_generator():
    claim = parse("a person")
    results = {minimal_image_edit(SCENE, claim, rng=np.random.default_rng(seed)).facts() for seed in range(30)}
    assert len(results) > 3
    again = [minimal_image_edit(SCENE, claim, rng=np.random.default_rng(3)) for _ in range(2)]
    assert again[0] == again[1]


def test_a_true_claim_leaves_the_scene_alone():
    assert minimal_image_edit(SCENE, parse("a cat on a box"), rng=np.random.default_rng(0)) is SCENE


def test_things_are_added_only_when_there_are_too_few():
    alone = Scene(setting="park", things=(DOG,))
    added = minimal_image_edit(alone, parse("a brown dog running and a red kite"), rng=np.random.default_rng(0))
    assert added.things[0] == DOG
    assert (added.things[1].kind, added.things[1].colour) == ("kite", "red")


def test_a_surplus_is_turned_into_something_else():
    three = Scene(setting="park", things=tuple(replace(DOG, place=Place(c, 2)) for c in range(3)))
    two = minimal_image_edit(three, parse("two dogs"), rng=np.random.default_rng(0))
    assert len(two.things) == 3
    assert scene_distance(three, two) == 1


@pytest.mark.parametrize("text", ["two dogs and a dog", "four cats and a bird", "a cat on a box that is on a car"])
def test_a_claim_no_scene_fits_is_refused(text):
    with pytest.raises(DataError, match="no scene fits"):
        minimal_image_edit(SCENE, parse(text), rng=np.random.default_rng(0))


# ----------------------------------------------------------------------------------------- distances


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("a dog", "a dog", 0),
        ("a dog", "a hound", 0),
        ("a dog", "two dogs", 1),
        ("a dog", "a big red dog", 2),
        ("a dog on a box", "a dog under a box", 1),
        ("a dog on a box", "a dog and a box", 1),
        ("a dog on a red box", "a dog", 3),
        ("a dog on a red box", "a red box", 2),
        ("a cat, a dog left of a box", "a dog left of a box", 1),
        ("a dog in a park", "a dog", 1),
        ("a dog in a park", "a cat in a room", 2),
        ("a dog and a cat", "a cat and a dog", 2),
    ],
)
def test_caption_distance(a, b, distance):
    assert caption_distance(parse(a), parse(b)) == distance == caption_distance(parse(b), parse(a))


def test_caption_distance_is_a_distance():
    claims = [random_claim(np.random.default_rng(seed), ["dog", "cat", "box"]) for seed in range(40)]
    for a in claims:
        for b in claims[:12]:
            assert (caption_distance(a, b) == 0) == (a == b)
            assert caption_distance(a, b) == caption_distance(b, a) <= n_told(a) + n_told(b)
            for c in claims[:5]:
                assert caption_distance(a, c) <= caption_distance(a, b) + caption_distance(b, c)


def test_scene_distance_is_the_least_over_all_partial_matchings():
    rng = np.random.default_rng(0)
    scenes = [random_scene(rng) for _ in range(60)]
    for a, b in zip(scenes[:30], scenes[30:], strict=True):
        padded = (*b.things, *(None,) * len(a.things))
        least = min(
            sum(
                n_facts(old) if new is None else thing_distance(old, new) for old, new in zip(a.things, to, strict=True)
            )
            + sum(n_facts(new) for new in b.things if not any(new is kept for kept in to))
            for to in permutations(padded, len(a.things))
        )
        assert scene_distance(a, b) == scene_distance(b, a) == least + (a.setting != b.setting)


def test_scene_distance():
    assert scene_distance(SCENE, replace(SCENE, noise=9, things=SCENE.things[::-1])) == 0
    assert scene_distance(SCENE, replace(SCENE, setting="room")) == 1
    assert scene_distance(SCENE, replace(SCENE, things=(CAT, BOX))) == 5
    assert scene_distance(SCENE, replace(SCENE, things=(CAT, DOG))) == 4
    moved = replace(DOG, place=Place(2, 0), colour="white")
    assert scene_distance(SCENE, replace(SCENE, things=(BOX, moved, CAT))) == 2


# --------------------------------------------------------------------------------------- differences


@pytest.mark.parametrize(
    ("text", "types", "instruction"),
    [
        ("a white cat", [ErrorType.ATTRIBUTE], 'Replace "white" with "black".'),
        ("a pony dashing", [ErrorType.OBJECT], 'Replace "pony" with "dog".'),
        ("a cat asleep", [ErrorType.ACTION], 'Replace "asleep" with "sitting".'),
        ("a cat right of a hound", [ErrorType.RELATION], 'Replace "right of" with "to the left of".'),
        ("two dogs", [ErrorType.COUNT], 'Replace "two" with "a".'),
        ("a dog at night", [ErrorType.ATTRIBUTE], 'Replace "at night" with "in a park".'),
        ("a cat, a box, a dog and a kite", [ErrorType.HALLUCINATION], 'Leave out "a kite".'),
        (
            "a golden cat right of a dog",
            [ErrorType.ATTRIBUTE, ErrorType.RELATION],
            'Replace "golden" with "black" and replace "right of" with "to the left of".',
        ),
    ],
)
def test_text_differences(text, types, instruction):
    difference = text_difference(SCENE, text)
    assert list(difference.error_types) == types
    assert difference.instruction == instruction
    assert difference.residual
    assert difference.scaffold


@pytest.mark.parametrize(
    ("text", "types", "instruction"),
    [
        ("a white cat", [ErrorType.ATTRIBUTE], "Make the black cat white."),
        ("a cat asleep", [ErrorType.ACTION], "Show the black cat sleeping."),
        (
            "a hound running over a cat and a box",
            [ErrorType.RELATION],
            "Move the brown dog so that it is above the black cat.",
        ),
        ("a small box at night", [ErrorType.ATTRIBUTE], None),
        ("a cat on a box, a dog and a red kite", [ErrorType.OBJECT], "Add a red kite."),
    ],
)
def test_image_differences(text, types, instruction):
    difference = image_difference(SCENE, text)
    assert list(difference.error_types) == types
    assert instruction in (None, difference.instruction)
    assert difference.residual
    assert difference.scaffold


def test_scaffolds_keep_what_is_right():
    assert text_difference(SCENE, "a white cat on a big crate in a park").scaffold == "a cat on a big crate in a park"
    assert text_difference(SCENE, "a horse running right of a box").scaffold == "an animal running right of a box"
    assert text_difference(Scene(setting="park", things=(BOX,)), "a red kite").scaffold == "nothing"
    assert image_difference(SCENE, "a white cat").scaffold == "a brown box, a brown dog, all in a park"


def test_a_surplus_dog_is_a_wrong_count():
    three = Scene(setting="park", things=tuple(replace(DOG, place=Place(c, 2)) for c in range(3)))
    assert image_difference(three, "two dogs").error_types == (ErrorType.COUNT,)
    assert text_difference(three, "two dogs").error_types == (ErrorType.COUNT,)


def test_nothing_is_wrong_with_a_true_caption():
    for difference in (text_difference(SCENE, "a cat"), image_difference(SCENE, "a cat")):
        assert difference.error_types == ()
        assert (difference.residual, difference.instruction, difference.n_facts) == ("", "", 0)


def test_all_error_types_turn_up_on_both_sides():
    texts, images = Counter(), Counter()
    for scene, claim, rng in cases(300, most_things=4, most_phrases=4):
        texts.update(text_difference(scene, say(claim)).error_types)
        try:
            images.update(image_difference(scene, say(claim, rng=rng)).error_types)
        except DataError:
            continue
    assert set(texts) == set(ErrorType)
    assert set(images) == set(ErrorType) - {ErrorType.HALLUCINATION}


# --------------------------------------------------------------------------------------- edits that miss


def test_bad_edits_miss_as_they_should():
    n_over, n_wrong, n = 0, 0, 0
    for scene, claim, rng in cases(120, most_things=4, most_phrases=4):
        text = say(claim, rng=rng)
        least = text_difference(scene, text).n_facts
        over = parse(overreaching_text_edit(scene, text, rng=rng))
        assert holds(scene, over)
        n_over += caption_distance(claim, over) > least
        wrong = parse(wrong_text_edit(scene, text, rng=rng))
        assert not holds(scene, wrong)
        assert caption_distance(claim, wrong) == 1
        worse = wrong_image_edit(scene, claim, rng=rng)
        assert not holds(worse, claim)
        n_wrong += worse != scene
        try:
            least = scene_distance(scene, minimal_image_edit(scene, claim, rng=rng))
        except DataError:
            continue
        changed = overreaching_image_edit(scene, claim, rng=rng)
        assert holds(changed, claim)
        assert least <= scene_distance(scene, changed) <= least + 2
        n_over += scene_distance(scene, changed) > least
        n += 1
    assert n_wrong > 115
    assert n_over > 0.9 * (120 + n)
