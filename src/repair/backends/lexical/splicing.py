"""Changes to a caption's tokens, and the caption after them; what is not changed stays word for word."""

from collections.abc import Sequence
from dataclasses import dataclass

from repair.backends.lexical.analysis import Analysis
from repair.backends.lexical.inflection import article

_ARTICLES = frozenset({"a", "an"})
_JOINS = frozenset({"and", "or", ","})
_STOPS = frozenset({".", ",", ";", "!", "?"})


@dataclass(frozen=True, slots=True, order=True)
class Change:
    """Tokens `first` to `last`, inclusive, become `text`; "" removes them."""

    first: int
    last: int
    text: str


@dataclass(slots=True)
class _Word:
    gap: str  # the white space before it
    text: str
    is_new: bool


def splice(caption: Analysis, changes: Sequence[Change]) -> str | None:
    """The caption after `changes` (in any order), None if two of them overlap or nothing but punctuation is left.

    An article next to a change is made to agree with the word after it ("a old" to "an old"), the caption keeps its
    first letter's case, and a comma or "and" that no longer joins anything goes.
    """
    words: list[_Word] = []
    done = 0
    for change in sorted(changes):
        if change.first < done:
            return None
        words.extend(_kept(caption, done, change.first))
        words.extend(_new(caption, change))
        done = change.last + 1
    words.extend(_kept(caption, done, len(caption.tokens)))
    _drop_loose_joins(words)
    _agree_articles(words)
    if not any(letter.isalnum() for word in words for letter in word.text):
        return None
    words[0].gap = ""
    if caption.text.lstrip()[:1].isupper():
        words[0].text = words[0].text[:1].upper() + words[0].text[1:]
    return "".join(word.gap + word.text for word in words)


def _kept(caption: Analysis, first: int, end: int) -> list[_Word]:
    kept = []
    for index in range(first, end):
        token = caption.tokens[index]
        before = caption.tokens[index - 1].end if index else 0
        kept.append(_Word(caption.text[before : token.start], token.text, False))
    return kept


def _new(caption: Analysis, change: Change) -> list[_Word]:
    texts = change.text.split()
    if not texts:
        # A mark, so that the neighbours of a removal are looked at; it has no width.
        return [_Word("", "", True)]
    before = caption.tokens[change.first - 1].end if change.first else 0
    gap = caption.text[before : caption.tokens[change.first].start]
    return [_Word(gap if i == 0 else " ", text, True) for i, text in enumerate(texts)]


def _drop_loose_joins(words: list[_Word]) -> None:
    """Where something was removed: no join at the start, before a stop, or before another join."""
    index = 0
    while index < len(words):
        if words[index].is_new and not words[index].text:
            del words[index]
            left = index - 1
            while 0 <= left < len(words) and words[left].text.lower() in _JOINS:
                after = words[left + 1].text.lower() if left + 1 < len(words) else "."
                if after not in _STOPS and after not in _JOINS and left > 0:
                    break
                del words[left]
                left -= 1
                index -= 1
            while index == 0 and words and words[0].text.lower() in _JOINS:
                del words[0]
            if index < len(words):
                words[index].is_new = True
            continue
        index += 1


def _agree_articles(words: list[_Word]) -> None:
    for index, word in enumerate(words[:-1]):
        after = words[index + 1]
        if word.text.lower() in _ARTICLES and (word.is_new or after.is_new) and after.text[:1].isalpha():
            fitting = article(after.text)
            word.text = fitting.capitalize() if word.text[0].isupper() else fitting
