"""The paper's tables and figures from a bench, its bench.json and its run folders alone, beside the paper's numbers.

Table and figure numbers are the paper's. A table whose runs are not there is left out, and the page says so.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from repair.config import Config
from repair.core.progress import Advance
from repair.core.records import Direction, Link, LinkKind, Repair, RepairStatus
from repair.core.synthesis import Sample
from repair.editing import IMAGE_TASK
from repair.pipeline import registries
from repair.pipeline.bench_suites import BASE
from repair.pipeline.tools import MAKE_TASK
from repair.reports import paper_results as paper
from repair.reports import reference
from repair.reports.benches import NO_REPAIR, NONE, Bench, Table, count, percent, points, score
from repair.reports.claims import claims, scores_by_round, verdict_of, with_rounds
from repair.reports.costs import costs_facts
from repair.reports.curve import curve
from repair.reports.edit_tables import closeness, failure_modes, quality_of
from repair.reports.learning import links_facts
from repair.reports.samples import is_kept
from repair.reports.suite_tables import compositional
from repair.reports.view import RunView

_METRICS = ("R@1", "R@5", "R@10", "MRR")
_IMAGE_TASKS = (MAKE_TASK, IMAGE_TASK)
_UNEDITED = ("T⁻", "I⁻")
_OWN = "Every attempt at a call that this run asked counts, whichever variant asked it first."
_ANCHORS = {"image": "an image", "text": "a caption"}


LeftOut = tuple[str, str]  # a table's name, and why it is not there


def bench_tables(bench: Bench) -> list[Table]:
    """Every table that the bench can fill."""
    return filled(bench)[0]


def filled(bench: Bench, advance: Advance | None = None) -> tuple[list[Table], list[LeftOut]]:
    """Every table that the bench can fill, and those that it cannot; `advance` is told of each, N_TABLES in all."""
    tables: list[Table] = []
    left_out: list[LeftOut] = []
    for name, make in _MAKERS:
        if advance is not None:
            advance(0, f"{bench.name}: {name}")
        made = failure_modes(bench, advance) if make is failure_modes else make(bench)
        if isinstance(made, str):
            left_out.append((name, made))
        else:
            tables += made if isinstance(made, list) else [made]
        if advance is not None:
            advance(1)
    return tables, left_out


def _claims(bench: Bench) -> list[Table] | str:
    return claims(bench) or "neither RePair beside another method nor several rounds of it"


def _compositional(bench: Bench) -> list[Table] | str:
    return compositional(bench) or "the bench has no suites"


# ---------------------------------------------------------------------------------------------- results


def results(bench: Bench) -> Table:
    """Tables 1, 7 and 8: scores both ways, with the kinds of sample and how many were trained on."""
    heads = ["method", "type", "samples"]
    heads += [f"{d.short} {m}" for d in Direction for m in _METRICS]
    heads += ["Δ mean R@1 to RePair", "paper: samples (K)", "paper, COCO30K: R@1 i2t / t2i"]
    rows = []
    for variant in ([BASE] if any(row["variant"] == BASE for row in bench.facts["rows"]) else []) + bench.whole():
        mean = bench.row(variant)["mean"]
        cells = [BASE, NONE, NONE]
        if variant != BASE:
            n = _mean(_n_samples(bench.view(run)) for run in bench.runs[variant])
            cells = [variant, " ".join(_types(bench.config(variant))) or NONE, n]
        cells += [score(metric, mean.get(f"{d.short} {metric}")) for d in Direction for metric in _METRICS]
        cells.append(points(bench.gain(variant, bench.repair)) if bench.repair not in (None, variant) else NONE)
        known = paper.known(paper.RESULTS, variant)
        said = NONE if known is None else " / ".join(f"{known[d].r1:.2f}" for d in Direction)
        rows.append((*cells, str(paper.known(paper.SAMPLES_K, variant) or NONE), said))
    return Table(
        "Tables 1, 7, 8",
        "results",
        tuple(heads),
        tuple(rows),
        "Scores in percent, MRR in [0, 1]. Samples: repaired failures (where edits are not used, failures that gave a "
        f"hard negative), or accepted samples of a method; means over seeds. {_equal(bench)}",
    )


def _equal(bench: Bench) -> str:
    equal = bench.facts.get("equal")
    if not equal:
        return "No budget was matched but the encoded items of a step."
    if equal["match"] == "steps":
        return "Every method encodes as many items a step."
    note = f"No method used more {equal['match']} than {equal['budget_of']}; every step encodes as many items."
    n = _n_unedited(bench) if equal["match"] == "samples" else 0
    if n:
        note += f" {n:,} verified failures without an edit stand in {bench.repair}'s grids too (first seed); "
        note += "a method whose samples are the failures is allowed those as well."
    return note


def _n_unedited(bench: Bench) -> int:
    """Verified failures that give RePair hard negatives and no edit."""
    view = bench.repair_run()
    if view is None or not view.config.links.unrepaired_negatives:
        return 0
    every = {repair.failure_id for round in view.rounds for repair in view.table(round, Repair)}
    return len(every) - _n_repaired(view, view.rounds[-1])


def ablations(bench: Bench) -> Table | str:
    """Table 2: differences to the full method, with the verdict on its being above; or why there is none."""
    if bench.repair is None:
        return NO_REPAIR
    rows = []
    for variant, said in paper.ABLATIONS.items():
        if variant in bench.runs:
            cells = [points(bench.gain(variant, bench.repair, f"{d.short} R@1")) for d in Direction]
            verdict = verdict_of(bench.gain(bench.repair, variant))
            rows.append((variant, *cells, f"{said[0]:+.2f} / {said[1]:+.2f}", verdict))
    if not rows:
        return "none of the paper's ablations"
    heads = ("ablation", "Δ i2t R@1", "Δ t2i R@1", "paper, COCO30K: i2t / t2i", "below the full method")
    note = "In points of R@1. The verdict is on the mean of both directions, as in the claims."
    return Table("Table 2", "ablations", heads, tuple(rows), note)


def rounds(bench: Bench) -> Table | str:
    """Table 19: what further rounds add; or why there is none."""
    found = with_rounds(bench)
    if found is None:
        return "no variant of several rounds"
    rows = []
    for round, scores in enumerate(scores_by_round(bench, found)):
        said = paper.ROUNDS[round] if round < len(paper.ROUNDS) else None
        rows.append(
            (
                str(round),
                _mean(_n_repaired(bench.view(path), round) for path in bench.runs[found]),
                *(score("R@1", float(np.mean(scores[d]))) for d in Direction),
                NONE if said is None else f"{said[0]} K, {said[1]:.2f} / {said[2]:.2f}",
            )
        )
    return Table("Table 19", "rounds", ("round", "repairs", "i2t R@1", "t2i R@1", "paper, COCO30K"), tuple(rows))


def _n_repaired(view: RunView, round: int) -> int:
    """Failures repaired up to a round."""
    repairs = [repair for earlier in range(round + 1) for repair in view.table(earlier, Repair)]
    return len({repair.failure_id for repair in repairs if repair.status is RepairStatus.REPAIRED})


# ---------------------------------------------------------------------------------------------- costs


def tokens(bench: Bench) -> Table | str:
    """Table 9: tokens by stage for each repaired pair; or why there is none."""
    view = bench.repair_run()
    if view is None:
        return NO_REPAIR
    own = {row.key for row in bench.calls_of(view.folder.path)}  # a ledger that is not there is an error, not a 0
    rows = []
    with view:
        found = costs_facts(view, own)["directions"]
    for direction in Direction:
        side = found[str(direction)]
        for task, facts in (*side["tasks"].items(), ("total", side["total"])):
            per = facts["per_pair"]
            if per is not None:
                said = paper.TOKENS_K[direction] if task == "total" else None
                quoted = NONE if said is None else f"{said[0]:g} / {said[1]:g} K"
                rows.append((direction.short, task, count(per["tokens_in"]), count(per["tokens_out"]), quoted))
    if not rows:
        return "no repaired pair"
    heads = ("direction", "stage", "tokens in", "tokens out", "paper, COCO30K: in / out")
    note = f"Per repaired pair, first seed. {_OWN} The drawn world's backends count the tokens that a model's prompts "
    note += "would have; rules over captions use none. The paper does not say of what its thousands of tokens are."
    return Table("Table 9", "tokens by stage", heads, tuple(rows), note)


def calls(bench: Bench) -> Table:
    """Tables 10 and 11: language-model and image calls for each sample."""
    rows = []
    for variant in bench.whole():
        run = bench.runs[variant][0]
        asked = bench.calls_of(run)
        n_image = sum(row.task in _IMAGE_TASKS for row in asked)
        n_text, n = len(asked) - n_image, _n_samples(bench.view(run))
        per = [f"{number / n:.2f}" if n else NONE for number in (n_text, n_image)]
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
    note = f"First seed. {_OWN} What two variants both asked counts in both. A builder's calls about captions that "
    note += "gave no sample are not told apart from other runs' and do not count."
    return Table("Tables 10, 11", "calls", heads, tuple(rows), note)


# ---------------------------------------------------------------------------------------------- quality


def criteria(bench: Bench) -> Table | str:
    """Table 12: why failures were dropped."""
    return _by_direction(
        bench,
        "Table 12",
        "filter criteria, share of what was dropped",
        lambda side: (side["verdicts"] or {}).get("shares", {}),
        reference.CRITERIA,
    )


def error_types(bench: Bench) -> Table | str:
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
) -> Table | str:
    facts = quality_of(bench)
    if isinstance(facts, str):
        return facts
    rows = []
    for direction in Direction:
        for kind, value in values(facts[str(direction)]).items():
            rows.append((direction.short, kind, percent(value), percent(said[str(direction)].get(kind))))
    if not rows:
        return "nothing of it on record"
    return Table(
        name, title, ("direction", "kind", "here", "paper, COCO30K"), tuple(rows), "First round of the first seed."
    )


def links(bench: Bench) -> Table | str:
    """Figures 7 and 8: links per anchor; or why there are none."""
    view = bench.repair_run()
    if view is None:
        return NO_REPAIR
    facts = links_facts(view)
    if facts is None:
        return "its run has no links"
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


def _types(config: Config) -> Sequence[str]:
    """Kinds of samples, as the paper names them."""
    if config.training.loss == "vanilla":
        return ()
    types: Sequence[str] = registries.METHODS.build(config.method.name, options=config.method.options).types
    if _is_unedited(config):
        return _UNEDITED
    editors = {"T⁺": config.editing.text_editor, "I⁺": config.editing.image_editor}
    return [t for t in types if config.method.name != "repair" or editors.get(t) != registries.NONE]


def _is_unedited(config: Config) -> bool:
    """Whether false positives are trained on as they are: the ablation w/o Repair."""
    return config.method.name == "repair" and not config.grids.use_edits


def _mean(numbers: Iterable[int]) -> str:
    return count(float(np.mean(list(numbers))))


def _n_samples(view: RunView) -> int:
    """What was trained on: accepted samples, repaired failures or, where edits are not used, failures that gave a hard
    negative; at most as many as the budget allows."""
    config = view.config
    if config.training.loss == "vanilla" and config.method.name == "repair":
        return 0
    if config.method.name != "repair":
        return sum(is_kept(one) for one in view.table(0, Sample))
    if _is_unedited(config):
        used = {
            link.failure_id
            for link in view.table(view.rounds[-1], Link)  # a round links those of all rounds before it
            if link.kind is LinkKind.NEGATIVE
        }
    else:
        used = {
            repair.failure_id
            for round in view.rounds
            for repair in view.table(round, Repair)
            if repair.status is RepairStatus.REPAIRED
        }
    most = config.grids.max_samples
    return len(used) if most is None else min(len(used), most)


_MAKERS: tuple[tuple[str, Callable[[Bench], list[Table] | Table | str]], ...] = (
    ("Claims", _claims),
    ("Tables 1, 7, 8", results),
    ("Table 2", ablations),
    ("Table 3", _compositional),
    ("Table 9", tokens),
    ("Tables 10, 11", calls),
    ("Table 12", criteria),
    ("Table 16", error_types),
    ("Table 17", closeness),
    ("Table 18", failure_modes),
    ("Table 19", rounds),
    ("Figures 7, 8", links),
    ("Figure 9", curve),
)
N_TABLES = len(_MAKERS)
