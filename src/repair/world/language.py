"""Captions of scenes: five an image, in varying detail; `parse` and `say` are re-exported from here."""

from itertools import pairwise

import numpy as np

from repair.world.claims import Claim, Phrase, stands
from repair.world.distance import n_told
from repair.world.parsing import Said, parse, parse_said
from repair.world.scenes import Scene, Thing
from repair.world.vocabulary import EXACT_WORD, KINDS, RELATIONS
from repair.world.wording import Wording, say

__all__ = ["DETAILS", "Said", "Wording", "describe", "parse", "parse_said", "say", "write_captions"]

# The five captions: how likely each fact is told, and how many facts (of `distance`) are told at least, if there are.
DETAILS: tuple[tuple[float, int], ...] = ((0.95, 8), (0.9, 7), (0.85, 7), (0.75, 6), (0.65, 5))
_SIZE_RATE = 0.5  # sizes are told less often than colours and actions, at equal detail
_HYPERNYM_RATE = 0.1
_GROUP_RATE = 0.6  # of captions on a scene with like things that count them
_FAMILY_RATE = 0.2  # of captions that count things of one family instead: "two people"
_VAGUE_COUNT_RATE = 0.2
_SETTING_RATE = 0.8
_RELATION_RATE = 0.85
_MAX_WORDS = 32
_TRIES = 5


def write_captions(
    scene: Scene, rng: np.random.Generator, *, details: tuple[tuple[float, int], ...] = DETAILS
) -> list[str]:
    """One caption per level of detail, each true of `scene` and at most 32 words long. Two of them may be equal."""
    return [_written(scene, rng, detail, n_facts) for detail, n_facts in details]


def _written(scene: Scene, rng: np.random.Generator, detail: float, n_facts: int) -> str:
    """The first of a few tries, each telling more, that tells enough; the most telling one if none does."""
    best, most = "", -1
    for k in range(_TRIES):
        claim = describe(scene, rng, detail=detail + (1 - detail) * k / (_TRIES - 1))
        told = n_told(claim)
        text = say(claim, rng=rng) if told > most else ""
        if text and len(text.split()) <= _MAX_WORDS:
            best, most = text, told
        if most >= n_facts:
            break
    return best or say(describe(scene, rng, detail=0.0))


def describe(scene: Scene, rng: np.random.Generator, *, detail: float) -> Claim:
    """A claim true of `scene` that tells about a share `detail` in [0, 1] of what it could."""
    order = [int(i) for i in np.argsort(rng.random(len(scene.things)))]
    told = order if rng.random() < detail else order[: max(1, len(order) - 1)]
    groups = _grouped(scene, told, rng)
    phrases = tuple(_phrase([scene.things[i] for i in group], rng, detail) for group in groups)
    told_relation = _RELATION_RATE * (0.5 + 0.5 * detail)
    relations = tuple(
        _relation(scene, a, b, rng) if rng.random() < told_relation else None for a, b in pairwise(groups)
    )
    setting = scene.setting if rng.random() < _SETTING_RATE * (0.3 + 0.7 * detail) else None
    return Claim(phrases=phrases, relations=relations, setting=setting)


def _grouped(scene: Scene, told: list[int], rng: np.random.Generator) -> list[tuple[int, ...]]:
    """`told`, with all things of one repeated kind, or else of one family, brought together if they are to be counted.

    All things of the kind or family are in the group, so a count of it is exact and takes no other mention's thing.
    """
    kinds = [scene.things[i].kind for i in told]
    families = [KINDS[kind].family for kind in kinds]
    like: list[int] = []
    kind = next((kind for kind in kinds if kinds.count(kind) > 1), None)
    family = next((family for family in families if family and families.count(family) > 1), None)
    if kind is not None and rng.random() < _GROUP_RATE:
        like = [i for i, thing in enumerate(scene.things) if thing.kind == kind]
    elif family is not None and rng.random() < _FAMILY_RATE:
        like = [i for i, thing in enumerate(scene.things) if KINDS[thing.kind].family == family]
    rest: list[tuple[int, ...]] = [(i,) for i in told if i not in like]
    if not like:
        return rest
    at = int(rng.random() * (len(rest) + 1))
    return [*rest[:at], tuple(like), *rest[at:]]


def _phrase(things: list[Thing], rng: np.random.Generator, detail: float) -> Phrase:
    """A mention of `things` that states only what they have in common."""
    first = things[0]
    category: str = first.kind
    family = KINDS[first.kind].family
    if family is not None and (_differ(things, "kind") or (len(things) == 1 and rng.random() < _HYPERNYM_RATE)):
        category = family
    return Phrase(
        category=category,
        quantity=_quantity(len(things), rng) if len(things) > 1 else "a",
        colour=first.colour if rng.random() < detail and not _differ(things, "colour") else None,
        size=first.size if rng.random() < detail * _SIZE_RATE and not _differ(things, "size") else None,
        action=first.action if rng.random() < detail and not _differ(things, "action") else None,
    )


def _differ(things: list[Thing], name: str) -> bool:
    return any(getattr(thing, name) != getattr(things[0], name) for thing in things[1:])


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
