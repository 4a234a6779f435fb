"""Findings in words: for verdicts, residuals and instructions."""

from collections.abc import Sequence

from repair.backends.lexical.judging import Finding, Status
from repair.core.records import ErrorType

_N_SHOWN = 4


def why_wrong(findings: Sequence[Finding]) -> str:
    """What speaks against a caption, the most telling first: "'red' contradicts 'blue' said of 'shirt'; …"."""
    wrong = [f for f in findings if f.status is Status.CONTRADICTED] + [
        f for f in findings if f.status is Status.UNMENTIONED
    ]
    parts = list(dict.fromkeys(_sentence(finding) for finding in wrong))
    more = len(parts) - _N_SHOWN
    return "; ".join(parts[:_N_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def why_right(findings: Sequence[Finding]) -> str:
    """What the captions support: "the captions support 'dog', 'running', 'grass'"."""
    claims = dict.fromkeys(_claim(f) for f in findings if f.status is Status.SUPPORTED)
    if not claims:
        return "the captions do not speak against it"
    return f"the captions support {', '.join(list(claims)[: _N_SHOWN + 2])}"


def error_type(finding: Finding, *, of_text: bool) -> ErrorType:
    """A thing that a false caption names and nobody saw is a hallucination, unless the caption is about it.

    Of an image (text_to_image) nothing is hallucinated: what it lacks is an object.
    """
    is_invented = finding.aspect is ErrorType.OBJECT and finding.status is Status.UNMENTIONED
    return ErrorType.HALLUCINATION if of_text and is_invented and not finding.is_central else finding.aspect


def _claim(finding: Finding) -> str:
    if finding.aspect is ErrorType.COUNT:
        return f"'{finding.claim}' of '{finding.about}'"
    return f"'{finding.claim} {finding.about}'" if finding.about else f"'{finding.claim}'"


def _sentence(finding: Finding) -> str:
    if finding.status is Status.UNMENTIONED:
        if finding.aspect is ErrorType.OBJECT:
            return f"no caption mentions '{finding.claim}'"
        return f"no caption says {_claim(finding)}"
    if finding.about:
        return f"'{finding.claim}' contradicts '{finding.evidence}' said of '{finding.about}'"
    return f"'{finding.claim}' contradicts '{finding.evidence}'"
