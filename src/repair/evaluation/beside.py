"""Several models on the same suites: scores side by side, seeds combined, and paired tests of each two.

FOLDER/
  table.json       the document below, with its JSON Schema in table-schema.json
  table.jsonl      one row for each score and model; table.parquet likewise
  tests.jsonl      one row for each score and pair of models; tests.parquet likewise
  A, B, …          each model's own results (`document`); with several seeds A-1, A-2, …

A model of several seeds has the mean of its seeds, their standard deviation, and a t-interval over seeds; a model of
one has the interval from resampled images. Tests are those of `versus`. Their p-values are not adjusted for how many
there are: the number is printed with them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from repair.evaluation.document import Document, Outcome, Score, SuiteResult, lines_of
from repair.evaluation.tables import interval, shown, suite_head, table
from repair.evaluation.versus import Versus, comparison_table, versus
from repair.numerics.statistics import combine_seeds
from repair.store.files import write_json, write_text
from repair.store.tables import write_table

SCHEMA = "repair-evaluation-table/1"


@dataclass(frozen=True, slots=True)
class Column:
    """One model: a letter, how it was named, and the results of each of its seeds."""

    name: str
    spec: str
    documents: tuple[Document, ...]
    outcomes: tuple[tuple[Outcome, ...], ...]


class Cell(BaseModel):
    """One score of one model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="Its letter.")
    n_seeds: int
    value: float = Field(description="Of one seed, or the mean over seeds.")
    low: float | None = Field(None, description="From resampled images; of several seeds, a t-interval over seeds.")
    high: float | None = None
    sd: float | None = Field(None, description="Over seeds, of one of them.")
    n: int
    blind: float | None = Field(None, description="What the model gets when it sees only the average picture.")


class TableRow(BaseModel):
    """One score of one suite, of every model that has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str
    partial: bool
    group: str
    metric: str
    chance: float | None
    probe: float | None = Field(description="What a linear model over the texts alone gets: no matter of the model.")
    cells: list[Cell]


class Tested(BaseModel):
    """Model `b` against model `a` on one score."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    a: str
    b: str
    suite: str
    task: str
    group: str
    metric: str
    before: float = Field(description="Of a.")
    after: float = Field(description="Of b.")
    difference: dict[str, Any]
    p_mcnemar: float | None
    seeds: dict[str, Any] | None
    counts: dict[str, int | None]


class Table(BaseModel):
    """table.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_name: str = Field(SCHEMA, alias="schema")
    models: list[dict[str, Any]] = Field(description="name (a letter), spec, and the model of each seed's results.")
    settings: dict[str, Any]
    versions: dict[str, str]
    rows: list[TableRow]
    tests: list[Tested]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A `Cell` with its score, as a row of a table."""

    suite: str
    partial: bool
    group: str
    metric: str
    model: str
    spec: str
    n_seeds: int
    value: float
    low: float | None
    high: float | None
    sd: float | None
    n: int
    chance: float | None
    blind: float | None
    probe: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedRow:
    """A `Tested` as a row of a table."""

    a: str
    b: str
    suite: str
    group: str
    metric: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    confidence: float
    p_value: float
    p_mcnemar: float | None
    n: int
    n_clusters: int
    n_seeds: int | None
    seeds_sd: float | None
    seeds_p_value: float | None
    fixed: int | None
    newly_broken: int | None


def beside(columns: Sequence[Column], *, confidence: float, n_bootstrap: int, seed: int) -> Table:
    """All scores side by side, and a test of each two models on every score that items decide.

    Raises DataError if two of them have no item in common.
    """
    first = columns[0].documents[0]
    scores = {suite.suite: suite.from_items for suite in first.suites}
    tested = [
        (a, b, one)
        for a, b in combinations(columns, 2)
        if a.outcomes[0]  # drift alone has no items
        for one in versus(
            a.outcomes, b.outcomes, scores=scores, confidence=confidence, n_bootstrap=n_bootstrap, seed=seed
        )
    ]
    return Table(
        schema=SCHEMA,
        models=[
            {"name": column.name, "spec": column.spec, "seeds": [document.model for document in column.documents]}
            for column in columns
        ],
        settings={"confidence": confidence, "n_bootstrap": n_bootstrap, "seed": seed},
        versions=first.versions,
        rows=[_row(suite, score, columns, confidence=confidence) for suite in first.suites for score in suite.scores],
        tests=[_tested(a, b, one) for a, b, one in tested],
    )


def write_beside(folder: Path, found: Table) -> list[Path]:
    """Write the table below `folder`; table.json last. Raises StoreError if it cannot be written."""
    specs = {model["name"]: model["spec"] for model in found.models}
    cells = [
        CellRow(
            suite=row.suite,
            partial=row.partial,
            group=row.group,
            metric=row.metric,
            spec=specs[cell.model],
            chance=row.chance,
            probe=row.probe,
            **cell.model_dump(),
        )
        for row in found.rows
        for cell in row.cells
    ]
    tests = [_test_row(one) for one in found.tests]
    write_table(folder / "table.parquet", cells, CellRow)
    write_text(folder / "table.jsonl", lines_of(map(asdict, cells)))
    write_table(folder / "tests.parquet", tests, TestedRow)
    write_text(folder / "tests.jsonl", lines_of(map(asdict, tests)))
    write_json(folder / "table-schema.json", Table.model_json_schema(by_alias=True))
    write_json(folder / "table.json", found.model_dump(by_alias=True))
    return [folder / "table.json"]


def beside_lines(found: Table, columns: Sequence[Column]) -> list[str]:
    """The models, one block a suite with a column for each model, and the tests."""
    lines = []
    for column in columns:
        model, n = column.documents[0].model, len(column.documents)
        about = f"{model['name']}, {model['dim']} dimensions" + (f", {n} seeds" if n > 1 else "")
        lines.append(f"{column.name}  {column.spec} ({about})")
    for suite in columns[0].documents[0].suites:
        head = suite_head(suite)
        rows = [row for row in found.rows if row.suite == suite.suite]
        lines += ["", *head]
        for column in columns[1:]:  # ties, and texts that are cut, are the model's
            own = next(one for one in column.documents[0].suites if one.suite == suite.suite)
            lines += [f"  {column.name}: {line.strip()}" for line in suite_head(own) if line not in head]
        lines += [f"  {line}" for line in _suite_table(rows)]
    if found.tests:
        n = len(found.tests)
        lines += ["", f"paired tests on the same items, {n} of them (p-values are not adjusted for their number)"]
    for a, b in dict.fromkeys((one.a, one.b) for one in found.tests):
        pair = [one.model_dump() for one in found.tests if (one.a, one.b) == (a, b)]
        lines += ["", *comparison_table(pair, names=(a, b))]
    return lines


def _row(suite: SuiteResult, score: Score, columns: Sequence[Column], *, confidence: float) -> TableRow:
    cells = []
    for column in columns:
        found = [one for document in column.documents if (one := _found(document, suite, score)) is not None]
        if len(found) == len(column.documents):
            cells.append(_cell(column.name, found, confidence=confidence))
    return TableRow(
        suite=suite.suite,
        partial=suite.partial,
        group=score.group,
        metric=score.metric,
        chance=score.chance,
        probe=score.probe,
        cells=cells,
    )


def _found(document: Document, suite: SuiteResult, score: Score) -> Score | None:
    """A model's score of the same name; drift of a model of another dimension has none of its cosines."""
    for other in document.suites:
        if other.suite == suite.suite:
            for one in other.scores:
                if (one.group, one.metric) == (score.group, score.metric):
                    return one
    return None


def _cell(name: str, found: Sequence[Score], *, confidence: float) -> Cell:
    if len(found) == 1:
        one = found[0]
        return Cell(model=name, n_seeds=1, value=one.value, low=one.low, high=one.high, n=one.n, blind=one.blind)
    seeds = combine_seeds([one.value for one in found], confidence=confidence)
    blind = [one.blind for one in found if one.blind is not None]
    return Cell(
        model=name,
        n_seeds=seeds.n,
        value=seeds.mean,
        low=seeds.low,
        high=seeds.high,
        sd=seeds.sd,
        n=found[0].n,
        blind=float(np.mean(blind)) if blind else None,
    )


def _tested(a: Column, b: Column, one: Versus) -> Tested:
    content = one.to_json(items=0)
    del content["changed"]
    return Tested(a=a.name, b=b.name, **content)


def _test_row(one: Tested) -> TestedRow:
    gain, seeds = one.difference, one.seeds or {}
    return TestedRow(
        a=one.a,
        b=one.b,
        suite=one.suite,
        group=one.group,
        metric=one.metric,
        before=one.before,
        after=one.after,
        difference=gain["estimate"],
        **{name: gain[name] for name in ("low", "high", "confidence", "p_value", "n", "n_clusters")},
        p_mcnemar=one.p_mcnemar,
        n_seeds=seeds.get("n"),
        seeds_sd=seeds.get("sd"),
        seeds_p_value=seeds.get("p_value"),
        fixed=one.counts["fixed"],
        newly_broken=one.counts["newly_broken"],
    )


def _suite_table(rows: Sequence[TableRow]) -> list[str]:
    """A line for each score: n, chance and the text probe, then each model with interval and blind score."""
    names = list(dict.fromkeys(cell.model for row in rows for cell in row.cells))
    cells = [{cell.model: cell for cell in row.cells} for row in rows]
    chance, probe = (any(getattr(row, name) is not None for row in rows) for name in ("chance", "probe"))
    blind = any(cell.blind is not None for row in rows for cell in row.cells)
    head = ["of", "score", "n", *["chance"] * chance, *["text probe"] * probe]
    head += [title for name in names for title in (name, "interval", *["blind"] * blind)]
    lines = [head]
    for row, known in zip(rows, cells, strict=True):
        line = [row.group, row.metric, str(row.cells[0].n) if row.cells else ""]
        line += [shown(row.metric, row.chance)] * chance + [shown(row.metric, row.probe)] * probe
        for name in names:
            cell = known.get(name)
            line += _shown(row.metric, cell) + [shown(row.metric, cell.blind if cell else None)] * blind
        lines.append(line)
    return table(lines, n_left=2)


def _shown(metric: str, cell: Cell | None) -> list[str]:
    if cell is None:
        return ["", ""]
    spread = "" if cell.sd is None else f" ± {shown(metric, cell.sd)}"
    return [f"{shown(metric, cell.value)}{spread}", interval(metric, cell.low, cell.high)]
