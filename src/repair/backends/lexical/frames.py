"""The parts of a caption that an edit handles whole: subjects, noun phrases, predicates, what may be left out."""

from dataclasses import dataclass
from itertools import pairwise

from repair.backends.lexical.analysis import Action, Analysis, Thing
from repair.backends.lexical.lexicon import lexicon

_OPTIONAL = frozenset(
    {"prep", "acl", "relcl", "advcl", "conj", "appos", "npadvmod", "advmod", "agent", "amod", "dative", "prt"}
)
_DETERMINERS = frozenset({"det", "nummod", "poss", "predet", "quantmod"})
_AUXILIARIES = frozenset({"aux", "auxpass"})
_SUBJECTS = frozenset({"nsubj", "nsubjpass", "expl"})


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A thing's words: `determiner` ("A group of", "two", "the"), `modifiers`, `name` ("tennis ball")."""

    determiner: tuple[int, int] | None  # tokens, inclusive
    name: tuple[int, int]
    is_plural: bool


def noun_phrase(caption: Analysis, thing: Thing) -> NounPhrase:
    words = lexicon()
    first_of_name = thing.head
    while first_of_name > thing.first:
        before = caption.tokens[first_of_name - 1]
        joined = f"{before.lower}_{caption.tokens[thing.head].lemma}"
        is_own = before.head == thing.head and before.dep == "compound"
        is_hyphened = before.text == "-" or caption.tokens[first_of_name].text == "-"
        if is_hyphened and before.end == caption.tokens[first_of_name].start:
            first_of_name -= 1
            continue
        if not (words.knows(joined) or (is_own and not words.attributes(before.lower))):
            break
        first_of_name -= 1
    last_of_determiner = thing.first - 1
    if thing.top != thing.head:
        last_of_determiner = thing.top + 1  # "A group of"
    for index in range(last_of_determiner + 1, first_of_name):
        token = caption.tokens[index]
        is_number = token.lower in words.numbers or token.lower in words.many
        if token.dep not in _DETERMINERS and token.tag not in ("DT", "PRP$", "CD", "PDT") and not is_number:
            break
        last_of_determiner = index
    determiner = (thing.first, last_of_determiner) if last_of_determiner >= thing.first else None
    is_plural = caption.tokens[thing.head].tag in ("NNS", "NNPS") or caption.tokens[thing.head].lower == "people"
    return NounPhrase(determiner, (first_of_name, thing.head), is_plural)


def subjects(caption: Analysis) -> tuple[Thing, ...]:
    """The things the caption is about, in order: the one of the main clause and those joined to it."""
    return tuple(thing for thing in caption.things if thing.is_subject)


def subject_block(caption: Analysis) -> tuple[int, int] | None:
    """First and last token of the subjects' noun phrases, if nothing but "and" and commas stands between them."""
    found = subjects(caption)
    if not found:
        return None
    for one, other in pairwise(found):
        between = caption.tokens[one.last + 1 : other.first]
        if any(token.lower not in ("and", ",", "&") for token in between):
            return found[0].first, found[0].last
    if len(found) > 1 and all(token.text == "," for token in caption.tokens[found[-2].last + 1 : found[-1].first]):
        return found[0].first, found[0].last
    return found[0].first, found[-1].last


def main_action(caption: Analysis) -> Action | None:
    """What the subject does: the action of the main verb, else of the first verb that modifies the subject."""
    own = [a for a in caption.actions if a.doer is not None and caption.things[a.doer].is_subject]
    own = [a for a in own if a.verb != "wear"] or own
    roots = [a for a in caption.actions if caption.tokens[a.token].dep == "ROOT" and a.verb != "wear"]
    return next(iter(roots or own), None)


def predicate(caption: Analysis, verb: int) -> tuple[int, int]:
    """The verb and what follows it in its clause: not its subject and auxiliaries, no clause with its own subject."""
    tokens = caption.tokens
    last = tokens[verb].last
    while last > verb and tokens[last].pos == "PUNCT":
        last -= 1
    for index in range(verb + 1, last + 1):
        is_new_clause = tokens[index].dep in _SUBJECTS and tokens[tokens[index].head].dep in ("advcl", "conj", "ccomp")
        if is_new_clause and tokens[index].head > index:
            last = min(last, _before_join(caption, tokens[tokens[index].head].first, verb))
            break
    return verb, max(verb, last)


def _before_join(caption: Analysis, index: int, floor: int) -> int:
    index -= 1
    while index > floor and caption.tokens[index].lower in ("and", "while", "as", ",", "but", "when"):
        index -= 1
    return index


def auxiliaries(caption: Analysis, verb: int) -> list[int]:
    return [index for index in caption.children(verb) if caption.tokens[index].dep in _AUXILIARIES]


def optional_part(caption: Analysis, token: int) -> tuple[int, int] | None:
    """The smallest part with `token` in it that may be left out, with the "and" or comma that joins it.

    None if leaving it out would take the subject or the main verb along, or leave a preposition without its object.
    """
    tokens = caption.tokens
    index = token
    while tokens[index].dep not in _OPTIONAL:
        if tokens[index].head == index or tokens[index].dep in _SUBJECTS:
            return None
        index = tokens[index].head
    while index and tokens[index].head == index - 1 and tokens[index - 1].dep in _OPTIONAL:
        if tokens[index].dep != "prep" or tokens[index - 1].pos not in ("ADV", "ADP", "SCONJ"):
            break
        index -= 1  # "next to a pool" goes with its "next"
    first, last = tokens[index].first, tokens[index].last
    while last > first and tokens[last].pos == "PUNCT":
        last -= 1
    while first > 0 and tokens[first - 1].lower in ("while", "as", "when", "whilst"):
        first -= 1
    keeps = [thing.head for thing in caption.things if thing.is_subject]
    if tokens[index].dep == "conj":
        keeps = [kept for kept in keeps if kept != token]
        if first > 0 and tokens[first - 1].lower in ("and", "or", ",", "&"):
            first -= 1
    roots = [i for i, t in enumerate(tokens) if t.dep == "ROOT"]
    if any(first <= kept <= last for kept in [*keeps, *roots]):
        return None
    return first, last


def start_of_relation(caption: Analysis, thing: Thing) -> int:
    """The first token of the preposition of a `pobj`, with what it hangs on: "next" of "next to a wall"."""
    index = caption.tokens[thing.top].head
    while (
        index and caption.tokens[index].head == index - 1 and caption.tokens[index - 1].pos in ("ADV", "ADP", "SCONJ")
    ):
        index -= 1
    return index
