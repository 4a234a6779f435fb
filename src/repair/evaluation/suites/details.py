"""What captions say of an image, in pieces that can be added to another caption: colours, things, places."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from repair.core.records import Pair
from repair.evaluation.tagging import Word, tagged

Detail = tuple[str, frozenset[str]]  # the text, and the nouns in it
COLOURS = ("black", "blue", "brown", "gray", "green", "orange", "pink", "purple", "red", "white", "yellow")
_SAME_COLOUR = {"grey": "gray", "blond": "yellow", "blonde": "yellow", "golden": "yellow", "tan": "brown"}
_PREPOSITIONS = ("at", "on", "in", "near", "by")
_MAX_PLACE = 5  # words of a place
WHOLE = frozenset(  # too vague to be wrong of an image, or people, who go by many names
    word
    for words in (
        (
            "person",
            "people",
            "man",
            "woman",
            "boy",
            "girl",
            "child",
            "kid",
            "guy",
            "lady",
            "group",
            "couple",
            "someone",
        ),
        ("one", "two", "three", "other", "thing", "side", "top", "front", "back", "middle", "area", "view", "picture"),
        ("photo", "image", "background", "bunch", "lot", "row", "pair", "line", "crowd", "team"),
    )
    for word in words
)


@dataclass(frozen=True)
class Image:
    """What all captions of an image say."""

    image_id: str
    captions: tuple[tuple[str, list[Word]], ...]

    @cached_property
    def nouns(self) -> frozenset[str]:
        return frozenset(word.lemma for _, words in self.captions for word in words if word.is_noun)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(word.lemma for _, words in self.captions for word in words)

    @cached_property
    def colours(self) -> Mapping[str, frozenset[str]]:
        """Noun to the colours that any caption gives it."""
        found: dict[str, set[str]] = {}
        for _, words in self.captions:
            for first, second in pairwise(words):
                colour = colour_of(first)
                if colour and second.is_noun:
                    found.setdefault(second.lemma, set()).add(colour)
        return {noun: frozenset(colours) for noun, colours in found.items()}

    @cached_property
    def all_colours(self) -> frozenset[str]:
        """Colours that any caption names, of whatever thing: "brown and white dog" names two."""
        return frozenset(c for _, words in self.captions for word in words if (c := colour_of(word)) is not None)

    @cached_property
    def bare(self) -> tuple[tuple[str, int, Word, str], ...]:
        """Mentions of things whose colour their caption leaves open and another caption tells: (caption, where the
        noun starts in it, the article before it, noun)."""
        found = []
        for text, words in self.captions:
            start = 0
            for k, word in enumerate(words):
                before = words[k - 1] if k else None
                alone = word.is_noun and not (k + 1 < len(words) and words[k + 1].is_noun)  # not "a dog collar"
                told = self.colours.get(word.lemma)
                if before is not None and before.lemma in ("a", "an", "the") and alone and told:
                    found.append((text, start, before, word.lemma))
                start += len(word.text) + len(word.space)
        return tuple(found)


def images_of(pairs: Sequence[Pair]) -> list[Image]:
    words = tagged(pair.text for pair in pairs)
    captions: dict[str, list[tuple[str, list[Word]]]] = {}
    for pair, found in zip(pairs, words, strict=True):
        captions.setdefault(pair.image_id, []).append((pair.text, found))
    return [Image(image, tuple(found)) for image, found in captions.items()]


def things_in(words: Sequence[Word]) -> list[tuple[str, frozenset[str]]]:
    found = []
    for k in range(len(words) - 1):
        article, noun = words[k], words[k + 1]
        after = words[k + 2] if k + 2 < len(words) else None
        alone = after is None or not (after.is_noun or after.tag == "POS")
        if article.lemma in ("a", "an") and noun.tag == "NN" and alone and noun.lemma not in WHOLE:
            found.append((f"{article.text.lower()} {noun.text.lower()}", frozenset([noun.lemma])))
    return found


def place_in(words: Sequence[Word]) -> list[tuple[str, frozenset[str]]]:
    """The place a caption ends with, if it ends with preposition, article, words and a noun."""
    body = [word for word in words if word.text not in ".!?"]
    for size in range(3, _MAX_PLACE + 1):
        tail = body[-size:]
        if len(tail) < size or tail[0].lemma not in _PREPOSITIONS or tail[0].tag != "IN" or tail[1].tag != "DT":
            continue
        inner = tail[2:]
        if tail[-1].is_noun and all(word.is_noun or word.is_adjective for word in inner):
            nouns = frozenset(word.lemma for word in inner if word.is_noun)
            if not nouns & WHOLE:
                return [(" ".join(word.text.lower() for word in tail), nouns)]
    return []


def ended(text: str, detail: str) -> str:
    """`text` with `detail` before its final full stop.

    Example:
        >>> ended("A dog runs .", "on the beach"), ended("A dog runs.", "on the beach"), ended("A dog", "and a cat")
        ('A dog runs on the beach .', 'A dog runs on the beach.', 'A dog and a cat')
    """
    body = text.rstrip()
    stop = body[len(body.rstrip(" .!?")) :]
    return f"{body[: len(body) - len(stop)]} {detail}{stop}"


def coloured(text: str, start: int, article: Word, colour: str) -> str:
    """`text` with `colour` before the noun that starts at `start`; its article follows.

    Example:
        >>> coloured("An owl flies", 3, Word("An", "DT", "an", " "), "gray")
        'A gray owl flies'
    """
    changed = f"{text[:start]}{colour} {text[start:]}"
    if article.lemma not in ("a", "an"):
        return changed
    place = start - len(article.text) - len(article.space)
    fitting = "an" if colour[0] in "aeiou" else "a"
    fitting = fitting.capitalize() if article.text[0].isupper() else fitting
    return f"{text[:place]}{fitting}{changed[place + len(article.text) :]}"


def colour_of(word: Word) -> str | None:
    lemma = _SAME_COLOUR.get(word.lemma, word.lemma)
    return lemma if lemma in COLOURS else None
