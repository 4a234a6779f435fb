"""A bench's table as people read it: scores, then differences with their intervals, beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from repair.core.records import Direction

_COMPARED = (*(f"{direction.short} R@1" for direction in Direction), "mean R@1", "mean true R@1")
_ZERO = 1e-9  # a smaller difference of shares is one of rounding


def bench_lines(table: Mapping[str, Any]) -> list[str]:
    """`table` as `bench.run_bench` returns it, in Markdown: percent, mean over seeds; then, for each reference, points
    with their 95 % interval over seeds, paired (none from one seed)."""
    metrics = [name for name in table["rows"][0]["mean"] if name.endswith("R@1")]
    lines = [
        f"{table['bench']}: {table['split']} split, {seeds_line(table['seeds'])}",
        *_equal_lines(table.get("equal")),
        "",
        *_head(["variant", *metrics]),
    ]
    for row in table["rows"]:
        lines.append(_row([row["variant"], *(f"{100 * row['mean'][name]:.2f}" for name in metrics)]))
    for reference in table["references"]:
        lines += ["", *_differences(table, reference, [name for name in _COMPARED if name in metrics])]
    return lines


def _differences(table: Mapping[str, Any], reference: str, metrics: Sequence[str]) -> list[str]:
    """Rows of differences to `reference`; the paper's stand beside those to the last one."""
    with_paper = reference == table["references"][-1] and any(row["paper"] is not None for row in table["rows"])
    heads = [f"minus {reference}", *metrics, *(["paper, R@1", "sign"] if with_paper else [])]
    lines = _head(heads)
    for row in table["rows"]:
        found = row["differences"].get(reference)
        if found is None:
            continue
        cells = [row["variant"], *(_interval(found[name]) for name in metrics)]
        lines.append(_row([*cells, *(_beside(row["paper"], found["mean R@1"]) if with_paper else [])]))
    return lines


def _beside(paper: "float | Sequence[float] | None", found: Mapping[str, Any]) -> list[str]:
    """What the paper has, and whether our mean R@1 moves the same way; "open" where the interval holds 0 or, since all
    seeds differ by the same, has no width."""
    if paper is None:
        return ["", ""]
    values = paper if isinstance(paper, Sequence) else [paper]
    return [" / ".join(f"{value:+.2f}" for value in values), f"{_sign(found['mean'], sum(values))}{_how_sure(found)}"]


def _sign(mean: float, paper: float) -> str:
    if abs(mean) < _ZERO:
        return "no difference"
    if abs(paper) < _ZERO:
        return "none in the paper"
    return "as in the paper" if mean * paper > 0 else "opposite"


def _how_sure(found: Mapping[str, Any]) -> str:
    low, high = found["low"], found["high"]
    if low is None:
        return ", one seed"
    if high - low < _ZERO:
        return ", open, zero variance"
    return ", open" if low <= 0 <= high else ""


def seeds_line(seeds: Sequence[int]) -> str:
    """ "seed 1", "seeds 0, 1"."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _equal_lines(account: Mapping[str, Any] | None) -> list[str]:
    if not account:
        return []
    lines = []
    if account["match"] != "steps":
        uses = ", ".join(f"{use:,} (seed {seed})" for seed, use in account["budgets"].items())
        lines.append(f"at most as many {account['match']} as {account['budget_of']} used: {uses}")
    rates = ", ".join(f"{variant} {rate:g}" for variant, rate in account["lr"].items() if rate is not None)
    how = ", chosen on val" if any(len(scores) > 1 for scores in account["val"].values()) else ""
    return [*lines, f"learning rates{how}: {rates}"] if rates else lines


def _interval(difference: Mapping[str, Any]) -> str:
    text = f"{100 * difference['mean']:+.2f}"
    if difference["low"] is not None:
        text += f" [{100 * difference['low']:+.2f}, {100 * difference['high']:+.2f}]"
    return text


def _head(cells: Sequence[str]) -> list[str]:
    return [_row(cells), "|" + "---|" * len(cells)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
