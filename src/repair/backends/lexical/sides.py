"""A case as the rules see it: a caption that is claimed, and captions that are evidence against it or for it."""

from collections.abc import Iterable
from dataclasses import dataclass

from repair.core.errors import BadReply
from repair.core.ports import Case, ImageItem, TextItem
from repair.core.records import Direction
from repair.core.texts import folded


@dataclass(frozen=True, slots=True)
class Sides:
    """`claim` is held against `evidence`, the captions of the image in the case, best ground truth first.

    image_to_text: the false positive against the query image's captions. text_to_image: the query against the false
    positive image's captions. `truth` is the caption that query and ground truth share; `siblings` are the other
    captions of its image, () if it has none or they are unknown. Runs of white space are one space throughout.
    """

    claim: str
    evidence: tuple[str, ...]
    truth: str
    siblings: tuple[str, ...]


def sides_of(case: Case) -> Sides:
    """Raises BadReply if the case does not hold the captions that the rules need."""
    if case.direction is Direction.IMAGE_TO_TEXT:
        claimed, image = case.false_positive, case.query
        truths = [item.text for item in case.ground_truths if isinstance(item, TextItem)]
    else:
        claimed, image = case.query, case.false_positive
        truths = []
    if not isinstance(claimed, TextItem) or not isinstance(image, ImageItem):
        raise BadReply(f"a {case.direction} case must hold one caption and one image")
    evidence = _lines((*truths, *image.captions))
    if not evidence:
        raise BadReply("the lexical backends judge by an image's own captions, and this image has none")
    if case.direction is Direction.IMAGE_TO_TEXT:
        truth, family = evidence[0], image.captions
    else:
        truth, family = _line(claimed.text), claimed.image_captions
    siblings = tuple(text for text in _lines(family) if folded(text) != folded(truth))
    return Sides(_line(claimed.text), evidence, truth, siblings)


def _line(text: str) -> str:
    return " ".join(text.split())


def _lines(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for text in texts if (line := _line(text))))
