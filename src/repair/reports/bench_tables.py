"""The paper's tables and figures from a bench, its bench.json and its run folders alone, beside the paper's numbers.

Table and figure numbers are the paper's. A table whose runs are not there is left out, and the page says so.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repair.core.calls import Attempt
from repair.core.records import Direction, Failure, Repair, RepairStatus
from repair.core.synthesis import Sample, SampleKind
from repair.pipeline.registries import METHODS
from repair.pipeline.tools import MAKE_TASK
from repair.reports import paper_results as paper
from repair.reports import reference
from repair.reports.benches import NONE, Bench, Table, points, score
from repair.reports.claims import claims, scores_by_round, with_rounds
from repair.reports.curve import curve
from repair.reports.edit_tables import closeness, failure_modes, quality_of
from repair.reports.facts import facts_of
from repair.reports.suite_tables import compositional
from repair.reports.view import RunView
from repair.store.tables import read_table

_METRICS = ("R@1", "R@5", "R@10", "MRR")
_ANCHORS = {"image": "an image", "text": "a caption"}


def bench_tables(bench: Bench) -> list[Table]:
    """Every table that the bench can fill."""
    makers: tuple[Callable[[Bench], Table | None], ...] = (
        results,
        ablations,
        tokens,
        calls,
        criteria,
        error_types,
        closeness,
        failure_modes,
        rounds,
        links,
        curve,
    )
    found = [table for table in (make(bench) for make in makers) if table is not None and table.rows]
    place = next((place for place, table in enumerate(found) if table.name == "Table 2"), 0) + 1
    return [*claims(bench), *found[:place], *compositional(bench), *found[place:]]


# ---------------------------------------------------------------------------------------------- results


def results(bench: Bench) -> Table:
    """Tables 1, 7 and 8: scores both ways, with the kinds of sample and how many were trained on."""
    heads = ["method", "type", "samples"]
    heads += [f"{d.short} {m}" for d in Direction for m in _METRICS]
    heads += ["Δ mean R@1 to RePair", "paper: samples (K)", "paper: R@1 i2t / t2i"]
    rows = []
    for variant in bench.whole():
        mean = bench.row(variant)["mean"]
        cells = [variant, " ".join(_types(bench, variant)) or NONE, _count(bench, variant)]
        cells += [score(metric, mean.get(f"{d.short} {metric}")) for d in Direction for metric in _METRICS]
        cells.append(points(bench.gain(variant, bench.repair)) if bench.repair not in (None, variant) else NONE)
        known = paper.known(paper.RESULTS, variant)
        said = NONE if known is None else " / ".join(f"{known[d].r1:.2f}" for d in Direction)
        rows.append((*cells, str(paper.known(paper.SAMPLES_K, variant) or NONE), said))
    return Table(
        "Tables 1, 7, 8", "results", tuple(heads), tuple(rows), "Scores in percent, MRR in [0, 1]. " + _equal(bench)
    )


def _equal(bench: Bench) -> str:
    equal = bench.facts.get("equal")
    if not equal:
        return "No budget was matched but the encoded items of a step."
    if equal["match"] == "steps":
        return "Every method encodes as many items a step."
    return f"No method used more {equal['match']} than {equal['budget_of']}; every step encodes as many items."


def ablations(bench: Bench) -> Table | None:
    """Table 2: differences to the full method, with their sign."""
    if bench.repair is None:
        return None
    rows = []
    for variant, said in paper.ABLATIONS.items():
        if variant not in bench.runs:
            continue
        cells = [variant]
        for direction in Direction:
            found = bench.row(variant)["differences"].get(bench.repair, {}).get(f"{direction.short} R@1")
            cells.append(points(found))
        difference = bench.row(variant)["differences"].get(bench.repair, {}).get("mean R@1", {})
        agrees = "yes" if difference and difference["mean"] < 0 else "no"
        rows.append((*cells, f"{said[0]:+.2f} / {said[1]:+.2f}", agrees))
    heads = ("ablation", "Δ i2t R@1", "Δ t2i R@1", "paper, i2t / t2i", "below the full method")
    return Table("Table 2", "ablations", heads, tuple(rows), "In points of R@1.")


def rounds(bench: Bench) -> Table | None:
    """Table 19: what further rounds add."""
    found = with_rounds(bench)
    if found is None:
        return None
    rows = []
    for round, scores in enumerate(scores_by_round(bench, found)):
        said = paper.ROUNDS[round] if round < len(paper.ROUNDS) else None
        rows.append(
            (
                str(round),
                f"{np.mean([_n_repaired(path, round) for path in bench.runs[found]]):,.0f}",
                *(score("R@1", float(np.mean(scores[d]))) for d in Direction),
                NONE if said is None else f"{said[0]} K, {said[1]:.2f} / {said[2]:.2f}",
            )
        )
    return Table("Table 19", "rounds", ("round", "repairs", "i2t R@1", "t2i R@1", "paper"), tuple(rows))


def _n_repaired(run: Path, round: int) -> int:
    """Failures repaired up to a round."""
    with RunView.open(run) as view:
        repairs = [repair for earlier in range(round + 1) for repair in view.table(earlier, Repair)]
    return len({repair.failure_id for repair in repairs if repair.status is RepairStatus.REPAIRED})


# ---------------------------------------------------------------------------------------------- costs


def tokens(bench: Bench) -> Table | None:
    """Table 9: tokens by stage for each repaired pair."""
    view = bench.first(bench.repair) if bench.repair else None
    if view is None:
        return None
    rows = []
    with view:
        found = facts_of(view)["calls"]["directions"]
    for direction in Direction:
        side = found[str(direction)]
        for task, facts in (*side["tasks"].items(), ("total", side["total"])):
            per = facts["per_pair"]
            if per is not None:
                said = paper.TOKENS_K[direction] if task == "total" else None
                quoted = NONE if said is None else f"{said[0]:g} / {said[1]:g} K"
                rows.append((direction.short, task, f"{per['tokens_in']:.0f}", f"{per['tokens_out']:.0f}", quoted))
    heads = ("direction", "stage", "tokens in", "tokens out", "paper, in / out")
    note = "Per repaired pair, first seed. The paper does not say of what its thousands of tokens are."
    return Table("Table 9", "tokens by stage", heads, tuple(rows), note)


def calls(bench: Bench) -> Table:
    """Tables 10 and 11: language-model and image calls for each sample."""
    rows = []
    for variant in bench.whole():
        with RunView.open(bench.runs[variant][0]) as view:
            n_text, n_image = _n_calls(view)
            n = _n_samples(view)
        per = [f"{count / n:.2f}" if n else NONE for count in (n_text, n_image)]
        said = " / ".join(paper.known(paper.CALLS_K, variant) or (NONE, NONE))
        rows.append((variant, f"{n:,}", f"{n_text:,}", f"{n_image:,}", *per, said))
    heads = (
        "method",
        "samples",
        "text calls",
        "image calls",
        "text / sample",
        "image / sample",
        "paper, K: text / image",
    )
    note = "First seed, all attempts in the ledger; what two variants asked about the same item counts in both."
    return Table("Tables 10, 11", "calls", heads, tuple(rows), note)


def _n_calls(view: RunView) -> tuple[int, int]:
    """Attempts about what this run asked for: of its failures, or of its builders' captions."""
    method = METHODS.build(view.config.method.name, options=view.config.method.options)
    builders = {builder.name for builder in method.builders}
    used = {sample.caption_id for sample in _samples(view)}
    failures = set()
    for round in view.rounds:
        failures |= {failure.failure_id for failure in view.table(round, Failure)}
    n_text = n_image = 0
    for attempt in view.attempts():
        owner, _, caption = attempt.call.failure_id.partition(":")
        mine = attempt.call.failure_id in failures or (owner in builders and (caption in used or caption == "*"))
        if mine:
            image = _is_image(attempt)
            n_image += image
            n_text += not image
    return n_text, n_image


def _is_image(attempt: Attempt) -> bool:
    return attempt.call.task in (MAKE_TASK, "edit_image")


# ---------------------------------------------------------------------------------------------- quality


def criteria(bench: Bench) -> Table | None:
    """Table 12: why failures were dropped."""
    return _by_direction(
        bench,
        "Table 12",
        "filter criteria, share of what was dropped",
        lambda side: (side["verdicts"] or {}).get("shares", {}),
        reference.CRITERIA,
    )


def error_types(bench: Bench) -> Table | None:
    """Table 16: what is wrong in false positives."""
    return _by_direction(
        bench,
        "Table 16",
        "error types, share of failures (several each)",
        lambda side: {k: v["share"] for k, v in ((side["error_types"] or {}).get("types") or {}).items()},
        reference.ERROR_TYPES,
    )


def _by_direction(
    bench: Bench,
    name: str,
    title: str,
    values: Callable[[Mapping[str, Any]], Mapping[str, float | None]],
    said: Mapping[str, Mapping[str, float]],
) -> Table | None:
    facts = quality_of(bench)
    if facts is None:
        return None

    def shown(value: float | None) -> str:
        if value is None:
            return NONE
        return f"{100 * value:.1f} %"

    rows = []
    for direction in Direction:
        for kind, value in values(facts["directions"][str(direction)]).items():
            rows.append((direction.short, kind, shown(value), shown(said[str(direction)].get(kind))))
    return Table(name, title, ("direction", "kind", "here", "paper"), tuple(rows), "First round of the first seed.")


def links(bench: Bench) -> Table | None:
    """Figures 7 and 8: links per anchor."""
    view = bench.first(bench.repair) if bench.repair else None
    if view is None:
        return None
    with view:
        facts = facts_of(view)["links"]
    if facts is None:
        return None
    rows = tuple(
        (
            f"{d['kind']} of {_ANCHORS[d['anchor']]}",
            f"{d['n_anchors']:,}",
            f"{d['mean'] or 0:.2f}",
            f"{d['max']}",
            _tail(d),
        )
        for d in facts["distributions"]
    )
    note = "The paper's largest numbers of negatives of an anchor: about 400 on COCO30K, about 250 on Flickr30K."
    heads = ("links", "anchors", "mean", "most", "anchors with 1, 2, 3–5, 6–10, more")
    return Table("Figures 7, 8", "links per anchor", heads, rows, note)


def _tail(distribution: Mapping[str, Any]) -> str:
    bins = ((1, 1), (2, 2), (3, 5), (6, 10), (11, 10**9))
    found = [sum(n for size, n in distribution["histogram"] if low <= size <= high) for low, high in bins]
    return ", ".join(f"{n:,}" for n in found)


# ---------------------------------------------------------------------------------------------- cells


def _types(bench: Bench, variant: str) -> Sequence[str]:
    with RunView.open(bench.runs[variant][0]) as view:
        types: Sequence[str] = METHODS.build(view.config.method.name, options=view.config.method.options).types
        return types if view.config.training.loss != "vanilla" else ()


def _count(bench: Bench, variant: str) -> str:
    found = []
    for path in bench.runs[variant]:
        with RunView.open(path) as view:
            found.append(_n_samples(view))
    return f"{np.mean(found):,.0f}"


def _n_samples(view: RunView) -> int:
    """What was trained on: accepted samples, or repaired failures, at most as many as the budget allows."""
    if view.config.training.loss == "vanilla" and view.config.method.name == "repair":
        return 0
    if view.config.method.name != "repair":
        return sum(1 for _ in _samples(view, accepted=True))
    repaired = {
        repair.failure_id
        for round in view.rounds
        for repair in view.table(round, Repair)
        if repair.status is RepairStatus.REPAIRED
    }
    most = view.config.grids.max_samples
    return len(repaired) if most is None else min(len(repaired), most)


def _samples(view: RunView, *, accepted: bool = False) -> Iterator[Sample]:
    path = view.folder.folder(0) / "samples.parquet"
    if (0, "samples") in view.states and path.exists():
        for sample in read_table(path, Sample):
            if sample.kind is not SampleKind.NEIGHBOUR and not (accepted and sample.rejected is not None):
                yield sample
