"""`--dry-run`: what the rest of a run will ask of models, and what each number rests on. Asks nothing, writes nothing.

Where the run has tables and a ledger they are what is counted; elsewhere an assumption, which the forecast names.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repair.calls.prices import Price, Seat, assumed
from repair.config import Config
from repair.core.calls import CallOutcome
from repair.core.progress import Silent
from repair.core.records import Candidate, Direction, Failure, Repair, Verdict
from repair.pipeline.workbench import Workbench
from repair.store.ledger import Ledger
from repair.store.ledger_rows import UsageRow
from repair.store.tables import read_table

# Taken where a run has nothing to count yet. Shares as the world's backends have them at their default error rates.
KEPT_RATE = 0.8  # of the failures, by the verifier
IMAGES_PER_KEPT = 1.6  # drawn one by one until one is accepted (fused plan)
CHECKS_PER_KEPT = 0.9  # candidates asked about, selection.verify_candidates
CHECKS_PER_DRAWING = 0.85  # images asked about as they are drawn (fused plan), likewise

_STAGE_OF = {"edit_text": "edit", "edit_image": "edit", "plan": "verify", "verify_candidate": "select",
             "verify_cell": "grids"}  # fmt: skip
_ROLE_OF = {"verify": "verifier", "instruct": "instructor", "edit_text": "text_editor", "edit_image": "image_editor",
            "plan": "planner", "verify_candidate": "verifier", "verify_cell": "verifier"}  # fmt: skip


@dataclass(slots=True)
class _Need:
    """How many calls of one task a whole run makes, and why."""

    task: str
    n_calls: float
    because: list[str]
    stage: str = ""  # where it is not the one of _STAGE_OF

    @property
    def stage_name(self) -> str:
        return self.stage or _STAGE_OF.get(self.task, self.task)


@dataclass(slots=True)
class _Cost:
    """What one call of a task uses, on average, and why. `price_usd` None: unknown."""

    tokens_in: float
    tokens_out: float
    latency_s: float
    price_usd: float | None
    because: list[str] = field(default_factory=list)


def forecast(config: Config, *, stages: Sequence[str]) -> dict[str, Any]:
    """{"run", "tasks": [{"stage", "task", "calls", "made", "tokens_in", "tokens_out", "usd", "hours", "because"}, …],
    "total": {"calls", "tokens", "usd", "hours", "because"}}.

    `stages` are those that would run. `calls` are still to be made, `made` are in the ledger. Money is None where a
    price is unknown, and then not part of the total. Raises ConfigError as a run would for its backends.
    """
    bench = Workbench.without_folder(config, progress=Silent())
    rows = _ledger_rows(config)
    tasks, busy_s, n_made = [], dict[str, float](), Counter[str]()
    for row in rows:
        n_made[row.task] += row.n_calls if row.outcome is CallOutcome.DONE else 0
    for need in _needs(config):
        made = min(n_made[need.task], round(need.n_calls)) if need.stage else n_made[need.task]
        n_made[need.task] -= made
        if need.stage_name not in stages:
            continue
        seat = bench.seat_of_role(_ROLE_OF[need.task])
        cost = _cost(need.task, rows, seat)
        calls = max(0, round(need.n_calls) - made)
        seconds = calls * cost.latency_s / config.calls.concurrency
        busy_s[seat.place] = busy_s.get(seat.place, 0.0) + seconds
        tasks.append(
            {
                "stage": need.stage_name,
                "task": need.task,
                "calls": calls,
                "made": made,
                "tokens_in": round(calls * cost.tokens_in),
                "tokens_out": round(calls * cost.tokens_out),
                "usd": None if cost.price_usd is None else calls * cost.price_usd,
                "hours": seconds / 3600,
                "because": [*need.because, *cost.because],
            }
        )
    return {"run": str(config.run_path()), "tasks": tasks, "total": _total(config, tasks, busy_s)}


def forecast_lines(found: Mapping[str, Any]) -> list[str]:
    """For people: one line a task, its reasons below it, then the total."""
    lines = [f"forecast for {found['run']} (nothing was asked)"]
    for row in found["tasks"]:
        money = "price unknown" if row["usd"] is None else f"{row['usd']:.2f} USD"
        tokens = row["tokens_in"] + row["tokens_out"]
        head = f"{row['stage']}: {row['calls']} {row['task']} calls"
        head += f" beside {row['made']} already made" if row["made"] else ""
        lines.append(f"{head}, {tokens} tokens, {money}, {row['hours']:.2f} h")
        lines += [f"    {reason}" for reason in row["because"]]
    total = found["total"]
    money = f"{total['usd']:.2f} USD" + (" and what has no price" if total["unpriced"] else "")
    lines.append(f"total: {total['calls']} calls, {total['tokens']} tokens, {money}, {total['hours']:.2f} h")
    lines += [f"    {reason}" for reason in total["because"]]
    return lines


def _total(config: Config, tasks: Sequence[Mapping[str, Any]], busy_s: Mapping[str, float]) -> dict[str, Any]:
    flows = config.calls.flow
    seconds = max(busy_s.values(), default=0.0) if flows else sum(row["hours"] * 3600 for row in tasks)
    how = "places (server and model) work side by side: the slowest counts" if flows else "stage after stage"
    unpriced = sorted({row["task"] for row in tasks if row["usd"] is None and row["calls"]})
    because = [f"hours: {config.calls.concurrency} calls in flight at each place (calls.concurrency); {how}"]
    if unpriced:
        because.append(f"money: no price for {', '.join(unpriced)}; set calls.prices")
    return {
        "calls": sum(row["calls"] for row in tasks),
        "tokens": sum(row["tokens_in"] + row["tokens_out"] for row in tasks),
        "usd": sum(row["usd"] or 0.0 for row in tasks),
        "unpriced": unpriced,
        "hours": seconds / 3600,
        "because": because,
    }


def _needs(config: Config) -> list[_Need]:
    """The calls of all rounds, task by task in the order of the stages."""
    found: dict[tuple[str, str], _Need] = {}
    for round in range(config.pipeline.rounds):
        for need in _round_needs(config, round):
            known = found.setdefault((need.task, need.stage), _Need(need.task, 0.0, [], need.stage))
            known.n_calls += need.n_calls
            known.because += [reason for reason in need.because if reason not in known.because]
    return [need for need in found.values() if need.n_calls]


def _round_needs(config: Config, round: int) -> Iterable[_Need]:
    fused, m = config.calls.plan == "fused", config.editing.n_candidates
    mined, kept, because_mined, because_kept = _counts(config, round)
    editors = {
        Direction.IMAGE_TO_TEXT: config.editing.text_editor,
        Direction.TEXT_TO_IMAGE: config.editing.image_editor,
    }
    editable = {direction: n if editors[direction] != "none" else 0.0 for direction, n in kept.items()}
    if fused:
        yield _Need("plan", sum(mined.values()), ["one a failure", *because_mined])
    else:
        if config.verification.enabled:
            yield _Need("verify", sum(mined.values()), ["one a failure", *because_mined])
        because = ["one a kept failure", *because_kept]
        yield _Need("instruct", sum(editable.values()), because)
        yield _Need("edit_text", m * editable[Direction.IMAGE_TO_TEXT], [f"{m} a kept failure", *because_kept])
    images, because = float(m), [f"{m} a kept failure", *because_kept]
    if fused:
        images, why = _images_per_kept(config, round)
        because = [why, *because_kept]
    yield _Need("edit_image", images * editable[Direction.TEXT_TO_IMAGE], because)
    if config.selection.verify_candidates:
        checked = dict(editable)
        if fused:  # images are asked about as they are drawn
            why = f"{CHECKS_PER_DRAWING} an image, assumed"
            n = CHECKS_PER_DRAWING * images * checked.pop(Direction.TEXT_TO_IMAGE)
            yield _Need("verify_candidate", n, [why, *because], "edit")
        why = f"{CHECKS_PER_KEPT} a kept failure, assumed"
        yield _Need("verify_candidate", CHECKS_PER_KEPT * sum(checked.values()), [why, *because_kept])
    if config.grids.verify_cells:
        n = 4 * config.training.n_steps * config.training.grids_per_step
        yield _Need("verify_cell", n, ["at most four a grid (training.n_steps x training.grids_per_step)"])


def _counts(config: Config, round: int) -> tuple[dict[Direction, float], dict[Direction, float], list[str], list[str]]:
    """Failures mined and kept, by direction, and where the numbers come from."""
    failures = _table(config, round, "failures", Failure)
    verdicts = _table(config, round, "verdicts", Verdict)
    mined: dict[Direction, float] = dict.fromkeys(Direction, 0.0)
    if failures:
        for failure in failures:
            mined[failure.direction] += 1
        because = [f"failures: counted in round {round}"]
    else:
        for direction in config.mining.directions:
            mined[direction] = config.mining.max_failures
        because = [f"failures: mining.max_failures = {config.mining.max_failures} a direction, the most there can be"]
    if failures and verdicts:
        directions = {failure.failure_id: failure.direction for failure in failures}
        kept: dict[Direction, float] = dict.fromkeys(Direction, 0.0)
        for verdict in verdicts:
            if verdict.keep and verdict.failure_id in directions:
                kept[directions[verdict.failure_id]] += 1
        return mined, kept, because, [f"kept: counted in round {round}"]
    rate = KEPT_RATE if config.verification.enabled else 1.0
    return mined, {d: rate * n for d, n in mined.items()}, because, [f"kept: {rate:.0%} of the failures, assumed"]


def _images_per_kept(config: Config, round: int) -> tuple[float, str]:
    """Images drawn for a kept t2i failure under the fused plan."""
    repairs = _table(config, round, "repairs", Repair)
    drawn_for = {r.failure_id for r in repairs if r.direction is Direction.TEXT_TO_IMAGE}
    if drawn_for:
        drawn = sum(c.failure_id in drawn_for for c in _table(config, round, "candidates", Candidate))
        return drawn / len(drawn_for), f"{drawn / len(drawn_for):.2f} a kept failure, counted in round {round}"
    images = min(IMAGES_PER_KEPT, config.editing.n_candidates)
    return images, f"{images:g} a kept failure (drawn until one is accepted), assumed"


def _cost(task: str, rows: Sequence[UsageRow], seat: Seat) -> _Cost:
    done = [row for row in rows if row.task == task and row.outcome is CallOutcome.DONE]
    n_done = sum(row.n_calls for row in done)
    if n_done:
        because = [f"tokens and seconds: the mean of {n_done} calls in the ledger"]
        unpriced = sum(row.n_unpriced for row in done)
        mean = _Cost(
            sum(row.tokens_in for row in done) / n_done,
            sum(row.tokens_out for row in done) / n_done,
            sum(row.latency_s for row in done) / n_done,
            None if unpriced else sum(row.price_usd for row in done) / n_done,
            because,
        )
        n_images = sum(row.n_images for row in done) / n_done
    else:
        usage = assumed(task)
        because = [
            f"tokens and seconds: {usage.tokens_in} in, {usage.tokens_out} out, {usage.latency_s:g} s a call, assumed"
        ]
        mean = _Cost(usage.tokens_in, usage.tokens_out, usage.latency_s, None, because)
        n_images = usage.n_images
    if mean.price_usd is None and seat.price is not None:
        mean.price_usd = _priced(seat.price, mean, n_images)
        because.append(f'money: calls.prices."{seat.name}"')
    elif mean.price_usd is None:
        because.append(f'money: unknown, set calls.prices."{seat.name}"')
    return mean


def _priced(price: Price, cost: _Cost, n_images: float) -> float:
    tokens_usd = (price.input * cost.tokens_in + price.output * cost.tokens_out) * 1e-6
    return tokens_usd + price.image * n_images + price.call


def _ledger_rows(config: Config) -> list[UsageRow]:
    path = config.calls_path() / "ledger.sqlite"
    if not path.exists():
        return []
    with Ledger.view(path) as ledger:
        return ledger.usage()


def _table(config: Config, round: int, name: str, record_type: type[Any]) -> list[Any]:
    path = config.run_path() / f"round-{round}" / f"{name}.parquet"
    return read_table(path, record_type) if path.exists() else []
