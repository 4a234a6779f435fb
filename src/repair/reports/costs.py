"""What the run asked of models: calls, tokens, images and money, by direction and task, and for each kept pair.

Mirrors the paper's Tables 9–11. Every attempt counts, failed and lost ones too: they were made, and may have been paid.
"""

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from repair.core.calls import Attempt, CallOutcome
from repair.core.records import Direction, Repair, RepairStatus
from repair.pipeline.look import BLOBS, LEDGER
from repair.reports.asked import asked_of, rows_of
from repair.reports.view import RunView

# Tasks in the order of the pipeline; others follow by name.
_TASKS = ("verify", "plan", "instruct", "edit_text", "edit_image", "verify_candidate", "verify_cell")
_CELL = "cell-"  # a grid's cell is asked about as image_to_text


@dataclass(slots=True)
class _Tally:
    n_calls: int = 0
    n_failed: int = 0
    n_estimated: int = 0
    n_unpriced: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    n_images: int = 0
    price_usd: float = 0.0
    latency_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, attempt: Attempt) -> None:
        usage = attempt.usage
        self.n_calls += 1
        self.n_failed += attempt.outcome is not CallOutcome.DONE
        self.n_estimated += attempt.estimated
        self.outcomes[str(attempt.outcome)] += 1
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.n_images += usage.n_images
        self.latency_s += usage.latency_s
        if usage.price_usd is None:
            self.n_unpriced += 1
        else:
            self.price_usd += usage.price_usd

    def facts(self, n_pairs: int) -> dict[str, Any]:
        """`price_usd` sums the known prices (None if none is known); `per_pair` is None without a kept pair."""
        per_pair = None
        if n_pairs:
            per_pair = {
                "calls": self.n_calls / n_pairs,
                "tokens_in": self.tokens_in / n_pairs,
                "tokens_out": self.tokens_out / n_pairs,
                "images": self.n_images / n_pairs,
                "price_usd": self.price_usd / n_pairs if not self.n_unpriced else None,
            }
        return {
            "n_calls": self.n_calls,
            "n_failed": self.n_failed,
            "n_estimated": self.n_estimated,
            "n_unpriced": self.n_unpriced,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "n_images": self.n_images,
            "price_usd": self.price_usd if self.price_usd or not self.n_unpriced else None,
            "latency_s": round(self.latency_s, 3),
            "outcomes": dict(sorted(self.outcomes.items())),
            "per_pair": per_pair,
        }


def costs_facts(view: RunView, own: Set[str] | None = None) -> dict[str, Any]:
    """{"plan", "shared", "missing", "directions": {direction: {"n_pairs", "tasks": {task: …}, "total": …}}}.

    A kept pair is a failure that was repaired, in any round. In a shared ledger (`run.calls`) only what this run asked
    counts, whichever run asked it first; `n_foreign` counts the rest. `missing`: what is not found where it was looked
    for, a line each. `own`: the keys of these calls, where known.
    """
    shared = bool(view.config.run.calls)
    if own is None:
        own = asked_of(view).own(rows_of(view.attempts())) if shared else set()
    tallies: dict[tuple[Direction, str], _Tally] = defaultdict(_Tally)
    n_foreign = 0
    for attempt in view.attempts():
        failure_id = attempt.call.failure_id
        direction = direction_of(failure_id)
        if direction is None or (shared and attempt.call.key not in own):
            n_foreign += 1
        else:
            tallies[direction, attempt.call.task].add(attempt)
    return {
        "plan": view.config.calls.plan,
        "shared": shared,
        "ledger": str(view.calls_file(LEDGER) or LEDGER) if shared else LEDGER,
        "missing": _missing(view),
        "n_foreign": n_foreign,
        "directions": {str(d): _direction(view, d, tallies) for d in Direction},
    }


def _missing(view: RunView) -> list[str]:
    """Of ledger and edited images; the latter only where the run has kept one."""
    wanted = {LEDGER: "calls cannot be counted"}
    if any(one.key and one.text is None for round in view.rounds for one in view.table(round, Repair)):
        wanted[BLOBS] = "edited images cannot be shown"
    return [f"{what}: {view.no_calls_file(name)}" for name, what in wanted.items() if not view.calls_file(name)]


def direction_of(failure_id: str) -> Direction | None:
    """The direction a call's failure id tells, by its prefix; None if it tells none."""
    for direction in Direction:
        if failure_id.startswith(f"{direction.short}-"):
            return direction
    return Direction.IMAGE_TO_TEXT if failure_id.startswith(_CELL) else None


def _direction(view: RunView, direction: Direction, tallies: dict[tuple[Direction, str], _Tally]) -> dict[str, Any]:
    kept = {
        repair.failure_id
        for round in view.rounds
        for repair in view.table(round, Repair)
        if repair.status is RepairStatus.REPAIRED and repair.direction is direction
    }
    own = {task: tally for (d, task), tally in tallies.items() if d is direction}
    tasks = [task for task in _TASKS if task in own] + sorted(set(own) - set(_TASKS))
    total = _Tally()
    for tally in own.values():
        _merge(total, tally)
    return {
        "n_pairs": len(kept),
        "tasks": {task: own[task].facts(len(kept)) for task in tasks},
        "total": total.facts(len(kept)),
    }


def _merge(total: _Tally, tally: _Tally) -> None:
    for name in ("n_calls", "n_failed", "n_estimated", "n_unpriced", "tokens_in", "tokens_out", "n_images"):
        setattr(total, name, getattr(total, name) + getattr(tally, name))
    total.price_usd += tally.price_usd
    total.latency_s += tally.latency_s
    for outcome, n in tally.outcomes.items():
        total.outcomes[outcome] += n
