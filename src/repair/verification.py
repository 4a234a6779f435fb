"""Verify (Validity, before any edit): is a failure genuine?

Two questions about a case (paper, Table 12): do query and ground truth agree (else annotation noise), and is the false
positive really false of the query (else benign mismatch)? Dropped failures stay on record with their reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from repair.core.errors import BadReply
from repair.core.ports import Case, ImageItem, Reply, TextItem, Verifier
from repair.core.records import Criterion, Direction, Failure, Verdict

TASK = "verify"


async def verify(case: Case, *, verifier: Verifier, seed: int) -> Reply[Verdict]:
    """The verifier's reply, checked: a drop names its criterion, a keep names none. Raises BadReply otherwise."""
    reply = await verifier.verify(case, seed=seed)
    if reply.value.keep == (reply.value.criterion is not None):
        raise BadReply(
            "the verdict must name a criterion exactly when it drops the failure", usage=reply.usage, raw=reply.raw
        )
    return reply


def unasked(failure: Failure) -> Verdict:
    """Kept without asking: the ablation w/o QC."""
    return Verdict(failure_id=failure.failure_id, keep=True, criterion=None, reason="not verified")


def failed(failure_id: str, error: str) -> Verdict:
    return Verdict(failure_id=failure_id, keep=False, criterion=None, reason="", error=error)


def to_json(verdict: Verdict) -> dict[str, Any]:
    """What the ledger keeps: the answer without the id, so that equal cases share it."""
    criterion = None if verdict.criterion is None else str(verdict.criterion)
    return {"keep": verdict.keep, "criterion": criterion, "reason": verdict.reason}


def from_json(value: Mapping[str, Any], *, failure_id: str) -> Verdict:
    criterion = None if value["criterion"] is None else Criterion(value["criterion"])
    return Verdict(failure_id=failure_id, keep=value["keep"], criterion=criterion, reason=value["reason"])


def candidate_case(case: Case, *, text: str | None = None, image: ImageItem | None = None) -> Case:
    """The case with an edit in the place of its false positive: for judging a candidate like a failure.

    A verifier that answers "benign mismatch" says that the edit matches the query, which is what an edit should do.
    """
    if case.direction is Direction.IMAGE_TO_TEXT:
        assert text is not None
        edited: TextItem | ImageItem = TextItem(key="candidate", text=text)
    else:
        assert image is not None
        edited = image
    return Case(
        failure_id=case.failure_id,
        direction=case.direction,
        query=case.query,
        false_positive=edited,
        ground_truths=case.ground_truths,
    )


def summarise(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Counts for the log and the report: kept, dropped by criterion, failed."""
    counts: Counter[str] = Counter(kept=0, failed=0, **{str(c): 0 for c in Criterion})
    for verdict in verdicts:
        if verdict.error is not None:
            counts["failed"] += 1
        elif verdict.keep:
            counts["kept"] += 1
        else:
            counts[str(verdict.criterion)] += 1
    return dict(counts)
