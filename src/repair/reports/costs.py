"""What the run asked of models: calls, tokens, images and money, by direction and task, and for each kept pair; of
another method than RePair, by builder and task, and for each kept sample.

Mirrors the paper's Tables 9–11. Every attempt counts, failed and lost ones too: they were made, and may have been paid.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from repair.core.calls import Attempt, CallOutcome
from repair.core.records import Direction, Repair, RepairStatus
from repair.core.synthesis import Sample
from repair.methods.method import Method
from repair.pipeline.places import BLOBS, LEDGER
from repair.reports.asked import asked_of, rows_of
from repair.reports.samples import is_kept
from repair.reports.view import EDIT, RunView

# Tasks in the order of the pipeline; others follow by name.
_TASKS = ("verify", "plan", "instruct", "edit_text", "edit_image", "verify_candidate", "verify_cell", "write", "make")
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
    """{"plan", "asks", "shared", "missing", "directions": {direction: part}, "builders": {builder: part}}.

    A part is {"n_pairs", "tasks": {task: …}, "total": …}. A kept pair is a failure that was repaired, in any round, or
    a sample that a builder made and quality control kept; of a method that trains on unedited failures, one of these. A
    method has parts for the directions if it asks about failures, and for each of its builders. In a shared ledger
    (`run.calls`) only what this run asked counts, whichever run asked it first; `n_foreign` counts the rest. `missing`:
    what is not found where it was looked for, a line each. `own`: the keys of these calls, where known.
    """
    shared = bool(view.config.run.calls)
    if own is None:
        own = asked_of(view).own(rows_of(view.attempts())) if shared else set()
    directions, builders = _kept_pairs(view), _kept_samples(view)
    tallies: dict[tuple[str, str], _Tally] = defaultdict(_Tally)
    n_foreign = 0
    for attempt in view.attempts():
        part = _part_of(attempt.call.failure_id)
        if part not in {**directions, **builders} or (shared and attempt.call.key not in own):
            n_foreign += 1
        else:
            tallies[part, attempt.call.task].add(attempt)
    return {
        "plan": view.config.calls.plan,
        "asks": asks(view.method),
        "shared": shared,
        "ledger": str(view.calls_file(LEDGER) or LEDGER) if shared else LEDGER,
        "missing": _missing(view),
        "n_foreign": n_foreign,
        "directions": {name: _part(name, n, tallies) for name, n in directions.items()},
        "builders": {name: _part(name, n, tallies) for name, n in builders.items()},
    }


def _missing(view: RunView) -> list[str]:
    """Of ledger and edited images; the latter only where the run has kept one."""
    wanted = {LEDGER: "calls cannot be counted"} if asks(view.method) else {}
    edited = any(one.key and one.text is None for round in view.rounds for one in view.table(round, Repair))
    if edited or any((one.image_key or "").startswith(EDIT) for one in view.table(0, Sample)):
        wanted[BLOBS] = "edited images cannot be shown"
    return [f"{what}: {view.no_calls_file(name)}" for name, what in wanted.items() if not view.calls_file(name)]


def direction_of(failure_id: str) -> Direction | None:
    """The direction a call's failure id tells, by its prefix; None if it tells none."""
    for direction in Direction:
        if failure_id.startswith(f"{direction.short}-"):
            return direction
    return Direction.IMAGE_TO_TEXT if failure_id.startswith(_CELL) else None


def asks(method: Method) -> bool:
    """Whether anything of it costs a call."""
    return method.is_repair or method.failures or any(builder.n_calls for builder in method.builders)


def _part_of(failure_id: str) -> str:
    """The direction or the builder that a call was made for, by how its failure id begins."""
    direction = direction_of(failure_id)
    return failure_id.partition(":")[0] if direction is None else str(direction)


def _kept_pairs(view: RunView) -> dict[str, int]:
    """By direction; none where the method asks about no failures."""
    if view.method.is_repair:
        kept = {
            repair.failure_id: repair.direction
            for round in view.rounds
            for repair in view.table(round, Repair)
            if repair.status is RepairStatus.REPAIRED
        }
        found = Counter(kept.values())
    elif view.method.failures:
        known = (direction_of(one.how) for one in view.table(0, Sample) if is_kept(one))
        found = Counter(direction for direction in known if direction is not None)
    else:
        return {}
    return {str(direction): found[direction] for direction in Direction}


def _kept_samples(view: RunView) -> dict[str, int]:
    """By builder of the method."""
    kept = Counter(one.builder for one in view.table(0, Sample) if is_kept(one))
    return {builder.name: kept[builder.name] for builder in view.method.builders}


def _part(name: str, n_pairs: int, tallies: Mapping[tuple[str, str], _Tally]) -> dict[str, Any]:
    own = {task: tally for (part, task), tally in tallies.items() if part == name}
    tasks = [task for task in _TASKS if task in own] + sorted(set(own) - set(_TASKS))
    total = _Tally()
    for tally in own.values():
        _merge(total, tally)
    return {
        "n_pairs": n_pairs,
        "tasks": {task: own[task].facts(n_pairs) for task in tasks},
        "total": total.facts(n_pairs),
    }


def _merge(total: _Tally, tally: _Tally) -> None:
    for name in ("n_calls", "n_failed", "n_estimated", "n_unpriced", "tokens_in", "tokens_out", "n_images"):
        setattr(total, name, getattr(total, name) + getattr(tally, name))
    total.price_usd += tally.price_usd
    total.latency_s += tally.latency_s
    for outcome, n in tally.outcomes.items():
        total.outcomes[outcome] += n
