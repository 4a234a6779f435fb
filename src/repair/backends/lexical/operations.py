"""For one wrong claim of a caption: the ways to put it right, each taken from what was really seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repair.backends.lexical.analysis import Analysis, Thing
from repair.backends.lexical.counting import totals
from repair.backends.lexical.frames import noun_phrase, optional_part, start_of_relation
from repair.backends.lexical.judging import Finding, Status
from repair.backends.lexical.lexicon import PERSON, Lexicon, Match, lexicon
from repair.backends.lexical.phrases import renumber, swap_noun, swap_phrase, swap_subjects, words_of
from repair.backends.lexical.predicates import predicate_changes
from repair.backends.lexical.splicing import Change
from repair.core.records import ErrorType

_BARE_SEX = frozenset({"male", "female"})  # the parser takes them for nouns and adjectives by turns
_LOCATIVE = frozenset(
    {"in", "on", "at", "through", "across", "along", "down", "up", "over", "near", "by", "beside", "under", "behind",
     "inside", "outside", "around", "into", "onto", "towards", "toward", "past", "off", "against", "between", "among",
     "to", "of", "in_front_of", "above", "atop", "within", "alongside", "beneath", "out", "from"}
)  # fmt: skip
_REMOVAL = 2.0  # what a removal costs beyond its words: a change keeps more of the caption than a hole does


@dataclass(frozen=True, slots=True)
class Operation:
    changes: tuple[Change, ...]

    @property
    def cost(self) -> float:
        """Words touched: the longer of old and new for a replacement, old plus a penalty for a removal."""
        return sum(
            max(change.last - change.first + 1, len(change.text.split()))
            if change.text
            else change.last - change.first + 1 + _REMOVAL
            for change in self.changes
        )


def operations(caption: Analysis, finding: Finding, evidence: Sequence[Analysis]) -> list[Operation]:
    """Distinct operations for a wrong finding, those by the first evidence caption first; [] if there is none."""
    words = lexicon()
    if finding.aspect is ErrorType.ATTRIBUTE:
        found = _attribute(caption, finding, evidence, words)
    elif finding.aspect is ErrorType.COUNT:
        found = _count(caption, finding, evidence, words)
    elif finding.aspect is ErrorType.RELATION:
        found = _relation(caption, finding)
    elif caption.tokens[finding.token].pos == "VERB":
        found = _action(caption, finding, evidence)
    else:
        found = _object(caption, finding, evidence, words)
    kept = dict.fromkeys(Operation(tuple(sorted(changes))) for changes in found if changes)
    return list(kept)


def _remove(caption: Analysis, token: int) -> Iterator[list[Change]]:
    part = optional_part(caption, token)
    if part is not None:
        yield [Change(*part, "")]


def _remove_thing(caption: Analysis, thing: Thing) -> Iterator[list[Change]]:
    """Alone if another is joined to it ("a coat and hat" to "a hat"), else with the part it stands in."""
    joined = next((i for i in caption.children(thing.top) if caption.tokens[i].dep == "conj"), None)
    if joined is None or joined < thing.top:
        part = optional_part(caption, thing.top)
        after = _loosely_attached(caption, thing)
        if part is not None and after is not None and part[0] < after <= part[1]:
            yield [Change(part[0], after - 1, "")]
        yield from _remove(caption, thing.top)
        return
    other = caption.thing_at(joined)
    if other is not None:
        has_own = noun_phrase(caption, other).determiner is not None
        determiner = noun_phrase(caption, thing).determiner
        first = thing.first if has_own or determiner is None else determiner[1] + 1
        yield [Change(first, other.first - 1, "")]


def _loosely_attached(caption: Analysis, thing: Thing) -> int | None:
    """Where something after the thing begins that can stand without it: "in a jacket [riding a sled]"."""
    words = lexicon()
    for index in caption.children(thing.top):
        token = caption.tokens[index]
        if index <= thing.last:
            continue
        if token.dep == "acl" and token.tag == "VBG":
            return token.first
        place = next((r for r in caption.relations if r.token == index), None)
        if place is not None and place.preposition in _LOCATIVE and place.preposition != "of":
            target = caption.things[place.target]
            if _is_setting(target.noun, words) and caption.tokens[target.first].tag != "PRP$":
                return token.first
    return None


# ------------------------------------------------------------------------------------------- objects


def _object(
    caption: Analysis, finding: Finding, evidence: Sequence[Analysis], words: Lexicon
) -> Iterator[list[Change]]:
    thing = caption.thing_at(finding.token)
    if thing is None:
        return
    for seen in evidence:
        other = _counterpart(caption, thing, seen, words)
        if other is not None:
            is_akin = words.shared_kind(thing.noun, other.noun) is not None
            if is_akin or not thing.traits:  # a black dog becomes a child, not a black child
                yield swap_noun(caption, thing, seen, other)
            yield swap_phrase(caption, thing, seen, other)
        if thing.is_subject:
            yield swap_subjects(caption, seen)
    if not thing.is_subject:
        for seen in evidence:
            yield from _setting(caption, thing, seen, words)
    yield from _remove_thing(caption, thing)
    governor = caption.tokens[thing.top].head
    is_object = caption.tokens[thing.top].dep in ("dobj", "pobj", "attr") and caption.tokens[governor].pos == "VERB"
    if is_object and caption.tokens[governor].lemma not in ("wear", "dress"):
        for seen in evidence:
            yield from predicate_changes(caption, governor, seen)


def _counterpart(caption: Analysis, thing: Thing, seen: Analysis, words: Lexicon) -> Thing | None:
    """The thing seen that stands where `thing` stands: of its kind, else of its role; not one said already."""
    others = [other for other in caption.things if other is not thing]
    is_living = words.is_living(thing.noun)
    free = [
        candidate
        for candidate in seen.things
        if candidate.noun not in words.light_nouns
        and candidate.noun not in _BARE_SEX
        and seen.tokens[candidate.head].pos != "PRON"
        and (words.knows(candidate.noun) or not is_living)  # "smiles" may be a verb misread
        and not any(words.relate(other.noun, candidate.noun) >= Match.NARROWER for other in others)
    ]
    akin = [candidate for candidate in free if words.shared_kind(thing.noun, candidate.noun) is not None]
    akin.sort(key=lambda candidate: candidate.is_subject != thing.is_subject)  # stable
    if akin:
        return akin[0]
    if thing.is_subject:
        return next((candidate for candidate in free if candidate.is_subject), None)
    free = [candidate for candidate in free if words.is_living(candidate.noun) == is_living]
    return next((candidate for candidate in free if _same_slot(caption, thing, seen, candidate)), None)


def _same_slot(caption: Analysis, thing: Thing, seen: Analysis, other: Thing) -> bool:
    """Whether both are objects of the same verb, or of the same preposition of the same verb."""
    mine, theirs = caption.tokens[thing.top], seen.tokens[other.top]
    if mine.dep != theirs.dep or mine.dep not in ("dobj", "pobj"):
        return False
    one, two = caption.tokens[mine.head], seen.tokens[theirs.head]
    if mine.dep == "pobj":
        words = lexicon()
        if one.lower != two.lower or _is_setting(thing.noun, words) != _is_setting(other.noun, words):
            return False
        one, two = caption.tokens[one.head], seen.tokens[two.head]
    if one.pos != "VERB" or two.pos != "VERB":
        return False
    return lexicon().verb(one.lemma) == lexicon().verb(two.lemma)


def _setting(caption: Analysis, thing: Thing, seen: Analysis, words: Lexicon) -> Iterator[list[Change]]:
    """Where it happens: one "in the snow" for another "on a beach", preposition and all."""
    if not _is_setting(thing.noun, words) or caption.tokens[thing.top].dep != "pobj":
        return
    for relation in seen.relations:
        other = seen.things[relation.target]
        if _is_setting(other.noun, words) and other.noun not in caption.words:
            mine, theirs = start_of_relation(caption, thing), start_of_relation(seen, other)
            if not {caption.tokens[caption.tokens[thing.top].head].lower, relation.preposition} <= _LOCATIVE:
                continue
            if caption.tokens[caption.tokens[mine].head].pos == "AUX":  # "is in …": not "is through …"
                yield [Change(thing.first, thing.last, words_of(seen, other.first, other.last))]
            elif mine < thing.first and theirs < other.first:
                yield [Change(mine, thing.last, words_of(seen, theirs, other.last))]


def _is_setting(noun: str, words: Lexicon) -> bool:
    return not words.settings.isdisjoint(words.kinds(noun))


# -------------------------------------------------------------------------------------------- counts


def _count(caption: Analysis, finding: Finding, evidence: Sequence[Analysis], words: Lexicon) -> Iterator[list[Change]]:
    thing = next((t for t in caption.things if t.first == finding.token), None)
    if thing is None:
        return
    mine = [t for t in caption.things if _one_class(t, thing, words)]
    for seen in evidence:
        theirs = [other for other in seen.things if _one_class(other, thing, words)]
        if len(mine) == 1 and len(theirs) == 1:
            yield renumber(caption, thing, seen, theirs[0])
        if thing.is_subject and theirs and theirs[0].is_subject:
            yield swap_subjects(caption, seen)
    wanted = _fewest(evidence, thing, words)
    if wanted is not None and wanted < len(mine):
        for other in mine[1:]:
            yield from _remove(caption, other.top)
            governor = caption.tokens[other.top].head
            if caption.tokens[other.top].dep == "dobj" and caption.tokens[governor].pos == "VERB":
                for seen in evidence:
                    yield from predicate_changes(caption, governor, seen)


def _one_class(one: Thing, other: Thing, words: Lexicon) -> bool:
    if words.is_person(one.noun) or words.is_person(other.noun):
        return words.is_person(one.noun) and words.is_person(other.noun)
    return words.relate(one.noun, other.noun) >= Match.NARROWER


def _fewest(evidence: Sequence[Analysis], thing: Thing, words: Lexicon) -> int | None:
    name = PERSON if words.is_person(thing.noun) else None
    found = [
        low
        for seen in evidence
        for key, (low, _, first) in totals(seen, words).items()
        if key == name or (name is None and _one_class(first, thing, words))
    ]
    return min(found, default=None)


# ------------------------------------------------------------------- attributes, relations and actions


def _attribute(
    caption: Analysis, finding: Finding, evidence: Sequence[Analysis], words: Lexicon
) -> Iterator[list[Change]]:
    thing = next((t for t in caption.things if any(x.token == finding.token for x in t.traits)), None)
    if thing is None:
        return
    kinds = {trait.attribute.kind for trait in thing.traits if trait.token == finding.token}
    run = _run(thing, kinds)
    if finding.status is Status.CONTRADICTED:
        for seen in evidence:
            for other in seen.things:
                theirs = _run(other, kinds)
                if theirs is not None and run is not None and words.relate(thing.noun, other.noun) >= Match.NARROWER:
                    yield [Change(*run, words_of(seen, *theirs))]
    if words.top_kind(thing.noun) == "body_part":
        yield from _remove(caption, thing.top)  # "with purple hair": that there is hair says nothing
    token, lower = finding.token, [t.lower for t in caption.tokens]
    if token - 1 >= thing.first and lower[token - 1] in ("and", ",", "-"):
        yield [Change(token - 1, token, "")]
    elif token + 1 < thing.head and lower[token + 1] in ("and", ",", "-"):
        yield [Change(token, token + 1, "")]
    else:
        yield [Change(token, token, "")]


def _run(thing: Thing, kinds: set[str]) -> tuple[int, int] | None:
    """The tokens from the first to the last attribute of some kinds: "red and white"."""
    tokens = [trait.token for trait in thing.traits if trait.attribute.kind in kinds and trait.token < thing.head]
    return (min(tokens), max(tokens)) if tokens else None


def _relation(caption: Analysis, finding: Finding) -> Iterator[list[Change]]:
    if " " not in finding.evidence and " " not in finding.claim and finding.evidence:
        yield [Change(finding.token, finding.token, finding.evidence)]
    yield from _remove(caption, finding.token)


def _action(caption: Analysis, finding: Finding, evidence: Sequence[Analysis]) -> Iterator[list[Change]]:
    dep = caption.tokens[finding.token].dep
    removals = list(_remove(caption, finding.token)) if dep != "ROOT" else []
    yield from removals
    has_main = any(token.dep == "ROOT" and token.pos in ("VERB", "AUX") for token in caption.tokens)
    is_aside = has_main and dep in ("advcl", "relcl", "conj", "pcomp", "ccomp")
    if removals and is_aside and finding.status is Status.UNMENTIONED:
        return  # what else is done says nothing about an aside that nobody mentions
    for seen in evidence:
        yield from predicate_changes(caption, finding.token, seen)
