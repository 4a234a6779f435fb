"""report.html: one self-contained page about a run, and report.json with the same numbers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from repair.core.progress import Progress, Silent
from repair.reports import plots, reference, wording
from repair.reports.account import told
from repair.reports.facts import facts_of, report_facts
from repair.reports.gallery import gallery
from repair.reports.gridcards import IMAGE_ROLES, TEXT_ROLES, grid_cards
from repair.reports.judged import WORDS
from repair.reports.kept_edits import wrong_edits
from repair.reports.learning import curves
from repair.reports.moved import moved_queries
from repair.reports.plots import Estimate
from repair.reports.samples import sample_cards
from repair.reports.shown import Shower
from repair.reports.view import RunView
from repair.store.files import write_json, write_text

__all__ = ["report_facts", "write_report"]

_TEMPLATES = Path(__file__).parent / "templates"


def write_report(run_path: Path, progress: Progress | None = None) -> Path:
    """Write `report.html` and `report.json` into the run folder; returns the path of the page.

    The page needs no network and no other file. It is made from what finished stages left, so a run that has got part
    of the way gets a page that says what is missing. The same folder gives the same bytes. Raises StoreError if the
    folder holds no run, a damaged one, or cannot be written.
    """
    with RunView.open(run_path) as view:
        facts = facts_of(view, progress or Silent())
        page = render(view, facts)
        write_json(view.folder.path / "report.json", facts)
        write_text(view.folder.report_path, page)
        return view.folder.report_path


def render(view: RunView, facts: Mapping[str, Any]) -> str:
    """The page of a run, from its numbers and its pictures."""
    shower = Shower.of(view)
    template = _environment().get_template("report.html.j2")
    return template.render(
        facts=facts,
        run=facts["run"],
        results=facts["results"],
        config=view.config,
        plots=_plots(view, facts),
        moved=moved_queries(view, shower),
        method=view.method,
        samples=sample_cards(view, shower),
        wrong_edits=wrong_edits(view, shower, facts["kept_edits"]),
        gallery=gallery(view, shower),
        grids=grid_cards(view, shower),
        paper=reference.ALL,
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        image_roles=IMAGE_ROLES,
        text_roles=TEXT_ROLES,
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = ("number", "percent", "signed", "probability", "score", "score_interval", "gain", "gain_interval", "money")
    environment.filters |= {name: getattr(wording, name) for name in names}
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    environment.filters["tojson_text"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals |= {
        "wording": wording,
        "reading": wording.reading,
        "told": told,
        "DIRECTIONS": wording.DIRECTIONS,
        "SHORTFALLS": {str(kind): words for kind, words in WORDS.items()},
    }
    return environment


# ---------------------------------------------------------------------------------------------- plots


def _plots(view: RunView, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Every plot as markup that is safe to insert: plots escape their own labels."""
    return {
        "scores": _score_plots(facts["results"], differences=False),
        "differences": _score_plots(facts["results"], differences=True),
        "flows": {} if facts["moves"] is None else _flows(facts["moves"]["directions"]),
        "links": [] if facts["links"] is None else [_link_plot(d) for d in facts["links"]["distributions"]],
        "training": {entry["round"]: _training_plots(view, entry["round"]) for entry in facts["training"]},
    }


def _score_plots(results: Mapping[str, Any] | None, *, differences: bool) -> dict[str, Markup]:
    """Intervals of R@k in per cent, before and after; or of the differences in points."""
    if results is None or (differences and results["after"] is None):
        return {}
    found = {}
    for direction, side in results["directions"].items():
        rows = []
        for metric, values in side["metrics"].items():
            shown = ("difference",) if differences else ("before", "after")
            row = [(name, _estimate(values[name])) for name in shown if values[name] is not None]
            if metric != "MRR" and row:
                rows.append((metric, row))
        what = "Difference in points" if differences else "Scores in per cent"
        label = f"{what}, {wording.DIRECTIONS[direction]}"
        found[direction] = Markup(plots.intervals(rows, zero=differences, unit="%", label=label))
    return found


def _estimate(values: Mapping[str, Any]) -> Estimate:
    low, high = values["low"], values["high"]
    return Estimate(100 * values["value"], None if low is None else 100 * low, None if high is None else 100 * high)


def _flows(moves: Mapping[str, Any]) -> dict[str, Markup]:
    return {
        direction: Markup(plots.flow(counts, label=f"Where the queries went, {wording.DIRECTIONS[direction]}"))
        for direction, counts in moves.items()
    }


def _link_plot(distribution: Mapping[str, Any]) -> Markup:
    label = f"Hard {distribution['kind']}s per {distribution['anchor']} anchor"
    return Markup(
        plots.histogram(
            distribution["histogram"], style=distribution["kind"], x_label=f"hard {distribution['kind']}s", label=label
        )
    )


def _training_plots(view: RunView, round: int) -> list[dict[str, Any]]:
    """[{"title", "legend", "svg"}, …] of the curves that were recorded."""
    found = curves(view, round)
    own = "grids (before λ)" if view.method.is_repair else "the method's own terms"
    wanted = (
        ("Loss", (("loss", "all"), ("global_loss", "batch"), ("local_loss", own))),
        ("Mean R@1 on val", (("score", "R@1"),)),
        ("Logit scale α", (("logit_scale", "α"),)),
        ("Learning rate", (("lr", "learning rate"),)),
        ("Gradient norm before clipping", (("grad_norm", "norm"),)),
    )
    made = []
    for title, lines in wanted:
        series = [(name, found[name]) for name, _ in lines if name in found]
        if series:
            svg = plots.curves(series, label=f"{title}, round {round}", dots=title.startswith("Mean"))
            legend = [(name, text) for name, text in lines if name in found] if len(lines) > 1 else []
            made.append({"title": title, "legend": legend, "svg": Markup(svg)})
    state = view.states.get((round, "train"))
    mixes = [] if state is None else [(float(a), float(score)) for a, score in state.summary.get("wise_ft_curve", [])]
    if mixes:
        title = "Mean R@1 on val, weights mixed with the start"
        svg = plots.curves(
            [("score", mixes)], label=f"{title}, round {round}", dots=True, x_label="share of the trained"
        )
        made.append({"title": title, "legend": [], "svg": Markup(svg)})
    return made
