"""From failures to training pairs: what each stage kept and dropped, and how good that was where the truth is known.

Mirrors the paper's Tables 12 (criteria), 13 (the verifier against the truth), 16 (error types) and 17 (closeness of
edits by error type). Rates are in [0, 1]; one entry a round, directions inside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repair.core.records import (
    Candidate,
    Criterion,
    Direction,
    ErrorType,
    Failure,
    Grid,
    Instruction,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Verdict,
)
from repair.numerics.statistics import wilson_interval
from repair.reports.view import RunView
from repair.selection import Rejection

STEPS = ("mined", "kept", "edited", "repaired", "in_grids")


def quality_facts(view: RunView) -> list[dict[str, Any]]:
    """One dict a round: {"round", "truth", "directions": {direction: {"funnel", "verdicts", "error_types", …}}}."""
    return [
        {
            "round": round,
            "verified": view.config.verification.enabled,
            "truth": _truth(view, round),
            "directions": directions_facts(view, round),
        }
        for round in view.rounds
    ]


def directions_facts(view: RunView, round: int) -> dict[str, dict[str, Any]]:
    """Of one round, by direction: what the stages kept and dropped, without the truth."""
    return {str(direction): _direction(view, round, direction) for direction in Direction}


def _direction(view: RunView, round: int, direction: Direction) -> dict[str, Any]:
    ids = {f.failure_id for f in view.table(round, Failure) if f.direction is direction}
    verdicts = [v for v in view.table(round, Verdict) if v.failure_id in ids]
    told = [i for i in view.table(round, Instruction) if i.failure_id in ids and i.error is None]
    repairs = [r for r in view.table(round, Repair) if r.failure_id in ids]
    scored = [c for c in view.table(round, ScoredCandidate) if c.failure_id in ids]
    candidates = [c for c in view.table(round, Candidate) if c.failure_id in ids]
    done = {stage for (r, stage) in view.states if r == round}
    return {
        "funnel": _funnel(view, round, len(ids), verdicts, candidates, repairs, done),
        "verdicts": _verdicts(verdicts) if "verify" in done else None,
        "repairs": _counts(RepairStatus, [r.status for r in repairs]) if "select" in done else None,
        "candidates": _candidates(scored) if "select" in done else None,
        "error_types": _error_types(told, repairs, selected="select" in done) if told else None,
        "closeness": _closeness(told, repairs),
        "unrepaired_reasons": _reasons(repairs),
    }


def _funnel(
    view: RunView,
    round: int,
    n_mined: int,
    verdicts: Sequence[Verdict],
    candidates: Sequence[Candidate],
    repairs: Sequence[Repair],
    done: set[str],
) -> dict[str, int | None]:
    """Failures left after each stage; None where the stage has not finished."""
    repaired = {r.key for r in repairs if r.status is RepairStatus.REPAIRED}
    used = {key for grid in view.table(round, Grid) for key in (*grid.images, *grid.texts)}
    in_grids = sum(r.key in used for r in repairs if r.status is RepairStatus.REPAIRED)
    return {
        "mined": n_mined,
        "kept": sum(v.keep for v in verdicts) if "verify" in done else None,
        "edited": len({c.failure_id for c in candidates if c.key is not None}) if "edit" in done else None,
        "repaired": sum(r.status is RepairStatus.REPAIRED for r in repairs) if "select" in done else None,
        "in_grids": (in_grids if repaired else 0) if "grids" in done else None,
    }


def _verdicts(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Counts, and each criterion's share of what was dropped (the paper's Table 12)."""
    by_criterion = _counts(Criterion, [v.criterion for v in verdicts if v.criterion is not None])
    n_dropped = sum(by_criterion.values())
    return {
        "n": len(verdicts),
        "kept": sum(v.keep for v in verdicts),
        "failed": sum(v.error is not None for v in verdicts),
        "dropped": n_dropped,
        **by_criterion,
        "shares": {name: n / n_dropped if n_dropped else None for name, n in by_criterion.items()},
    }


def _candidates(scored: Sequence[ScoredCandidate]) -> dict[str, int]:
    valid = sum(c.rejected is None for c in scored)
    reasons = Counter(c.rejected for c in scored if c.rejected is not None)
    return {"n": len(scored), "valid": valid, **{str(r): reasons[r] for r in Rejection if reasons[r]}}


def _error_types(told: Sequence[Instruction], repairs: Sequence[Repair], *, selected: bool) -> dict[str, Any]:
    """Of the failures with an instruction, the share that has each type (several are possible), and of those the
    share that was repaired."""
    repaired = {r.failure_id for r in repairs if r.status is RepairStatus.REPAIRED}
    types = {}
    for kind in ErrorType:
        having = [i.failure_id for i in told if kind in i.error_types]
        n_repaired = sum(failure_id in repaired for failure_id in having)
        types[str(kind)] = {
            "n": len(having),
            "share": len(having) / len(told),
            "repaired_rate": n_repaired / len(having) if having and selected else None,
        }
    return {"n": len(told), "types": types}


def _closeness(told: Sequence[Instruction], repairs: Sequence[Repair]) -> dict[str, Any]:
    """Cosine of false positive and selected edit, by error type: mean, standard deviation, median."""
    types = {i.failure_id: i.error_types for i in told}
    found = {}
    for kind in ErrorType:
        values = [r.closeness for r in repairs if r.closeness is not None and kind in types.get(r.failure_id, ())]
        if values:
            found[str(kind)] = {
                "n": len(values),
                "mean": float(np.mean(values)),
                "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
                "median": float(np.median(values)),
            }
    return found


def _reasons(repairs: Sequence[Repair]) -> dict[str, int]:
    """Why kept failures were not repaired, most frequent first."""
    reasons = Counter(r.reason for r in repairs if r.status is not RepairStatus.REPAIRED)
    return dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))


def _truth(view: RunView, round: int) -> dict[str, Any] | None:
    """What the data source knows, with Wilson intervals for the verifier's precision, recall and accuracy."""
    truth = view.truth(round)
    if truth is None or not view.method.is_repair:  # of another method the source knew about samples
        return None
    facts = dict(truth)
    if facts.get("verifier") is not None:
        facts["verifier"] = {**facts["verifier"], "intervals": _intervals(facts["verifier"], view)}
    return facts


def _intervals(judged: Mapping[str, Any], view: RunView) -> dict[str, list[float] | None]:
    yes, no = judged["true_positives"], judged["true_negatives"]
    sizes = {
        "precision": (yes, yes + judged["false_positives"]),
        "recall": (yes, yes + judged["false_negatives"]),
        "accuracy": (yes + no, judged["n"]),
    }
    found: dict[str, list[float] | None] = {}
    for name, (n_hits, n) in sizes.items():
        interval = wilson_interval(n_hits, n, confidence=view.config.evaluation.confidence) if n else None
        found[name] = None if interval is None else [interval.low, interval.high]
    return found


def _counts(kinds: Any, values: Sequence[Any]) -> dict[str, int]:
    counts = Counter(values)
    return {str(kind): counts[kind] for kind in kinds}
