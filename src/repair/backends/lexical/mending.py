"""The parser's commonest errors on captions, undone on its tokens."""

from collections.abc import Sequence
from dataclasses import replace

from repair.backends.lexical.analysis import Token
from repair.backends.lexical.inflection import base_forms
from repair.backends.lexical.lexicon import PERSON, Lexicon

_BEFORE_NOUN = frozenset({"compound", "nmod", "amod"})


def mend(tokens: list[Token], words: Lexicon) -> list[Token]:
    """Undo the parser's commonest error on captions: "two dogs race", "a dog swimming" read as one noun.

    A noun that is a verb's form and directly follows a person or animal that it seems to be compounded with is that
    one's verb.
    """
    for index in range(1, len(tokens)):
        verb, doer = tokens[index], tokens[index - 1]
        if verb.pos != "NOUN" or doer.pos != "NOUN" or not _is_before_noun(tokens, index):
            continue
        noun = words.noun(doer.lemma)
        lemma = next((base for base in base_forms(verb.lower) if base in words.verbs), None)
        if lemma is None or words.knows(verb.lower):
            continue
        is_participle = verb.lower.endswith("ing")
        if words.top_kind(noun) in (PERSON, "animal"):
            if verb.dep == "ROOT" or is_participle:
                _rewire(tokens, index, lemma)
        # "are at the beach playing in the ocean": not the beach plays.
        elif (
            is_participle
            and tokens[verb.first].pos == "DET"
            and tokens[index + 1 : index + 2]
            and tokens[index + 1].pos == "ADP"
        ):
            root = next(i for i, token in enumerate(tokens) if token.dep == "ROOT")
            if root != index:
                _rewire(tokens, index, lemma)
                tokens[index] = replace(tokens[index], dep="advcl", head=root)
    return tokens


def _is_before_noun(tokens: Sequence[Token], noun: int) -> bool:
    """Whether the word before `noun` is taken for a part of its name, alone or joined ("horse and rider leap")."""
    before = tokens[noun - 1]
    if before.dep == "conj" and tokens[noun].dep == "ROOT":
        before = tokens[before.head]
    return before.head == noun and before.dep in _BEFORE_NOUN


def _rewire(tokens: list[Token], verb: int, lemma: str) -> None:
    old, doer = tokens[verb], verb - 1
    if tokens[doer].dep == "conj":
        doer = tokens[doer].head
    is_participle = old.lower.endswith("ing")
    tag = "VBG" if is_participle else "VBZ" if old.lower.endswith("s") else "VBP"
    for index in range(old.first, doer):
        if tokens[index].head == verb:
            tokens[index] = replace(tokens[index], head=doer)
    if old.dep == "ROOT" and not is_participle:
        tokens[verb] = replace(old, lemma=lemma, tag=tag, pos="VERB", head=verb)
        tokens[doer] = replace(tokens[doer], dep="nsubj", head=verb, first=old.first, last=verb - 1)
        return
    tokens[verb] = replace(old, lemma=lemma, tag=tag, pos="VERB", dep="acl", head=doer, first=verb)
    head = doer if old.dep == "ROOT" else old.head
    tokens[doer] = replace(tokens[doer], dep=old.dep, head=head, first=old.first, last=old.last)
