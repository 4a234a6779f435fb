"""What the drawn world is made of, and the words for it.

A *category* is a kind (`dog`) or a hypernym (`animal`); a hypernym is true of each of its kinds. Every other fact has
one canonical value and several surface forms; the first form is the plain one, the rest are exact synonyms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

PERSON_ACTIONS = ("standing", "running", "sitting", "jumping", "waving")
BEAST_ACTIONS = ("standing", "running", "sitting", "jumping", "sleeping")
BIRD_ACTIONS = ("standing", "flying", "eating", "sleeping")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing. `forms` are (singular, plural) nouns."""

    name: str
    family: str | None  # its hypernym
    actions: tuple[str, ...]  # () for a thing that cannot act
    forms: tuple[tuple[str, str], ...]
    usual_colours: tuple[str, ...]


def _kinds(*kinds: Kind) -> Mapping[str, Kind]:
    return MappingProxyType({kind.name: kind for kind in kinds})


KINDS: Mapping[str, Kind] = _kinds(
    Kind("man", "person", PERSON_ACTIONS, (("man", "men"), ("guy", "guys")), ("blue", "black", "white", "green")),
    Kind(
        "woman",
        "person",
        PERSON_ACTIONS,
        (("woman", "women"), ("lady", "ladies")),
        ("red", "purple", "yellow", "white"),
    ),
    Kind(
        "child", "person", PERSON_ACTIONS, (("child", "children"), ("kid", "kids")), ("red", "yellow", "orange", "blue")
    ),
    Kind("dog", "animal", BEAST_ACTIONS, (("dog", "dogs"), ("hound", "hounds")), ("brown", "black", "white")),
    Kind("cat", "animal", BEAST_ACTIONS, (("cat", "cats"), ("kitty", "kitties")), ("black", "orange", "white")),
    Kind("horse", "animal", BEAST_ACTIONS, (("horse", "horses"), ("pony", "ponies")), ("brown", "white", "black")),
    Kind("bird", "animal", BIRD_ACTIONS, (("bird", "birds"),), ("blue", "yellow", "red", "black")),
    Kind("car", "vehicle", (), (("car", "cars"), ("automobile", "automobiles")), ("red", "blue", "black", "white")),
    Kind("boat", "vehicle", (), (("boat", "boats"), ("sailboat", "sailboats")), ("white", "blue", "red", "yellow")),
    Kind("bicycle", "vehicle", (), (("bicycle", "bicycles"), ("bike", "bikes")), ("red", "green", "black", "purple")),
    Kind("tree", "plant", (), (("tree", "trees"),), ("green", "orange", "yellow")),
    Kind("flower", "plant", (), (("flower", "flowers"), ("blossom", "blossoms")), ("red", "yellow", "purple", "white")),
    Kind("ball", "toy", (), (("ball", "balls"),), ("red", "yellow", "orange", "blue")),
    Kind("kite", "toy", (), (("kite", "kites"),), ("red", "purple", "green", "yellow")),
    Kind("chair", None, (), (("chair", "chairs"), ("seat", "seats")), ("brown", "white", "green", "black")),
    Kind("box", None, (), (("box", "boxes"), ("crate", "crates")), ("brown", "orange", "blue", "white")),
    Kind(
        "umbrella", None, (), (("umbrella", "umbrellas"), ("parasol", "parasols")), ("red", "blue", "yellow", "purple")
    ),
)

HYPERNYMS: Mapping[str, tuple[tuple[str, str], ...]] = MappingProxyType(
    {
        "person": (("person", "people"), ("human", "humans")),
        "animal": (("animal", "animals"), ("creature", "creatures")),
        "vehicle": (("vehicle", "vehicles"),),
        "plant": (("plant", "plants"),),
        "toy": (("toy", "toys"), ("plaything", "playthings")),
    }
)

COLOURS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "red": ("red", "scarlet"),
        "orange": ("orange",),
        "yellow": ("yellow", "golden"),
        "green": ("green",),
        "blue": ("blue",),
        "purple": ("purple", "violet"),
        "brown": ("brown",),
        "black": ("black",),
        "white": ("white",),
    }
)

SIZES: Mapping[str, tuple[str, ...]] = MappingProxyType({"small": ("small", "little", "tiny"), "big": ("big", "large")})

ACTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "standing": ("standing",),
        "running": ("running", "dashing"),
        "sitting": ("sitting", "seated"),
        "jumping": ("jumping", "leaping"),
        "waving": ("waving",),
        "sleeping": ("sleeping", "asleep"),
        "flying": ("flying",),
        "eating": ("eating", "feeding"),
    }
)

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "park": ("in a park", "on the grass"),
        "beach": ("on a beach", "at the seaside"),
        "street": ("on a street", "on the road"),
        "snow": ("in the snow", "on a snowy field"),
        "room": ("in a room", "indoors"),
        "night": ("at night", "in the dark"),
    }
)

RELATIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "left": ("to the left of", "left of"),
        "right": ("to the right of", "right of"),
        "above": ("above", "over"),
        "below": ("below", "under", "beneath"),
        "on": ("on", "on top of"),
    }
)

# "a dog" says that there is at least one; a number says exactly how many things fit the phrase; "some" is two or
# more, "several" three or more.
QUANTITIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "a": ("a",),
        "two": ("two", "a pair of", "a couple of"),
        "three": ("three",),
        "four": ("four",),
        "some": ("some",),
        "several": ("several", "a group of"),
    }
)
EXACT: Mapping[str, int] = MappingProxyType({"two": 2, "three": 3, "four": 4})
AT_LEAST: Mapping[str, int] = MappingProxyType({"a": 1, "some": 2, "several": 3})
EXACT_WORD: Mapping[int, str] = MappingProxyType({n: word for word, n in EXACT.items()})

CATEGORIES: tuple[str, ...] = (*KINDS, *HYPERNYMS)


def is_a(kind: str, category: str) -> bool:
    """Whether a thing of `kind` is a `category`: the kind itself or its hypernym."""
    return kind == category or KINDS[kind].family == category


def family_of(category: str) -> str | None:
    """The hypernym of a category; a hypernym is its own."""
    return category if category in HYPERNYMS else KINDS[category].family


def categories_of(kind: str) -> tuple[str, ...]:
    """The categories a kind falls under, most specific first."""
    family = KINDS[kind].family
    return (kind,) if family is None else (kind, family)


@cache
def actions_of(category: str) -> tuple[str, ...]:
    """What things of a category can do: for a hypernym, what any of its kinds can."""
    kinds = [kind for kind in KINDS.values() if is_a(kind.name, category)]
    return tuple(action for action in ACTIONS if any(action in kind.actions for kind in kinds))


def nouns(category: str) -> tuple[tuple[str, str], ...]:
    """(singular, plural) forms of a category, plain one first."""
    return HYPERNYMS[category] if category in HYPERNYMS else KINDS[category].forms
