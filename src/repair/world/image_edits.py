"""Scenes made to fit a claim by changing as few facts as possible, found by exhaustive search with bounds.

Given which things the phrases speak of, the things' own facts and their places can be settled apart: each thing takes
the facts its phrase states and must not fall under a counted phrase it does not belong to; then as few things as
possible move so that the relations hold. Things are added only where a claim needs more than there are, and never
removed: turning a surplus dog into a cat changes fewer facts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, permutations, product

import numpy as np

from repair.core.errors import DataError
from repair.world.claims import Claim, Phrase, counts, holds
from repair.world.distance import n_facts, thing_distance
from repair.world.sampling import draw_noise
from repair.world.scenes import CELLS, MAX_THINGS, Place, Scene, Thing, may_stand, relations_of
from repair.world.vocabulary import COLOURS, KINDS, SIZES, is_a

Group = tuple[int, ...]
_NOWHERE = Place(-1, -1)


@dataclass(frozen=True, slots=True)
class _Assignment:
    """Which things each phrase speaks of (indices past the scene's are new), and the facts changed but for moves."""

    groups: tuple[Group, ...]
    n_new: int
    cost: int


def minimal_image_edit(scene: Scene, claim: Claim, *, rng: np.random.Generator) -> Scene:
    """The scene, with the fewest facts changed, of which `claim` holds; `scene` itself if it holds already.

    Things keep their index and noise, so all else is drawn as before; new things come last. `rng` chooses among equally
    small edits, of which those without new things and accidental resting come first. Raises DataError if no scene of at
    most four things fits `claim`.
    """
    if holds(scene, claim):
        return scene
    best = _least(scene, claim)
    assignment, placing = best[int(rng.integers(len(best)))]
    return _realised(scene, claim, assignment, placing, rng)


@lru_cache(maxsize=1 << 10)
def _least(scene: Scene, claim: Claim) -> tuple[tuple[_Assignment, dict[int, Place]], ...]:
    """All smallest edits, without the looks: which things, and who moves where."""
    least: int | None = None
    found: list[tuple[_Assignment, dict[int, Place]]] = []
    for assignment in _assignments(scene, claim):
        if least is not None and assignment.cost > least:
            break
        spare = MAX_THINGS if least is None else least - assignment.cost
        n_moves, placings = _placings(scene, claim, assignment, at_most=spare)
        cost = assignment.cost + n_moves
        if placings and (least is None or cost < least):
            least, found = cost, []
        if placings and cost == least:
            found += [(assignment, placing) for placing in placings]
    if not found:
        raise DataError(f"no scene fits the claim {claim}")
    ranks = [(assignment.n_new, _n_resting(scene, placing)) for assignment, placing in found]
    return tuple(choice for choice, rank in zip(found, ranks, strict=True) if rank == min(ranks))


def _realised(
    scene: Scene, claim: Claim, assignment: _Assignment, placing: dict[int, Place], rng: np.random.Generator
) -> Scene:
    wants = _wants(scene, claim, assignment)
    things = []
    for i, (old, wanted, avoided) in enumerate(wants):
        looks = _looks(old, wanted, avoided)[1]
        kind, colour, size, action = looks[int(rng.integers(len(looks)))]
        if old is None:
            noise, place = draw_noise(rng), placing[i]
        else:
            noise, place = scene.things[i].noise, placing.get(i, scene.things[i].place)
        things.append(Thing(kind=kind, colour=colour, size=size, action=action, place=place, noise=noise))
    return replace(scene, setting=claim.setting or scene.setting, things=tuple(things))


def _assignments(scene: Scene, claim: Claim) -> list[_Assignment]:
    """Every way to choose things for the phrases, cheapest first."""
    found = []
    setting = int(claim.setting not in (None, scene.setting))
    for groups, n_new in _groupings(claim.phrases, len(scene.things), (), 0):
        assignment = _Assignment(groups, n_new, 0)
        cost = setting
        for old, wanted, avoided in _wants(scene, claim, assignment):
            change = _looks(old, wanted, avoided)
            if not change[1]:
                break
            cost += change[0]
        else:
            found.append(replace(assignment, cost=cost))
    return sorted(found, key=lambda assignment: assignment.cost)


def _groupings(
    phrases: tuple[Phrase, ...], n_old: int, chosen: tuple[Group, ...], n_new: int
) -> Iterator[tuple[tuple[Group, ...], int]]:
    if len(chosen) == len(phrases):
        yield chosen, n_new
        return
    quantity = phrases[len(chosen)].quantity
    free = [i for i in range(n_old) if not any(i in group for group in chosen)]
    sizes = [1] if quantity == "a" else [n for n in range(2, MAX_THINGS + 1) if counts(quantity, n)]
    for size in sizes:
        for n_added in range(min(size, MAX_THINGS - n_old - n_new) + 1):
            added = tuple(n_old + n_new + k for k in range(n_added))
            for kept in combinations(free, size - n_added):
                yield from _groupings(phrases, n_old, (*chosen, (*kept, *added)), n_new + n_added)


Look = tuple[str, str, str, str | None]
Want = tuple[Look | None, Phrase | None, tuple[Phrase, ...]]


def _wants(scene: Scene, claim: Claim, assignment: _Assignment) -> list[Want]:
    """Per thing, old ones first: how it looks (None if new), the phrase it must fit, and those it must not."""
    wants: list[Want] = []
    for i in range(len(scene.things) + assignment.n_new):
        wanted = next((p for p, group in zip(claim.phrases, assignment.groups, strict=True) if i in group), None)
        avoided = tuple(
            p for p, group in zip(claim.phrases, assignment.groups, strict=True) if p.quantity != "a" and i not in group
        )
        old = None
        if i < len(scene.things):
            t = scene.things[i]
            old = (t.kind, t.colour, t.size, t.action)
        wants.append((old, wanted, avoided))
    return wants


@lru_cache(maxsize=1 << 14)
def _looks(old: Look | None, wanted: Phrase | None, avoided: tuple[Phrase, ...]) -> tuple[int, tuple[Look, ...]]:
    """The fewest changed facts with which a thing can look as it must, and all looks that do with so many."""
    if old is not None and wanted is None and not avoided:
        return 0, (old,)
    best: int | None = None
    looks: list[Look] = []
    for look in _all_looks(old, wanted, free=bool(avoided)):
        thing = Thing(kind=look[0], colour=look[1], size=look[2], action=look[3], place=_NOWHERE)
        if (wanted is not None and not wanted.fits(thing)) or any(phrase.fits(thing) for phrase in avoided):
            continue
        cost = n_facts(thing)
        if old is not None:
            before = Thing(kind=old[0], colour=old[1], size=old[2], action=old[3], place=_NOWHERE)
            cost = thing_distance(before, thing)
        if best is None or cost < best:
            best, looks = cost, []
        if cost == best:
            looks.append(look)
    return best or 0, tuple(looks)


def _all_looks(old: Look | None, wanted: Phrase | None, *, free: bool) -> Iterable[Look]:
    """Looks worth trying: stated facts as stated, others as before unless new or, for a count's sake, `free`."""
    kinds: Iterable[str] = tuple(KINDS)
    colours: Iterable[str] = tuple(COLOURS)
    sizes: Iterable[str] = tuple(SIZES)
    if old is not None and not free:
        colours, sizes = (old[1],), (old[2],)
        kinds = (old[0],) if wanted is None or is_a(old[0], wanted.category) else kinds
    if wanted is not None:
        kinds = [kind for kind in kinds if is_a(kind, wanted.category)]
        if wanted.action is not None:
            # The kind may have to change for the action's sake.
            kinds = [kind for kind in KINDS if is_a(kind, wanted.category) and wanted.action in KINDS[kind].actions]
        colours = (wanted.colour,) if wanted.colour else colours
        sizes = (wanted.size,) if wanted.size else sizes
    for kind, colour, size in product(kinds, colours, sizes):
        actions: tuple[str | None, ...] = KINDS[kind].actions or (None,)
        for action in actions:
            yield kind, colour, size, action


def _placings(
    scene: Scene, claim: Claim, assignment: _Assignment, *, at_most: int
) -> tuple[int, list[dict[int, Place]]]:
    """The fewest old things to move so that all relations hold, and every way to do it: new place by index.

    None is found if more than `at_most` would have to move.
    """
    n_old = len(scene.things)
    new = tuple(range(n_old, n_old + assignment.n_new))
    links = [
        (relation, i, j)
        for relation, first, second in zip(claim.relations, assignment.groups, assignment.groups[1:], strict=False)
        if relation is not None
        for i in first
        for j in second
    ]
    for n_moved in range(min(n_old, at_most) + 1):
        found = [
            placing for moved in combinations(range(n_old), n_moved) for placing in _placed(scene, moved, new, links)
        ]
        if found:
            return n_moved, found
    return 0, []


def _placed(scene: Scene, moved: Group, new: Group, links: list[tuple[str, int, int]]) -> Iterator[dict[int, Place]]:
    fixed = {i: thing.place for i, thing in enumerate(scene.things) if i not in moved}
    free = [cell for cell in CELLS if cell not in fixed.values()]
    loose = (*moved, *new)
    for cells in permutations(free, len(loose)):
        placing = dict(zip(loose, cells, strict=True))
        if any(placing[i] == scene.things[i].place for i in moved):
            continue
        by_index = fixed | placing
        places = tuple(by_index[i] for i in range(len(by_index)))
        if may_stand(places) and relations_of(places).issuperset(links):
            yield placing


def _n_resting(scene: Scene, placing: dict[int, Place]) -> int:
    """How many things come to rest on another, or to lie under one, by being placed so."""
    places = {i: thing.place for i, thing in enumerate(scene.things)} | placing
    return sum(
        places[i].column == places[j].column and abs(places[i].row - places[j].row) == 1
        for i in placing
        for j in places
        if i != j
    )
