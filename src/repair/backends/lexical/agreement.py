"""Verbs and pronouns that must follow when a subject changes its number or gender."""

from collections.abc import Iterator

from repair.backends.lexical.analysis import Analysis, Thing
from repair.backends.lexical.frames import optional_part
from repair.backends.lexical.inflection import verb_form
from repair.backends.lexical.lexicon import lexicon
from repair.backends.lexical.splicing import Change, splice

_SUBJECTS = ("nsubj", "nsubjpass")
_FINITE = ("VBZ", "VBP", "VBD")
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
_FITS = {
    **dict.fromkeys(("his", "he", "him", "himself"), frozenset({"male", "one", "thing"})),
    **dict.fromkeys(("her", "she", "herself"), frozenset({"female", "one", "thing"})),
    **dict.fromkeys(("its", "itself"), frozenset({"thing", "one"})),
    **dict.fromkeys(("their", "they", "them", "themselves"), frozenset({"many", "one"})),
}


def agree_verbs(caption: Analysis, subject: Thing, *, is_plural: bool) -> Iterator[Change]:
    """Changes to the finite verbs of `subject` (a thing of `caption` that has become plural or singular)."""
    for index, token in enumerate(caption.tokens):
        if _is_finite(caption, index) and _governs(caption, index, subject.top):
            text = _finite(token.lower, token.lemma, token.tag, is_plural=is_plural)
            if text != token.lower:
                yield Change(index, index, text)
        # "Two dogs play with each other" loses its sense with one dog.
        if not is_plural and token.lower == "other" and index and caption.tokens[index - 1].lower == "each":
            part = optional_part(caption, index)
            if part is not None:
                yield Change(part[0], part[1], "")


def _is_finite(caption: Analysis, verb: int) -> bool:
    """Whether it stands in a number; a bare form without a helper is a plural ("the men hang …")."""
    token = caption.tokens[verb]
    if token.tag == "VB" and token.dep == "ROOT":
        return not any(caption.tokens[i].dep in ("aux", "auxpass") for i in caption.children(verb))
    return token.tag in _FINITE


def _governs(caption: Analysis, verb: int, subject: int) -> bool:
    """Whether `subject` is the subject of the finite `verb`, of the verb it helps, or of the verb it is joined to."""
    seen: set[int] = set()
    while verb not in seen:
        seen.add(verb)
        own = [i for i in caption.children(verb) if caption.tokens[i].dep in _SUBJECTS]
        if not own and any(caption.tokens[i].dep == "expl" for i in caption.children(verb)):
            own = [i for i in caption.children(verb) if caption.tokens[i].dep == "attr"]  # "there are two dogs"
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


def agree_subject(caption: Analysis) -> str:
    """The caption with the finite verbs of its subject in its number, if that is people or animals known by name.

    "A group of people" may stand with either.
    """
    found = [thing for thing in caption.things if thing.is_subject]
    words = lexicon()
    if not found or any(t.top != t.head or not words.is_living(t.noun) or t.noun in words.groups for t in found):
        return caption.text
    first = found[0]
    is_plural = len(found) > 1 or caption.tokens[first.head].tag == "NNS" or first.noun == "people"
    changes = [change for change in agree_verbs(caption, first, is_plural=is_plural) if change.text]
    return splice(caption, changes) or caption.text


def agree_pronouns(caption: Analysis) -> str:
    """The caption with pronouns that have somebody to stand for.

    A pronoun that fits no person or animal of the caption is made to fit the nearest one before it, else the first.
    """
    words = lexicon()
    living = [t for t in caption.things if words.is_living(t.noun)]
    if not living:
        return caption.text
    senses = {_sense(thing) for thing in living} | ({"many"} if len(living) > 1 else set())
    changes = []
    for index, token in enumerate(caption.tokens):
        if token.tag not in ("PRP", "PRP$") or senses & _FITS.get(token.lower, senses):
            continue
        owner = next((thing for thing in reversed(living) if thing.last < index), living[0])
        is_joint = owner.is_subject and sum(thing.is_subject for thing in living) > 1
        text = _PRONOUNS["many" if is_joint else _sense(owner)].get(token.lower, token.lower)
        if token.lower == "her" and token.tag == "PRP":
            text = {"his": "him", "their": "them"}.get(text, text)
        changes.append(Change(index, index, text))
        if text != token.lower and token.dep in _SUBJECTS:
            changes.extend(_verb_of_pronoun(caption, token.head, is_plural=text == "they"))
    return splice(caption, changes) or caption.text


def _verb_of_pronoun(caption: Analysis, verb: int, *, is_plural: bool) -> Iterator[Change]:
    helpers = [i for i in caption.children(verb) if caption.tokens[i].dep in ("aux", "auxpass")]
    for index in (*helpers, verb):
        token = caption.tokens[index]
        text = (
            _finite(token.lower, token.lemma, token.tag, is_plural=is_plural) if token.tag in _FINITE else token.lower
        )
        if text != token.lower:
            yield Change(index, index, text)


def _sense(thing: Thing) -> str:
    words = lexicon()
    if thing.low > 1:
        return "many"
    if not words.is_person(thing.noun):
        return "thing"
    return words.people[thing.noun].gender or "one"
