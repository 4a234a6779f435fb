"""The paper's Tables 17 and 18: how close edits stay to the false positive, and what is wrong with those kept.

Both are of the first round of the first seed's run of RePair itself.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from repair.core.progress import Advance
from repair.core.records import Direction, ErrorType, Repair
from repair.evaluation.shortfalls import ShortfallCounts, count_shortfalls
from repair.reports import paper_results as paper
from repair.reports.benches import NO_REPAIR, NONE, Bench, Table, percent
from repair.reports.judged import WORDS, judged_edits
from repair.reports.quality import directions_facts

_N_REASONS = 6


def closeness(bench: Bench) -> Table | str:
    """Table 17: cosine of false positive and edit, by error type; or why there is none."""
    facts = quality_of(bench)
    if isinstance(facts, str):
        return facts
    rows = []
    for direction in Direction:
        found = facts[str(direction)]["closeness"]
        for kind in (str(error) for error in ErrorType if str(error) in found):
            values = found[kind]
            said = paper.CLOSENESS[direction].get(kind)
            rows.append(
                (
                    direction.short,
                    kind,
                    f"{values['n']:,}",
                    *(_cosine(values[name]) for name in ("mean", "sd", "median")),
                    NONE if said is None else " / ".join(f"{value:.3f}" for value in said),
                )
            )
    heads = (
        "direction",
        "error type",
        "edits",
        "mean",
        "standard deviation",
        "median",
        "paper, COCO30K: mean / sd / median",
    )
    note = "First round of the first seed; an edit of several error types counts in each. The paper has text to image."
    return Table("Table 17", "cosine of false positive and edit", heads, tuple(rows), note)


def failure_modes(bench: Bench, advance: Advance | None = None) -> Table | str:
    """Table 18: how many kept edits are wrong, by class; where truth is unknown, why failures were not repaired.

    Judging takes minutes where there are thousands of edits: `advance` is told now and then. Raises DataError for
    edited images that are gone.
    """
    view = bench.repair_run()
    if view is None or not view.rounds:
        return NO_REPAIR
    with view:
        tell = None if advance is None else partial(advance, 0, "Table 18")
        judged = judged_edits(view, view.table(0, Repair), tell)
        if judged is not None:
            return _classes(count_shortfalls(judged))
        why = " The data cannot be opened from here." if view.source is None else ""
    found = quality_of(bench)
    return found if isinstance(found, str) else _reasons(found, why)


def _classes(counts: Mapping[Direction, ShortfallCounts]) -> Table:
    n_kept = sum(side.n_known for side in counts.values())
    n_said = sum(paper.SHORTFALLS.values())
    rows = []
    for kind, said in paper.SHORTFALLS.items():
        found = [side.wrong[kind] for side in counts.values()]
        quoted = f"{said} ({percent(said / n_said)}; {percent(said / paper.N_JUDGED)} of all)"
        rows.append((WORDS[kind], *map(str, found), *_shares(sum(found), _n_wrong(counts), n_kept), quoted))
    by_direction = [f"{side.n_wrong:,} of {side.n_known:,}" for side in counts.values()]
    n_wrong = _n_wrong(counts)
    quoted = f"{n_said} of {paper.N_JUDGED} ({percent(n_said / paper.N_JUDGED)})"
    rows.append(("all wrong edits", *by_direction, *_shares(n_wrong, n_wrong, n_kept), quoted))
    heads = ("kept edits that are wrong", *(d.short for d in counts), "share of wrong", "share of kept", "paper")
    n_unknown = sum(side.n - side.n_known for side in counts.values())
    note = "First round of the first seed, by the truth of the world; an edit with several faults counts once, "
    note += "ambiguous before mismatch before drift."
    note += f" {n_unknown:,} kept edits could not be read." if n_unknown else ""
    return Table("Table 18", "failure modes", heads, tuple(rows), note)


def _n_wrong(counts: Mapping[Direction, ShortfallCounts]) -> int:
    return sum(side.n_wrong for side in counts.values())


def _shares(n: int, n_wrong: int, n_kept: int) -> tuple[str, str]:
    of_wrong, of_kept = (percent(n / of if of else None) for of in (n_wrong, n_kept))
    return of_wrong, of_kept


def _reasons(facts: Mapping[str, Any], why: str) -> Table:
    rows = tuple(
        (direction.short, reason, f"{n:,}")
        for direction in Direction
        for reason, n in list(facts[str(direction)]["unrepaired_reasons"].items())[:_N_REASONS]
    )
    said = ", ".join(f"{str(kind).replace('_', ' ')} {n}" for kind, n in paper.SHORTFALLS.items())
    note = f"Why kept failures were not repaired: whether kept edits are right is not known here.{why} The paper's "
    note += f"{sum(paper.SHORTFALLS.values())} wrong ones of {paper.N_JUDGED}: {said}."
    return Table("Table 18", "failure modes", ("direction", "what", "how many"), rows, note)


def quality_of(bench: Bench) -> Mapping[str, Any] | str:
    """Quality facts of that round by direction; why there are none, without RePair."""
    view = bench.repair_run()
    if view is None or not view.rounds:
        return NO_REPAIR
    with view:
        found: Mapping[str, Any] = bench.once("quality", lambda: directions_facts(view, view.rounds[0]))
    return found


def _cosine(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"
