"""The search for small rewrites of a caption that leave nothing wrong in it.

A small beam: in each state the most important wrong claim is put right in every way `operations` knows, and the result
is judged anew, so that a changed subject has its attributes and actions checked as its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from repair.backends.lexical.agreement import agree_pronouns, agree_subject
from repair.backends.lexical.analysis import COMPOUND, Analysis
from repair.backends.lexical.judging import Finding, Status, judge
from repair.backends.lexical.operations import operations
from repair.backends.lexical.parsing import analyse, warm
from repair.backends.lexical.predicates import extension
from repair.backends.lexical.splicing import splice
from repair.core.records import ErrorType
from repair.core.texts import folded

BEAM_WIDTH = 4
MAX_STEPS = 6
_DROPPED_IF_UNMENTIONED = frozenset({"colour", "pattern", "material", "dress", "sport", "wetness", "weather", COMPOUND})
_LOOSE_ENDS = frozenset(
    {"a", "an", "the", "and", "or", "with", "of", "in", "on", "at", "to", "his", "her", "their", "one"}
    | {"is", "are", "has", "dressed", "wearing", "next"}
)
_FINITE = frozenset({"VBZ", "VBP", "VBD"})
_LOST = 1.5  # what it costs, in words, to lose a word that the evidence knows
_CLUMSY = 4.0  # what a sign of bad grammar costs, in words


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewritten caption. `n_wrong`: claims still wrong; `cost`: words touched (see `Operation.cost`), and penalties
    for signs of bad grammar and for words lost that the evidence knows."""

    text: str
    n_wrong: int
    cost: float


@dataclass(frozen=True, slots=True)
class _State:
    caption: Analysis
    cost: float
    had_verb: bool  # whether the caption at the start had a finite verb
    scaffold: frozenset[str]  # what of its words the evidence knows
    unsolved: frozenset[str]  # claims that no operation puts right


def wrong_findings(caption: Analysis, findings: Sequence[Finding]) -> list[Finding]:
    """What an edit must put right, most important first: subjects, their number, what they do, then as they come.

    Contradicted and unmentioned claims; of attributes that nobody mentions only those that an observer would (a
    colour, not "young").
    """
    wrong = [
        f
        for f in findings
        if f.status is Status.CONTRADICTED
        or (f.status is Status.UNMENTIONED and (f.aspect is not ErrorType.ATTRIBUTE or _is_plain(caption, f)))
    ]
    return sorted(wrong, key=_importance)  # stable


def possible_findings(findings: Sequence[Finding]) -> list[Finding]:
    """What to change where nothing is wrong: the claims that are merely possible, things before their attributes."""
    return sorted((f for f in findings if f.status is Status.POSSIBLE), key=_importance)


def _is_plain(caption: Analysis, finding: Finding) -> bool:
    return any(
        trait.token == finding.token and trait.attribute.kind in _DROPPED_IF_UNMENTIONED
        for thing in caption.things
        for trait in thing.traits
    )


def _importance(finding: Finding) -> int:
    if not finding.is_central:
        return 3
    return {ErrorType.OBJECT: 0, ErrorType.COUNT: 1, ErrorType.ACTION: 2}.get(finding.aspect, 3)


def rewrites(text: str, evidence_texts: Sequence[str]) -> list[Rewrite]:
    """Rewrites of `text`, best first: fewest wrong claims, then least touched, then by the evidence's order.

    Never `text` itself nor one of the evidence captions, as `core.texts.folded` compares. Deterministic.
    """
    evidence = [analyse(caption) for caption in evidence_texts]
    start, known = analyse(text), frozenset().union(*(caption.words for caption in evidence))
    beam = [_State(start, 0.0, _is_sentence(start), start.said & known, frozenset())]
    finished: dict[str, Rewrite] = {}
    seen = {text}
    for _ in range(MAX_STEPS):
        grown: list[_State] = []
        for state in beam:
            grown.extend(_step(state, evidence, finished, seen))
        beam = sorted(grown, key=lambda state: (_n_wrong(state, evidence) * 2 + state.cost, state.cost))[:BEAM_WIDTH]
        if not beam:
            break
    for state in beam:
        _finish(state, _n_wrong(state, evidence), finished)
    barred = {folded(caption) for caption in (text, *evidence_texts)}
    found = [rewrite for rewrite in finished.values() if folded(rewrite.text) not in barred]
    return sorted(found, key=lambda rewrite: (rewrite.n_wrong, rewrite.cost))  # stable


def _step(state: _State, evidence: Sequence[Analysis], finished: dict[str, Rewrite], seen: set[str]) -> list[_State]:
    """The states after putting right the first wrong claim that can be; a state without one is finished."""
    findings = judge(state.caption, evidence)
    wrong = wrong_findings(state.caption, findings)
    if not wrong and state.cost == 0:  # nothing is known to be wrong, but the caption was judged not to hold
        wrong = possible_findings(findings)
    left = [finding for finding in wrong if _key(finding) not in state.unsolved]
    if not wrong and _is_bare(state.caption) and state.cost > 0:
        grown = _extended(state, evidence, seen)
        if grown:
            return grown
    for finding in left:
        grown = []
        options = [
            (changed, operation.cost)
            for operation in operations(state.caption, finding, evidence)
            if (changed := splice(state.caption, operation.changes)) is not None
        ]
        warm(changed for changed, _ in options)
        for changed, cost in options:
            if changed in seen:
                continue
            seen.add(changed)
            grown.append(replace(state, caption=analyse(changed), cost=state.cost + cost))
        if grown:
            return grown
        state = replace(state, unsolved=state.unsolved | {_key(finding)})
    _finish(state, len(wrong), finished)
    return []


def _is_bare(caption: Analysis) -> bool:
    """Whether nothing but a thing is left of it: "A woman ."."""
    has_verb = any(token.pos in ("VERB", "AUX") for token in caption.tokens)
    return len(caption.things) <= 1 and not has_verb and not caption.relations


def _extended(state: _State, evidence: Sequence[Analysis], seen: set[str]) -> list[_State]:
    grown = []
    for caption in evidence:
        change = extension(state.caption, caption, as_sentence=state.had_verb)
        changed = None if change is None else splice(state.caption, [change])
        if change is not None and changed is not None and changed not in seen:
            seen.add(changed)
            grown.append(replace(state, caption=analyse(changed), cost=state.cost + len(change.text.split()) - 1))
    return grown


def _key(finding: Finding) -> str:
    return f"{finding.aspect}:{finding.claim.lower()}"


def _n_wrong(state: _State, evidence: Sequence[Analysis]) -> int:
    return len(wrong_findings(state.caption, judge(state.caption, evidence)))


def _finish(state: _State, n_wrong: int, finished: dict[str, Rewrite]) -> None:
    if _is_cut_short(state.caption):
        return
    text = agree_pronouns(analyse(agree_subject(state.caption)))
    n_lost = len(state.scaffold - state.caption.words)
    rewrite = Rewrite(text, n_wrong, state.cost + _clumsiness(state) + _LOST * n_lost)
    known = finished.get(folded(text))
    if known is None or (rewrite.n_wrong, rewrite.cost) < (known.n_wrong, known.cost):
        finished[folded(text)] = rewrite


def _is_sentence(caption: Analysis) -> bool:
    return any(token.tag in _FINITE for token in caption.tokens)


def _is_cut_short(caption: Analysis) -> bool:
    """Whether it ends in a word that must not end a sentence."""
    words = [token.lower for token in caption.tokens if token.pos != "PUNCT"]
    return not words or words[-1] in _LOOSE_ENDS or words[-2:] == ["the", "other"]


def _clumsiness(state: _State) -> float:
    """Signs of bad grammar: a word twice in a row, a noun or verb said twice, a verb lost."""
    caption = state.caption
    lower = [token.lower for token in caption.tokens if token.pos != "PUNCT"]
    n_signs = sum(one == other for one, other in pairwise(lower))
    nouns = [token.lemma for token in caption.tokens if token.pos == "NOUN"]
    n_signs += len(nouns) - len(set(nouns))
    verbs = [token.lemma for token in caption.tokens if token.pos == "VERB"]
    n_signs += len(verbs) - len(set(verbs))
    n_signs += state.had_verb and not _is_sentence(caption)
    return _CLUMSY * n_signs
