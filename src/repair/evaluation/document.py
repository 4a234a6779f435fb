"""What an evaluation writes: results.json with its JSON schema, and one row for each item in JSONL and Parquet.

FOLDER/
  results.json      the document below: model, settings, every suite with its facts and scores
  schema.json       JSON Schema of results.json
  scores.jsonl      the scores alone, one a line; scores.parquet likewise
  items.jsonl       one row for each item and task (`Outcome`); items.parquet likewise
  SUITE-texts.jsonl texts that were made here (Order shuffles, half-truths), so that they can be used again
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repair.core.errors import DataError
from repair.numerics.statistics import Interval
from repair.store.files import read_json, write_json, write_text
from repair.store.tables import read_table, write_table

SCHEMA = "repair-evaluation/1"
RESULTS = "results.json"


class Score(BaseModel):
    """One number of one suite. Shares are in [0, 1]; ranks are ranks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str = Field(description="What it is of: a direction, a split, a group of items, or an average by name.")
    metric: str = Field(description='"R@1", "MRR", "accuracy", "text", …')
    value: float
    low: float | None = Field(None, description="Percentile interval from resampled images.")
    high: float | None = None
    confidence: float | None = None
    n: int = Field(description="Items or queries.")
    n_clusters: int | None = Field(None, description="Images that were resampled.")
    chance: float | None = Field(None, description="What random scores get.")
    blind: float | None = Field(None, description="What the same model gets when it sees only the average picture.")
    probe: float | None = Field(None, description="What a linear model over the texts alone gets, in five folds.")
    if_ties_won: float | None = None
    if_ties_lost: float | None = None


class FromItems(BaseModel):
    """How a score follows from the rows of items.parquet: what two results are tested on, item by item."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: str = Field(description="Of the score.")
    metric: str = Field(description="Of the score.")
    task: str = Field(description="Which rows.")
    value: Literal["hit", "rank", "1/rank"] = Field("hit", description='"rank": whether the rank is at most `most`.')
    most: int | None = None
    parts: list[list[str]] | None = Field(
        None, description="Groups of rows; the score is the mean of the parts' means. None: the mean of all rows."
    )


class Missing(BaseModel):
    """What could not be run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_images: int = 0
    n_items: int = 0
    images: list[str] = Field(default_factory=list, description="Names of the first missing images.")
    problems: list[str] = Field(default_factory=list, description="Missing files, items or sizes that are not right.")


class SuiteResult(BaseModel):
    """One suite on one model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str
    kind: str = Field(description='"retrieval", "choice", "zeroshot" or "drift".')
    partial: bool = Field(description="Not the whole published suite: not comparable with published numbers.")
    n_items: int = Field(description="Items the suite has here.")
    n_run: int = Field(description="Items that were run.")
    missing: Missing
    headline: str = Field(description='"group / metric" of the score to look at first.')
    facts: dict[str, Any] = Field(description="Split, counts, tie rule, versions, hashes: whatever defines the suite.")
    pictures: dict[str, Any] = Field(description="How to find the pictures again.")
    scores: list[Score]
    from_items: list[FromItems] = Field(default_factory=list, description="Of the scores that items alone decide.")
    clip_benchmark: list[dict[str, Any]] = Field(
        default_factory=list, description="The same in CLIP_benchmark's words: dataset, task, metrics."
    )

    def score(self, group: str, metric: str) -> Score:
        """One of its scores. Raises DataError if it has none of that name."""
        for found in self.scores:
            if (found.group, found.metric) == (group, metric):
                return found
        raise DataError(f"suite {self.suite} has no score {group} / {metric}")


class Document(BaseModel):
    """results.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_name: str = Field(SCHEMA, alias="schema")
    model: dict[str, Any] = Field(description="spec, name, fingerprint, dim, logit_scale.")
    settings: dict[str, Any] = Field(description="confidence, n_bootstrap, seed.")
    versions: dict[str, str]
    suites: list[SuiteResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One item under one task. In retrieval an item is a query, and `hit` says whether its rank is 1."""

    suite: str
    group: str
    task: str
    item: str
    cluster: str  # what a bootstrap resamples: the image
    image: str  # the picture the item is about; in text_to_image the right one
    query: str  # the caption that asks, or "" where a picture asks
    expected: str  # the text (or picture) that should win
    got: str  # the text (or picture) that stands highest; where the right one wins, that
    hit: bool
    rank: int | None
    margin: float | None  # by how much the right option is above the best wrong one; 0 is a tie


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """A `Score` with its suite, as a row of a table."""

    suite: str
    partial: bool
    group: str
    metric: str
    value: float
    low: float | None
    high: float | None
    confidence: float | None
    n: int
    n_clusters: int | None
    chance: float | None
    blind: float | None
    probe: float | None
    if_ties_won: float | None
    if_ties_lost: float | None


def score_of(group: str, metric: str, interval: Interval, **others: float | None) -> Score:
    """A score with its interval."""
    return Score(
        group=group,
        metric=metric,
        value=interval.estimate,
        low=interval.low,
        high=interval.high,
        confidence=interval.confidence,
        n=interval.n,
        n_clusters=interval.n_clusters,
        **others,
    )


def write_results(
    folder: Path,
    document: Document,
    outcomes: Sequence[Outcome],
    texts: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> None:
    """Write everything of an evaluation into `folder`; results.json last. Raises StoreError if it cannot be written."""
    rows = [
        ScoreRow(suite=suite.suite, partial=suite.partial, **score.model_dump())
        for suite in document.suites
        for score in suite.scores
    ]
    for suite, items in (texts or {}).items():
        write_text(folder / f"{suite}-texts.jsonl", lines_of(items))
    write_table(folder / "scores.parquet", rows, ScoreRow)
    write_text(folder / "scores.jsonl", lines_of(map(asdict, rows)))
    write_table(folder / "items.parquet", outcomes, Outcome)
    write_text(folder / "items.jsonl", lines_of(map(asdict, outcomes)))
    write_json(folder / "schema.json", Document.model_json_schema(by_alias=True))
    write_json(folder / RESULTS, document.model_dump(by_alias=True))


def read_results(folder: Path) -> tuple[Document, list[Outcome]]:
    """What `write_results` wrote. Raises DataError for a file of another form, StoreError for one that is missing."""
    path = folder / RESULTS
    content = read_json(path)
    try:
        document = Document.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: not a results file of this version: {where}: {first['msg']}") from error
    if document.schema_name != SCHEMA:
        raise DataError(f'{path}: of the form "{document.schema_name}", this version reads "{SCHEMA}"')
    return document, read_table(folder / "items.parquet", Outcome)


def lines_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """JSON lines: keys sorted, so that equal rows give equal bytes."""
    return "".join(json.dumps(dict(row), ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n" for row in rows)
