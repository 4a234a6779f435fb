"""The verifier by rules: the false positive against the captions of the image it was matched with."""

from repair.backends.lexical.judging import Finding, judge
from repair.backends.lexical.parsing import analyse, parser_fingerprint
from repair.backends.lexical.reasons import why_right, why_wrong
from repair.backends.lexical.scoring import BIAS, WEIGHTS, truth_score
from repair.backends.lexical.sides import sides_of
from repair.core.errors import ConfigError
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Case, Reply
from repair.core.records import Criterion, Usage, Verdict
from repair.core.texts import folded

RULES = 1  # raise it whenever a rule of this package changes an answer

# Both chosen on the development half only (benchmarks/verifier.py): the first near the best kappa on its hard part,
# which is what mining meets; the second so that as many of an image's own captions are called noise as people rejected.
TRUTH_THRESHOLD = 0.25
NOISE_THRESHOLD = 0.01

# Nothing is paid and no model is asked, so a price of zero is the truth here.
FREE = Usage(price_usd=0.0)


class LexicalVerifier:
    """Judges by the captions of images alone; offline, deterministic, for nothing.

    Criterion 1, annotation noise: the caption that query and ground truth share scores below `noise_threshold`
    against the other captions of its image (not asked of an image with one caption). Criterion 2, benign mismatch: the
    false positive scores at least `truth_threshold` (see `scoring.truth_score`) or repeats a caption of the image.
    Thresholds are probabilities in [0, 1]. `verify` raises BadReply if the image has no captions to judge by.
    """

    def __init__(self, *, truth_threshold: float = TRUTH_THRESHOLD, noise_threshold: float = NOISE_THRESHOLD) -> None:
        for name, value in (("truth_threshold", truth_threshold), ("noise_threshold", noise_threshold)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} of the lexical verifier must be from 0 to 1, not {value}")
        self._truth_threshold = truth_threshold
        self._noise_threshold = noise_threshold
        self.fingerprint = hash_value(
            {
                "verifier": "lexical",
                "rules": RULES,
                "parser": parser_fingerprint(),
                "weights": {"bias": BIAS, **WEIGHTS},
                "thresholds": [truth_threshold, noise_threshold],
            }
        )

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]:  # noqa: ARG002 (nothing is drawn)
        return self.judge(case)

    def judge(self, case: Case) -> Reply[Verdict]:
        """`verify` without a loop; the raw reply is JSON with both scores."""
        sides = sides_of(case)
        agreement = None
        if sides.siblings:
            agreement, noise = _score(sides.truth, sides.siblings)
            if agreement < self._noise_threshold:
                reason = why_wrong(noise) or "they have next to no words in common"
                reason = f"'{sides.truth}' disagrees with the other captions of its image: {reason}"
                return _reply(case, Criterion.ANNOTATION_NOISE, reason, agreement, None)
        score, findings = _score(sides.claim, sides.evidence)
        if folded(sides.claim) in {folded(text) for text in sides.evidence}:
            return _reply(case, Criterion.BENIGN_MISMATCH, "the image has this caption too", agreement, 1.0)
        if score >= self._truth_threshold:
            reason, against = why_right(findings), why_wrong(findings)
            reason = f"{reason}, though {against}" if against else reason
            return _reply(case, Criterion.BENIGN_MISMATCH, reason, agreement, score)
        reason = why_wrong(findings) or "the captions support too little of it"
        return _reply(case, None, reason, agreement, score)


def _score(text: str, others: tuple[str, ...]) -> tuple[float, tuple[Finding, ...]]:
    claim, evidence = analyse(text), [analyse(other) for other in others]
    findings = judge(claim, evidence)
    return truth_score(claim, evidence, findings), findings


def _reply(
    case: Case, criterion: Criterion | None, reason: str, agreement: float | None, score: float | None
) -> Reply[Verdict]:
    verdict = Verdict(failure_id=case.failure_id, keep=criterion is None, criterion=criterion, reason=reason)
    raw = {
        "keep": verdict.keep,
        "criterion": None if criterion is None else str(criterion),
        "reason": reason,
        "agreement": None if agreement is None else round(agreement, 6),
        "truth": None if score is None else round(score, 6),
    }
    return Reply(verdict, FREE, canonical_json(raw))
