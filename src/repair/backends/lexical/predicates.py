"""What somebody does, put in the place of what somebody was said to do."""

from collections.abc import Iterator

from repair.backends.lexical.analysis import Action, Analysis
from repair.backends.lexical.frames import auxiliaries, main_action, predicate, subjects
from repair.backends.lexical.inflection import verb_form
from repair.backends.lexical.lexicon import Match, lexicon
from repair.backends.lexical.phrases import words_of
from repair.backends.lexical.splicing import Change

_FINITE = ("VBZ", "VBP", "VBD")
_OBJECTS = frozenset({"dobj", "dative", "attr", "ccomp", "xcomp", "oprd"})
# Prepositions that say where or with what, whatever is done; others ("through", "down") belong to the verb.
_FREE_PREPOSITIONS = frozenset(
    {"in", "on", "near", "by", "with", "beside", "behind", "under", "inside", "outside", "next", "during", "while"}
)


def predicate_changes(caption: Analysis, verb: int, seen: Analysis) -> Iterator[list[Change]]:
    """Ways to let the doer of `verb` do what is done in `seen`: the verb alone, then the predicate.

    The verb alone: only if neither verb has an object, so that what follows still fits. The predicate with what
    follows it; and the same, keeping places of the caption that the new predicate says nothing about.
    """
    action = _fitting(caption, verb, seen)
    if action is None:
        yield from _place_only(caption, verb, seen)
        return
    form = _form(caption, verb)
    is_passive = _is_passive(seen, action.token)
    if not is_passive and _fits_alone(caption, verb, seen, action.token):
        yield [Change(verb, _particle(caption, verb), _inflected(seen, action.token, form))]
    text = _predicate_text(seen, action.token, form)
    first, last = predicate(caption, verb)
    if first and caption.tokens[first - 1].lower in ("being", "been"):
        first -= 1
    yield [Change(first, last, text)]
    kept = _kept_places(caption, verb, last)
    if kept is not None and not _says_where(seen, *predicate(seen, action.token)):
        yield [Change(first, kept - 1, text)]


def extension(caption: Analysis, seen: Analysis, *, as_sentence: bool) -> Change | None:
    """What the other caption says that the subject does, put after a subject of which nothing else is said."""
    own, words = subjects(caption), lexicon()
    action = main_action(seen)
    if not own or action is None or action.doer is None:
        return None
    if words.relate(own[-1].noun, seen.things[action.doer].noun) <= Match.EXCLUDED:
        return None
    is_plural = len(own) > 1 or own[-1].low > 1
    form = ("VBP" if is_plural else "VBZ") if as_sentence else "VBG"
    last = own[-1].last
    return Change(last, last, f"{caption.tokens[last].text} {_predicate_text(seen, action.token, form)}")


def _fitting(caption: Analysis, verb: int, seen: Analysis) -> Action | None:
    """What in `seen` the doer of `verb` may be doing: its main action, else the first whose doer is akin."""
    words = lexicon()
    own = words.verb(caption.tokens[verb].lemma)
    doer = next((a.doer for a in caption.actions if a.token == verb), None)
    options = [a for a in seen.actions if a.verb not in (own, "wear") and seen.tokens[a.token].dep != "amod"]
    if doer is not None:
        options = [
            a
            for a in options
            if a.doer is None or words.relate(caption.things[doer].noun, seen.things[a.doer].noun) > Match.EXCLUDED
        ]
    main = main_action(seen)
    return main if main in options else next(iter(options), None)


def _form(caption: Analysis, verb: int) -> str:
    token = caption.tokens[verb]
    tag = token.tag
    if tag == "VBD" and token.lower == token.lemma:
        return "VBP"  # captions tell in the present; "sled" and "hit" are mistaken for a past
    return "VBG" if tag == "VBN" or tag not in (*_FINITE, "VB", "VBG") else tag


def _is_passive(caption: Analysis, verb: int) -> bool:
    return caption.tokens[verb].tag == "VBN"


def _has_object(caption: Analysis, verb: int) -> bool:
    return any(caption.tokens[index].dep in _OBJECTS for index in caption.children(verb))


def _fits_alone(caption: Analysis, verb: int, seen: Analysis, other: int) -> bool:
    """Whether the other verb can take the place of `verb` before what follows it."""
    if _has_object(seen, other) or _has_object(caption, verb) or _is_passive(caption, verb):
        return False
    taken = {seen.tokens[i].lower for i in seen.children(other) if seen.tokens[i].dep == "prep"}
    needed = {caption.tokens[i].lower for i in caption.children(verb) if caption.tokens[i].dep == "prep" and i > verb}
    return needed <= taken | _FREE_PREPOSITIONS


def _particle(caption: Analysis, verb: int) -> int:
    """The verb's own particle or adverb ("facing away"), if it follows at once, else the verb."""
    after = verb + 1
    if after == len(caption.tokens) or caption.tokens[after].head != verb:
        return verb
    goes_on = after + 1 < len(caption.tokens) and caption.tokens[after + 1].lower in ("to", "of")  # "next to"
    return after if caption.tokens[after].dep in ("prt", "advmod") and not goes_on else verb


def _inflected(seen: Analysis, verb: int, form: str) -> str:
    text = verb_form(seen.tokens[verb].lemma, form)
    last = _particle(seen, verb)
    return text if last == verb else f"{text} {seen.tokens[last].text}"


def _predicate_text(seen: Analysis, verb: int, form: str) -> str:
    """The other caption's predicate with its verb, and verbs joined to it, in the form wanted."""
    first, last = predicate(seen, verb)
    tokens, is_passive = seen.tokens, _is_passive(seen, verb)
    pieces = []
    for index in range(first, last + 1):
        token = tokens[index]
        is_inside = first <= token.head <= last
        is_joined = token.dep == "conj" and token.head < index and is_inside and token.tag == tokens[verb].tag
        text = token.text
        if is_passive:
            if index == verb and form in _FINITE:
                text = f"{verb_form('be', form)} {text}"
        elif (index == verb or is_joined) and token.pos == "VERB":
            text = verb_form(token.lemma, form)
        elif token.dep in ("aux", "auxpass") and is_inside and tokens[token.head].dep == "conj":
            continue  # "is running and is jumping": the verbs come in one form
        gap = seen.text[tokens[index - 1].end : token.start] if index > first else ""
        pieces.append(gap + text)
    return "".join(pieces)


def _says_where(caption: Analysis, first: int, last: int) -> bool:
    words = lexicon()
    return any(
        first <= thing.head <= last and not words.settings.isdisjoint(words.kinds(thing.noun))
        for thing in caption.things
    )


def _kept_places(caption: Analysis, verb: int, last: int) -> int | None:
    """Where the caption's own places begin, if the predicate ends in prepositional phrases that say where."""
    start = None
    words = lexicon()
    for index in caption.children(verb):
        token = caption.tokens[index]
        if index <= verb or token.first > last:
            continue
        place = caption.thing_at(next((i for i in caption.children(index) if caption.tokens[i].dep == "pobj"), -1))
        is_place = place is not None and not words.settings.isdisjoint(words.kinds(place.noun))
        if token.dep == "prep" and is_place and token.lower in _FREE_PREPOSITIONS:
            start = index if start is None else start
        else:
            start = None
    return start if start is not None and start > verb else None


def _place_only(caption: Analysis, verb: int, seen: Analysis) -> Iterator[list[Change]]:
    """The other caption says no action, but where its subject is: "A cow running" to "A cow in the snow"."""
    words = lexicon()
    doer = next((a.doer for a in caption.actions if a.token == verb), None)
    found = subjects(seen)
    if not found or doer is None or words.relate(caption.things[doer].noun, found[-1].noun) <= Match.EXCLUDED:
        return
    places = [
        (relation.token, seen.things[relation.target].last)
        for relation in seen.relations
        if seen.tokens[relation.token].head == found[-1].top
        and relation.token > found[-1].last
        and not words.settings.isdisjoint(words.kinds(seen.things[relation.target].noun))
    ]
    if not places:
        return
    first, last = predicate(caption, verb)
    text = words_of(seen, *places[0])
    tag = caption.tokens[verb].tag
    helpers = auxiliaries(caption, verb)
    if helpers or tag not in _FINITE:
        yield [Change(first, last, text)]
    else:
        yield [Change(first, last, f"{verb_form('be', tag)} {text}")]
