"""Edits that miss, for backends that fail as real ones do: too much changed, or the wrong thing.

All are deterministic in `rng`. Where no such edit exists the input comes back unchanged (a no-op is a failure as well).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from repair.world.claims import Claim, Phrase, holds
from repair.world.distance import caption_distance, scene_distance
from repair.world.image_edits import minimal_image_edit
from repair.world.language import parse_said, say
from repair.world.sampling import vary_facts
from repair.world.scenes import Scene
from repair.world.text_edits import minimal_edits, say_edit
from repair.world.vocabulary import CATEGORIES, COLOURS, RELATIONS, SETTINGS, SIZES, actions_of

_TRIES = 40


def overreaching_text_edit(scene: Scene, text: str, *, rng: np.random.Generator, n_extra: int = 2) -> str:
    """A caption true of `scene` that changes up to `n_extra` facts more than needed."""
    said = parse_said(text)
    edit = minimal_edits(scene, said.claim)[0]
    claim, wanted = edit.claim, edit.cost
    for _ in range(n_extra):
        wanted += 1
        further = [
            other
            for other in one_fact_away(claim)
            if holds(scene, other) and caption_distance(said.claim, other) == wanted
        ]
        if not further:
            break
        claim = further[int(rng.integers(len(further)))]
    same_phrases = len(claim.phrases) == len(edit.claim.phrases)
    return say_edit(replace(edit, claim=claim), said.wording) if same_phrases else say(claim)


def wrong_text_edit(scene: Scene, text: str, *, rng: np.random.Generator) -> str:
    """A caption one fact away from `text` and false of `scene`: the residual stays, something else has changed."""
    said = parse_said(text)
    wrong = [claim for claim in one_fact_away(said.claim) if not holds(scene, claim)]
    if not wrong:
        return text
    claim = wrong[int(rng.integers(len(wrong)))]
    return say(claim, said.wording)


def overreaching_image_edit(scene: Scene, claim: Claim, *, rng: np.random.Generator, n_extra: int = 2) -> Scene:
    """A scene of which `claim` holds and that changes up to `n_extra` facts more than needed."""
    minimal = minimal_image_edit(scene, claim, rng=rng)
    least = scene_distance(scene, minimal)
    for n_changes in range(n_extra, 0, -1):
        for _ in range(_TRIES):
            other = vary_facts(rng, minimal, n_changes=n_changes)
            if holds(other, claim) and least < scene_distance(scene, other) <= least + n_extra:
                return other
    return minimal


def wrong_image_edit(scene: Scene, claim: Claim, *, rng: np.random.Generator) -> Scene:
    """A scene one random change away from `scene` (which may be a whole thing) of which `claim` does not hold."""
    for _ in range(_TRIES):
        other = vary_facts(rng, scene, n_changes=1)
        if other != scene and not holds(other, claim):
            return other
    return scene


def one_fact_away(claim: Claim) -> Iterator[Claim]:
    """All claims with the same phrases and relations that differ in one stated, unsaid or newly said fact."""
    for i, phrase in enumerate(claim.phrases):
        for new in _phrases_one_fact_away(phrase):
            yield replace(claim, phrases=(*claim.phrases[:i], new, *claim.phrases[i + 1 :]))
    for i, old in enumerate(claim.relations):
        for relation in (*RELATIONS, None):
            if relation != old:
                yield replace(claim, relations=(*claim.relations[:i], relation, *claim.relations[i + 1 :]))
    for setting in (*SETTINGS, None):
        if setting != claim.setting:
            yield replace(claim, setting=setting)


def _phrases_one_fact_away(phrase: Phrase) -> Iterator[Phrase]:
    for category in CATEGORIES:
        if category != phrase.category and (phrase.action is None or phrase.action in actions_of(category)):
            yield replace(phrase, category=category)
    for colour in (*COLOURS, None):
        if colour != phrase.colour:
            yield replace(phrase, colour=colour)
    for size in (*SIZES, None):
        if size != phrase.size:
            yield replace(phrase, size=size)
    for action in (*actions_of(phrase.category), None):
        if action != phrase.action:
            yield replace(phrase, action=action)
