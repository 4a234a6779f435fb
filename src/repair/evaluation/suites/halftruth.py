"""Half-truths: does a wrong detail at the end of a true caption raise its score? Made here from any captions.

The idea is CS-CLIP's: a model that adds up matching words likes "a dog and a cat" better than "a
dog" for a photo of a dog. Each item is a caption and the same caption with one detail added; right if the caption alone
scores strictly higher. Three kinds:

    attribute  a colour for a thing whose colour *another* caption of the same image tells otherwise
    object     "and a …": a thing that no caption of the image mentions, from another image's caption
    place      "at the …", "on a …": a place that ends another image's caption and shares no noun with this image's

An attribute is contradicted by what people wrote, so it is wrong unless they were. Objects and places are only
unmentioned: some of them are there all the same. How many is not known for photos, so compare models on this suite, and
do not read its ceiling. Where the truth is known (the drawn world), the suite `world` asks exactly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from repair.core.identity import derive_rng
from repair.core.records import Pair
from repair.evaluation.items import TASKS, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.suites.generated import texts_hash
from repair.evaluation.tagging import Word, tagged, tagger_facts

KINDS = ("attribute", "object", "place")
COLOURS = ("black", "blue", "brown", "gray", "green", "orange", "pink", "purple", "red", "white", "yellow")
_SAME_COLOUR = {"grey": "gray", "blond": "yellow", "blonde": "yellow", "golden": "yellow", "tan": "brown"}
_PREPOSITIONS = ("at", "on", "in", "near", "by")
_MIN_SEEN = 3  # a thing or place must be in that many captions, so that it is an ordinary one
_TRIES = 50
_MAX_PLACE = 5  # words of a place
_WHOLE = frozenset(  # too vague to be wrong of an image, or people, who go by many names
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
class _Image:
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
                colour = _colour(first)
                if colour and second.is_noun:
                    found.setdefault(second.lemma, set()).add(colour)
        return {noun: frozenset(colours) for noun, colours in found.items()}


def half_truths(pairs: Sequence[Pair], *, name: str = "halftruth", seed: int = 0, max_items: int = 2000) -> ChoiceSuite:
    """The suite over the captions of `pairs`; at most `max_items` of each kind, at most one of a kind an image.

    Raises MissingDependency without spaCy, and DataError if no item can be made.
    """
    images = _images(pairs)
    things, places = _details(images)
    makers = {
        "attribute": lambda image, rng: _wrong_colour(image, rng),
        "object": lambda image, rng: _added(image, things, rng, "and "),
        "place": lambda image, rng: _added(image, places, rng, ""),
    }
    items: list[Item] = []
    for kind in KINDS:
        made = 0
        for image in (images[i] for i in derive_rng(seed, "halftruth", kind).permutation(len(images))):
            texts = makers[kind](image, derive_rng(seed, "halftruth", kind, image.image_id))
            if texts is not None:
                items.append(
                    Item(item_id=f"{kind}/{image.image_id}", group=kind, images=(image.image_id,), texts=texts)
                )
                made += 1
            if made == max_items:
                break
    groups = tuple(kind for kind in KINDS if any(item.group == kind for item in items))
    counts = Counter(item.group for item in items)
    facts: dict[str, Any] = {
        "seed": seed,
        "n_by_split": dict(counts),
        "texts_hash": texts_hash(items),
        "n_images": len(images),
        **tagger_facts(),
    }
    tasks = TASKS[Rule.STRICT]
    return ChoiceSuite(
        name=name,
        rule=Rule.STRICT,
        items=tuple(items),
        averages=(macro("mean of kinds", groups, tasks), micro("micro over all items", groups, tasks)),
        facts=facts,
        generated=True,
    )


def _images(pairs: Sequence[Pair]) -> list[_Image]:
    words = tagged(pair.text for pair in pairs)
    captions: dict[str, list[tuple[str, list[Word]]]] = {}
    for pair, found in zip(pairs, words, strict=True):
        captions.setdefault(pair.image_id, []).append((pair.text, found))
    return [_Image(image, tuple(found)) for image, found in captions.items()]


def _details(images: Sequence[_Image]) -> tuple[list[tuple[str, frozenset[str]]], list[tuple[str, frozenset[str]]]]:
    """Ordinary things ("a bicycle") and places ("on the beach"), each with the nouns in it, sorted."""
    things: Counter[tuple[str, frozenset[str]]] = Counter()
    places: Counter[tuple[str, frozenset[str]]] = Counter()
    for image in images:
        for _, words in image.captions:
            things.update(set(_things(words)))
            places.update(_place(words))
    return tuple(
        sorted((text, nouns) for (text, nouns), n in found.items() if n >= _MIN_SEEN) for found in (things, places)
    )  # type: ignore[return-value]


def _things(words: Sequence[Word]) -> list[tuple[str, frozenset[str]]]:
    found = []
    for k in range(len(words) - 1):
        article, noun = words[k], words[k + 1]
        after = words[k + 2] if k + 2 < len(words) else None
        alone = after is None or not (after.is_noun or after.tag == "POS")
        if article.lemma in ("a", "an") and noun.tag == "NN" and alone and noun.lemma not in _WHOLE:
            found.append((f"{article.text.lower()} {noun.text.lower()}", frozenset([noun.lemma])))
    return found


def _place(words: Sequence[Word]) -> list[tuple[str, frozenset[str]]]:
    """The place a caption ends with, if it ends with preposition, article, words and a noun."""
    body = [word for word in words if word.text not in ".!?"]
    for size in range(3, _MAX_PLACE + 1):
        tail = body[-size:]
        if len(tail) < size or tail[0].lemma not in _PREPOSITIONS or tail[0].tag != "IN" or tail[1].tag != "DT":
            continue
        inner = tail[2:]
        if tail[-1].is_noun and all(word.is_noun or word.is_adjective for word in inner):
            nouns = frozenset(word.lemma for word in inner if word.is_noun)
            if not nouns & _WHOLE:
                return [(" ".join(word.text.lower() for word in tail), nouns)]
    return []


def _added(
    image: _Image, details: Sequence[tuple[str, frozenset[str]]], rng: np.random.Generator, joint: str
) -> tuple[str, str] | None:
    """A caption, and the same with a detail at its end whose nouns no caption of the image has."""
    if not details:
        return None
    text = image.captions[int(rng.integers(len(image.captions)))][0]
    for _ in range(_TRIES):
        detail, nouns = details[int(rng.integers(len(details)))]
        if not nouns & image.words:
            return text, _ended(text, f"{joint}{detail}")
    return None


def _wrong_colour(image: _Image, rng: np.random.Generator) -> tuple[str, str] | None:
    """A caption that leaves a thing's colour open, and the same with a colour that another caption contradicts."""
    options = []
    for text, words in image.captions:
        start = 0
        for k, word in enumerate(words):
            told = image.colours.get(word.lemma)
            before = words[k - 1] if k else None
            bare = before is not None and before.lemma in ("a", "an", "the") and word.is_noun
            if told and bare:
                options.append((text, start, before, told))
            start += len(word.text) + len(word.space)
    if not options:
        return None
    text, start, article, told = options[int(rng.integers(len(options)))]
    wrong = [colour for colour in COLOURS if colour not in told]
    colour = wrong[int(rng.integers(len(wrong)))]
    changed = f"{text[:start]}{colour} {text[start:]}"
    if article is not None and article.lemma in ("a", "an"):
        place = start - len(article.text) - len(article.space)
        fitting = "an" if colour[0] in "aeiou" else "a"
        fitting = fitting.capitalize() if article.text[0].isupper() else fitting
        changed = f"{text[:place]}{fitting}{text[place + len(article.text) : start]}{colour} {text[start:]}"
    return text, changed


def _ended(text: str, detail: str) -> str:
    """`text` with `detail` before its final full stop.

    Example:
        >>> _ended("A dog runs .", "on the beach"), _ended("A dog runs.", "on the beach"), _ended("A dog", "and a cat")
        ('A dog runs on the beach .', 'A dog runs on the beach.', 'A dog and a cat')
    """
    body = text.rstrip()
    stop = body[len(body.rstrip(" .!?")) :]
    return f"{body[: len(body) - len(stop)]} {detail}{stop}"


def _colour(word: Word) -> str | None:
    lemma = _SAME_COLOUR.get(word.lemma, word.lemma)
    return lemma if lemma in COLOURS else None
