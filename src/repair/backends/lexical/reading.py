"""A parsed caption to `Analysis`: things, their numbers and attributes, actions, relations."""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from repair.backends.lexical.analysis import COMPOUND, Action, Analysis, Relation, Thing, Token, Trait
from repair.backends.lexical.inflection import base_forms
from repair.backends.lexical.lexicon import Attribute, Lexicon
from repair.backends.lexical.mending import mend

_ABOUT_PEOPLE = frozenset({"someone", "somebody", "everyone", "everybody", "people"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass"})
_CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM", "ADV"})


def read(doc: Any, text: str, words: Lexicon) -> Analysis:
    # A full stop that `parsing` added stands beyond the text.
    n_tokens = sum(t.idx < len(text) for t in doc)
    parsed = [
        Token(
            text=sys.intern(text[t.idx : t.idx + len(t.text)]),
            lemma=sys.intern(_lemma(t, words)),
            tag=sys.intern(t.tag_),
            pos=sys.intern(t.pos_),
            dep=sys.intern(t.dep_) if t.head.i < n_tokens else "ROOT",
            head=t.head.i if t.head.i < n_tokens else t.i,
            start=t.idx,
            first=t.left_edge.i,
            last=min(t.right_edge.i, n_tokens - 1),
        )
        for t in doc[:n_tokens]
    ]
    tokens = tuple(mend(parsed, words))
    spans = [(c.start, c.end - 1, c.root.i) for c in doc.noun_chunks if c.end <= n_tokens]
    spans = [(first, root - 1, root - 1) if tokens[root].pos == "VERB" else (first, last, root)
             for first, last, root in spans]  # fmt: skip
    things = _things(tokens, list(chain.from_iterable(_unjoined(tokens, span, words) for span in spans)), words)
    said = frozenset(chain(_said(tokens, words), (thing.noun for thing in things)))
    return Analysis(
        text=text,
        tokens=tokens,
        things=things,
        actions=_actions(tokens, things, words),
        relations=_relations(tokens, things),
        words=_spread(said, words),
        said=said,
    )


def _lemma(token: Any, words: Lexicon) -> str:
    """spaCy's lemma, except where it misses a word of the lexicon ("jeans", "glasses"; "ride" for "riding")."""
    lower, lemma = token.lower_, token.lemma_.lower()
    if token.pos_ == "VERB" and lemma not in words.verbs:
        return next((base for base in base_forms(lower) if base in words.verbs), str(lemma))
    if token.pos_ in ("NOUN", "PROPN"):
        if lower == "shorts" and token.tag_ == "NNS":
            return "shorts"
        if not words.knows(lemma) and words.knows(lower):
            return str(lower)
        if not words.knows(lemma) and lower.endswith("s") and words.knows(lower[:-1]):
            return str(lower[:-1])
    return str(lemma)


def _said(tokens: Sequence[Token], words: Lexicon) -> Iterable[str]:
    for token in tokens:
        if token.pos in _CONTENT:
            yield words.verb(token.lemma) if token.pos == "VERB" else words.noun(token.lemma)
            # A noun such as "leap" or "swing" may be a mistagged verb.
            if token.pos == "NOUN" and token.lemma in words.verbs:
                yield words.verb(token.lemma)
            for attribute in words.attributes(token.lower):
                yield f"{attribute.kind}:{attribute.value}"


def _spread(said: frozenset[str], words: Lexicon) -> frozenset[str]:
    found = set(said)
    for name in said:
        found.update(words.kinds(name))
        for about in words.kinds(name):
            found.update(words.noun(word) for word in words.implied.get(about, ()))
        found.update(words.roles.get(name, ()))
    return frozenset(sys.intern(name) for name in found)


def _is_living(token: Token, words: Lexicon) -> bool:
    return words.is_living(words.noun(token.lemma))


def _unjoined(tokens: Sequence[Token], span: tuple[int, int, int], words: Lexicon) -> Iterable[tuple[int, int, int]]:
    """Two phrases that the parser took for one: "a black helmet and black pants"."""
    first, last, root = span
    for index in range(first + 1, root):
        before = tokens[index - 1]
        if tokens[index].lower != "and" or before.pos != "NOUN":
            continue
        if before.dep in ("nmod", "nsubj") or (_is_living(before, words) and _is_living(tokens[root], words)):
            return (first, index - 1, index - 1), (index + 1, last, root)
    return (span,)


def _things(tokens: Sequence[Token], spans: Sequence[tuple[int, int, int]], words: Lexicon) -> tuple[Thing, ...]:
    things: list[Thing] = []
    skipped: set[int] = set()
    by_first = {first: (first, last, root) for first, last, root in spans}
    for first, last, root in spans:
        if root in skipped:
            continue
        head, end = root, last
        # "a group of people", "the front of a house": the phrase is about what comes after "of".
        if tokens[root].lemma in words.measures or tokens[root].lemma in words.parts:
            after = by_first.get(last + 2)
            if after is not None and last + 1 < len(tokens) and tokens[last + 1].lower == "of":
                head, end = after[2], after[1]
                skipped.add(head)
        thing = _thing(tokens, (first, end, head, root), words)
        if thing is not None:
            things.append(thing)
    return tuple(things)


def _thing(tokens: Sequence[Token], where: tuple[int, int, int, int], words: Lexicon) -> Thing | None:
    first, last, head, top = where
    token = tokens[head]
    if token.pos not in ("NOUN", "PROPN") and token.lower not in _ABOUT_PEOPLE:
        return None
    if token.pos == "PRON":
        noun = "person"
    else:
        noun = _name(tokens, head, words)
    low, high, is_counted = _count(tokens, where, noun, words)
    traits = tuple(
        Trait(attribute, index)
        for index in range(first, last + 1)
        if index not in (head, top)
        for attribute in words.attributes(tokens[index].lower) or _compound(tokens[index], noun, words)
    )
    return Thing(
        noun=noun, head=head, top=top, first=first, last=last,
        low=low, high=high, is_counted=is_counted, traits=traits, is_subject=_is_subject(tokens, top),
    )  # fmt: skip


def _compound(token: Token, noun: str, words: Lexicon) -> tuple[Attribute, ...]:
    """Of a "tunnel toy", that it is a tunnel's; nothing of a "tennis ball", which is a thing of its own name."""
    if token.dep != "compound" or token.pos != "NOUN" or token.lower in noun.split("_"):
        return ()
    return (Attribute(COMPOUND, words.noun(token.lemma)),)


def _name(tokens: Sequence[Token], head: int, words: Lexicon) -> str:
    """The longest name in the lexicon that ends at the head: "ice cream cone" before "cone"."""
    for length in (3, 2):
        if head - length + 1 >= 0:
            parts = tokens[head - length + 1 : head + 1]
            joined = "_".join([*(part.lower for part in parts[:-1]), parts[-1].lemma])
            if words.knows(joined):
                return words.noun(joined)
    return words.noun(tokens[head].lemma)


def _count(
    tokens: Sequence[Token], where: tuple[int, int, int, int], noun: str, words: Lexicon
) -> tuple[int, int | None, bool]:
    first, _, head, top = where
    inner = [tokens[index].lower for index in range(top + 1, head)]
    for lower in inner:
        if lower in words.numbers:  # "a group of five men"
            return words.numbers[lower], words.numbers[lower], True
    if head != top and tokens[top].lemma in words.measures:
        for index in range(first, top):
            if tokens[index].lower in words.numbers and tokens[top].lemma not in words.numbers:
                return max(2, words.numbers[tokens[index].lower]), None, False
        low = words.measures[tokens[top].lemma]
        if low > 1 and words.top_kind(noun) != "clothing":
            exact = words.numbers.get(tokens[top].lemma)
            return low, exact, exact is not None
    for index in range(first, head):
        if index == top:
            continue  # "a pair of jeans" is not two
        lower = tokens[index].lower
        if lower in words.numbers:
            return words.numbers[lower], words.numbers[lower], lower not in ("lone", "single")
        if lower.isdecimal() and tokens[index].dep == "nummod" and len(lower) < 4:
            return int(lower), int(lower), True
        if lower in words.many and lower != "few":
            return words.many[lower], None, False
    group = words.groups.get(noun)
    if group is not None:
        return group[0], group[1], group[1] is not None
    if tokens[head].tag in ("NNS", "NNPS") or tokens[head].lower == "people":
        return 2, None, False
    return 1, 1, False


def _is_subject(tokens: Sequence[Token], top: int) -> bool:
    """Whether the caption is about the thing: subject of its main clause, its root, or joined to such a thing."""
    token = tokens[top]
    while token.dep in ("conj", "appos") and token.head != top:
        top = token.head
        token = tokens[top]
    if token.dep == "ROOT":
        return True
    if token.dep in _SUBJECTS:
        return tokens[token.head].dep == "ROOT"
    return token.dep == "attr" and any(t.dep == "expl" and t.head == token.head for t in tokens)


def _actions(tokens: Sequence[Token], things: Sequence[Thing], words: Lexicon) -> tuple[Action, ...]:
    actions = []
    for index, token in enumerate(tokens):
        if token.pos == "VERB" and token.lemma not in words.light_verbs:
            actions.append(Action(words.verb(token.lemma), index, _doer(tokens, things, index, words)))
    return tuple(actions)


def _doer(tokens: Sequence[Token], things: Sequence[Thing], verb: int, words: Lexicon) -> int | None:
    """The thing that does `verb`: its subject, else the noun it modifies, else its governing verb's doer."""
    seen: set[int] = set()
    while verb not in seen:
        seen.add(verb)
        for index, token in enumerate(tokens):
            if token.head == verb and token.dep in _SUBJECTS and index != verb:
                return _thing_index(things, index)
        token = tokens[verb]
        if token.dep in ("acl", "relcl", "amod") or tokens[token.head].pos in ("NOUN", "PROPN"):
            return _living_doer(things, _thing_index(things, token.head), words, is_participle=token.tag == "VBG")
        verb = token.head
    return None


def _living_doer(things: Sequence[Thing], doer: int | None, words: Lexicon, *, is_participle: bool) -> int | None:
    """Of "a man in a red shirt riding" the man, whatever the parser says."""
    if doer is None or words.is_living(things[doer].noun) or not is_participle:
        return doer
    return next((i for i, thing in enumerate(things) if thing.is_subject and words.is_living(thing.noun)), doer)


def _thing_index(things: Sequence[Thing], token: int) -> int | None:
    return next((i for i, thing in enumerate(things) if token in (thing.head, thing.top)), None)


def _relations(tokens: Sequence[Token], things: Sequence[Thing]) -> tuple[Relation, ...]:
    relations = []
    for index, thing in enumerate(things):
        token = tokens[thing.top]
        if token.dep == "pobj":
            name = tokens[token.head].lower
            # "in front of a house": the part noun belongs to the preposition.
            if thing.top != thing.head and name in ("in", "on", "at"):
                name = "behind" if token.lemma == "back" else name
                name = "in_front_of" if token.lemma == "front" else name
            relations.append(Relation(name, token.head, index))
    return tuple(relations)
