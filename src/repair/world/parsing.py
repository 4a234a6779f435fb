"""From sentences to claims: the exact inverse of `wording.say`, up to synonyms."""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from repair.core.errors import DataError
from repair.world.claims import Claim, Phrase
from repair.world.vocabulary import (
    ACTIONS,
    CATEGORIES,
    COLOURS,
    QUANTITIES,
    RELATIONS,
    SETTINGS,
    SIZES,
    family_of,
    nouns,
)
from repair.world.wording import CHAINED, OPENERS, SEPARATORS, WEARING, Wording

Table = dict[tuple[str, ...], tuple[str, str]]

_TOKEN = re.compile(r"[a-z]+|,")


@dataclass(frozen=True, slots=True)
class Said:
    """A parsed caption: what it says and in which words."""

    claim: Claim
    wording: Wording


def parse(text: str) -> Claim:
    """The claim of a caption; case, spacing and a final full stop do not matter. Raises DataError if it has none."""
    return parse_said(text).claim


@lru_cache(maxsize=1 << 17)
def parse_said(text: str) -> Said:
    """As `parse`, with the wording: `say(said.claim, said.wording)` is `text`, normalised. Raises DataError."""
    plain = text.lower().strip().removesuffix(".")
    if re.sub(r"[a-z,\s]", "", plain):
        raise DataError(f'caption "{text}": only letters, spaces and commas belong to the grammar of the world')
    return _Parser(text, tuple(_TOKEN.findall(plain))).caption()


def _table(entries: dict[str, tuple[str, ...]]) -> Table:
    """Token tuples to (canonical value, surface form), longest first."""
    rows = {tuple(form.split()): (value, form) for value, forms in entries.items() for form in forms}
    return dict(sorted(rows.items(), key=lambda row: -len(row[0])))


_COLOURS = _table(dict(COLOURS))
_SIZES = _table(dict(SIZES))
_ACTIONS = _table(dict(ACTIONS))
_SETTINGS = _table(dict(SETTINGS))
_RELATIONS = _table(dict(RELATIONS))
_QUANTITIES = _table({**QUANTITIES, "a": ("a", "an")})
_OPENERS = _table({form: (form,) for form in OPENERS})
_SEPARATORS = _table({form: (form,) for form in SEPARATORS})
_CHAINED = _table({form: (form,) for form in CHAINED})
_WEARING = _table({form: (form,) for form in WEARING})
_VERBS = _table({form: (form,) for form in ("is", "are")})
_SINGULARS: Table = {(one,): (category, one) for category in CATEGORIES for one, _ in nouns(category)}
_PLURALS: Table = {(many,): (category, one) for category in CATEGORIES for one, many in nouns(category)}


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: tuple[str, ...]
    at: int = 0
    words: dict[tuple[str, int], str] = field(default_factory=dict)

    def caption(self) -> Said:
        setting = self._take("setting", 0, _SETTINGS)
        if setting:
            self.words["setting_first", 0] = "yes"
            self._need(",")
        opener = self._take("opener", 0, _OPENERS)
        phrases = [self._phrase(0, may_be=opener is None)]
        relations: list[str | None] = []
        while self.at < len(self.tokens):
            if setting is None:
                setting = self._take("setting", 0, _SETTINGS)
                if setting:
                    break
            relations.append(self._join(len(phrases), chained=bool(relations) and relations[-1] is not None))
            phrases.append(self._phrase(len(phrases), may_be=False))
        if self.at < len(self.tokens):
            raise self._error("the end")
        claim = Claim(phrases=tuple(phrases), relations=tuple(relations), setting=setting)
        return Said(claim, Wording(MappingProxyType(self.words)))

    def _join(self, i: int, *, chained: bool) -> str | None:
        if chained:
            if self._take("chained", i, _CHAINED):
                relation = self._take("relation", i, _RELATIONS)
                if relation is None:
                    raise self._error("a relation")
                return relation
        else:
            relation = self._take("relation", i, _RELATIONS)
            if relation:
                return relation
        if self._take("separator", i, _SEPARATORS) is None:
            raise self._error("a relation, a setting, “and”, “with” or a comma")
        return None

    def _phrase(self, i: int, *, may_be: bool) -> Phrase:
        quantity = self._take("quantity", i, _QUANTITIES)
        if quantity is None:
            raise self._error("“a” or a number")
        size = self._take("size", i, _SIZES)
        colour = self._take("colour", i, _COLOURS)
        category = self._take("noun", i, _SINGULARS if quantity == "a" else _PLURALS)
        if category is None:
            raise self._error("a noun in the " + ("singular" if quantity == "a" else "plural"))
        if family_of(category) == "person":
            if colour:
                raise self._error("no colour before a person")
            colour = self._worn(i)
        if may_be and self._take("verb", i, _VERBS):
            self.words["is", 0] = "yes"
        action = self._take("action", i, _ACTIONS)
        if action is None and "is" in {what for what, j in self.words if j == i}:
            raise self._error("an action")
        return Phrase(category=category, quantity=quantity, colour=colour, size=size, action=action)

    def _worn(self, i: int) -> str | None:
        start = self.at
        if self._take("wearing", i, _WEARING):
            colour = self._take("colour", i, _COLOURS)
            if colour:
                return colour
            self.at = start
            del self.words["wearing", i]
        return None

    def _take(self, what: str, i: int, table: Table) -> str | None:
        for tokens, (value, form) in table.items() if len(table) < 20 else self._candidates(table):
            if self.tokens[self.at : self.at + len(tokens)] == tokens:
                self.at += len(tokens)
                self.words[what, i] = form
                return value
        return None

    def _candidates(self, table: Table) -> list[tuple[tuple[str, ...], tuple[str, str]]]:
        """Large tables hold single words only: look the word up."""
        key = self.tokens[self.at : self.at + 1]
        return [(key, table[key])] if key in table else []

    def _need(self, token: str) -> None:
        if self.tokens[self.at : self.at + 1] != (token,):
            raise self._error(f"“{token}”")
        self.at += 1

    def _error(self, expected: str) -> DataError:
        rest = " ".join(self.tokens[self.at :]) or "the end"
        return DataError(f'caption "{self.text}" is outside the grammar of the world: expected {expected} at “{rest}”')
