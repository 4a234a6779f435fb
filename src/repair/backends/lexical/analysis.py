"""What a caption says, as plain records: things with attributes and numbers, actions, relations."""

from collections.abc import Iterator
from dataclasses import dataclass

from repair.backends.lexical.lexicon import Attribute

COMPOUND = "compound"  # kind of the attribute that one noun is of another


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    lemma: str  # lower case
    tag: str  # Penn Treebank
    pos: str  # Universal
    dep: str  # ClearNLP label
    head: int  # index of the governing token; its own for a root
    start: int  # character offset
    first: int  # first and last token of its subtree
    last: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def lower(self) -> str:
        return self.text.lower()


@dataclass(frozen=True, slots=True)
class Trait:
    """An attribute said of a thing, with the token that says it."""

    attribute: Attribute
    token: int


@dataclass(frozen=True, slots=True)
class Thing:
    """A noun phrase without what follows its noun."""

    noun: str  # the lexicon's name for it
    head: int  # token of the noun
    top: int  # token that stands for the phrase in the sentence ("group" of "a group of people")
    first: int  # tokens of the phrase, inclusive
    last: int
    low: int  # how many there are, at least
    high: int | None  # at most; None is unbounded
    is_counted: bool  # a number word says so
    traits: tuple[Trait, ...]
    is_subject: bool


@dataclass(frozen=True, slots=True)
class Action:
    verb: str  # the lexicon's name for it
    token: int
    doer: int | None  # index into `Analysis.things`


@dataclass(frozen=True, slots=True)
class Relation:
    """`preposition` ties the thing `target` to what it depends on."""

    preposition: str
    token: int
    target: int  # index into `Analysis.things`


@dataclass(frozen=True, slots=True)
class Analysis:
    text: str
    tokens: tuple[Token, ...]
    things: tuple[Thing, ...]
    actions: tuple[Action, ...]
    relations: tuple[Relation, ...]
    words: frozenset[str]  # lexicon names of all content words, of the kinds above them and of what they imply
    said: frozenset[str]  # names of the content words alone

    def phrase(self, first: int, last: int) -> str:
        """The text from token `first` to token `last`, inclusive."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    def children(self, index: int) -> Iterator[int]:
        """Tokens governed by token `index`, in order."""
        return (i for i, token in enumerate(self.tokens) if token.head == index and i != index)

    def thing_at(self, token: int) -> Thing | None:
        return next((thing for thing in self.things if token in (thing.head, thing.top)), None)
