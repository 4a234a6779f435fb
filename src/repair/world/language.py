"""Captions of scenes: five an image, in varying detail; `parse` and `say` are re-exported from here."""

from dataclasses import replace

import numpy as np

from repair.world.claims import Claim, Phrase, holds, stands
from repair.world.parsing import Said, parse, parse_said
from repair.world.scenes import Scene, Thing
from repair.world.vocabulary import EXACT_WORD, KINDS, RELATIONS
from repair.world.wording import Wording, say

__all__ = ["DETAILS", "Said", "Wording", "describe", "parse", "parse_said", "say", "write_captions"]

# Level of detail of the five captions: roughly the chance that a fact of a thing is told.
DETAILS: tuple[float, ...] = (0.95, 0.9, 0.85, 0.75, 0.65)
_SIZE_RATE = 0.45  # sizes are told less often than colours and actions, at equal detail
_HYPERNYM_RATE = 0.1
_GROUP_RATE = 0.6  # of captions on a scene with like things that count them
_VAGUE_COUNT_RATE = 0.2
_SETTING_RATE = 0.75
_RELATION_RATE = 0.85
_MAX_WORDS = 32


def write_captions(scene: Scene, rng: np.random.Generator, *, details: tuple[float, ...] = DETAILS) -> list[str]:
    """One caption per level of detail, each true of `scene` and at most 32 words long. Two of them may be equal."""
    captions = []
    for detail in details:
        text = say(describe(scene, rng, detail=detail), rng=rng)
        while len(text.split()) > _MAX_WORDS:
            text = say(describe(scene, rng, detail=detail * 0.8), rng=rng)
        captions.append(text)
    return captions


def describe(scene: Scene, rng: np.random.Generator, *, detail: float) -> Claim:
    """A claim true of `scene` that tells about a share `detail` in [0, 1] of what it could."""
    order = [int(i) for i in np.argsort(rng.random(len(scene.things)))]
    n_told = len(order) if rng.random() < detail else max(1, len(order) - 1)
    groups = _grouped(scene, order[:n_told], rng)
    phrases = tuple(_phrase([scene.things[i] for i in group], rng, detail) for group in groups)
    told_relation = _RELATION_RATE * (0.5 + 0.5 * detail)
    relations = tuple(
        _relation(scene, a, b, rng) if rng.random() < told_relation else None
        for a, b in zip(groups, groups[1:], strict=False)
    )
    setting = scene.setting if rng.random() < _SETTING_RATE * (0.3 + 0.7 * detail) else None
    claim = Claim(phrases=phrases, relations=relations, setting=setting)
    if holds(scene, claim):
        return claim
    # A count that is not exact for its description, or a group that swallows another phrase's thing: tell no counts.
    singles = [(i,) for i in order[:n_told]]
    phrases = tuple(_phrase([scene.things[i]], rng, detail) for (i,) in singles)
    return Claim(phrases=phrases, relations=(None,) * (len(phrases) - 1), setting=setting)


def _grouped(scene: Scene, told: list[int], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """`told`, with all things of one repeated kind brought together if they are to be counted."""
    kinds = [scene.things[i].kind for i in told]
    repeated = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    if repeated is None or rng.random() >= _GROUP_RATE:
        return [(i,) for i in told]
    like = tuple(sorted(i for i, thing in enumerate(scene.things) if thing.kind == repeated))
    return [like, *((i,) for i in told if i not in like)]


def _phrase(things: list[Thing], rng: np.random.Generator, detail: float) -> Phrase:
    first = things[0]
    family = KINDS[first.kind].family
    category = family if family and rng.random() < _HYPERNYM_RATE and len(things) == 1 else first.kind
    tells = {
        "colour": rng.random() < detail,
        "size": rng.random() < detail * _SIZE_RATE,
        "action": rng.random() < detail,
    }
    common = {
        name: getattr(first, name)
        for name, told in tells.items()
        if told and len({getattr(thing, name) for thing in things}) == 1
    }
    phrase = Phrase(category=category, **common)
    return replace(phrase, quantity=_quantity(len(things), rng)) if len(things) > 1 else phrase


def _quantity(n: int, rng: np.random.Generator) -> str:
    if rng.random() >= _VAGUE_COUNT_RATE:
        return EXACT_WORD[n]
    return "several" if n >= 3 else "some"


def _relation(scene: Scene, a: tuple[int, ...], b: tuple[int, ...], rng: np.random.Generator) -> str | None:
    """A relation that holds between the two groups; resting is told rather than mere height."""
    true = [relation for relation in RELATIONS if stands(scene, relation, a, b)]
    if "on" in true:
        return "on"
    return true[int(rng.random() * len(true))] if true else None
