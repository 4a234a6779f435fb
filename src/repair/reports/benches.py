"""A finished bench opened for reading, and the cells and tables that pages about it are made of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.errors import DataError
from repair.core.records import Direction
from repair.numerics.statistics import Seeds, paired_seeds
from repair.reports.view import RunView
from repair.store.files import read_json

NONE = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as Markdown shows it; `name` as the paper numbers it."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def lines(self, *, level: int = 2) -> list[str]:
        body = ["| " + " | ".join(row) + " |" for row in (self.heads, ("---",) * len(self.heads), *self.rows)]
        heading = f"{'#' * level} {self.name}: {self.title}"
        return [heading, "", *body, *(["", self.note] if self.note else []), ""]


@dataclass(frozen=True, slots=True)
class Bench:
    """A finished bench, opened for reading."""

    facts: Mapping[str, Any]
    runs: Mapping[str, tuple[Path, ...]]  # by variant, one a seed
    folder: Path = field(default=Path())

    @classmethod
    def open(cls, folder: Path) -> "Bench":
        """Raises DataError if there is no bench.json, or one without its runs."""
        path = folder / "bench.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            variants = [row["variant"] for row in facts["rows"] if row["variant"] in facts["runs"]]  # in their order
            runs = {variant: tuple(_found(Path(run), folder) for run in facts["runs"][variant]) for variant in variants}
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file: `repair bench` writes it when it is done") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read: {error!r}; run `repair bench` again") from error
        return cls(facts, runs, folder)

    def row(self, variant: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(row for row in self.facts["rows"] if row["variant"] == variant)
        return found

    def whole(self) -> list[str]:
        """Variants at their whole budget."""
        return [name for name in self.runs if share_of(name) == 100]

    def first(self, variant: str) -> RunView | None:
        """The first seed's run; None if the variant is not in the bench."""
        return RunView.open(self.runs[variant][0]) if variant in self.runs else None

    def config(self, variant: str) -> Config:
        """Of the first seed's run."""
        return _config(self.runs[variant][0])

    @property
    def repair(self) -> str | None:
        """The variant that is RePair itself, by its name."""
        return next((name for name in self.whole() if name.lower() == "repair"), None)

    def gain(self, variant: str, over: str, metric: str = "mean R@1") -> Seeds:
        """What `variant` has more of a metric than `over`, paired by seed."""
        return paired_seeds(self.row(over)["seeds"][metric], self.row(variant)["seeds"][metric])

    def scores_after(self, run: Path, round: int) -> dict[Direction, float]:
        """A run's R@1 on the bench's split after a round."""
        facts = read_json(run / "evaluation" / f"round-{round}.json")["splits"][self.facts["split"]]
        return {direction: float(facts[str(direction)]["metrics"]["R@1"]["value"]) for direction in Direction}


def share_of(variant: str) -> int:
    """Its share of the whole budget, in percent: bench names them "RePair 40%"."""
    last = variant.rsplit(" ", 1)[-1]
    return int(last[:-1]) if last.endswith("%") and last[:-1].isdecimal() else 100


def _found(run: Path, folder: Path) -> Path:
    """A run where bench.json says, else beside it, as when the bench's folder has moved."""
    return run if run.exists() else folder / run.name


@lru_cache(maxsize=1 << 12)
def _config(run: Path) -> Config:
    with RunView.open(run) as view:
        return view.config


# ---------------------------------------------------------------------------------------------- cells


def score(metric: str, value: float | None) -> str:
    """Percent, but MRR in [0, 1]."""
    if value is None:
        return NONE
    return f"{value:.4f}" if metric == "MRR" else f"{100 * value:.2f}"


def points(difference: Seeds | Mapping[str, Any] | None) -> str:
    """A difference of shares in points, with its interval where there is one."""
    if difference is None:
        return NONE
    if isinstance(difference, Seeds):
        difference = {"mean": difference.mean, "low": difference.low, "high": difference.high}
    text = f"{100 * difference['mean']:+.2f}"
    if difference.get("low") is not None:
        text += f" [{100 * difference['low']:+.2f}, {100 * difference['high']:+.2f}]"
    return text


def numbers(values: Sequence[float | None], form: str = ".1f") -> str:
    """ "62.6 / – / 25.4"."""
    return " / ".join(NONE if value is None else format(value, form) for value in values)
