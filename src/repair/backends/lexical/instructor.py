"""The instructor by rules: what must change, what must stay, and one sentence that says so."""

import difflib
from collections.abc import Iterator, Sequence

from repair.backends.lexical.analysis import Analysis
from repair.backends.lexical.judging import Finding, Status, judge
from repair.backends.lexical.parsing import analyse, parser_fingerprint
from repair.backends.lexical.reasons import error_type
from repair.backends.lexical.rewriting import possible_findings, rewrites, wrong_findings
from repair.backends.lexical.sides import Sides, sides_of
from repair.backends.lexical.verifier import FREE, RULES
from repair.core.errors import BadReply
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Case, Reply
from repair.core.records import Direction, ErrorType, Instruction

_GAP = "…"


class LexicalInstructor:
    """Reads the difference off the captions; offline, deterministic, for nothing.

    image_to_text: residual, scaffold and sentence describe the smallest rewrite of the caption that the captions of
    the query image allow. text_to_image: they say what the image must come to show. Raises BadReply if nothing of the
    caption is contradicted, unmentioned or in doubt.
    """

    def __init__(self) -> None:
        self.fingerprint = hash_value({"instructor": "lexical", "rules": RULES, "parser": parser_fingerprint()})

    async def instruct(self, case: Case, *, seed: int) -> Reply[Instruction]:  # noqa: ARG002 (nothing is drawn)
        return self.tell(case)

    def tell(self, case: Case) -> Reply[Instruction]:
        """`instruct` without a loop."""
        sides = sides_of(case)
        claim = analyse(sides.claim)
        findings = judge(claim, [analyse(text) for text in sides.evidence])
        wrong = wrong_findings(claim, findings) or possible_findings(findings)
        if not wrong:
            raise BadReply(f"nothing in '{sides.claim}' disagrees with the captions of the image")
        of_text = case.direction is Direction.IMAGE_TO_TEXT
        found = {error_type(finding, of_text=of_text) for finding in wrong}
        types = tuple(kind for kind in ErrorType if kind in found)
        residual, scaffold, sentence = _of_caption(sides, wrong) if of_text else _of_image(claim, findings, wrong)
        instruction = Instruction(
            failure_id=case.failure_id,
            error_types=types,
            residual=residual,
            scaffold=scaffold,
            instruction=sentence,
        )
        raw = {
            "error_types": [str(kind) for kind in types],
            "residual": residual,
            "scaffold": scaffold,
            "instruction": sentence,
        }
        return Reply(instruction, FREE, canonical_json(raw))


def _of_caption(sides: Sides, wrong: Sequence[Finding]) -> tuple[str, str, str]:
    """The best rewrite as a difference of words; where there is none, the wrong claims alone."""
    best = next(iter(rewrites(sides.claim, sides.evidence)), None)
    if best is None:
        claims = ", ".join(dict.fromkeys(f'"{finding.claim}"' for finding in wrong))
        return claims.replace('"', ""), sides.claim, f"Correct {claims} and keep every other word."
    before, after = sides.claim.split(), best.text.split()
    residual, scaffold, steps = [], [], []
    for kind, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        old, new = " ".join(before[i:j]), " ".join(after[k:m])
        if kind == "equal":
            scaffold.append(old)
            continue
        if old:
            residual.append(old)
        scaffold.append(_GAP)
        steps.append(_step(old, new, " ".join(before[max(0, i - 2) : i])))
    sentence = f"{_joined(steps)}; keep every other word."
    return "; ".join(residual), " ".join(scaffold), sentence[:1].upper() + sentence[1:]


def _step(old: str, new: str, before: str) -> str:
    if old and new:
        return f'replace "{old}" by "{new}"'
    if old:
        return f'remove "{old}"'
    return f'insert "{new}" after "{before}"' if before else f'begin with "{new}"'


def _of_image(claim: Analysis, findings: Sequence[Finding], wrong: Sequence[Finding]) -> tuple[str, str, str]:
    """What the image shows and must not, what it shows already, and what to draw."""
    residual = dict.fromkeys(_shown(claim, finding) for finding in wrong)
    scaffold = dict.fromkeys(f.claim for f in findings if f.status is Status.SUPPORTED and not f.about)
    steps = list(dict.fromkeys(_drawing_steps(claim, wrong)))
    sentence = f"{_joined(steps)}; keep everything else as it is."
    return "; ".join(residual), ", ".join(scaffold), sentence[:1].upper() + sentence[1:]


def _shown(claim: Analysis, finding: Finding) -> str:
    if finding.evidence:
        return f"{finding.evidence} {finding.about}".strip()
    return f"no {_named(claim, finding)}"


def _drawing_steps(claim: Analysis, wrong: Sequence[Finding]) -> Iterator[str]:
    for finding in wrong:
        named, seen = _named(claim, finding), finding.evidence
        if finding.aspect is ErrorType.OBJECT:
            yield f'change "{seen}" into "{named}"' if seen else f'add "{named}"'
        elif finding.aspect is ErrorType.ACTION:
            yield f'show "{finding.claim}"' + (f' instead of "{seen}"' if seen else "")
        elif finding.aspect is ErrorType.COUNT:
            yield f'show {finding.claim} of "{finding.about}"' + (f", not {seen}" if seen else "")
        elif finding.aspect is ErrorType.RELATION:
            yield f'put it {finding.claim} the "{finding.about}"' + (f", not {seen} it" if seen else "")
        else:
            yield f'make the "{finding.about}" {finding.claim}'


def _named(claim: Analysis, finding: Finding) -> str:
    """The claim's whole noun phrase for a thing, else its words."""
    thing = claim.thing_at(finding.token) if finding.aspect is ErrorType.OBJECT else None
    return claim.phrase(thing.first, thing.last) if thing is not None else f"{finding.claim} {finding.about}".strip()


def _joined(steps: Sequence[str]) -> str:
    return steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
