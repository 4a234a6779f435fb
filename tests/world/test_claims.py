"""Truth: `holds` against a brute-force twin, and the corners of its definition one by one."""

import numpy as np
import pytest

from repair.core.errors import DataError
from repair.world.claims import Claim, Phrase, holds
from repair.world.language import parse
from repair.world.scenes import Place, Scene, Thing
from tests.world.oracle import brute_force_holds, kinds_of, near_claim, random_claim, random_scene

N_PAIRS = 12_000


def thing(
    kind: str, column: int, row: int, *, colour: str = "red", size: str = "big", action: str | None = None
) -> Thing:
    return Thing(kind=kind, colour=colour, size=size, action=action, place=Place(column, row))


def dogs(*columns: int, colour: str = "brown") -> list[Thing]:
    return [thing("dog", column, 2, colour=colour, action="running") for column in columns]


def true(text: str, *things: Thing, setting: str = "park") -> bool:
    scene, claim = Scene(setting=setting, things=tuple(things)), parse(text)
    assert holds(scene, claim) == brute_force_holds(scene, claim)
    return holds(scene, claim)


@pytest.mark.parametrize("source", ["near", "random"])
def test_holds_agrees_with_brute_force(source):
    """Captions of the scene and of scenes next to it, and claims with every quantity and relation."""
    n_true = 0
    for seed in range(N_PAIRS // 2):
        rng = np.random.default_rng([seed, source == "near"])
        scene = random_scene(rng)
        claim = near_claim(rng, scene) if source == "near" else random_claim(rng, kinds_of(scene))
        expected = brute_force_holds(scene, claim)
        assert holds(scene, claim) == expected, (scene, claim)
        n_true += expected
    assert 0.2 < n_true / (N_PAIRS // 2) < 0.8


def test_a_number_is_exact_and_a_singular_is_not():
    assert true("a dog", *dogs(0, 1))
    assert true("two dogs", *dogs(0, 1))
    assert not true("two dogs", *dogs(0, 1, 2))
    assert not true("three dogs", *dogs(0, 1))
    assert true("some dogs", *dogs(0, 1))
    assert not true("some dogs", *dogs(0))
    assert true("several dogs", *dogs(0, 1, 2))
    assert not true("several dogs", *dogs(0, 1))


def test_a_number_counts_what_fits_the_whole_mention():
    things = [*dogs(0, 1), *dogs(2, colour="white")]
    assert true("two brown dogs", *things)
    assert true("three dogs", *things)
    assert not true("two dogs", *things)


def test_mentions_share_no_thing():
    man, woman = thing("man", 0, 1, action="waving"), thing("woman", 2, 1, action="waving")
    assert not true("a person and a man", man)
    assert true("a person and a man", man, woman)
    assert not true("two dogs and a dog", *dogs(0, 1, 2))


def test_the_grouping_that_fits_is_found():
    """The first "a dog" must be the white one, though the brown one comes first."""
    things = [*dogs(0), *dogs(1, colour="white"), thing("ball", 2, 2)]
    assert true("a dog and a brown dog", *things)
    assert true("a dog to the left of a ball and a brown dog", *things)


def test_a_relation_of_a_group_binds_all_of_it():
    ball = thing("ball", 1, 1)
    assert true("two dogs below a ball", *dogs(0, 2), ball)
    assert not true("two dogs to the left of a ball", *dogs(0, 2), ball)


def test_hypernyms_and_unsaid_facts():
    cat = thing("cat", 1, 1, colour="black", size="small", action="sleeping")
    assert true("an animal", cat)
    assert true("a small black cat asleep", cat)
    assert not true("a dog", cat)
    assert not true("a big cat", cat)
    assert true("a cat in a park", cat)
    assert not true("a cat on the road", cat)


def test_resting_stands_between_two_rows():
    box, cat = thing("box", 0, 2), thing("cat", 0, 1, action="sitting")
    beside, behind = thing("ball", 2, 2), thing("ball", 2, 1)
    far = thing("ball", 2, 0)
    assert true("a cat on a box", box, cat)
    assert true("a cat above a box", box, cat)
    assert not true("a box on a cat", box, cat)
    assert not true("a cat above a ball", box, cat, beside)
    assert not true("a cat below a ball", box, cat, behind)
    assert true("a cat below a ball", box, cat, far)
    assert true("a box below a ball", box, cat, behind)


@pytest.mark.parametrize(
    "fault",
    [
        {"phrases": ()},
        {"phrases": (Phrase(category="dog"),) * 5, "relations": (None,) * 4},
        {"phrases": (Phrase(category="dog"),), "relations": ("left",)},
        {"phrases": (Phrase(category="dragon"),)},
        {"phrases": (Phrase(category="dog", action="waving"),)},
        {"phrases": (Phrase(category="car", action="running"),)},
        {"phrases": (Phrase(category="dog", quantity="nine"),)},
        {"phrases": (Phrase(category="dog", colour="pink"),)},
        {"phrases": (Phrase(category="dog"),) * 2, "relations": ("behind",)},
        {"phrases": (Phrase(category="dog"),), "setting": "moon"},
    ],
)
def test_malformed_claims_are_refused(fault):
    with pytest.raises(DataError, match="not a claim"):
        Claim(**fault)
