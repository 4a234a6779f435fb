"""How many there are of each class of things in a caption."""

from repair.backends.lexical.analysis import Analysis, Thing
from repair.backends.lexical.lexicon import ANIMAL, PERSON, Lexicon


def _class_of(thing: Thing, words: Lexicon) -> str:
    """What is counted together: all people, all animals of a kind, else things of one name."""
    if words.is_person(thing.noun):
        return PERSON
    kinds = words.kinds(thing.noun)
    return kinds[-2] if kinds[-1] == ANIMAL and len(kinds) > 1 else thing.noun


def totals(caption: Analysis, words: Lexicon) -> dict[str, tuple[int, int | None, Thing]]:
    """For each class: how many there are at least and at most, and the first thing of it.

    A thing said twice ("a cow chases another cow" counts both; "the man … the man" counts once) is told by its
    article: a definite repetition adds nothing.
    """
    found: dict[str, tuple[int, int | None, Thing]] = {}
    for thing in caption.things:
        name = _class_of(thing, words)
        if name not in found:
            found[name] = (thing.low, thing.high, thing)
            continue
        low, high, first = found[name]
        article = caption.tokens[thing.first].lower
        if article in ("the", "his", "her", "their", "its"):
            continue
        bound = None if high is None or thing.high is None else high + thing.high
        found[name] = (low + thing.low, bound, first)
    return found


_NAMES = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def how_many(low: int, high: int | None) -> str:
    """In words: "two", "three or more"."""
    name = _NAMES[low] if low < len(_NAMES) else str(low)
    return name if low == high else f"{name} or more"
