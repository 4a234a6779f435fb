"""Captions changed by rules, for other methods than RePair: words of one kind swapped, replaced, added, said otherwise.

As NegCLIP's generator does, a swap takes two spans of one category: noun phrases of more than two words, singular
nouns, plural nouns, adjectives, adverbs. Replacements come from the lexicon: another noun of the same kind, another
value of the same attribute, another verb, a preposition that excludes the one there is. Nothing checks that the result
is false: these methods have no such check.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from repair.backends.lexical.analysis import Analysis
from repair.backends.lexical.inflection import plural, verb_form
from repair.backends.lexical.lexicon import lexicon
from repair.backends.lexical.parsing import analyse, parser_fingerprint
from repair.backends.lexical.splicing import Change as Splice
from repair.backends.lexical.splicing import splice
from repair.backends.lexical.verifier import FREE
from repair.core.identity import canonical_json, derive_rng, hash_value
from repair.core.ports import Reply
from repair.core.synthesis import Change, WritingTask

_RULES = 1  # raise it whenever a rule here changes an answer
_OPENERS = ("a photo of", "a picture of", "there is", "an image of", "this shows")
_DOMAINS = (
    "in the snow",
    "at night",
    "in the rain",
    "on a beach",
    "in a city street",
    "in a forest",
    "indoors",
    "in fog",
)
_ADDED = ("dog", "cat", "bicycle", "umbrella", "ball", "car", "bird", "chair", "tree", "hat", "kite", "book")
_NOUNS, _ADJECTIVES, _ADVERBS = ("NN", "NNS"), ("JJ", "JJR", "JJS"), ("RB", "RBR")

Edits = Iterator[tuple[Splice, ...]]


class LexicalWriter:
    """A `core.synthesis.CaptionWriter` that calls nothing. Every change there is can be drawn; the seed draws one."""

    changes = frozenset(Change)

    def __init__(self) -> None:
        self.fingerprint = hash_value({"writer": "lexical", "rules": _RULES, "parser": parser_fingerprint()})

    async def write(self, task: WritingTask, *, seed: int) -> Reply[tuple[str, ...]]:
        rng = derive_rng(seed, "lexical", str(task.change), task.text, *task.parts)
        texts = _written(task, rng)
        return Reply(texts, FREE, canonical_json(list(texts)))


def _written(task: WritingTask, rng: np.random.Generator) -> tuple[str, ...]:
    match task.change:
        case Change.DOMAINS:
            return _DOMAINS
        case Change.UNITS:
            return tuple(_units(analyse(task.text)))
        case Change.FOIL:
            foils = (_drawn(part, (_relations, _objects, _attributes), rng) for part in task.parts)
            return tuple(foil or "" for foil in foils)
        case Change.REWRITE:
            return (_rewritten(task.text, rng),)
        case _:
            text = _drawn(task.text, _EDITS[task.change], rng)
            return () if text is None else (text,)


def _drawn(text: str, kinds: tuple[Callable[[Analysis], Edits], ...], rng: np.random.Generator) -> str | None:
    """One of the captions that the kinds of edit can make, each kind as likely as the others; None if there is none."""
    caption = analyse(text)
    for kind in rng.permutation(len(kinds)):
        edits = list(kinds[int(kind)](caption))
        for place in rng.permutation(len(edits)):
            edited = splice(caption, edits[int(place)])
            if edited is not None and edited != text:
                return edited
    return None


# ---------------------------------------------------------------------------------------------- swaps


def _swapped(caption: Analysis, spans: list[tuple[int, int]]) -> Edits:
    for (a, b), (c, d) in combinations(spans, 2):
        first, second = caption.phrase(a, b), caption.phrase(c, d)
        if b < c and first.lower() != second.lower():
            yield Splice(a, b, second.lower() if a else second), Splice(c, d, first.lower())


def _tagged(caption: Analysis, tags: tuple[str, ...]) -> list[tuple[int, int]]:
    return [(i, i) for i, token in enumerate(caption.tokens) if token.tag in tags]


def _swapped_nouns(caption: Analysis) -> Edits:
    for tag in _NOUNS:
        yield from _swapped(caption, _tagged(caption, (tag,)))


def _swapped_adjectives(caption: Analysis) -> Edits:
    yield from _swapped(caption, _tagged(caption, _ADJECTIVES))


def _swapped_phrases(caption: Analysis) -> Edits:
    spans = sorted((thing.first, thing.last) for thing in caption.things if thing.last - thing.first >= 2)
    yield from _swapped(caption, spans)


def _swapped_adverbs(caption: Analysis) -> Edits:
    yield from _swapped(caption, _tagged(caption, _ADVERBS))


# ------------------------------------------------------------------------------------------ replacements


def _objects(caption: Analysis) -> Edits:
    """Another noun of the nearest kind: of a person another person, of a dog another animal."""
    words = lexicon()
    for thing in caption.things:
        token = caption.tokens[thing.head]
        if token.tag not in _NOUNS:
            continue
        if words.is_person(thing.noun):
            others = [noun for noun in words.people if words.relate(thing.noun, noun).name == "EXCLUDED"]
        else:
            above = words.kinds(thing.noun)[1:2]
            others = (
                [n for n, kinds in words.kinds_of.items() if kinds[:1] == above and n != thing.noun] if above else []
            )
        for noun in sorted(others):
            said = noun.replace("_", " ")
            yield (Splice(thing.head, thing.head, plural(said) if token.tag == "NNS" else said),)


def _attributes(caption: Analysis) -> Edits:
    words = lexicon()
    for index, token in enumerate(caption.tokens):
        if token.tag not in _ADJECTIVES:
            continue
        for attribute in words.attributes(token.lower):
            for other, values in sorted(words.attribute_words.items()):
                same_kind = [value for value in values if value.kind == attribute.kind]
                if same_kind and all(value.value != attribute.value for value in same_kind):
                    yield (Splice(index, index, other.replace("_", " ")),)


def _relations(caption: Analysis) -> Edits:
    words = lexicon()
    for relation in caption.relations:
        token = caption.tokens[relation.token]
        for other in sorted(words.opposites.get(token.lower, ())):
            yield (Splice(relation.token, relation.token, other.replace("_", " ")),)


def _actions(caption: Analysis) -> Edits:
    words = lexicon()
    for action in caption.actions:
        token = caption.tokens[action.token]
        if not token.tag.startswith("VB") or action.verb in words.light_verbs:
            continue
        for other in sorted(set(words.verbs.values())):
            if words.verbs_exclude(action.verb, other) and "_" not in other:
                yield (Splice(action.token, action.token, verb_form(other, token.tag)),)


# --------------------------------------------------------------------------------------------- additions


def _added_objects(caption: Analysis) -> Edits:
    said = {thing.noun for thing in caption.things}
    for thing in caption.things:
        phrase = caption.phrase(thing.first, thing.last)
        for noun in _ADDED:
            if noun not in said:
                yield (Splice(thing.first, thing.last, f"{phrase} and a {noun}"),)


def _added_attributes(caption: Analysis) -> Edits:
    colours = [w for w, values in sorted(lexicon().attribute_words.items()) if any(v.kind == "colour" for v in values)]
    for thing in caption.things:
        if not any(trait.attribute.kind == "colour" for trait in thing.traits):
            word = caption.tokens[thing.head].text
            for colour in colours:
                yield (Splice(thing.head, thing.head, f"{colour} {word}"),)


# -------------------------------------------------------------------------------------- rewrites and units


def _rewritten(text: str, rng: np.random.Generator) -> str:
    """Nouns under another name of the lexicon, each with chance a half, and another opening; never a new fact."""
    caption, words = analyse(text), lexicon()
    names: dict[str, list[str]] = {}
    for word, name in words.synonyms.items():
        names.setdefault(name, []).append(word)
    splices = []
    for thing in caption.things:
        token = caption.tokens[thing.head]
        others = sorted(w for w in names.get(words.noun(token.lemma), ()) if w != token.lemma and "_" not in w)
        if others and token.tag in _NOUNS and rng.random() < 0.5:
            other = others[int(rng.integers(len(others)))]
            splices.append(Splice(thing.head, thing.head, plural(other) if token.tag == "NNS" else other))
    rewritten = (splice(caption, splices) if splices else None) or text
    if rewritten == text or rng.random() < 0.5:
        opener = _OPENERS[int(rng.integers(len(_OPENERS)))]
        if not rewritten.lower().startswith(_OPENERS):
            rewritten = f"{opener[0].upper()}{opener[1:]} {rewritten[:1].lower()}{rewritten[1:]}"
    return rewritten


def _units(caption: Analysis) -> Iterator[str]:
    """Each thing's phrase, then each relation with the two phrases it is between."""
    phrases = [caption.phrase(thing.first, thing.last).lower() for thing in caption.things]
    yield from dict.fromkeys(phrases)
    for relation in caption.relations:
        before = [i for i, thing in enumerate(caption.things) if thing.last < relation.token]
        if before and relation.target != before[-1]:
            yield f"{phrases[before[-1]]} {caption.tokens[relation.token].lower} {phrases[relation.target]}"


_EDITS: dict[Change, tuple[Callable[[Analysis], Edits], ...]] = {
    Change.SWAP: (_swapped_nouns, _swapped_adjectives, _swapped_phrases, _swapped_adverbs),
    Change.SWAP_OBJECT: (_swapped_nouns,),
    Change.SWAP_ATTRIBUTE: (_swapped_adjectives,),
    Change.REPLACE_OBJECT: (_objects,),
    Change.REPLACE_ATTRIBUTE: (_attributes,),
    Change.REPLACE_RELATION: (_relations, _actions),
    Change.ADD_OBJECT: (_added_objects,),
    Change.ADD_ATTRIBUTE: (_added_attributes,),
    Change.CONTRAST: (_objects, _attributes, _relations, _actions),
}
