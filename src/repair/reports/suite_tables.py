"""The paper's Table 3 from what a bench keeps of its suites: every suite a table of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from repair.numerics.statistics import paired_seeds
from repair.pipeline.bench_suites import BASE
from repair.reports import paper_results as paper
from repair.reports.benches import NONE, Bench, Table, numbers, points
from repair.reports.paths import without_folders

_MAX_PARTS = 12  # more (the relations of ARO) are in the bench's folder


def compositional(bench: Bench) -> list[Table]:
    """Table 3 for each suite of the bench; none for a bench without."""
    return [_table(bench, suite) for suite in bench.facts.get("suites") or ()]


def _table(bench: Bench, suite: Mapping[str, Any]) -> Table:
    scores: Mapping[str, Mapping[str, list[float]]] = suite["seeds"]
    head, metric = suite["headline"], suite["headline"].rsplit(" / ", 1)[1]
    every = [name for name in suite["scores"] if name != head and name.rsplit(" / ", 1)[1] == metric]
    parts = every if len(every) <= _MAX_PARTS else []
    known = suite["kind"] == "choice"
    rows = []
    for variant in (BASE, *(name for name in bench.whole() if name in scores)):
        found = scores[variant]
        cells = [variant, *(f"{100 * float(np.mean(found[name])):.2f}" for name in (head, *parts))]
        against = bench.repair if bench.repair in scores and variant != bench.repair else None
        cells.append(NONE if against is None else points(paired_seeds(scores[against][head], found[head])))
        if known:
            cells.append(numbers(said) if (said := paper.known(paper.COMPOSITIONAL, variant)) else NONE)
        rows.append(tuple(cells))
    heads = ["method", *(name.removesuffix(f" / {metric}") for name in (head, *parts)), "Δ to RePair"]
    note = f"In percent ({metric}), means over seeds; {suite['n_items']:,} items."
    if not parts and every:
        note += f" Its {len(every)} parts are in the bench's folder, in suites/."
    if known:
        heads.append(f"paper: {' / '.join(paper.COMPOSITIONAL_SUITES)}")
        note += " The paper's are of other suites (ARO's), on other data: not comparable."
    return Table("Table 3", f"compositional, suite {without_folders(suite['suite'])}", tuple(heads), tuple(rows), note)
