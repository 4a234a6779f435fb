"""The slow, obvious twin of `world.claims.holds`, and random claims and scenes to compare the two on.

Written from the definition alone, another way round: it tries every labelling of the scene's things with the phrase
each belongs to (or none), and decides relations by where things stand in the picture.
"""

from itertools import product

import numpy as np

from repair.core.errors import DataError
from repair.world.claims import Claim, Phrase
from repair.world.language import describe
from repair.world.sampling import sample_scene, vary_scene
from repair.world.scenes import Scene, Thing
from repair.world.vocabulary import ACTIONS, COLOURS, KINDS, RELATIONS, SETTINGS, SIZES

FAMILIES = {
    "person": {"man", "woman", "child"},
    "animal": {"dog", "cat", "horse", "bird"},
    "vehicle": {"car", "boat", "bicycle"},
    "plant": {"tree", "flower"},
    "toy": {"ball", "kite"},
}
NUMBERS = {"two": {2}, "three": {3}, "four": {4}, "some": {2, 3, 4}, "several": {3, 4}}


def brute_force_holds(scene: Scene, claim: Claim) -> bool:
    """Whether some labelling of the things with phrases makes every part of the claim true."""
    if claim.setting is not None and claim.setting != scene.setting:
        return False
    labels = [None, *range(len(claim.phrases))]
    return any(_true_under(scene, claim, labelling) for labelling in product(labels, repeat=len(scene.things)))


def _true_under(scene: Scene, claim: Claim, labelling: tuple[int | None, ...]) -> bool:
    for k, phrase in enumerate(claim.phrases):
        mine = [t for t, label in zip(scene.things, labelling, strict=True) if label == k]
        fitting = [t for t in scene.things if described(t, phrase)]
        if any(t not in fitting for t in mine):
            return False
        if phrase.quantity == "a":
            if len(mine) != 1:
                return False
        elif len(mine) not in NUMBERS[phrase.quantity] or len(mine) != len(fitting):
            return False
    for k, relation in enumerate(claim.relations):
        first = [t for t, label in zip(scene.things, labelling, strict=True) if label == k]
        second = [t for t, label in zip(scene.things, labelling, strict=True) if label == k + 1]
        if relation is not None and not all(stands(scene, relation, a, b) for a in first for b in second):
            return False
    return True


def described(thing: Thing, phrase: Phrase) -> bool:
    if thing.kind != phrase.category and thing.kind not in FAMILIES.get(phrase.category, set()):
        return False
    if phrase.colour is not None and thing.colour != phrase.colour:
        return False
    if phrase.size is not None and thing.size != phrase.size:
        return False
    return phrase.action is None or thing.action == phrase.action


def stands(scene: Scene, relation: str, a: Thing, b: Thing) -> bool:
    ax, ay = spot(scene, a)
    bx, by = spot(scene, b)
    carried = ax == bx and 0 < by - ay < 1
    if relation == "left":
        return ax < bx
    if relation == "right":
        return ax > bx
    if relation == "above":
        return by - ay > 0.9 or carried
    if relation == "below":
        return ay - by > 0.9 or (ax == bx and 0 < ay - by < 1)
    assert relation == "on"
    return carried


def spot(scene: Scene, thing: Thing) -> tuple[float, float]:
    """Where a thing stands, in columns and rows; half-way between two rows if another is right below it."""
    x, y = thing.place.column, thing.place.row
    carried = any(other.place.column == x and other.place.row == y + 1 for other in scene.things)
    return float(x), y + 0.5 if carried else float(y)


def random_claim(rng: np.random.Generator, kinds: list[str]) -> Claim:
    """Any claim about things of `kinds` and their families, vague enough to be true now and then."""
    while True:
        order = [kinds[i] for i in rng.permutation(len(kinds))][: pick(rng, [1, 1, 2, 2, 3])]
        relations = tuple(pick(rng, [None] * 5 + list(RELATIONS)) for _ in order[1:])
        setting = pick(rng, [None] * 12 + list(SETTINGS))
        try:
            phrases = tuple(_random_phrase(rng, kind, alike=kinds.count(kind) > 1) for kind in order)
            return Claim(phrases=phrases, relations=relations, setting=setting)
        except DataError:
            continue  # an action the category has not


def _random_phrase(rng: np.random.Generator, kind: str, *, alike: bool) -> Phrase:
    category = pick(rng, [kind, *(family for family, members in FAMILIES.items() if kind in members)])
    return Phrase(
        category=category,
        quantity=pick(rng, ["a"] * (2 if alike else 25) + list(NUMBERS)),
        colour=pick(rng, list(COLOURS)) if rng.random() < 0.1 else None,
        size=pick(rng, list(SIZES)) if rng.random() < 0.15 else None,
        action=pick(rng, list(ACTIONS)) if rng.random() < 0.1 else None,
    )


def random_scene(rng: np.random.Generator) -> Scene:
    return vary_scene(rng, sample_scene(rng), n_changes=int(rng.integers(3)))


def near_claim(rng: np.random.Generator, scene: Scene) -> Claim:
    """What a caption would say of the scene after none, one or two changes."""
    other = vary_scene(rng, scene, n_changes=int(rng.integers(3)))
    return describe(other, rng, detail=float(rng.uniform(0.3, 1.0)))


def pick(rng: np.random.Generator, choices):
    return choices[int(rng.integers(len(choices)))]


def kinds_of(scene: Scene) -> list[str]:
    return [thing.kind for thing in scene.things] or list(KINDS)
