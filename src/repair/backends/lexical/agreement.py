"""Verbs and pronouns that must follow when a subject changes its number or gender."""

from collections.abc import Iterator

from repair.backends.lexical.analysis import Analysis, Thing
from repair.backends.lexical.frames import optional_part
from repair.backends.lexical.inflection import verb_form
from repair.backends.lexical.lexicon import lexicon
from repair.backends.lexical.splicing import Change, splice

_SUBJECTS = ("nsubj", "nsubjpass")
_BE = {("is", True): "are", ("'s", True): "are", ("was", True): "were", ("are", False): "is", ("were", False): "was"}
_PRONOUNS = {
    "male": {"her": "his", "their": "his", "its": "his", "she": "he", "they": "he", "herself": "himself"},
    "female": {"his": "her", "their": "her", "its": "her", "he": "she", "they": "she", "him": "her",
               "himself": "herself"},
    "thing": {"their": "its", "they": "it", "themselves": "itself"},
    "many": {"his": "their", "her": "their", "its": "their", "he": "they", "she": "they", "him": "them",
             "himself": "themselves", "herself": "themselves", "itself": "themselves"},
    "one": {},
}  # fmt: skip
_OWNER = {"his": "male", "he": "male", "him": "male", "himself": "male",
          "her": "female", "she": "female", "herself": "female"}  # fmt: skip


def agree_verbs(caption: Analysis, subject: Thing, *, is_plural: bool) -> Iterator[Change]:
    """Changes to the finite verbs of `subject` (a thing of `caption` that has become plural or singular)."""
    for index, token in enumerate(caption.tokens):
        if token.tag in ("VBZ", "VBP", "VBD") and _governs(caption, index, subject.top):
            text = _finite(token.lower, token.lemma, token.tag, is_plural=is_plural)
            if text != token.lower:
                yield Change(index, index, text)
        # "Two dogs play with each other" loses its sense with one dog.
        if not is_plural and token.lower == "other" and index and caption.tokens[index - 1].lower == "each":
            part = optional_part(caption, index)
            if part is not None:
                yield Change(part[0], part[1], "")


def _governs(caption: Analysis, verb: int, subject: int) -> bool:
    """Whether `subject` is the subject of the finite `verb`, of the verb it helps, or of the verb it is joined to."""
    seen: set[int] = set()
    while verb not in seen:
        seen.add(verb)
        own = [i for i in caption.children(verb) if caption.tokens[i].dep in _SUBJECTS]
        if own:
            return subject in own
        token = caption.tokens[verb]
        if token.dep == "relcl":
            return token.head == subject
        if token.dep not in ("aux", "auxpass", "conj"):
            return False
        verb = token.head
    return False


def _finite(lower: str, lemma: str, tag: str, *, is_plural: bool) -> str:
    if (lower, is_plural) in _BE:
        return _BE[lower, is_plural]
    if tag == "VBD" or lower in ("is", "are", "was", "were"):
        return lower
    return verb_form(lemma, "VBP" if is_plural else "VBZ")


def agree_pronouns(caption: Analysis) -> str:
    """The caption with pronouns that fit its only person or animal, or its only group; as it is if there are several."""
    words = lexicon()
    living = [t for t in caption.things if words.is_person(t.noun) or words.top_kind(t.noun) == "animal"]
    if not living:
        return caption.text
    senses = [_sense(thing) for thing in living]
    if len(set(senses)) == 1 and len(living) > 1 and senses[0] != "many":
        return caption.text if _is_free(caption, senses) else _replaced(caption, senses[0])
    if len(living) == 1 or all(sense == "many" for sense in senses):
        return _replaced(caption, senses[0])
    return caption.text


def _is_free(caption: Analysis, senses: list[str]) -> bool:
    """Whether every gendered pronoun has somebody to stand for, or everybody might be meant."""
    used = {_OWNER[token.lower] for token in caption.tokens if token.lower in _OWNER}
    return "one" in senses or "thing" in senses or used <= set(senses)


def _sense(thing: Thing) -> str:
    words = lexicon()
    if thing.low > 1:
        return "many"
    if not words.is_person(thing.noun):
        return "thing"
    return words.people[thing.noun].gender or "one"


def _replaced(caption: Analysis, sense: str) -> str:
    changes = []
    for index, token in enumerate(caption.tokens):
        if token.tag in ("PRP", "PRP$") and token.lower in _PRONOUNS[sense]:
            text = _PRONOUNS[sense][token.lower]
            if token.lower == "her" and token.tag == "PRP":
                text = {"his": "him", "their": "them"}.get(text, text)
            changes.append(Change(index, index, text))
    return (splice(caption, changes) or caption.text) if changes else caption.text
