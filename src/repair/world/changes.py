"""Captions changed without a failure to go by, as other methods than RePair change them: replaced, swapped, added,
said otherwise, taken apart. What is asked for is one change that makes the caption false of its scene.

They come out as RePair's edits do (`world.faults`): right, unchanged, changed too much, or missing their purpose.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from repair.core.errors import DataError
from repair.core.synthesis import Change
from repair.world.bad_edits import one_fact_away, wrong_text_edit
from repair.world.claims import Claim, Phrase, holds
from repair.world.faults import edited_text
from repair.world.language import parse, parse_said, say
from repair.world.sampling import vary_facts
from repair.world.scenes import MAX_THINGS, Scene
from repair.world.vocabulary import CATEGORIES, COLOURS, KINDS, RELATIONS, SETTINGS, SIZES, actions_of, is_a

_TRIES = 40
_N_EXTRA = 2  # facts an overreaching change changes beside the one, as RePair's editors do


def changed_caption(scene: Scene, text: str, change: Change, rng: np.random.Generator, *, outcome: str) -> str | None:
    """`text` with one change that makes it false of `scene`, or not quite, as `outcome` says; None: it offers none.

    "no_op": as it was. "excess": up to two more facts are changed. "misplaced": one fact is changed and the caption is
    still true, if it was.
    """
    said = parse_said(text)
    if outcome == "no_op":
        return text
    if outcome == "misplaced":
        true = _any(one_fact_away(said.claim), rng, lambda claim: holds(scene, claim))
        return text if true is None else say(true, said.wording)
    if change is Change.CONTRAST:
        contrast = _of_another_image(scene, text, rng)
        if contrast is None:
            return None
        said = parse_said(contrast)
        claim = said.claim
    else:
        wrong = _any(_changes(said.claim, change), rng, lambda claim: not holds(scene, claim) and _can_be(claim))
        if wrong is None:
            return None
        claim = wrong
    for _ in range(_N_EXTRA if outcome == "excess" else 0):
        claim = _any(one_fact_away(claim), rng, lambda other: not holds(scene, other)) or claim
    return say(claim, said.wording)


def rewritten_caption(scene: Scene, text: str, rng: np.random.Generator, *, outcome: str) -> str:
    """`text` in other words. "excess": up to two facts are added or left out, and it is still true if it was;
    "misplaced": one fact is got wrong."""
    if outcome == "no_op":
        return text
    if outcome == "misplaced":
        return wrong_text_edit(scene, text, rng=rng)
    claim = parse_said(text).claim
    for _ in range(_N_EXTRA if outcome == "excess" else 0):
        claim = _any(one_fact_away(claim), rng, lambda other: holds(scene, other)) or claim
    return next((new for new in (say(claim, rng=rng) for _ in range(_TRIES)) if new != text), text)


def units_of(text: str) -> tuple[str, ...]:
    """The caption's mentions, each alone, then its relations, each with the two mentions it is between."""
    claim = parse_said(text).claim
    units = [say(Claim(phrases=(phrase,))) for phrase in claim.phrases]
    for i, relation in enumerate(claim.relations):
        if relation is not None:
            units.append(say(Claim(phrases=claim.phrases[i : i + 2], relations=(relation,))))
    return tuple(units)


def foil_of(scene: Scene, unit: str, rng: np.random.Generator, *, outcome: str) -> str:
    """A unit with one thing wrong: of a relation the relation or who stands where, of a mention its noun or an
    attribute. "" if there is none."""
    relational = bool(parse_said(unit).claim.relations)
    kinds = (Change.REPLACE_RELATION, Change.SWAP_OBJECT) if relational else (Change.REPLACE_OBJECT, _ATTRIBUTE)
    for place in rng.permutation(len(kinds)):
        foil = changed_caption(scene, unit, kinds[int(place)], rng, outcome=outcome)
        if foil is not None:
            return foil
    return ""


_ATTRIBUTE = Change.REPLACE_ATTRIBUTE


def _of_another_image(scene: Scene, text: str, rng: np.random.Generator) -> str | None:
    """The caption edited by RePair's editor to be true of a scene one change away: the same edit, but for no reason."""
    claim = parse(text)
    for _ in range(_TRIES):
        other = vary_facts(rng, scene, n_changes=1)
        if not holds(other, claim):
            edited = edited_text(other, text, rng, outcome="right")
            if not holds(scene, parse(edited)):
                return edited
    return None


def _changes(claim: Claim, change: Change) -> Iterator[Claim]:
    found: dict[Change, tuple[Callable[[Claim], Iterator[Claim]], ...]] = {
        Change.REPLACE_OBJECT: (_other_objects,),
        Change.REPLACE_ATTRIBUTE: (_other_attributes,),
        Change.REPLACE_RELATION: (_other_relations,),
        Change.SWAP_OBJECT: (_swapped_objects,),
        Change.SWAP_ATTRIBUTE: (_swapped_attributes,),
        Change.SWAP: (_swapped_objects, _swapped_attributes),
        Change.ADD_OBJECT: (_added_objects,),
        Change.ADD_ATTRIBUTE: (_added_attributes,),
    }
    for changes in found[change]:
        yield from changes(claim)


def _with_phrase(claim: Claim, *changed: tuple[int, Phrase]) -> Iterator[Claim]:
    """The claim with phrases replaced; nothing where that says what cannot be said (a car that runs)."""
    phrases = list(claim.phrases)
    for i, phrase in changed:
        phrases[i] = phrase
    try:
        yield replace(claim, phrases=tuple(phrases))
    except DataError:
        return


def _other_objects(claim: Claim) -> Iterator[Claim]:
    for i, phrase in enumerate(claim.phrases):
        for category in CATEGORIES:
            if category != phrase.category:
                action = phrase.action if phrase.action in actions_of(category) else None
                yield from _with_phrase(claim, (i, replace(phrase, category=category, action=action)))


def _other_attributes(claim: Claim) -> Iterator[Claim]:
    for i, phrase in enumerate(claim.phrases):
        for name, values in (("colour", COLOURS), ("size", SIZES)):
            stated = getattr(phrase, name)
            if stated is not None:
                for value in values:
                    if value != stated:
                        yield from _with_phrase(claim, (i, _with(phrase, name, value)))
    if claim.setting is not None:
        yield from (replace(claim, setting=setting) for setting in SETTINGS if setting != claim.setting)


def _other_relations(claim: Claim) -> Iterator[Claim]:
    for i, stated in enumerate(claim.relations):
        if stated is not None:
            for relation in RELATIONS:
                if relation != stated:
                    yield replace(claim, relations=(*claim.relations[:i], relation, *claim.relations[i + 1 :]))
    for i, phrase in enumerate(claim.phrases):
        if phrase.action is not None:
            for action in actions_of(phrase.category):
                if action != phrase.action:
                    yield from _with_phrase(claim, (i, replace(phrase, action=action)))


def _swapped_objects(claim: Claim) -> Iterator[Claim]:
    for i, j in combinations(range(len(claim.phrases)), 2):
        first, second = claim.phrases[i], claim.phrases[j]
        if first.category != second.category:
            swapped = []
            for phrase, category in ((first, second.category), (second, first.category)):
                action = phrase.action if phrase.action in actions_of(category) else None
                swapped.append(replace(phrase, category=category, action=action))
            yield from _with_phrase(claim, (i, swapped[0]), (j, swapped[1]))


def _swapped_attributes(claim: Claim) -> Iterator[Claim]:
    for i, j in combinations(range(len(claim.phrases)), 2):
        first, second = claim.phrases[i], claim.phrases[j]
        for name in ("colour", "size", "action"):
            a, b = getattr(first, name), getattr(second, name)
            if a is not None and b is not None and a != b:
                yield from _with_phrase(claim, (i, _with(first, name, b)), (j, _with(second, name, a)))


def _added_objects(claim: Claim) -> Iterator[Claim]:
    if len(claim.phrases) < MAX_THINGS:
        for kind in KINDS:
            phrases = (*claim.phrases, Phrase(category=kind))
            yield replace(claim, phrases=phrases, relations=(*claim.relations, None))


def _added_attributes(claim: Claim) -> Iterator[Claim]:
    for i, phrase in enumerate(claim.phrases):
        for name, values in (
            ("colour", tuple(COLOURS)),
            ("size", tuple(SIZES)),
            ("action", actions_of(phrase.category)),
        ):
            if getattr(phrase, name) is None:
                for value in values:
                    yield from _with_phrase(claim, (i, _with(phrase, name, value)))
    if claim.setting is None:
        yield from (replace(claim, setting=setting) for setting in SETTINGS)


def _with(phrase: Phrase, name: str, value: str) -> Phrase:
    match name:
        case "colour":
            return replace(phrase, colour=value)
        case "size":
            return replace(phrase, size=value)
        case _:
            return replace(phrase, action=value)


def _can_be(claim: Claim) -> bool:
    """Whether no counted mention is contradicted by another: no scene has "two kites and a black kite"."""
    for counted, other in permutations(claim.phrases, 2):
        among = other.category == counted.category or (
            other.category in KINDS and is_a(other.category, counted.category)
        )
        same = all(getattr(counted, fact) in (None, getattr(other, fact)) for fact in ("colour", "size", "action"))
        if counted.quantity != "a" and among and same:
            return False
    return True


def _any(claims: Iterable[Claim], rng: np.random.Generator, fits: Callable[[Claim], bool]) -> Claim | None:
    """One of those that fit, all alike."""
    found = list(claims)
    return next((found[int(place)] for place in rng.permutation(len(found)) if fits(found[int(place)])), None)
