"""Noun phrases of one caption put in the place of another caption's: nouns, numbers, attributes, determiners."""

from collections.abc import Iterator

from repair.backends.lexical.agreement import agree_verbs
from repair.backends.lexical.analysis import Analysis, Thing
from repair.backends.lexical.frames import noun_phrase, subject_block, subjects
from repair.backends.lexical.inflection import article, plural, singular
from repair.backends.lexical.lexicon import lexicon
from repair.backends.lexical.splicing import Change

# Kinds of things that one says "a" of.
_COUNTED = frozenset(
    {"person", "animal", "clothing", "vehicle", "board", "building", "furniture", "container", "device"}
)


def words_of(caption: Analysis, first: int, last: int) -> str:
    """The text of some tokens as it reads inside a sentence."""
    text = caption.phrase(first, last)
    token = caption.tokens[first]
    starts_caption = first == 0 and (token.pos != "PROPN" or lexicon().knows(token.lemma)) and token.text != "I"
    is_lowered = (starts_caption and not token.text.isupper()) or token.text == "A"
    return text[:1].lower() + text[1:] if is_lowered else text


def swap_noun(caption: Analysis, thing: Thing, seen: Analysis, other: Thing) -> list[Change]:
    """`thing` takes the noun of `other`; its attributes stay, its determiner too unless the number changes."""
    mine, theirs = noun_phrase(caption, thing), noun_phrase(seen, other)
    name = Change(*mine.name, words_of(seen, *theirs.name))
    drops = list(_outgrown(thing, other))
    keeps = mine.is_plural == theirs.is_plural and (mine.determiner is None) == (theirs.determiner is None)
    if keeps and not (thing.low != other.low and (thing.is_counted or other.is_counted)):
        return [name, *drops]
    return [
        *_with_determiner(caption, thing, name, _determiner(seen, other)),
        *_follow(caption, thing, is_plural=theirs.is_plural),
        *drops,
    ]


def _outgrown(thing: Thing, other: Thing) -> Iterator[Change]:
    """A "little" girl becomes a man, not a "little" one."""
    sense = lexicon().people.get(other.noun)
    if sense is not None and sense.age == "adult":
        for token in dict.fromkeys(trait.token for trait in thing.traits if trait.attribute.value == "small"):
            if token > thing.first:
                yield Change(token, token, "")


def swap_phrase(caption: Analysis, thing: Thing, seen: Analysis, other: Thing) -> list[Change]:
    """`thing` is replaced by `other`, attributes and all."""
    is_plural = noun_phrase(seen, other).is_plural
    text = words_of(seen, other.first, other.last)
    if noun_phrase(seen, other).determiner is None and _lacks_article(seen, other):
        text = f"{article(text)} {text}"
    change = Change(thing.first, thing.last, text)
    return [change, *_follow(caption, thing, is_plural=is_plural)]


def swap_subjects(caption: Analysis, seen: Analysis) -> list[Change]:
    """All subjects are replaced by the other caption's."""
    mine, theirs = subject_block(caption), subject_block(seen)
    if mine is None or theirs is None:
        return []
    others = [thing for thing in subjects(seen) if thing.last <= theirs[1]]
    is_plural = len(others) > 1 or noun_phrase(seen, others[0]).is_plural
    first = subjects(caption)[0]
    return [Change(*mine, words_of(seen, *theirs)), *_follow(caption, first, is_plural=is_plural)]


def renumber(caption: Analysis, thing: Thing, seen: Analysis, other: Thing) -> list[Change]:
    """As many of `thing` as there are of `other`; the noun stays, in the other number if need be."""
    mine, theirs = noun_phrase(caption, thing), noun_phrase(seen, other)
    first, last = mine.name
    word = caption.tokens[last].lower
    if mine.is_plural != theirs.is_plural:
        word = plural(word) if theirs.is_plural else singular(word)
    start = caption.phrase(first, last - 1) + " " if last > first else ""
    name = Change(first, last, start + word)
    return [
        *_with_determiner(caption, thing, name, _determiner(seen, other)),
        *_follow(caption, thing, is_plural=theirs.is_plural),
    ]


def _with_determiner(caption: Analysis, thing: Thing, name: Change, determiner: str) -> list[Change]:
    """The change of the name together with a new determiner ("" for none)."""
    phrase = noun_phrase(caption, thing)
    if phrase.determiner is not None:
        return [Change(*phrase.determiner, determiner), name]
    if thing.first == name.first:
        return [Change(name.first, name.last, f"{determiner} {name.text}".strip())]
    return [
        Change(thing.first, thing.first, f"{determiner} {words_of(caption, thing.first, thing.first)}".strip()),
        name,
    ]


_COUNTED = frozenset(
    {"person", "animal", "clothing", "vehicle", "board", "building", "furniture", "container", "device"}
)


def _determiner(caption: Analysis, thing: Thing) -> str:
    phrase = noun_phrase(caption, thing)
    if phrase.determiner is None:
        return "a" if _lacks_article(caption, thing) else ""
    text = words_of(caption, *phrase.determiner)
    return {"another": "a", "other": ""}.get(text, text)


def _lacks_article(caption: Analysis, thing: Thing) -> bool:
    """Whether a phrase without a determiner ("Dog in the snow", "in blue dress") would have "a" in full English."""
    if noun_phrase(caption, thing).is_plural or caption.tokens[thing.head].tag != "NN":
        return False
    return thing.first == 0 or lexicon().top_kind(thing.noun) in _COUNTED


def _follow(caption: Analysis, thing: Thing, *, is_plural: bool) -> list[Change]:
    """What follows from a new number of `thing`."""
    joined = [other for other in subjects(caption) if other is not thing]
    was_plural = noun_phrase(caption, thing).is_plural or (thing.is_subject and bool(joined))
    if was_plural == is_plural:
        return []
    return list(agree_verbs(caption, thing, is_plural=is_plural))
