"""What words say of each other: people, kinds of things, actions, attributes, numbers. Data in `lexicon/*.toml`."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from importlib.resources import files

from repair.core.identity import hash_value

PERSON = "person"
ANIMAL = "animal"
_FILES = ("people.toml", "nouns.toml", "words.toml")

# Members of these kinds are seen side by side, so one does not speak against another.
_SIDE_BY_SIDE = frozenset({"body_part", "structure", "tool", "ground_cover", "clothing", "plant", "light_thing"})


class Match(IntEnum):
    """How a claimed noun stands to a seen one, best last."""

    UNRELATED = 0
    EXCLUDED = 1  # another of the same kind: a dog claimed, a cat seen
    NARROWER = 2  # the claim says more than was seen: a poodle claimed, a dog seen
    BROADER = 3  # the claim says less: an animal claimed, a dog seen
    SAME = 4


@dataclass(frozen=True, slots=True)
class PersonSense:
    gender: str | None  # "male", "female"
    age: str | None  # "adult", "child"


@dataclass(frozen=True, slots=True)
class Attribute:
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Loaded once by `lexicon()`. Words are lower-case lemmas, "_" joining those of several words."""

    people: Mapping[str, PersonSense]
    groups: Mapping[str, tuple[int, int | None]]
    roles: Mapping[str, frozenset[str]]
    synonyms: Mapping[str, str]
    kinds_of: Mapping[str, tuple[str, ...]]  # word -> the kinds above it, nearest first
    implied: Mapping[str, frozenset[str]]
    light_nouns: frozenset[str]
    settings: frozenset[str]
    verbs: Mapping[str, str]
    verb_groups: Mapping[str, tuple[frozenset[str], ...]]
    light_verbs: frozenset[str]
    attribute_words: Mapping[str, tuple[Attribute, ...]]
    near: frozenset[frozenset[str]]
    numbers: Mapping[str, int]
    many: Mapping[str, int]
    measures: Mapping[str, int]
    parts: frozenset[str]
    opposites: Mapping[str, frozenset[str]]
    fingerprint: str

    def noun(self, word: str) -> str:
        """The name under which a noun is kept: its first synonym, else the word itself."""
        return self.synonyms.get(word, word)

    def knows(self, word: str) -> bool:
        return word in self.people or word in self.synonyms

    def is_person(self, noun: str) -> bool:
        return noun in self.people

    def is_living(self, noun: str) -> bool:
        return self.top_kind(noun) in (PERSON, ANIMAL)

    def kinds(self, noun: str) -> tuple[str, ...]:
        """The noun and the kinds above it, nearest first; a person word is a PERSON."""
        if noun in self.people:
            return (noun, PERSON) if noun != PERSON else (PERSON,)
        return (noun, *self.kinds_of.get(noun, ()))

    def top_kind(self, noun: str) -> str:
        return self.kinds(noun)[-1]

    def relate(self, claim: str, seen: str) -> Match:
        """How the claimed noun stands to the seen one. See `Match`."""
        if claim == seen:
            return Match.SAME
        if claim in self.people and seen in self.people:
            return self._relate_people(self.people[claim], self.people[seen])
        above_claim, above_seen = self.kinds(claim), self.kinds(seen)
        if claim in above_seen:
            return Match.BROADER
        if seen in above_claim:
            return Match.NARROWER
        shared = self.shared_kind(claim, seen)
        return Match.EXCLUDED if shared is not None and shared not in _SIDE_BY_SIDE else Match.UNRELATED

    def shared_kind(self, one: str, other: str) -> str | None:
        """The nearest kind that both nouns belong to."""
        above = set(self.kinds(other))
        return next((kind for kind in self.kinds(one) if kind in above), None)

    @staticmethod
    def _relate_people(claim: PersonSense, seen: PersonSense) -> Match:
        narrower = False
        for said, found in ((claim.gender, seen.gender), (claim.age, seen.age)):
            if said and found and said != found:
                return Match.EXCLUDED
            narrower = narrower or (said is not None and found is None)
        if narrower:
            return Match.NARROWER
        return Match.SAME if claim == seen else Match.BROADER

    def verb(self, lemma: str) -> str:
        return self.verbs.get(lemma, lemma)

    def verbs_exclude(self, one: str, other: str) -> bool:
        """Whether one doer is not said to do both at a time (names as given by `verb`)."""
        for sets in self.verb_groups.values():
            holding_one = [s for s in sets if one in s]
            holding_other = [s for s in sets if other in s]
            if holding_one and holding_other and not any(s in holding_other for s in holding_one):
                return True
        return False

    def attributes(self, word: str) -> tuple[Attribute, ...]:
        return self.attribute_words.get(word, ())

    def are_near(self, one: str, other: str) -> bool:
        return one == other or frozenset((one, other)) in self.near


@cache
def lexicon() -> Lexicon:
    """The lexicon of this package; read on first use."""
    folder = files(__package__) / "lexicon"
    people, nouns, words = (tomllib.loads((folder / name).read_text(encoding="utf-8")) for name in _FILES)
    synonyms, kinds_of = _read_kinds(nouns["kinds"])
    return Lexicon(
        people=_read_people(people["features"]),
        groups={word: (low, high or None) for word, (low, high) in people["groups"].items()},
        roles={word: frozenset(says.split()) for word, says in people["roles"].items()},
        synonyms=synonyms,
        kinds_of=kinds_of,
        implied={word: frozenset(says.split()) for word, says in nouns["implies"].items()},
        light_nouns=frozenset(nouns["light"]["words"].split()),
        settings=frozenset(nouns["settings"]["words"].split()),
        verbs={word: name for name, listed in words["verbs"].items() for word in listed.split()},
        verb_groups={
            name: tuple(frozenset(entry.split()) for entry in entries) for name, entries in words["verb_groups"].items()
        },
        light_verbs=frozenset(words["light_verbs"]["words"].split()),
        attribute_words=_read_attributes(words["attributes"]),
        near=frozenset(frozenset(pair.split()) for pair in words["near"]["pairs"]),
        numbers=words["numbers"],
        many=words["many"],
        measures=words["measures"],
        parts=frozenset(words["parts"]["words"].split()),
        opposites=_read_opposites(words["prepositions"]["opposites"]),
        fingerprint=hash_value([people, nouns, words]),
    )


def _read_people(features: Mapping[str, str]) -> dict[str, PersonSense]:
    senses = {}
    for name, listed in features.items():
        gender, _, age = name.partition("_")
        sense = PersonSense(None if gender == "any" else gender, age or None)
        senses.update(dict.fromkeys(listed.split(), sense))
    return senses


def _read_kinds(kinds: Mapping[str, str]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    synonyms: dict[str, str] = {name: name for name in kinds}
    parent: dict[str, str] = {}
    for kind, listed in kinds.items():
        for entry in listed.split():
            name, *others = entry.split("/")
            parent.setdefault(name, kind)
            synonyms.setdefault(name, name)
            for other in others:
                synonyms.setdefault(other, name)
    return synonyms, {name: tuple(_upwards(name, parent)) for name in parent}


def _upwards(name: str, parent: Mapping[str, str]) -> Iterable[str]:
    while name in parent:
        name = parent[name]
        yield name


def _read_attributes(kinds: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Attribute, ...]]:
    found: dict[str, tuple[Attribute, ...]] = {}
    for kind, values in kinds.items():
        for value, listed in values.items():
            for word in listed.split():
                found[word] = (*found.get(word, ()), Attribute(kind, value))
    return found


def _read_opposites(pairs: Iterable[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pair in pairs:
        left, right = (frozenset(side.split()) for side in pair.split("|"))
        found.update({word: found.get(word, frozenset()) | right for word in left})
        found.update({word: found.get(word, frozenset()) | left for word in right})
    return found


__all__ = ["PERSON", "Attribute", "Lexicon", "Match", "PersonSense", "lexicon"]
