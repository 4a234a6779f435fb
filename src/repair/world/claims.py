"""What a caption says, and when it is true of a scene.

A claim is a list of noun phrases, a relation (or none) between each two neighbours, and a setting (or none). A phrase
has a quantity, a category and optionally colour, size and action. Its *extension* in a scene is the set of things that
fit category, colour, size and action.

`holds(scene, claim)` is true exactly if the setting, when stated, is the scene's, and each phrase can be given a group
of things such that
  - a phrase with quantity "a" gets one thing of its extension; a phrase with another quantity gets its whole
    extension, whose size is exactly 2, 3, 4 (two, three, four) or at least 2, 3 (some, several);
  - the groups of different phrases share no thing ("a person and a man" needs two people);
  - for a relation between two phrases, every thing of the first group stands in it to every thing of the second.
What a caption does not mention does not matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from repair.core.errors import DataError
from repair.world.scenes import MAX_THINGS, Scene, Thing, relations_of
from repair.world.vocabulary import (
    AT_LEAST,
    CATEGORIES,
    COLOURS,
    EXACT,
    QUANTITIES,
    RELATIONS,
    SETTINGS,
    SIZES,
    actions_of,
    is_a,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """One mention, e.g. "two small brown dogs running". None means unsaid."""

    category: str
    quantity: str = "a"
    colour: str | None = None
    size: str | None = None
    action: str | None = None

    def fits(self, thing: Thing) -> bool:
        """Whether `thing` is in the extension of this phrase."""
        return (
            is_a(thing.kind, self.category)
            and self.colour in (None, thing.colour)
            and self.size in (None, thing.size)
            and self.action in (None, thing.action)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One to four phrases; `relations[i]` holds between phrases i and i + 1. Raises DataError if malformed."""

    phrases: tuple[Phrase, ...]
    relations: tuple[str | None, ...] = ()
    setting: str | None = None

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise DataError(f"not a claim about the embedded world: {problem}")


def holds(scene: Scene, claim: Claim) -> bool:
    """Whether `claim` is true of `scene` (see the module)."""
    if claim.setting not in (None, scene.setting):
        return False
    return next(groundings(scene, claim), None) is not None


def groundings(scene: Scene, claim: Claim) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to give the phrases their groups (indices of things), setting aside; in lexicographic order."""
    options = [_groups(scene, phrase) for phrase in claim.phrases]
    if all(options):
        yield from _extend(scene, claim, options, ())


def _extend(
    scene: Scene, claim: Claim, options: list[list[tuple[int, ...]]], chosen: tuple[tuple[int, ...], ...]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    n = len(chosen)
    if n == len(options):
        yield chosen
        return
    relation = claim.relations[n - 1] if n else None
    for group in options[n]:
        if any(i in earlier for earlier in chosen for i in group):
            continue
        if relation is None or stands(scene, relation, chosen[-1], group):
            yield from _extend(scene, claim, options, (*chosen, group))


def stands(scene: Scene, relation: str, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether every thing of `first` stands in `relation` to every thing of `second`."""
    held = relations_of(tuple(thing.place for thing in scene.things))
    return all((relation, i, j) in held for i in first for j in second)


def _groups(scene: Scene, phrase: Phrase) -> list[tuple[int, ...]]:
    extension = tuple(i for i, thing in enumerate(scene.things) if phrase.fits(thing))
    if phrase.quantity == "a":
        return [(i,) for i in extension]
    return [extension] if counts(phrase.quantity, len(extension)) else []


def counts(quantity: str, n: int) -> bool:
    """Whether an extension of `n` things satisfies `quantity`."""
    return n == EXACT[quantity] if quantity in EXACT else n >= AT_LEAST[quantity]


def _problem(claim: Claim) -> str | None:
    n = len(claim.phrases)
    if not 1 <= n <= MAX_THINGS:
        return f"{n} phrases, not 1 to {MAX_THINGS}"
    if len(claim.relations) != n - 1:
        return f"{n} phrases need {n - 1} relations (or None), not {len(claim.relations)}"
    if any(relation not in (None, *RELATIONS) for relation in claim.relations):
        return f"unknown relation in {claim.relations}"
    if claim.setting not in (None, *SETTINGS):
        return f"unknown setting {claim.setting!r}"
    for phrase in claim.phrases:
        if phrase.category not in CATEGORIES or phrase.quantity not in QUANTITIES:
            return f"unknown category or quantity in {phrase}"
        if phrase.colour not in (None, *COLOURS) or phrase.size not in (None, *SIZES):
            return f"unknown colour or size in {phrase}"
        if phrase.action not in (None, *actions_of(phrase.category)):
            return f"a {phrase.category} cannot be {phrase.action}"
    return None
