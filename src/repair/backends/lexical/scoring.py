"""How likely a caption is true of an image, from what the image's own captions say: findings to one number.

A logistic model over nine readable features. Its weights are numbers fitted by `benchmarks/verifier.py --fit` on the
development half of human judgements of photo-caption pairs; the other half is for reporting only.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from repair.backends.lexical.analysis import Analysis
from repair.backends.lexical.judging import Finding, Status
from repair.core.records import ErrorType

_WRONG = (Status.CONTRADICTED, Status.UNMENTIONED)

BIAS = -4.676
WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "share": 2.82,
        "overlap": 2.067,
        "mean_overlap": 2.607,
        "n_subjects_wrong": -1.152,
        "n_things_wrong": -0.728,
        "n_actions_wrong": -0.485,
        "n_attributes_wrong": -0.691,
        "n_counts_wrong": -0.654,
        "n_relations_wrong": -0.286,
    }
)


def features(claim: Analysis, evidence: Sequence[Analysis], findings: Sequence[Finding]) -> dict[str, float]:
    """The model's inputs, in the order of `WEIGHTS`.

    share: of evidence captions supporting a claim, mean over claims, in [0, 1]. overlap: of the caption's content
    words (by lexicon name) known to any evidence caption; mean_overlap: the mean over evidence captions; both in
    [0, 1]. n_…_wrong: claims contradicted or unmentioned (attributes: contradicted only).
    """
    said = claim.said
    known = frozenset().union(*(caption.words for caption in evidence))
    n_said = max(1, len(said))

    def n_wrong(aspect: ErrorType, *statuses: Status, central: bool | None = None) -> float:
        return float(
            sum(
                f.aspect is aspect and f.status in (statuses or _WRONG) and central in (None, f.is_central)
                for f in findings
            )
        )

    return {
        "share": sum(f.share for f in findings) / len(findings) if findings else 0.0,
        "overlap": len(said & known) / n_said,
        "mean_overlap": sum(len(said & caption.words) for caption in evidence) / n_said / max(1, len(evidence)),
        "n_subjects_wrong": n_wrong(ErrorType.OBJECT, central=True),
        "n_things_wrong": n_wrong(ErrorType.OBJECT, central=False),
        "n_actions_wrong": n_wrong(ErrorType.ACTION),
        "n_attributes_wrong": n_wrong(ErrorType.ATTRIBUTE, Status.CONTRADICTED),
        "n_counts_wrong": n_wrong(ErrorType.COUNT),
        "n_relations_wrong": n_wrong(ErrorType.RELATION),
    }


def truth_score(claim: Analysis, evidence: Sequence[Analysis], findings: Sequence[Finding]) -> float:
    """Estimated probability, in [0, 1], that people would call the caption true of the image; 0 without evidence."""
    if not evidence or not claim.said:
        return 0.0
    logit = BIAS + sum(WEIGHTS[name] * value for name, value in features(claim, evidence, findings).items())
    return 1 / (1 + math.exp(-logit))
