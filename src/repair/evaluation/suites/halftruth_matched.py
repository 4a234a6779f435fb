"""Half-truths of equal length: a caption with a wrong detail against the same caption with a right one.

`halftruth` asks whether a wrong detail raises the score, and a model that merely likes short texts does well on it.
Here both texts have one detail, of as many words, at the same place. Kinds as there:

    attribute  a colour for a thing whose colour this caption leaves open: the one another caption of the image tells,
               against one that no caption of the image names
    object     "and a …": a thing that another caption of the image names, against one that none does
    place      "at the …": likewise, after a caption that names no place at its end

Items come in pairs: what is right of one image is wrong of the other, and conversely (colours of the same noun). So
every detail is right as often as wrong, and words alone decide nothing: a text probe is at chance. What is said in
`halftruth` of how wrong a detail is holds here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.core.records import Pair
from repair.evaluation.items import ChoiceSuite, Item
from repair.evaluation.suites.details import Image, coloured, ended, images_of, place_in, things_in
from repair.evaluation.suites.generated import suite_of_kinds

_TRIES = 50  # partners looked at
_OPTIONS = 3  # details of one image that are offered


class _Option(NamedTuple):
    """A caption that a detail can be added to, and a detail that is right of its image."""

    image: Image
    key: tuple[Any, ...]  # only options of one key are paired
    detail: str
    words: frozenset[str]  # what must not be said of the partner's image: nouns, or the colour
    add: Callable[[str], str]


def matched_half_truths(pairs: Sequence[Pair], *, name: str, seed: int, max_items: int) -> ChoiceSuite:
    """The suite over the captions of `pairs`; at most `max_items` of each kind, at most one of a kind an image.

    Raises MissingDependency without spaCy, and DataError if no item can be made.
    """
    images = images_of(pairs)
    options = {"attribute": _colours, "object": _things, "place": _places}
    items: list[Item] = []
    for kind, of in options.items():
        order = derive_rng(seed, "halftruth_matched", kind).permutation(len(images))
        offered = []
        for image in (images[i] for i in order):
            found = list(of(image))
            chosen = derive_rng(seed, "halftruth_matched", kind, image.image_id).permutation(len(found))[:_OPTIONS]
            offered += [found[i] for i in chosen]
        items += _paired(kind, offered)[: 2 * (max_items // 2)]
    if not items:
        raise DataError(
            f"suite {name}: no item can be made of {len(pairs)} captions of {len(images)} images: it needs images "
            "whose captions tell different things (several captions an image, two images or more)"
        )
    return suite_of_kinds(items, tuple(options), name=name, seed=seed, n_images=len(images))


def _paired(kind: str, offered: Sequence[_Option]) -> list[Item]:
    """Items of options that exclude each other, two by two; an image is in one pair."""
    waiting: dict[tuple[Any, ...], list[_Option]] = {}
    used: set[str] = set()
    items: list[Item] = []
    for option in offered:
        if option.image.image_id in used:
            continue
        queue = waiting.setdefault(option.key, [])
        queue[:] = [other for other in queue if other.image.image_id not in used]
        partner = next((other for other in queue[:_TRIES] if _exclude(kind, option, other)), None)
        if partner is None:
            queue.append(option)
            continue
        made_with = f"{kind}/{partner.image.image_id}"
        for own, other in ((partner, option), (option, partner)):
            items.append(
                Item(
                    item_id=f"{kind}/{own.image.image_id}",
                    group=kind,
                    images=(own.image.image_id,),
                    texts=(own.add(own.detail), own.add(other.detail)),
                    made_with=made_with,
                )
            )
            used.add(own.image.image_id)
    return items


def _exclude(kind: str, a: _Option, b: _Option) -> bool:
    """Whether what is right of each is not said of the other."""
    if a.image.image_id == b.image.image_id:
        return False
    if kind == "attribute":
        return not (a.words & b.image.all_colours or b.words & a.image.all_colours)
    return not (a.words & b.image.words or b.words & a.image.words)


def _colours(image: Image) -> Iterator[_Option]:
    for text, start, article, noun in image.bare:
        for colour in sorted(image.colours[noun]):
            yield _Option(
                image,
                (noun,),
                colour,
                frozenset([colour]),
                lambda detail, text=text, start=start, article=article: coloured(text, start, article, detail),  # type: ignore[misc]
            )


def _things(image: Image) -> Iterator[_Option]:
    told = {detail for _, words in image.captions for detail in things_in(words)}
    yield from _ending(image, sorted((thing, nouns) for thing, nouns in told), "and ")


def _places(image: Image) -> Iterator[_Option]:
    told = {detail for _, words in image.captions for detail in place_in(words)}
    yield from _ending(image, sorted((place, nouns) for place, nouns in told), "", place=True)


def _ending(
    image: Image, details: Sequence[tuple[str, frozenset[str]]], joint: str, *, place: bool = False
) -> Iterator[_Option]:
    """Captions that name nothing of a detail, with that detail to be put at their end."""
    for detail, nouns in details:
        for text, words in image.captions:
            if nouns & {word.lemma for word in words} or (place and place_in(words)):
                continue
            yield _Option(
                image,
                (len(detail.split()),),
                detail,
                nouns,
                lambda added, text=text: ended(text, f"{joint}{added}"),  # type: ignore[misc]
            )
