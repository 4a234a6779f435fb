"""Seeded scenes with the correlations of a photo collection: things keep company, have usual colours, come in series.

A *theme* is a scene that many images vary by one to three facts (other colour, other action, places swapped, a thing
more or less), as photos of one event do: this is where near misses come from.
"""

from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from repair.world.scenes import CELLS, MAX_THINGS, Place, Scene, Thing, may_stand
from repair.world.vocabulary import COLOURS, KINDS, SETTINGS, SIZES, categories_of

T = TypeVar("T")

_N_THINGS_UP_TO = (0.05, 0.43, 0.83)  # share of scenes with at most 1, 2, 3 things; the rest have 4
_USUAL_KIND_RATE = 0.75
_USUAL_COLOUR_RATE = 0.45
_SAME_KIND_RATE = 0.18  # a thing repeats the kind of the one before
_REST_RATE = 0.35  # of scenes in which something rests on something

_USUAL_KINDS = {
    "park": ("man", "woman", "child", "dog", "horse", "bird", "tree", "flower", "kite", "bicycle"),
    "beach": ("man", "woman", "child", "dog", "bird", "boat", "ball", "umbrella", "kite", "chair"),
    "street": ("man", "woman", "dog", "cat", "car", "bicycle", "tree", "box", "umbrella"),
    "snow": ("man", "woman", "child", "dog", "horse", "bird", "tree", "box"),
    "room": ("man", "woman", "child", "cat", "dog", "chair", "box", "ball", "flower"),
    "night": ("man", "woman", "cat", "horse", "car", "tree", "boat", "bicycle"),
}
_CHANGES = ("colour", "colour", "kind", "action", "size", "place", "swap", "setting", "number")
_CARRIERS = ("box", "chair", "car", "horse", "boat", "tree", "bicycle")
_FLYERS = ("bird", "kite")


def sample_scene(rng: np.random.Generator) -> Scene:
    """A fresh scene."""
    setting = _pick(rng, tuple(SETTINGS))
    n = 1 + bisect(_N_THINGS_UP_TO, rng.random())
    kinds: list[str] = []
    for _ in range(n):
        if kinds and rng.random() < _SAME_KIND_RATE:
            kinds.append(kinds[-1])
        else:
            kinds.append(_kind(rng, setting))
    places = _places(rng, kinds)
    things = tuple(_thing(rng, kind, place) for kind, place in zip(kinds, places, strict=True))
    return Scene(setting=setting, things=things, noise=draw_noise(rng))


def vary_scene(rng: np.random.Generator, scene: Scene, *, n_changes: int) -> Scene:
    """`scene` after `n_changes` random changes (which may undo each other), with fresh noise."""
    return redrawn(rng, vary_facts(rng, scene, n_changes=n_changes))


def vary_facts(rng: np.random.Generator, scene: Scene, *, n_changes: int) -> Scene:
    """As `vary_scene`, but all that keeps its facts keeps its noise."""
    for _ in range(n_changes):
        scene = _changed(rng, scene, _pick(rng, _CHANGES))
    return scene


def redrawn(rng: np.random.Generator, scene: Scene) -> Scene:
    """The same facts with other noise: a near-duplicate."""
    things = tuple(replace(thing, noise=draw_noise(rng)) for thing in scene.things)
    return replace(scene, things=things, noise=draw_noise(rng))


def draw_noise(rng: np.random.Generator) -> int:
    return int(rng.random() * 2**32)


def fitting_action(rng: np.random.Generator, kind: str, action: str | None) -> str | None:
    """`action` if things of `kind` can do it, else one they can, else None."""
    actions = KINDS[kind].actions
    if not actions:
        return None
    return action if action in actions else _pick(rng, actions)


def _changed(rng: np.random.Generator, scene: Scene, change: str) -> Scene:
    things = list(scene.things)
    i = int(rng.random() * len(things))
    thing = things[i]
    match change:
        case "colour":
            things[i] = replace(thing, colour=_other(rng, tuple(COLOURS), thing.colour))
        case "kind":
            kind = _sibling(rng, thing.kind)
            things[i] = replace(thing, kind=kind, action=fitting_action(rng, kind, thing.action))
        case "action" if thing.action is not None:
            things[i] = replace(thing, action=_other(rng, KINDS[thing.kind].actions, thing.action))
        case "size":
            things[i] = replace(thing, size=_other(rng, tuple(SIZES), thing.size))
        case "place":
            free = _open_cells([t.place for j, t in enumerate(things) if j != i])
            things[i] = replace(thing, place=_pick(rng, [p for p in free if p != thing.place] or [thing.place]))
        case "swap" if len(things) > 1:
            j = (i + 1 + int(rng.random() * (len(things) - 1))) % len(things)
            other = things[j]
            if rng.random() < 0.5:
                things[i], things[j] = replace(thing, colour=other.colour), replace(other, colour=thing.colour)
            else:
                things[i], things[j] = replace(thing, place=other.place), replace(other, place=thing.place)
        case "setting":
            return replace(scene, setting=_other(rng, tuple(SETTINGS), scene.setting))
        case "number":
            if len(things) == MAX_THINGS or (len(things) > 2 and rng.random() < 0.5):
                del things[i]
            else:
                kind = thing.kind if rng.random() < 0.5 else _kind(rng, scene.setting)
                free = _open_cells([t.place for t in things])
                if free:
                    things.append(_thing(rng, kind, _pick(rng, free)))
    return replace(scene, things=tuple(things))


def _thing(rng: np.random.Generator, kind: str, place: Place) -> Thing:
    usual = KINDS[kind].usual_colours
    colour = _pick(rng, usual if rng.random() < _USUAL_COLOUR_RATE else tuple(COLOURS))
    return Thing(
        kind=kind,
        colour=colour,
        size=_pick(rng, tuple(SIZES)),
        action=fitting_action(rng, kind, None),
        place=place,
        noise=draw_noise(rng),
    )


def _kind(rng: np.random.Generator, setting: str) -> str:
    return _pick(rng, _USUAL_KINDS[setting] if rng.random() < _USUAL_KIND_RATE else tuple(KINDS))


def _sibling(rng: np.random.Generator, kind: str) -> str:
    """Another kind, of the same family half of the time."""
    family = categories_of(kind)[-1]
    near = [other for other in KINDS if other != kind and family in categories_of(other)]
    return _pick(rng, near if near and rng.random() < 0.5 else [other for other in KINDS if other != kind])


def _places(rng: np.random.Generator, kinds: list[str]) -> list[Place]:
    """A cell for each kind; things share a column only two rows apart or when one rests on the other."""
    placed: dict[int, Place] = {}
    order = [int(i) for i in np.argsort(rng.random(len(kinds)))]
    carriers = [i for i in order if kinds[i] in _CARRIERS]
    if len(kinds) > 1 and carriers and rng.random() < _REST_RATE:
        below = carriers[0]
        above = next(i for i in order if i != below)
        cell = _pick(rng, [p for p in CELLS if p.row > 0])
        placed[below], placed[above] = cell, Place(cell.column, cell.row - 1)
    for i in order:
        if i in placed:
            continue
        taken = list(placed.values())
        free = _open_cells(taken) or [cell for cell in CELLS if may_stand([*taken, cell])]
        liked = [p for p in free if (p.row == 0) == (kinds[i] in _FLYERS)]
        placed[i] = _pick(rng, liked if liked and rng.random() < 0.75 else free)
    return [placed[i] for i in range(len(kinds))]


def _open_cells(taken: Iterable[Place]) -> list[Place]:
    """Free cells whose occupant neither rests on anything nor carries anything."""
    return list(_open_beside(frozenset(taken)))


@lru_cache(maxsize=1 << 10)
def _open_beside(taken: frozenset[Place]) -> tuple[Place, ...]:
    return tuple(
        cell
        for cell in CELLS
        if may_stand([*taken, cell])
        and not any(cell.column == other.column and abs(cell.row - other.row) == 1 for other in taken)
    )


def _pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]


def _other(rng: np.random.Generator, choices: tuple[str, ...], value: str) -> str:
    return _pick(rng, [choice for choice in choices if choice != value])
