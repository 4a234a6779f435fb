"""A caption held against captions taken as true: which of its claims they support, contradict or leave open."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from repair.backends.lexical.analysis import Action, Analysis, Relation, Thing, Trait
from repair.backends.lexical.counting import how_many, totals
from repair.backends.lexical.lexicon import PERSON, Lexicon, Match, lexicon
from repair.core.records import ErrorType

_CREDIT = {Match.SAME: 1.0, Match.BROADER: 1.0, Match.NARROWER: 0.5, Match.EXCLUDED: 0.0, Match.UNRELATED: 0.0}
_BARE_PLURAL = (2, None)
_BODY = "body_part"
_WEARING = frozenset({"wear", "dress"})


class Status(StrEnum):
    SUPPORTED = "supported"
    POSSIBLE = "possible"  # the evidence says something less exact, or says the word elsewhere
    UNMENTIONED = "unmentioned"
    CONTRADICTED = "contradicted"


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim of a caption and what the evidence says of it."""

    aspect: ErrorType  # OBJECT, ATTRIBUTE, RELATION, ACTION or COUNT: what is claimed
    status: Status
    claim: str  # the words of the caption
    evidence: str  # the words that contradict it, "" if none do
    about: str  # the thing an attribute, count or relation is said of, "" for the others
    token: int  # the token that makes the claim
    share: float  # of the evidence captions that support it, in [0, 1]; half for those that make it possible
    is_central: bool  # what the caption is about, and what that does


def judge(claim: Analysis, evidence: Sequence[Analysis]) -> tuple[Finding, ...]:
    """One finding per claim, in the order of the caption's words (ties: thing, attribute, count, relation, action).

    Closed world in the small: the evidence says the main things, so what none of it mentions is unlikely, not false.
    """
    if not evidence:
        return ()
    words = lexicon()
    found = [
        *(_judge_thing(claim, t, evidence, words) for t in claim.things if t.noun not in words.light_nouns),
        *_judge_traits(claim, evidence, words),
        *_judge_counts(claim, evidence, words),
        *_judge_relations(claim, evidence, words),
        *(_judge_action(claim, action, evidence, words) for action in claim.actions if action.verb not in _WEARING),
        *_judge_roles(claim, evidence, words),
    ]
    return tuple(sorted(found, key=lambda finding: finding.token))  # sorted() is stable


def _match(noun: str, caption: Analysis, words: Lexicon) -> Match:
    """The best match of a noun among a caption's things, or by its mere mention."""
    best = max((words.relate(noun, thing.noun) for thing in caption.things), default=Match.UNRELATED)
    if best < Match.NARROWER:
        kind = words.top_kind(noun)
        if noun in caption.words or (kind == _BODY and kind in caption.words):  # whoever is seen has arms and a face
            return Match.NARROWER
    return best


def _judge_thing(claim: Analysis, thing: Thing, evidence: Sequence[Analysis], words: Lexicon) -> Finding:
    matches = [_match(thing.noun, caption, words) for caption in evidence]
    best = max(matches)
    status = Status.SUPPORTED if best >= Match.BROADER else Status.POSSIBLE
    seen = ""
    if best <= Match.NARROWER:
        rival = _rival(thing, evidence, words)
        if rival is not None and (best < Match.NARROWER or _outweighs(thing, rival[1], evidence, words)):
            status, seen = Status.CONTRADICTED, rival[0]
        elif best < Match.NARROWER:
            status = Status.UNMENTIONED
    return Finding(
        aspect=ErrorType.OBJECT,
        status=status,
        claim=claim.phrase(thing.head, thing.head),
        evidence=seen,
        about="",
        token=thing.head,
        share=sum(_CREDIT[match] for match in matches) / len(matches),
        is_central=thing.is_subject,
    )


def _rival(thing: Thing, evidence: Sequence[Analysis], words: Lexicon) -> tuple[str, Thing] | None:
    """The first seen thing that excludes the claimed one, of the same role if there is one."""
    found: tuple[str, Thing] | None = None
    for caption in evidence:
        for seen in caption.things:
            if words.relate(thing.noun, seen.noun) is Match.EXCLUDED:
                if seen.is_subject == thing.is_subject:
                    return caption.phrase(seen.head, seen.head), seen
                found = found or (caption.phrase(seen.head, seen.head), seen)
    return found


def _outweighs(thing: Thing, rival: Thing, evidence: Sequence[Analysis], words: Lexicon) -> bool:
    """Whether a rival speaks against a claim that something vaguer would allow.

    A woman is claimed, "a person" and "a man" are seen: the man speaks against her. A tennis ball is claimed, "a
    ball" and "a frisbee" are seen: the frisbee does not, being no ball.
    """
    if words.is_person(thing.noun):
        return True
    vaguer = {
        seen.noun
        for caption in evidence
        for seen in caption.things
        if words.relate(thing.noun, seen.noun) is Match.NARROWER
    }
    return bool(vaguer & set(words.kinds(rival.noun)))


_BEST_FIRST = (Status.SUPPORTED, Status.POSSIBLE, Status.CONTRADICTED, Status.UNMENTIONED)


def _judge_traits(claim: Analysis, evidence: Sequence[Analysis], words: Lexicon) -> Iterator[Finding]:
    """Attributes of things that the evidence knows; a word of two kinds ("little") is read in the kinder one."""
    for thing in claim.things:
        if all(_match(thing.noun, caption, words) < Match.NARROWER for caption in evidence):
            continue
        for token in dict.fromkeys(trait.token for trait in thing.traits):
            readings = [_judge_trait(claim, thing, t, evidence, words) for t in thing.traits if t.token == token]
            yield min(readings, key=lambda finding: _BEST_FIRST.index(finding.status))


def _judge_trait(claim: Analysis, thing: Thing, trait: Trait, evidence: Sequence[Analysis], words: Lexicon) -> Finding:
    wanted = trait.attribute
    n_full, n_half = 0, 0
    rival = ""
    for caption in evidence:
        same_kind = [
            (other, seen)
            for seen in caption.things
            if words.relate(thing.noun, seen.noun) >= Match.NARROWER
            for other in seen.traits
            if other.attribute.kind == wanted.kind
        ]
        if any(words.are_near(other.attribute.value, wanted.value) for other, _ in same_kind):
            n_full += 1
        elif same_kind:
            other, _ = same_kind[0]
            rival = rival or caption.phrase(other.token, other.token)
        elif f"{wanted.kind}:{wanted.value}" in caption.said or wanted.value in caption.words:
            n_half += 1  # said of something else, or what it is made of is seen ("grassy": grass)
    status = _status(n_full, 0 if rival else n_half, rival)
    return Finding(
        aspect=ErrorType.ATTRIBUTE,
        status=status,
        claim=claim.phrase(trait.token, trait.token),
        evidence=rival if status is Status.CONTRADICTED else "",
        about=claim.phrase(thing.head, thing.head),
        token=trait.token,
        share=(n_full + n_half / 2) / len(evidence),
        is_central=thing.is_subject,
    )


def _status(n_full: int, n_half: int, rival: str) -> Status:
    """From how many captions support a claim, how many allow it, and what speaks against it."""
    if n_full:
        return Status.SUPPORTED
    if n_half:
        return Status.POSSIBLE
    return Status.CONTRADICTED if rival else Status.UNMENTIONED


def _judge_counts(claim: Analysis, evidence: Sequence[Analysis], words: Lexicon) -> Iterator[Finding]:
    seen = [totals(caption, words) for caption in evidence]
    for name, (low, high, thing) in totals(claim, words).items():
        if not (words.is_living(name) or thing.is_counted):
            continue
        found = [total[name] for total in seen if name in total]
        if not found:
            continue
        agreeing = [t for t in found if (high is None or t[0] <= high) and (t[1] is None or low <= t[1])]
        against = [t for t in found if t not in agreeing]
        if against and all(t[:2] == _BARE_PLURAL for t in agreeing) and (low, high) != _BARE_PLURAL:
            agreeing = []  # "people" allows any number, "five people" does not
        rival = "" if agreeing else how_many(*against[0][:2])
        yield Finding(
            aspect=ErrorType.COUNT,
            status=Status.SUPPORTED if agreeing else Status.CONTRADICTED,
            claim=how_many(low, high),
            evidence=rival,
            about="people" if name == PERSON else claim.phrase(thing.head, thing.head),
            token=thing.first,
            share=len(agreeing) / len(found),
            is_central=thing.is_subject,
        )


def _judge_relations(claim: Analysis, evidence: Sequence[Analysis], words: Lexicon) -> Iterator[Finding]:
    """Only relations that one of the evidence's relations to the same thing supports or excludes."""
    for relation in claim.relations:
        target = claim.things[relation.target]
        seen = [
            other
            for caption in evidence
            for other in caption.relations
            if words.relate(target.noun, caption.things[other.target].noun) >= Match.NARROWER
        ]
        same = [other for other in seen if other.preposition == relation.preposition]
        against = [o for o in seen if o.preposition in words.opposites.get(relation.preposition, frozenset())]
        if same or against:
            yield _relation_finding(claim, relation, against[0].preposition if not same else "", len(same), len(seen))


def _relation_finding(claim: Analysis, relation: Relation, rival: str, n_same: int, n_seen: int) -> Finding:
    target = claim.things[relation.target]
    return Finding(
        aspect=ErrorType.RELATION,
        status=Status.CONTRADICTED if rival else Status.SUPPORTED,
        claim=relation.preposition.replace("_", " "),
        evidence=rival.replace("_", " "),
        about=claim.phrase(target.head, target.head),
        token=relation.token,
        share=n_same / n_seen,
        is_central=False,
    )


def _judge_action(claim: Analysis, action: Action, evidence: Sequence[Analysis], words: Lexicon) -> Finding:
    doer = claim.things[action.doer] if action.doer is not None else None
    n_full, n_half = 0, 0
    rival = ""
    for caption in evidence:
        fitting = [other for other in caption.actions if _may_do(doer, other, caption, words)]
        if any(other.verb == action.verb for other in fitting):
            n_full += 1
        elif action.verb in caption.words:
            n_half += 1  # mentioned, but not as what this doer does
        else:
            against = [other for other in fitting if words.verbs_exclude(action.verb, other.verb)]
            if against and not rival:
                rival = caption.phrase(against[0].token, against[0].token)
    status = _status(n_full, n_half, rival)
    token = claim.tokens[action.token]
    return Finding(
        aspect=ErrorType.ACTION,
        status=status,
        claim=token.text,
        evidence=rival if status is Status.CONTRADICTED else "",
        about="",
        token=action.token,
        share=(n_full + n_half / 2) / len(evidence),
        is_central=token.dep == "ROOT" or bool(doer and doer.is_subject),
    )


def _may_do(doer: Thing | None, action: Action, caption: Analysis, words: Lexicon) -> bool:
    if doer is None or action.doer is None:
        return True
    return words.relate(doer.noun, caption.things[action.doer].noun) >= Match.NARROWER


def _judge_roles(claim: Analysis, evidence: Sequence[Analysis], words: Lexicon) -> Iterator[Finding]:
    """A "surfer" claims that somebody surfs."""
    for thing in claim.things:
        says = words.roles.get(thing.noun)
        if says is None:
            continue
        share = sum(bool(says & caption.words) or thing.noun in caption.said for caption in evidence) / len(evidence)
        yield Finding(
            aspect=ErrorType.ACTION,
            status=Status.SUPPORTED if share > 0 else Status.UNMENTIONED,
            claim=claim.phrase(thing.head, thing.head),
            evidence="",
            about="",
            token=thing.head,
            share=share,
            is_central=thing.is_subject,
        )
