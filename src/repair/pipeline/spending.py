"""What a kept failure and a repaired pair cost in calls, tokens and money, as `repair run` and `repair status` say it.

Every attempt counts, failed and lost ones too. An image edit is an image call, all others are LLM calls. In a shared
ledger only calls about this run's failures count, whichever run made them first.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from repair import editing
from repair.core.records import Direction, Failure, Repair, RepairStatus, Verdict
from repair.store.ledger import Ledger
from repair.store.ledger_rows import FailureUsage
from repair.store.tables import read_table

Record = TypeVar("Record")


def pair_costs(run: Path, ledger_path: Path | None) -> list[dict[str, Any]]:
    """One entry a direction that has kept failures: how many, and what calls came to for each of them; none without a
    ledger.

    `kept` and `all` hold llm_calls, image_calls, tokens and price_usd (None while a price is unknown): those about kept
    failures, and those about dropped ones as well.
    """
    if ledger_path is None or not ledger_path.exists():
        return []
    rounds = sorted(run.glob("round-*"))
    mined = {f.failure_id for f in _rows(rounds, "failures", Failure)}
    kept = {v.failure_id for v in _rows(rounds, "verdicts", Verdict) if v.keep}
    repaired = {r.failure_id for r in _rows(rounds, "repairs", Repair) if r.status is RepairStatus.REPAIRED}
    with Ledger.view(ledger_path) as ledger:
        used = [row for row in ledger.usage_by_failure() if row.failure_id in mined]
    found = []
    for direction in Direction:
        prefix = f"{direction.short}-"
        own = [row for row in used if row.failure_id.startswith(prefix)]
        n_kept = sum(name.startswith(prefix) for name in kept)
        if own and n_kept:
            found.append(
                {
                    "direction": str(direction),
                    "n_kept": n_kept,
                    "n_repaired": sum(name.startswith(prefix) for name in repaired),
                    "kept": _totals([row for row in own if row.failure_id in kept]),
                    "all": _totals(own),
                }
            )
    return found


def cost_lines(costs: Sequence[Mapping[str, Any]], plan: str) -> list[str]:
    """One line a direction.

    Example:
        >>> totals = {"llm_calls": 10, "image_calls": 0, "tokens": 4000, "price_usd": None}
        >>> fact = {"direction": "image_to_text", "n_kept": 10, "n_repaired": 5, "kept": totals, "all": totals}
        >>> print(*cost_lines([fact], "fused"), sep="\\n")
        calls, plan fused, image_to_text: for each of 10 kept failures 1.00 LLM, 400 tokens, price unknown; for each \
of 5 repaired pairs, those about dropped failures included, 2.00 LLM, 800 tokens, price unknown
    """
    lines = []
    for fact in costs:
        line = f"calls, plan {plan}, {fact['direction']}: for each of {fact['n_kept']} kept failures "
        line += _each(fact["kept"], fact["n_kept"])
        if fact["n_repaired"]:
            line += f"; for each of {fact['n_repaired']} repaired pairs, those about dropped failures included, "
            line += _each(fact["all"], fact["n_repaired"])
        lines.append(line)
    return lines


def _rows(rounds: Sequence[Path], name: str, record_type: type[Record]) -> list[Record]:
    paths = [folder / f"{name}.parquet" for folder in rounds]
    return [row for path in paths if path.exists() for row in read_table(path, record_type)]


def _totals(rows: Sequence[FailureUsage]) -> dict[str, Any]:
    n_images = sum(row.n_calls for row in rows if row.task == editing.IMAGE_TASK)
    return {
        "llm_calls": sum(row.n_calls for row in rows) - n_images,
        "image_calls": n_images,
        "tokens": sum(row.tokens for row in rows),
        "price_usd": None if any(row.n_unpriced for row in rows) else sum(row.price_usd for row in rows),
    }


def _each(totals: Mapping[str, Any], n: int) -> str:
    parts = [f"{totals['llm_calls'] / n:.2f} LLM"]
    parts += [f"{totals['image_calls'] / n:.2f} image calls"] if totals["image_calls"] else []
    parts += [f"{totals['tokens'] / n:.0f} tokens"]
    price_usd = totals["price_usd"]
    parts += ["price unknown" if price_usd is None else f"{price_usd / n:.4f} USD"]
    return ", ".join(parts)
