"""The parser's commonest errors on captions, undone on its tokens: verbs taken for the nouns they follow."""

from collections.abc import Sequence
from dataclasses import replace

from repair.backends.lexical.analysis import Token
from repair.backends.lexical.inflection import base_forms
from repair.backends.lexical.lexicon import Lexicon

_BEFORE_NOUN = frozenset({"compound", "nmod", "amod"})
_CLAUSES = frozenset({"acl", "advcl", "xcomp", "ccomp"})
_FINITE = frozenset({"VBZ", "VBP", "VBD"})


def mend(tokens: list[Token], words: Lexicon) -> list[Token]:
    """Verbs read as nouns become verbs again: "two dogs race", "a dog swimming", "a man in a red shirt rides".

    Only words that are a verb's form and no noun of the lexicon.
    """
    for index in range(1, len(tokens)):
        token = tokens[index]
        if token.pos != "NOUN" or words.knows(token.lower):
            continue
        lemma = next((base for base in base_forms(token.lower) if base in words.verbs), None)
        if lemma is None:
            continue
        if token.dep in _CLAUSES and token.lower.endswith("ing"):
            tokens[index] = replace(token, lemma=lemma, tag="VBG", pos="VERB")  # a noun by its tag alone
        elif tokens[index - 1].pos != "NOUN" and not words.is_living(words.noun(tokens[index - 1].lemma)):
            continue
        elif token.lower.endswith("ing"):
            _mend_participle(tokens, index, lemma, words)
        elif _is_verbless(tokens) and (_is_read_as_noun(tokens, index) or _has_subject(tokens, index)):
            _make_main(tokens, index, lemma)
    return tokens


def _is_verbless(tokens: Sequence[Token]) -> bool:
    return not any(token.tag in _FINITE for token in tokens)


def _is_read_as_noun(tokens: Sequence[Token], index: int) -> bool:
    """Whether the word before is taken for a part of its name, alone or joined ("horse and rider leap")."""
    before = tokens[index - 1]
    if before.dep == "conj" and tokens[index].dep == "ROOT":
        before = tokens[before.head]
    return before.head == index and before.dep in _BEFORE_NOUN


def _has_subject(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index].dep == "ROOT" and any(t.dep == "nsubj" and t.head == index for t in tokens[:index])


def _mend_participle(tokens: list[Token], index: int, lemma: str, words: Lexicon) -> None:
    if not _is_read_as_noun(tokens, index) and not _has_subject(tokens, index):
        return
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if words.is_living(words.noun(tokens[index - 1].lemma)):
        _make_participle(tokens, index, lemma)
    # "are at the beach playing in the ocean": it is not the beach that plays.
    elif tokens[tokens[index].first].pos == "DET" and after is not None and after.pos == "ADP":
        root = next(i for i, token in enumerate(tokens) if token.dep == "ROOT")
        if root != index:
            _make_participle(tokens, index, lemma)
            tokens[index] = replace(tokens[index], dep="advcl", head=root)


def _make_participle(tokens: list[Token], verb: int, lemma: str) -> None:
    """The noun before it takes its place, and the participle says what that one does."""
    old, doer = tokens[verb], verb - 1
    if tokens[doer].dep == "conj":
        doer = tokens[doer].head
    for index in range(old.first, doer):
        if tokens[index].head == verb:
            tokens[index] = replace(tokens[index], head=doer)
    tokens[verb] = replace(old, lemma=lemma, tag="VBG", pos="VERB", dep="acl", head=doer, first=verb)
    head = doer if old.dep == "ROOT" else old.head
    tokens[doer] = replace(tokens[doer], dep=old.dep, head=head, first=old.first, last=old.last)


def _make_main(tokens: list[Token], verb: int, lemma: str) -> None:
    """It becomes the caption's main verb, with what was the root for its subject."""
    old = tokens[verb]
    root = next(i for i, token in enumerate(tokens) if token.dep == "ROOT")
    heir = next(i for i in range(verb) if tokens[i].head == verb and tokens[i].dep in (*_BEFORE_NOUN, "nsubj"))
    for index, token in enumerate(tokens):
        if index < verb and token.last >= verb:
            tokens[index] = replace(token, last=verb - 1)
        if index < verb and token.head == verb and index != heir:
            tokens[index] = replace(tokens[index], head=heir)
        if index > verb and token.head < verb:
            tokens[index] = replace(token, head=verb)
    tag = "VBZ" if old.lower.endswith("s") else "VBP"
    tokens[verb] = replace(old, lemma=lemma, tag=tag, pos="VERB", dep="ROOT", head=verb, first=0, last=len(tokens) - 1)
    dep, head = ("nsubj", verb) if root == verb else (old.dep, old.head)
    tokens[heir] = replace(tokens[heir], dep=dep, head=head, first=old.first, last=verb - 1)
    if root != verb:
        tokens[root] = replace(tokens[root], dep="nsubj", head=verb)
