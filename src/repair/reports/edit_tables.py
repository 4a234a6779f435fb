"""The paper's Tables 17 and 18: how close edits stay to the false positive, and what is wrong with those kept.

Both are of the first round of the first seed's run of RePair itself.
"""

from collections.abc import Mapping
from typing import Any

from repair.core.errors import DataError
from repair.core.ports import EditTruth
from repair.core.records import Direction, ErrorType, Repair, Shortfall
from repair.evaluation.shortfalls import ShortfallCounts, count_shortfalls
from repair.reports import paper_results as paper
from repair.reports.benches import NONE, Bench, Table
from repair.reports.quality import quality_facts
from repair.reports.view import RunView

_N_REASONS = 6
_WORDS = {
    Shortfall.SEMANTIC_MISMATCH: "semantic mismatch: not true of the query",
    Shortfall.SCAFFOLD_DRIFT: "scaffold drift: true, but more has changed than had to",
    Shortfall.AMBIGUOUS_FALSE_POSITIVE: "ambiguous false positive: it was true all along",
    Shortfall.ARTEFACT: "artefact: something else in the picture has changed",
}


def closeness(bench: Bench) -> Table | None:
    """Table 17: cosine of false positive and edit, by error type."""
    facts = quality_of(bench)
    if facts is None:
        return None
    rows = []
    for direction in Direction:
        found = facts["directions"][str(direction)]["closeness"]
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
    heads = ("direction", "error type", "edits", "mean", "standard deviation", "median", "paper: mean / sd / median")
    note = "First round of the first seed; an edit of several error types counts in each. The paper has text to image."
    return Table("Table 17", "cosine of false positive and edit", heads, tuple(rows), note)


def failure_modes(bench: Bench) -> Table | None:
    """Table 18: how many kept edits are wrong, by class; where truth is unknown, why failures were not repaired."""
    view = bench.first(bench.repair) if bench.repair else None
    if view is None or not view.rounds:
        return None
    with view:
        counts = _counts(view)
        return _reasons(view) if counts is None else _classes(counts)


def _classes(counts: Mapping[Direction, ShortfallCounts]) -> Table:
    n_kept = sum(side.n_known for side in counts.values())
    n_said = sum(paper.SHORTFALLS.values())
    rows = []
    for kind, said in paper.SHORTFALLS.items():
        found = [side.wrong[kind] for side in counts.values()]
        quoted = f"{said} ({said / n_said:.1%}; {said / paper.N_JUDGED:.1%} of all)"
        rows.append((_WORDS[kind], *map(str, found), *_shares(sum(found), _n_wrong(counts), n_kept), quoted))
    by_direction = [f"{sum(side.wrong.values()):,} of {side.n_known:,}" for side in counts.values()]
    n_wrong = _n_wrong(counts)
    quoted = f"{n_said} of {paper.N_JUDGED} ({n_said / paper.N_JUDGED:.1%})"
    rows.append(("all wrong edits", *by_direction, *_shares(n_wrong, n_wrong, n_kept), quoted))
    heads = ("kept edits that are wrong", *(d.short for d in counts), "share of wrong", "share of kept", "paper")
    n_unknown = sum(side.n - side.n_known for side in counts.values())
    note = "First round of the first seed, by the truth of the world; an edit with several faults counts once, "
    note += "ambiguous before mismatch before drift."
    note += f" {n_unknown:,} kept edits could not be read." if n_unknown else ""
    return Table("Table 18", "failure modes", heads, tuple(rows), note)


def _n_wrong(counts: Mapping[Direction, ShortfallCounts]) -> int:
    return sum(n for side in counts.values() for n in side.wrong.values())


def _shares(n: int, n_wrong: int, n_kept: int) -> tuple[str, str]:
    return tuple(f"{n / of:.1%}" if of else NONE for of in (n_wrong, n_kept))  # type: ignore[return-value]


def _reasons(view: RunView) -> Table:
    facts = quality_facts(view)[0]["directions"]
    rows = tuple(
        (direction.short, reason, f"{n:,}")
        for direction in Direction
        for reason, n in list(facts[str(direction)]["unrepaired_reasons"].items())[:_N_REASONS]
    )
    said = ", ".join(f"{str(kind).replace('_', ' ')} {n}" for kind, n in paper.SHORTFALLS.items())
    note = "Why kept failures were not repaired: whether kept edits are right is not known here. The paper's "
    note += f"{sum(paper.SHORTFALLS.values())} wrong ones of {paper.N_JUDGED}: {said}."
    return Table("Table 18", "failure modes", ("direction", "what", "how many"), rows, note)


def _counts(view: RunView) -> dict[Direction, ShortfallCounts] | None:
    """None where the data do not know the truth, or the edited images are gone."""
    source, train = view.source, view.captions(view.config.data.train_split)
    if not isinstance(source, EditTruth) or view.blobs is None:
        return None
    images = {pair.image_id for pair in train.values()}

    def image(key: str) -> bytes:
        if key in images:
            return source.read_image(key)
        data = None if view.blobs is None else view.blobs.get(key)
        if data is None:
            raise DataError(f"edited image {key} is gone")
        return data

    try:
        return count_shortfalls(source, view.table(0, Repair), text=lambda key: train[key].text, image=image)
    except DataError:
        return None


def quality_of(bench: Bench) -> Mapping[str, Any] | None:
    """Quality facts of that round; None without RePair, or before it has mined."""
    view = bench.first(bench.repair) if bench.repair else None
    if view is None:
        return None
    with view:
        found = quality_facts(view)
    return found[0] if found else None


def _cosine(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"
