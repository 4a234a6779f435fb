"""The paper's tables and figures from a bench, its bench.json and its run folders alone, beside the paper's numbers.

Table and figure numbers are the paper's. A table whose runs are not there is left out, and the page says so.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repair.core.calls import Attempt
from repair.core.errors import DataError
from repair.core.records import Direction, Failure, Repair, RepairStatus
from repair.core.synthesis import Sample, SampleKind
from repair.pipeline.registries import METHODS
from repair.pipeline.tools import MAKE_TASK
from repair.reports import paper_results as paper
from repair.reports import reference
from repair.reports.facts import facts_of
from repair.reports.view import RunView
from repair.store.files import write_text
from repair.store.tables import read_table

_METRICS = ("R@1", "R@5", "R@10", "MRR")
_NONE = "–"
_ANCHORS = {"image": "an image", "text": "a caption"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table as Markdown shows it; `name` as the paper numbers it."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def lines(self) -> list[str]:
        body = ["| " + " | ".join(row) + " |" for row in (self.heads, ("---",) * len(self.heads), *self.rows)]
        return [f"## {self.name}: {self.title}", "", *body, *(["", self.note] if self.note else []), ""]


@dataclass(frozen=True, slots=True)
class Bench:
    """A finished bench, opened for reading."""

    facts: Mapping[str, Any]
    runs: Mapping[str, tuple[Path, ...]]  # by variant, one a seed

    @classmethod
    def open(cls, folder: Path) -> "Bench":
        """Raises DataError if there is no bench.json, or one without its runs."""
        path = folder / "bench.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            variants = [row["variant"] for row in facts["rows"] if row["variant"] in facts["runs"]]  # in their order
            runs = {variant: tuple(map(Path, facts["runs"][variant])) for variant in variants}
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file: `repair bench` writes it when it is done") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read: {error!r}; run `repair bench` again") from error
        return cls(facts, runs)

    def row(self, variant: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(row for row in self.facts["rows"] if row["variant"] == variant)
        return found

    def whole(self) -> list[str]:
        """Variants at their whole budget."""
        return [name for name in self.runs if not name.endswith("%")]

    def first(self, variant: str) -> RunView | None:
        """The first seed's run; None if the variant is not in the bench."""
        return RunView.open(self.runs[variant][0]) if variant in self.runs else None

    @property
    def repair(self) -> str | None:
        """The variant that is RePair itself, by its settings."""
        return next((name for name in self.whole() if name.lower() == "repair"), None)


def bench_tables(folder: Path) -> list[Table]:
    """Every table that the bench in `folder` can fill. Raises DataError as `Bench.open`."""
    bench = Bench.open(folder)
    makers: tuple[Callable[[Bench], Table | None], ...] = (
        results,
        ablations,
        tokens,
        calls,
        criteria,
        error_types,
        closeness,
        shortfalls,
        rounds,
        links,
        curve,
    )
    return [table for table in (make(bench) for make in makers) if table is not None and table.rows]


def results_page(folder: Path, *, command: str) -> str:
    """All tables as one Markdown page, under the command that makes them."""
    bench = Bench.open(folder)
    facts = bench.facts
    head = [
        f"# {facts['bench']}",
        "",
        f"Written by `{command}` from the run folders of `repair bench`. Split `{facts['split']}`, "
        f"seeds {', '.join(map(str, facts['seeds']))}; means over seeds, differences with their 95 % interval.",
        "",
    ]
    return "\n".join([*head, *(line for table in bench_tables(folder) for line in table.lines())])


def write_results(folder: Path, out: Path, *, command: str) -> None:
    write_text(out, results_page(folder, command=command))


# ---------------------------------------------------------------------------------------------- results


def results(bench: Bench) -> Table:
    """Tables 1, 7 and 8: scores both ways, with the kinds of sample and how many were trained on."""
    heads = ["method", "type", "samples"]
    heads += [f"{d.short} {m}" for d in Direction for m in _METRICS]
    heads += ["Δ mean R@1 to RePair", "paper: samples (K)", "paper: R@1 i2t / t2i"]
    rows = []
    for variant in bench.whole():
        mean = bench.row(variant)["mean"]
        cells = [variant, " ".join(_types(bench, variant)) or _NONE, _count(bench, variant)]
        cells += [_score(metric, mean.get(f"{d.short} {metric}")) for d in Direction for metric in _METRICS]
        cells.append(_difference(bench, variant))
        known = paper.RESULTS.get(variant)
        said = _NONE if known is None else " / ".join(f"{known[d].r1:.2f}" for d in Direction)
        rows.append((*cells, str(paper.SAMPLES_K.get(variant, _NONE)), said))
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
            cells.append(_interval(found))
        difference = bench.row(variant)["differences"].get(bench.repair, {}).get("mean R@1", {})
        agrees = "yes" if difference and difference["mean"] < 0 else "no"
        rows.append((*cells, f"{said[0]:+.2f} / {said[1]:+.2f}", agrees))
    heads = ("ablation", "Δ i2t R@1", "Δ t2i R@1", "paper, i2t / t2i", "below the full method")
    return Table("Table 2", "ablations", heads, tuple(rows), "In points of R@1.")


def rounds(bench: Bench) -> Table | None:
    """Table 19: what further rounds add."""
    found = None
    for variant in bench.whole():
        with RunView.open(bench.runs[variant][0]) as view:
            if view.config.pipeline.rounds > 1 and view.config.method.name == "repair":
                found = variant
    if found is None:
        return None
    rows = []
    for path_round in range(_n_rounds(bench, found)):
        scores, counts = _by_round(bench, found, path_round)
        said = paper.ROUNDS[path_round] if path_round < len(paper.ROUNDS) else None
        rows.append(
            (
                str(path_round),
                f"{np.mean(counts):,.0f}",
                *(_score("R@1", float(np.mean(scores[d]))) for d in Direction),
                _NONE if said is None else f"{said[0]} K, {said[1]:.2f} / {said[2]:.2f}",
            )
        )
    return Table("Table 19", "rounds", ("round", "repairs", "i2t R@1", "t2i R@1", "paper"), tuple(rows))


def _n_rounds(bench: Bench, variant: str) -> int:
    with RunView.open(bench.runs[variant][0]) as view:
        return view.config.pipeline.rounds


def _by_round(bench: Bench, variant: str, round: int) -> tuple[dict[Direction, list[float]], list[int]]:
    scores: dict[Direction, list[float]] = {d: [] for d in Direction}
    counts = []
    for path in bench.runs[variant]:
        with RunView.open(path) as view:
            facts = next(e.facts for e in view.evaluations if e.round == round)
            for direction in Direction:
                metrics = facts["splits"][bench.facts["split"]][str(direction)]["metrics"]
                scores[direction].append(metrics["R@1"]["value"])
            repaired = {
                r.failure_id
                for earlier in range(round + 1)
                for r in view.table(earlier, Repair)
                if r.status is RepairStatus.REPAIRED
            }
            counts.append(len(repaired))
    return scores, counts


def curve(bench: Bench) -> Table | None:
    """Figure 9: R@1 against the share of the budget."""
    shares = sorted({_share_of(name) for name in bench.runs})
    if len(shares) < 2:
        return None
    rows = []
    for variant in bench.whole():
        cells = [variant]
        for share in shares:
            name = variant if share == 100 else f"{variant} {share}%"
            cells.append(_score("R@1", bench.row(name)["mean"]["mean R@1"]) if name in bench.runs else _NONE)
        rows.append(tuple(cells))
    heads = ("mean R@1 at", *(f"{share} % of the budget" for share in shares))
    return Table("Figure 9", "budget curve", heads, tuple(rows))


def _share_of(name: str) -> int:
    return int(name.rsplit(" ", 1)[1][:-1]) if name.endswith("%") else 100


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
                quoted = _NONE if said is None else f"{said[0]:g} / {said[1]:g} K"
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
        per = [f"{count / n:.2f}" if n else _NONE for count in (n_text, n_image)]
        said = " / ".join(paper.CALLS_K.get(variant, (_NONE, _NONE)))
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


def _quality(bench: Bench) -> Mapping[str, Any] | None:
    view = bench.first(bench.repair) if bench.repair else None
    if view is None:
        return None
    with view:
        found = facts_of(view)["quality"]
    return found[0] if found else None


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


def closeness(bench: Bench) -> Table | None:
    """Table 17: how close edits stay to the false positive."""
    return _by_direction(
        bench,
        "Table 17",
        "cosine of false positive and edit, mean",
        lambda side: {k: v["mean"] for k, v in side["closeness"].items()},
        reference.CLOSENESS,
        percent=False,
    )


def shortfalls(bench: Bench) -> Table | None:
    """Table 18: what became of kept failures that were not repaired, and how often kept edits are wrong."""
    facts = _quality(bench)
    if facts is None:
        return None
    rows = []
    for direction in Direction:
        for reason, n in list(facts["directions"][str(direction)]["unrepaired_reasons"].items())[:6]:
            rows.append((direction.short, reason, f"{n:,}"))
        true = ((facts["truth"] or {}).get("repairs_true_rate") or {}).get(str(direction))
        if true is not None:
            rows.append((direction.short, "kept edit does not match its query (semantic mismatch)", f"{1 - true:.1%}"))
    note = "The paper's 60 shortfalls of 800: semantic mismatch 34, scaffold drift 21, ambiguous 4, artefact 1."
    return Table("Table 18", "failure modes", ("direction", "what", "how many"), tuple(rows), note)


def _by_direction(
    bench: Bench,
    name: str,
    title: str,
    values: Callable[[Mapping[str, Any]], Mapping[str, float | None]],
    said: Mapping[str, Mapping[str, float]],
    *,
    percent: bool = True,
) -> Table | None:
    facts = _quality(bench)
    if facts is None:
        return None

    def shown(value: float | None) -> str:
        if value is None:
            return _NONE
        return f"{100 * value:.1f} %" if percent else f"{value:.3f}"

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


def _score(metric: str, value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.4f}" if metric == "MRR" else f"{100 * value:.2f}"


def _difference(bench: Bench, variant: str) -> str:
    if bench.repair is None or variant == bench.repair:
        return _NONE
    return _interval(bench.row(variant)["differences"].get(bench.repair, {}).get("mean R@1"))


def _interval(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return _NONE
    text = f"{100 * difference['mean']:+.2f}"
    if difference.get("low") is not None:
        text += f" [{100 * difference['low']:+.2f}, {100 * difference['high']:+.2f}]"
    return text
