"""Captions of the drawn world that are wrong in one fact of a given error type, and images that make them right.

For a true caption of a scene, a *foil* is the same sentence with one fact changed, false of the scene. The changed fact
decides the type: category (object); colour, size or setting (attribute); relation; action; quantity (count); or a whole
mention added that has no counterpart (hallucination). A *counterfactual* is a scene one fact away of which the foil
is true and the caption is not, so that image and caption can be swapped as well. Everything is checked by `holds`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from repair.core.errors import ConfigError
from repair.core.identity import derive_rng
from repair.core.records import ErrorType
from repair.world.claims import Claim, Phrase, holds
from repair.world.drawing import render
from repair.world.language import parse_said, say
from repair.world.sampling import vary_facts
from repair.world.scenes import MAX_THINGS, Scene
from repair.world.source import WorldSource
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
    family_of,
)

_TRIES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Foil:
    """A true caption of an image and its foil. `counterfactual` is an image (PNG) where they change places, or None."""

    image_id: str
    caption_id: str
    error_type: ErrorType
    text: str
    foil: str
    counterfactual: bytes | None


def foils(
    source: WorldSource, split: str, *, n: int, seed: int = 0, error_types: Sequence[ErrorType] = tuple(ErrorType)
) -> list[Foil]:
    """At most `n` foils of each error type from the captions of a split, each type at most once an image.

    The same source, split and seed give the same foils; more of them begin with fewer.
    Raises ConfigError for n below 1 or an unknown split.
    """
    if n < 1:
        raise ConfigError(f"foils: n must be at least 1, not {n}")
    pairs: dict[str, list[tuple[str, str]]] = {}
    for pair in source.pairs(split):
        pairs.setdefault(pair.image_id, []).append((pair.caption_id, pair.text))
    images = list(pairs)
    found = []
    for error in error_types:
        made = 0
        for place in derive_rng(seed, "foils", split, error).permutation(len(images)):
            image_id = images[place]
            foil = _foil(source, image_id, pairs[image_id], error, derive_rng(seed, "foil", image_id, error))
            if foil is not None:
                found.append(foil)
                made += 1
            if made == n:
                break
    return found


def foil_text(scene: Scene, text: str, error: ErrorType, rng: np.random.Generator) -> str | None:
    """`text` with one fact of type `error` changed so that it is false of `scene`; None if there is no such change.

    Raises DataError if `text` does not parse.
    """
    said = parse_said(text)
    wrong = [claim for claim in _changed(said.claim, error) if _has_room(claim) and not holds(scene, claim)]
    return say(wrong[int(rng.integers(len(wrong)))], said.wording) if wrong else None


def counterfactual(scene: Scene, text: str, foil: str, rng: np.random.Generator) -> Scene | None:
    """A scene one random fact from `scene` of which `foil` is true and `text` is not; None if none is found.

    Tried rather than searched for (`image_edits.minimal_image_edit` is exhaustive, and takes half a second).
    """
    false, true = parse_said(foil).claim, parse_said(text).claim
    for _ in range(_TRIES):
        other = vary_facts(rng, scene, n_changes=1)
        if holds(other, false) and not holds(other, true):
            return other
    return None


def _has_room(claim: Claim) -> bool:
    """Whether a scene can hold as many things as the claim counts: six things would give a foil away."""
    least = {**EXACT, **AT_LEAST}
    return sum(least[phrase.quantity] for phrase in claim.phrases) <= MAX_THINGS


def _foil(
    source: WorldSource, image_id: str, captions: Sequence[tuple[str, str]], error: ErrorType, rng: np.random.Generator
) -> Foil | None:
    scene = source.scene(image_id)
    for place in rng.permutation(len(captions)):
        caption_id, text = captions[place]
        if not holds(scene, parse_said(text).claim):
            continue  # annotation noise
        foil = foil_text(scene, text, error, rng)
        if foil is None:
            continue
        other = None
        if error is not ErrorType.HALLUCINATION:  # a thing that is not mentioned makes no caption false
            edited = counterfactual(scene, text, foil, rng)
            other = None if edited is None else render(edited, size=source.image_size)
        return Foil(
            image_id=image_id, caption_id=caption_id, error_type=error, text=text, foil=foil, counterfactual=other
        )
    return None


def _changed(claim: Claim, error: ErrorType) -> Iterator[Claim]:
    """All claims that differ from `claim` in one fact of this type; nothing is left out, nothing else is added."""
    if error is ErrorType.RELATION:
        for i, relation in enumerate(claim.relations):
            for other in RELATIONS:
                if relation is not None and other != relation:
                    yield replace(claim, relations=(*claim.relations[:i], other, *claim.relations[i + 1 :]))
    elif error is ErrorType.HALLUCINATION:
        if len(claim.phrases) < MAX_THINGS:
            for category in CATEGORIES:
                yield replace(
                    claim, phrases=(*claim.phrases, Phrase(category=category)), relations=(*claim.relations, None)
                )
    else:
        for i, phrase in enumerate(claim.phrases):
            for new in _phrases(phrase, error):
                yield replace(claim, phrases=(*claim.phrases[:i], new, *claim.phrases[i + 1 :]))
        if error is ErrorType.ATTRIBUTE and claim.setting is not None:
            for setting in SETTINGS:
                if setting != claim.setting:
                    yield replace(claim, setting=setting)


def _phrases(phrase: Phrase, error: ErrorType) -> Iterator[Phrase]:
    if error is ErrorType.OBJECT:
        for category in CATEGORIES:
            able = phrase.action is None or phrase.action in actions_of(category)
            if category != phrase.category and able and family_of(category) != category:
                yield replace(phrase, category=category)
    elif error is ErrorType.ATTRIBUTE:
        for name, values in (("colour", tuple(COLOURS)), ("size", tuple(SIZES))):
            said = getattr(phrase, name)
            for value in values:
                if said is not None and value != said:
                    yield replace(phrase, **{name: value})
    elif error is ErrorType.ACTION:
        for action in actions_of(phrase.category):
            if phrase.action is not None and action != phrase.action:
                yield replace(phrase, action=action)
    elif error is ErrorType.COUNT:
        for quantity in QUANTITIES:
            if quantity != phrase.quantity:
                yield replace(phrase, quantity=quantity)
