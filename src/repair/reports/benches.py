"""A finished bench opened for reading, and the cells and tables that pages about it are made of."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.errors import DataError
from repair.core.records import Direction
from repair.numerics.statistics import Seeds, paired_seeds
from repair.pipeline.places import LEDGER
from repair.reports.asked import Row, own_keys, rows_of
from repair.reports.bench_file import again, place_of, read_bench
from repair.reports.view import RunView
from repair.store.files import read_json
from repair.store.run_folder import is_run_folder

NONE = "–"
NO_REPAIR = "no run of RePair at its whole budget"


@dataclass(frozen=True, slots=True)
class Table:
    """A table as Markdown shows it; `name` as the paper numbers it."""

    name: str
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def lines(self, *, level: int = 2) -> list[str]:
        body = [_line(row) for row in (self.heads, ("---",) * len(self.heads), *self.rows)]
        heading = f"{'#' * level} {self.name}: {self.title}"
        return [heading, "", *body, *(["", self.note] if self.note else []), ""]


@dataclass(frozen=True, slots=True)
class Bench:
    """A finished bench, opened for reading. Each run is opened once and its tables are kept."""

    facts: Mapping[str, Any]
    runs: Mapping[str, tuple[Path, ...]]  # by variant, one a seed
    folder: Path = field(default=Path())
    _views: dict[Path, RunView] = field(default_factory=dict, repr=False, compare=False)
    _calls: dict[Path | None, list[Row]] = field(default_factory=dict, repr=False, compare=False)  # by ledger
    _own: dict[Path, set[str]] = field(default_factory=dict, repr=False, compare=False)  # by run
    _facts_of: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what several tables show

    @classmethod
    def open(cls, given: Path) -> "Bench":
        """`given`: the folder, or a .json file of a bench in it. Raises DataError naming what is missing or damaged:
        the file, something in it, a run, or what a finished stage of a run has left."""
        path = place_of(given)
        facts = read_bench(path)
        variants = [row["variant"] for row in facts["rows"] if row["variant"] in facts["runs"]]  # in their order
        runs = {variant: tuple(Path(run) for run in facts["runs"][variant]) for variant in variants}
        bench = cls(
            facts, {name: tuple(_found(run, path, facts) for run in of) for name, of in runs.items()}, path.parent
        )
        for variant in bench.whole():
            for run in bench.runs[variant]:
                _check(bench.view(run), facts)
        return bench

    @property
    def name(self) -> str:
        return str(self.facts["bench"])

    def row(self, variant: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(row for row in self.facts["rows"] if row["variant"] == variant)
        return found

    def whole(self) -> list[str]:
        """Variants at their whole budget."""
        return [name for name in self.runs if share_of(name) == 100]

    def view(self, run: Path) -> RunView:
        """To be entered as often as one likes; leaving closes its ledger and blobs."""
        if run not in self._views:
            self._views[run] = RunView.open(run)
        return self._views[run]

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """What `make` gives, made at the first time of asking."""
        if key not in self._facts_of:
            self._facts_of[key] = make()
        return self._facts_of[key]

    def first(self, variant: str) -> RunView | None:
        """The first seed's run; None if the variant is not in the bench."""
        return self.view(self.runs[variant][0]) if variant in self.runs else None

    def repair_run(self) -> RunView | None:
        """The first seed's run of RePair itself."""
        return None if self.repair is None else self.first(self.repair)

    def config(self, variant: str) -> Config:
        """Of the first seed's run."""
        return self.view(self.runs[variant][0]).config

    def calls_of(self, run: Path) -> list[Row]:
        """Every attempt that a run made or asked for itself; each ledger is read once.

        Raises DataError if the run made calls and its ledger is missing or another's.
        """
        with self.view(run) as view:
            path = view.calls_file(LEDGER)
            if path not in self._calls:
                self._calls[path] = rows_of(view.attempts())
            if run not in self._own:
                self._own[run] = own_keys(view, self._calls[path])
        return [row for row in self._calls[path] if row.key in self._own[run]]

    @property
    def repair(self) -> str | None:
        """The variant that is RePair itself, by its name."""
        return next((name for name in self.whole() if name.lower() == "repair"), None)

    def gain(self, variant: str, over: str, metric: str = "mean R@1") -> Seeds:
        """What `variant` has more of a metric than `over`, paired by seed."""
        return paired_seeds(self.row(over)["seeds"][metric], self.row(variant)["seeds"][metric])

    def scores_after(self, run: Path, round: int) -> dict[Direction, float]:
        """A run's R@1 on the bench's split after a round. Raises DataError where it is not on record."""
        path = run / "evaluation" / f"round-{round}.json"
        try:
            facts = read_json(path)["splits"][self.facts["split"]]
            return {direction: float(facts[str(direction)]["metrics"]["R@1"]["value"]) for direction in Direction}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}: holds no R@1 of split {self.facts['split']} ({error!r}): {again(self.facts)}"
            ) from error


def share_of(variant: str) -> int:
    """Its share of the whole budget, in percent: bench names them "RePair 40%"."""
    last = variant.rsplit(" ", 1)[-1]
    return int(last[:-1]) if last.endswith("%") and last[:-1].isdecimal() else 100


def whole_of(variant: str) -> str:
    """The variant at its whole budget."""
    return variant.rsplit(" ", 1)[0] if share_of(variant) != 100 else variant


def _found(run: Path, path: Path, facts: Mapping[str, Any]) -> Path:
    """A run beside bench.json, where it is when the bench's folder has moved, else where bench.json says."""
    beside = path.parent / run.name
    for place in (beside, run):
        if is_run_folder(place):
            return place
    raise DataError(f"{path}: its run {run.name} is neither at {beside} nor at {run}: put it back, or {again(facts)}")


def _check(view: RunView, facts: Mapping[str, Any]) -> None:
    """Raises DataError unless every stage of the run has finished and its tables are there."""
    for step in view.steps:
        where = "the evaluation of the base" if step.round is None else f"round {step.round}"
        folder = view.folder.folder(step.round)
        if step.state is None:
            raise DataError(
                f"{folder / f'{step.stage}.json'}: missing or damaged, so stage {step.stage} of {where} counts as not "
                f"finished: {again(facts)}"
            )
        for name in step.state.outputs:
            if name.endswith((".parquet", ".json")) and not (view.folder.path / name).exists():
                raise DataError(f"{view.folder.path / name}: missing, and stage {step.stage} left it: {again(facts)}")


# ---------------------------------------------------------------------------------------------- cells


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def count(value: float) -> str:
    """A number of things, or a mean of some: whole, a half up."""
    return f"{math.floor(value + 0.5):,}"


def percent(share: float | None) -> str:
    """ "25.0 %"."""
    return NONE if share is None else f"{100 * share:.1f} %"


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
