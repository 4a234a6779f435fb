"""Select (after the edit): first validity, then minimality.

A candidate is valid if it exists, changes the false positive, is no copy of a ground truth, and is nearer to the query
than the false positive by at least δ. Among the valid ones the candidate closest to the false positive is the repair
(paper, Figure 2). Without the floor an unedited copy would win that; the floor, and how it is measured, are ours.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.ports import FloatArray
from repair.core.records import Candidate, Direction, Failure, Repair, RepairStatus, ScoredCandidate
from repair.core.texts import folded

Rule = Literal["closest", "best_gain", "first"]
_DECIMALS = 6  # of the measures: equal edits embedded in different batches differ by less, and must tie


class Rejection(StrEnum):
    """Why a candidate is not valid; the first that applies, in this order."""

    CALL_FAILED = "call_failed"
    UNREADABLE = "unreadable"  # it exists but could not be embedded
    NO_OP = "no_op"
    COPY = "copy_of_ground_truth"
    LOW_GAIN = "low_gain"
    REFUSED = "refused_by_verifier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a failure's candidates must differ from: texts for image_to_text, image content hashes for text_to_image."""

    false_positive: str
    ground_truths: tuple[str, ...]  # image_to_text: all own captions of the query image


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Three cosines a candidate, shape (n,), row for row with the candidates; NaN where there is nothing to measure."""

    query_score: FloatArray  # s(query, candidate)
    gain: FloatArray  # s(query, candidate) - s(query, false positive)
    closeness: FloatArray  # cosine of candidate and false positive, in their own modality


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`scored`: every candidate, by failure (in the order given), then by index. `repairs`: one a failure, in order."""

    scored: tuple[ScoredCandidate, ...]
    repairs: tuple[Repair, ...]


def measure(*, query: FloatArray, false_positive: FloatArray, candidate: FloatArray) -> Measures:
    """The measures from unit embeddings, each (n, dim), one row a candidate; NaN rows give NaN.

    Summed in float64 and rounded to 6 decimals, so that the float noise of a batch decides no tie.

    Example:
        >>> e = np.eye(2, dtype=np.float32)
        >>> measure(query=e[:1], false_positive=e[1:], candidate=e[:1]).gain
        array([1.], dtype=float32)
    """
    wide = candidate.astype(np.float64)
    query_score = _rounded((query * wide).sum(axis=1))
    before = (query.astype(np.float64) * false_positive).sum(axis=1)
    return Measures(
        query_score=query_score,
        gain=_rounded((query * wide).sum(axis=1) - before),
        closeness=_rounded((false_positive * wide).sum(axis=1)),
    )


def select(
    failures: Sequence[Failure],
    candidates: Sequence[Candidate],
    measures: Measures,
    *,
    contents: Mapping[str, Contents],
    rule: Rule = "closest",
    min_gain: float = 0.02,
    noop_cosine: float = 0.999,
    accepted: Mapping[tuple[str, int], bool] | None = None,
    without_editor: Collection[Direction] = (),
    errors: Mapping[str, str] | None = None,
) -> Selection:
    """One repair a kept failure, from its candidates (any order; row i of `measures` is candidate i).

    `contents` by failure id; texts are compared as `core.texts.folded`. `min_gain` is δ, a difference of cosines.
    `noop_cosine`: a candidate at least this close to the false positive that gains nothing is a no-op even if its
    content differs (an image encoded anew).

    `rule`: "closest" (the paper), "best_gain" (the valid candidate with the largest gain), or "first": the first
    candidate that exists, unchecked (ablation w/o PQC). Ties go to the lower index. `accepted` holds a verifier's
    answers by (failure id, candidate index); a candidate it was not asked about passes. So asking about the selected
    ones only, and selecting again until nothing changes, costs the fewest calls.

    Status: repaired; else failed if a call failed (`errors` by failure id: a call before the edits), since another try
    may help; else negative_only if no candidate was made and the direction is in `without_editor`; else unrepaired.
    Raises DataError if a candidate's failure or contents are missing.
    """
    group, index, order = _in_order(failures, candidates, contents)
    candidates = [candidates[row] for row in order]
    taken = Measures(
        query_score=measures.query_score[order], gain=measures.gain[order], closeness=measures.closeness[order]
    )
    rejected = _rejections(
        candidates,
        taken,
        contents=contents,
        rule=rule,
        min_gain=min_gain,
        noop_cosine=noop_cosine,
        accepted=accepted or {},
    )
    valid = np.array([reason is None for reason in rejected], dtype=bool)
    chosen = _choose(group, index, _merit(taken, rule), valid, len(failures))
    scored = tuple(_scored(c, taken, row, rejected[row]) for row, c in enumerate(candidates))
    bounds = np.searchsorted(group, np.arange(len(failures) + 1))
    repairs = tuple(
        _repair(
            failure,
            scored[bounds[row] : bounds[row + 1]],
            None if chosen[row] < 0 else scored[chosen[row]],
            rule=rule,
            has_editor=failure.direction not in without_editor,
            error=(errors or {}).get(failure.failure_id),
        )
        for row, failure in enumerate(failures)
    )
    return Selection(scored=scored, repairs=repairs)


def summarise(selection: Selection) -> dict[str, int]:
    """Counts for the log and the report: repairs by status, then valid candidates and rejected ones by reason."""
    counts: Counter[str] = Counter({str(status): 0 for status in RepairStatus})
    counts.update(str(repair.status) for repair in selection.repairs)
    counts["valid_candidates"] = 0
    counts.update("valid_candidates" if c.rejected is None else c.rejected for c in selection.scored)
    return dict(counts)


def _in_order(
    failures: Sequence[Failure], candidates: Sequence[Candidate], contents: Mapping[str, Contents]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Failure row and index of each candidate, sorted by both, and the order that sorts them."""
    position = {failure.failure_id: row for row, failure in enumerate(failures)}
    for candidate in candidates:
        if candidate.failure_id not in position or candidate.failure_id not in contents:
            raise DataError(
                f"candidate {candidate.index} of failure {candidate.failure_id}: no such failure to select for"
            )
    group = np.array([position[c.failure_id] for c in candidates], dtype=np.int64)
    index = np.array([c.index for c in candidates], dtype=np.int64)
    order = np.lexsort((index, group))
    return group[order], index[order], order


def _rejections(
    candidates: Sequence[Candidate],
    measures: Measures,
    *,
    contents: Mapping[str, Contents],
    rule: Rule,
    min_gain: float,
    noop_cosine: float,
    accepted: Mapping[tuple[str, int], bool],
) -> list[Rejection | None]:
    unmeasured = ~(np.isfinite(measures.query_score) & np.isfinite(measures.gain) & np.isfinite(measures.closeness))
    same = (measures.closeness >= noop_cosine) & (measures.gain <= 0)
    low = ~(measures.gain >= min_gain)
    out: list[Rejection | None] = []
    for row, candidate in enumerate(candidates):
        reason = None
        if candidate.key is None:
            reason = Rejection.CALL_FAILED
        elif unmeasured[row]:
            reason = Rejection.UNREADABLE
        elif rule != "first":
            content = folded(candidate.key if candidate.text is None else candidate.text)
            forbidden = contents[candidate.failure_id]
            if same[row] or content == folded(forbidden.false_positive):
                reason = Rejection.NO_OP
            elif content in map(folded, forbidden.ground_truths):
                reason = Rejection.COPY
            elif low[row]:
                reason = Rejection.LOW_GAIN
            elif not accepted.get((candidate.failure_id, candidate.index), True):
                reason = Rejection.REFUSED
        out.append(reason)
    return out


def _merit(measures: Measures, rule: Rule) -> npt.NDArray[Any]:
    if rule == "first":
        return np.zeros(len(measures.gain))
    return measures.closeness if rule == "closest" else measures.gain


def _choose(
    group: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    merit: npt.NDArray[Any],
    valid: npt.NDArray[np.bool_],
    n: int,
) -> list[int]:
    """For each of the n failures the row of its selected candidate, -1 where none is valid."""
    best = np.lexsort((index, -merit, ~valid, group))
    present, starts = np.unique(group[best], return_index=True)
    chosen = np.full(n, -1, dtype=np.int64)
    chosen[present] = np.where(valid[best[starts]], best[starts], -1)
    return chosen.tolist()


def _scored(candidate: Candidate, measures: Measures, row: int, rejected: Rejection | None) -> ScoredCandidate:
    return ScoredCandidate(
        failure_id=candidate.failure_id,
        index=candidate.index,
        key=candidate.key,
        text=candidate.text,
        query_score=_number(measures.query_score[row]),
        gain=_number(measures.gain[row]),
        closeness=_number(measures.closeness[row]),
        rejected=None if rejected is None else str(rejected),
    )


def _repair(
    failure: Failure,
    scored: Sequence[ScoredCandidate],
    selected: ScoredCandidate | None,
    *,
    rule: Rule,
    has_editor: bool,
    error: str | None,
) -> Repair:
    n_valid = sum(c.rejected is None for c in scored)
    reasons = Counter(c.rejected for c in scored if c.rejected is not None)
    if selected is not None:
        status, reason = RepairStatus.REPAIRED, f"{rule} of {n_valid} valid among {len(scored)}"
    elif error is not None:
        status, reason = RepairStatus.FAILED, error
    elif reasons[Rejection.CALL_FAILED]:
        status, reason = RepairStatus.FAILED, f"{reasons[Rejection.CALL_FAILED]} of {len(scored)} edits failed"
    elif not scored and not has_editor:
        status, reason = RepairStatus.NEGATIVE_ONLY, "no editor for this modality"
    else:
        listed = ", ".join(f"{name} {n}" for name, n in sorted(reasons.items()))
        status, reason = RepairStatus.UNREPAIRED, f"no valid candidate: {listed or 'none was made'}"
    return Repair(
        failure_id=failure.failure_id,
        direction=failure.direction,
        query_id=failure.query_id,
        false_positive_id=failure.false_positive_id,
        ground_truth_id=failure.ground_truth_id,
        status=status,
        reason=reason,
        candidate_index=None if selected is None else selected.index,
        key=None if selected is None else selected.key,
        text=None if selected is None else selected.text,
        gain=None if selected is None else selected.gain,
        closeness=None if selected is None else selected.closeness,
        n_candidates=sum(c.key is not None for c in scored),
        n_valid=n_valid,
    )


def _rounded(values: npt.NDArray[Any]) -> FloatArray:
    return np.round(values, _DECIMALS).astype(np.float32)


def _number(value: np.floating[Any]) -> float | None:
    return round(float(value), _DECIMALS) if np.isfinite(value) else None
