"""From claims to sentences. A `Wording` fixes every free choice, so that saying what was parsed gives the same words.

caption  := [setting ","] [opener] phrase (join phrase)* [setting]
join     := separator | relation | "that is" relation      ("that is" when the phrase before is itself a target)
phrase   := quantity [size] [colour] noun [wearing colour] ["is"] [action]
wearing  := "in" | "wearing"                               (people only, instead of the colour before the noun)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from repair.world.claims import Claim, Phrase
from repair.world.vocabulary import (
    ACTIONS,
    COLOURS,
    QUANTITIES,
    RELATIONS,
    SETTINGS,
    SIZES,
    family_of,
    nouns,
)

OPENERS = ("there is", "there are", "a picture of", "a drawing of")
SEPARATORS = ("and", "with", ",")
CHAINED = ("that is", "that are", "which is", "which are")
WEARING = ("in", "wearing")

_OPENED = ("", *OPENERS)
_PLAIN_RATE = 0.6  # how often random wording takes the plain form

Slot = tuple[str, int]  # what, and at which phrase or gap


@dataclass(frozen=True, slots=True)
class Wording:
    """The words chosen where the grammar leaves a choice. Slots a claim does not use are ignored."""

    words: Mapping[Slot, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class _Chooser:
    wording: Wording
    rng: np.random.Generator | None

    def get(self, what: str, index: int, choices: tuple[str, ...]) -> str:
        """The wording's form if it is among `choices`; else a random one, or without rng the first."""
        word = self.wording.words.get((what, index))
        if word in choices:
            return word
        if self.rng is None or len(choices) == 1 or self.rng.random() < _PLAIN_RATE:
            return choices[0]
        return choices[1 + int(self.rng.random() * (len(choices) - 1))]


def say(claim: Claim, wording: Wording | None = None, *, rng: np.random.Generator | None = None) -> str:
    """The sentence for `claim`; `parse(say(claim, w)) == claim` for every wording.

    A choice that `wording` leaves open, or fixes to a word that does not fit the claim, falls on the plain word, or
    with `rng` on a random one: so a changed claim keeps all other words.
    """
    w = _Chooser(wording or Wording(), rng)
    words: list[str] = []
    setting = w.get("setting", 0, SETTINGS[claim.setting]) if claim.setting else ""
    setting_first = bool(setting) and w.get("setting_first", 0, ("no", "yes")) == "yes"
    if setting_first:
        words += [setting + ","]
    plural = claim.phrases[0].quantity != "a"
    opener = w.get("opener", 0, _OPENED)
    if opener.startswith("there"):
        opener = "there are" if plural else "there is"
    words += [opener]
    for i, phrase in enumerate(claim.phrases):
        if i:
            _say_join(words, claim, i, w)
        words += _say_phrase(phrase, i, w, may_be=i == 0 and not opener)
    if setting and not setting_first:
        words += [setting]
    return " ".join(word for word in words if word).replace(" ,", ",")


def _say_join(words: list[str], claim: Claim, i: int, w: _Chooser) -> None:
    relation = claim.relations[i - 1]
    if relation is None:
        last = i == len(claim.phrases) - 1 or claim.relations[i] is not None
        words.append(w.get("separator", i, SEPARATORS if last else (",", "and", "with")))
        return
    if i > 1 and claim.relations[i - 2] is not None:
        chained = w.get("chained", i, CHAINED).split()[0]
        words.append(f"{chained} {'is' if claim.phrases[i - 1].quantity == 'a' else 'are'}")
    words.append(w.get("relation", i, RELATIONS[relation]))


def _say_phrase(phrase: Phrase, i: int, w: _Chooser, *, may_be: bool) -> list[str]:
    plural = phrase.quantity != "a"
    words: list[str] = []
    if phrase.size:
        words.append(w.get("size", i, SIZES[phrase.size]))
    colour = w.get("colour", i, COLOURS[phrase.colour]) if phrase.colour else ""
    wears = family_of(phrase.category) == "person"
    if colour and not wears:
        words.append(colour)
    pairs = nouns(phrase.category)
    chosen = w.get("noun", i, tuple(singular for singular, _ in pairs))
    words.append(next(many if plural else one for one, many in pairs if one == chosen))
    if colour and wears:
        words += [w.get("wearing", i, WEARING), colour]
    if phrase.action:
        if may_be and w.get("is", i, ("no", "yes")) == "yes":
            words.append("are" if plural else "is")
        words.append(w.get("action", i, ACTIONS[phrase.action]))
    if plural:
        return [w.get("quantity", i, QUANTITIES[phrase.quantity]), *words]
    return ["an" if words[0][0] in "aeiou" else "a", *words]
