"""Scenes: one to four things on a 3 x 3 grid of cells, a setting, and seeds for everything that does not matter.

The facts of a scene are its setting and, per thing, kind, colour, size, action and place. `noise` seeds (one for the
background, one per thing) decide jitter, hue and texture of the drawing and are no facts.

Relations follow from places alone. A thing right above another in its column rests on it; a column holds no more than
two things. What rests is drawn on top of its support, between two rows, so its *level* is half a row above its
support's; that of any other thing is its row. Then

    left(a, b)   a.column < b.column                      right(a, b)  left(b, a)
    above(a, b)  level(a) <= level(b) - 1, or on(a, b)    below(a, b)  above(b, a)
    on(a, b)     a.column = b.column and a.row = b.row - 1

so "above" is never said of two things less than a row apart, unless one carries the other. Columns and rows are drawn
0.94 cells apart (a cell is a third of the image) and a thing stands within `JITTER` of a cell from where it should: no
jitter makes a relation look other than it is.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import canonical_json
from repair.world.vocabulary import COLOURS, KINDS, SETTINGS, SIZES

N_COLUMNS = 3
N_ROWS = 3
MAX_THINGS = 4
MAX_IN_COLUMN = 2
JITTER = 0.08  # of a cell, each way


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A cell: column 0 is leftmost, row 0 is topmost."""

    column: int
    row: int


CELLS: tuple[Place, ...] = tuple(Place(column, row) for row in range(N_ROWS) for column in range(N_COLUMNS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """One thing. `action` is None exactly for kinds that cannot act; `noise` in [0, 2**32)."""

    kind: str
    colour: str
    size: str
    action: str | None
    place: Place
    noise: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one image shows. The order of `things` names them and means nothing else. Raises DataError if malformed."""

    setting: str
    things: tuple[Thing, ...]
    noise: int = 0

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise DataError(f"not a scene of the embedded world: {problem}")

    def to_json(self) -> str:
        """Canonical ASCII JSON; equal exactly for equal scenes."""
        things = [[t.kind, t.colour, t.size, t.action, t.place.column, t.place.row, t.noise] for t in self.things]
        return canonical_json({"noise": self.noise, "setting": self.setting, "things": things})

    @staticmethod
    def from_json(text: str) -> "Scene":
        """The inverse of `to_json`. Raises DataError if `text` is no scene."""
        try:
            return _from_value(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"not a scene of the embedded world: {error!r} in {text[:80]!r}") from error

    def facts(self) -> tuple[Any, ...]:
        """Everything that can make a caption true or false, equal for two drawings of one scene."""
        return (
            self.setting,
            tuple(sorted((t.kind, t.colour, t.size, t.action or "", t.place.column, t.place.row) for t in self.things)),
        )


def related(scene: Scene, relation: str, i: int, j: int) -> bool:
    """Whether thing `i` of `scene` stands in `relation` to thing `j` (see the module's table)."""
    return (relation, i, j) in relations_of(tuple(thing.place for thing in scene.things))


@lru_cache(maxsize=1 << 14)
def relations_of(places: tuple[Place, ...]) -> frozenset[tuple[str, int, int]]:
    """All (relation, i, j) that hold between things at `places`."""
    levels = [place.row + (0.5 if Place(place.column, place.row + 1) in places else 0.0) for place in places]
    found = set()
    for (i, a), (j, b) in permutations(enumerate(places), 2):
        on = a.column == b.column and a.row == b.row - 1
        if on:
            found.add(("on", i, j))
        if on or levels[i] <= levels[j] - 1:
            found |= {("above", i, j), ("below", j, i)}
        if a.column < b.column:
            found |= {("left", i, j), ("right", j, i)}
    return frozenset(found)


def may_stand(places: Collection[Place]) -> bool:
    """Whether things can stand at `places`: one in a cell, at most two in a column."""
    columns = [place.column for place in places]
    return len(set(places)) == len(places) and all(columns.count(column) <= MAX_IN_COLUMN for column in set(columns))


def supports(scene: Scene) -> dict[int, int]:
    """Index of each resting thing to the index of the thing it rests on."""
    return {i: j for relation, i, j in relations_of(tuple(t.place for t in scene.things)) if relation == "on"}


def _from_value(value: Mapping[str, Any]) -> Scene:
    things = tuple(
        Thing(kind=kind, colour=colour, size=size, action=action, place=Place(int(column), int(row)), noise=int(noise))
        for kind, colour, size, action, column, row, noise in value["things"]
    )
    return Scene(setting=value["setting"], things=things, noise=int(value["noise"]))


def _problem(scene: Scene) -> str | None:
    if scene.setting not in SETTINGS:
        return f"unknown setting {scene.setting!r}"
    if not 1 <= len(scene.things) <= MAX_THINGS:
        return f"{len(scene.things)} things, not 1 to {MAX_THINGS}"
    if not may_stand([thing.place for thing in scene.things]):
        return f"two things in one cell, or more than {MAX_IN_COLUMN} in a column"
    for thing in scene.things:
        if thing.kind not in KINDS or thing.colour not in COLOURS or thing.size not in SIZES:
            return f"unknown kind, colour or size in {thing}"
        actions = KINDS[thing.kind].actions
        if (thing.action is None) if actions else (thing.action is not None):
            return f"a {thing.kind} {'needs an' if actions else 'has no'} action"
        if actions and thing.action not in actions:
            return f"a {thing.kind} cannot be {thing.action}: {', '.join(actions)}"
        if not (0 <= thing.place.column < N_COLUMNS and 0 <= thing.place.row < N_ROWS):
            return f"{thing.place} is outside the {N_COLUMNS} x {N_ROWS} grid"
    return None
