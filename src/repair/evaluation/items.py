"""What a compositional suite is made of: items to choose in, the rule of a right choice, and what is averaged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from repair.core.errors import DataError

Box = tuple[int, int, int, int]  # x, y, width, height in pixels


class Rule(StrEnum):
    """How an item is judged. Right options stand first in an item."""

    STRICT = "strict"  # one image; the first text must score strictly above all others: a tie is wrong
    FIRST = "first"  # one image; the first text must score highest: a tie is right (ARO's Order tasks)
    PAIRS = "pairs"  # two images, two texts: Winoground's text, image and group score, all strict
    TRIPLE = "triple"  # one image, two right texts and a wrong one: SugarCrepe++, strict


TASKS: Mapping[Rule, tuple[str, ...]] = {
    Rule.STRICT: ("accuracy",),
    Rule.FIRST: ("accuracy",),
    Rule.PAIRS: ("text", "image", "group"),
    Rule.TRIPLE: ("image_text", "image_first", "image_second", "text_only"),
}
TIE_RULES: Mapping[Rule, str] = {
    Rule.STRICT: "right if strictly above all others: a tie is wrong",
    Rule.FIRST: "right if none is above: a tie is right",
    Rule.PAIRS: "all comparisons strict: a tie is wrong",
    Rule.TRIPLE: "all comparisons strict: a tie is wrong",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item. `images` are names of pictures (paths below a folder, or ids); `box` crops the first one.

    `group` is what averages part items by: a split, a relation, a pair of attributes. Items that were made of each
    other's texts have one `made_with`: a text probe never learns from one about another.
    """

    item_id: str
    group: str
    images: tuple[str, ...]
    texts: tuple[str, ...]
    box: Box | None = None
    made_with: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """The unweighted mean over `parts` of the share of right items in each part, a part being some groups.

    One part is a micro average; one part for each group a macro average.
    """

    name: str
    parts: tuple[tuple[str, ...], ...]
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSuite:
    """A compositional suite, read and checked.

    `problems` are reasons why it is not the whole published suite (a file or items that are missing); with any, it is
    run only on demand and called partial. `generated` says that the texts were made here: they are saved with results.
    """

    name: str
    rule: Rule
    items: tuple[Item, ...]
    averages: tuple[Average, ...]
    facts: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    generated: bool = False
    headline: str = ""  # the average a person looks at first; the first one unless given
    exports: Mapping[str, str] = field(default_factory=dict)  # group to CLIP_benchmark's data set name

    def __post_init__(self) -> None:
        if not self.items:
            raise DataError(f"suite {self.name}: holds no item")
        shapes = {(len(item.images), len(item.texts)) for item in self.items}
        if len(shapes) > 1:
            raise DataError(f"suite {self.name}: items differ in how many images and texts they have: {sorted(shapes)}")

    @property
    def groups(self) -> tuple[str, ...]:
        """In order of first appearance."""
        return tuple(dict.fromkeys(item.group for item in self.items))


def micro(name: str, groups: Sequence[str], tasks: Sequence[str]) -> Average:
    """Over all items of `groups` alike."""
    return Average(name=name, parts=(tuple(groups),), tasks=tuple(tasks))


def macro(name: str, groups: Sequence[str], tasks: Sequence[str]) -> Average:
    """Over `groups` alike, whatever their sizes."""
    return Average(name=name, parts=tuple((group,) for group in groups), tasks=tuple(tasks))
