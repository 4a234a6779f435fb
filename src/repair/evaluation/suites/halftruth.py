"""Half-truths: does a wrong detail at the end of a true caption raise its score? Made here from any captions.

The idea is CS-CLIP's: a model that adds up matching words likes "a dog and a cat" better than "a
dog" for a photo of a dog. Each item is a caption and the same caption with one detail added; right if the caption alone
scores strictly higher. Three kinds:

    attribute  a colour for a thing whose colour *another* caption of the same image tells otherwise
    object     "and a …": a thing that no caption of the image mentions, from another image's caption
    place      "at the …", "on a …": a place that ends another image's caption and shares no noun with this image's

An attribute is contradicted by what people wrote (and no caption of the image names it of anything), so it is wrong
unless they were. Objects and places are only unmentioned: some of them are there all the same. How many is not known
for photos, so compare models on this suite, and do not read its ceiling. The wrong text is always the longer one:
`halftruth_matched` asks without that. Where the truth is known (the drawn world), the suite `world` asks exactly.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.core.records import Pair
from repair.evaluation.items import ChoiceSuite, Item
from repair.evaluation.suites.details import COLOURS, Detail, Image, coloured, ended, images_of, place_in, things_in
from repair.evaluation.suites.generated import suite_of_kinds

KINDS = ("attribute", "object", "place")
_MIN_SEEN = 3  # a thing or place must be in that many captions, so that it is an ordinary one
_TRIES = 50


def half_truths(pairs: Sequence[Pair], *, name: str, seed: int, max_items: int) -> ChoiceSuite:
    """The suite over the captions of `pairs`; at most `max_items` of each kind, at most one of a kind an image.

    Raises MissingDependency without spaCy, and DataError if no item can be made.
    """
    images = images_of(pairs)
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
    if not items:
        raise DataError(
            f"suite {name}: no item can be made of {len(pairs)} captions of {len(images)} images: it needs a few "
            "images with several captions each, whose things and places recur"
        )
    return suite_of_kinds(items, KINDS, name=name, seed=seed, n_images=len(images))


def _details(images: Sequence[Image]) -> tuple[list[Detail], list[Detail]]:
    """Ordinary things ("a bicycle") and places ("on the beach"), each with the nouns in it, sorted."""
    things: Counter[Detail] = Counter()
    places: Counter[Detail] = Counter()
    for image in images:
        for _, words in image.captions:
            things.update(set(things_in(words)))
            places.update(place_in(words))
    return tuple(
        sorted((text, nouns) for (text, nouns), n in found.items() if n >= _MIN_SEEN) for found in (things, places)
    )  # type: ignore[return-value]


def _added(image: Image, details: Sequence[Detail], rng: np.random.Generator, joint: str) -> tuple[str, str] | None:
    """A caption, and the same with a detail at its end whose nouns no caption of the image has."""
    if not details:
        return None
    text = image.captions[int(rng.integers(len(image.captions)))][0]
    for _ in range(_TRIES):
        detail, nouns = details[int(rng.integers(len(details)))]
        if not nouns & image.words:
            return text, ended(text, f"{joint}{detail}")
    return None


def _wrong_colour(image: Image, rng: np.random.Generator) -> tuple[str, str] | None:
    """A caption that leaves a thing's colour open, and the same with a colour that another caption contradicts."""
    if not image.bare:
        return None
    text, start, article, _ = image.bare[int(rng.integers(len(image.bare)))]
    wrong = [colour for colour in COLOURS if colour not in image.all_colours]
    if not wrong:
        return None
    return text, coloured(text, start, article, wrong[int(rng.integers(len(wrong)))])
