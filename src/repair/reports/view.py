"""A finished or half-finished run, opened for reading: its tables, scores, calls and pictures.

Only what a finished stage left is read, so a run that has got part of the way, or is under way, can be reported on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from repair.config import Config
from repair.core.calls import Attempt
from repair.core.errors import RepairError, StoreError
from repair.core.ports import PairSource
from repair.core.progress import Silent
from repair.core.records import (
    Candidate,
    Failure,
    Grid,
    Instruction,
    Link,
    Pair,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Verdict,
)
from repair.core.synthesis import Sample
from repair.methods.method import Method
from repair.pipeline.evaluating import QueryRank
from repair.pipeline.places import BLOBS, LEDGER, calls_file, config_of, no_calls_file
from repair.pipeline.run import BASE, stages_of
from repair.pipeline.sources import open_source
from repair.pipeline.stages_methods import method_of
from repair.pipeline.stages_train import ROWS, TWINS
from repair.pipeline.workbench import Workbench
from repair.store.blobs import BlobStore
from repair.store.files import read_json
from repair.store.ledger import Ledger
from repair.store.run_folder import RunFolder, StageState
from repair.store.tables import read_table

Record = TypeVar("Record")

EDIT = "b2:"  # how the key of an edit begins: its content hash

# Which stage leaves which table, and of what.
_LEFT_BY: dict[type[Any], tuple[str, str]] = {
    Failure: ("mine", "failures"),
    Verdict: ("verify", "verdicts"),
    Instruction: ("instruct", "instructions"),
    Candidate: ("edit", "candidates"),
    ScoredCandidate: ("select", "scored"),
    Repair: ("select", "repairs"),
    Link: ("link", "links"),
    Grid: ("grids", "grids"),
    Sample: ("samples", "samples"),
}


class Evaluation(NamedTuple):
    """One evaluation: `round` None for the model that everything starts from."""

    round: int | None
    facts: Mapping[str, Any]
    ranks: Sequence[QueryRank]

    @property
    def label(self) -> str:
        return "before" if self.round is None else f"after round {self.round}"


class Step(NamedTuple):
    """A stage of a run, done or not."""

    round: int | None
    stage: str
    state: StageState | None


class RunView:
    """A context manager; closing it closes ledger and blobs. Raises StoreError if `path` holds no run."""

    def __init__(self, folder: RunFolder, config: Config) -> None:
        self.folder = folder
        self.config = config
        self._tables: dict[tuple[int, str], list[Any]] = {}
        self._captions: dict[str, dict[str, Pair]] = {}

    @classmethod
    def open(cls, path: Path) -> Self:
        folder = RunFolder.view(path)
        return cls(folder, config_of(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("ledger", "blobs"):
            opened = self.__dict__.pop(name, None)  # so that it can be entered again
            if opened is not None:
                opened.close()

    # ------------------------------------------------------------------------------------------ stages

    @cached_property
    def method(self) -> Method:
        """How the run makes what it trains on."""
        return method_of(self.config.method.name, self.config.method.options)

    @cached_property
    def states(self) -> dict[tuple[int | None, str], StageState]:
        return {(state.round, state.stage): state for state in self.folder.states()}

    @cached_property
    def steps(self) -> list[Step]:
        """Every stage the config asks for, in order, with its state where it has finished."""
        stages = stages_of(self.config)
        wanted: list[tuple[int | None, str]] = [(None, stage.name) for stage in BASE]
        wanted += [(round, stage.name) for round in range(self.config.pipeline.rounds) for stage in stages]
        return [Step(round, name, self.states.get((round, name))) for round, name in wanted]

    @cached_property
    def rounds(self) -> list[int]:
        """The rounds that have mined."""
        return sorted(round for round, name in self.states if round is not None and name == "mine")

    def table(self, round: int, record_type: type[Record]) -> list[Record]:
        """A table of a round; empty if its stage has not finished. Raises StoreError if it is damaged."""
        stage, name = _LEFT_BY[record_type]
        if (round, stage) not in self.states:
            return []
        if (round, name) not in self._tables:
            self._tables[round, name] = read_table(self.folder.folder(round) / f"{name}.parquet", record_type)
        return self._tables[round, name]

    def cells(self, round: int) -> list[Verdict]:
        """Verdicts on the cells of grids that were asked about; none where the grids stage has not finished or checks
        none. Raises StoreError if it left a table that is damaged or gone."""
        path = self.folder.folder(round) / "cells.parquet"
        state = self.states.get((round, "grids"))
        if state is None or path.relative_to(self.folder.path).as_posix() not in state.outputs:
            return []
        return read_table(path, Verdict)

    def metrics(self, round: int) -> list[dict[str, Any]]:
        """A row for each training step so far, also of a training that is under way; a torn last row is left out."""
        path = self.folder.folder(round) / ROWS
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def twins(self, round: int) -> list[list[int]]:
        """Near-duplicate images of the train split, as pairs of positions."""
        twins: list[list[int]] = read_json(self.folder.folder(round) / TWINS)
        return twins

    # ------------------------------------------------------------------------------------------ scores

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """Base first, then by round; only those that have finished, and looked at the test split of the config."""
        found = []
        for round in (None, *sorted(r for r, name in self.states if r is not None and name == "eval")):
            if (round, "eval") in self.states:
                name, folder = "base" if round is None else f"round-{round}", self.folder.folder(None)
                facts = read_json(folder / f"{name}.json")
                if self.config.data.test_split in facts["splits"]:
                    found.append(Evaluation(round, facts, read_table(folder / f"{name}-ranks.parquet", QueryRank)))
        return found

    def truth(self, round: int) -> Mapping[str, Any] | None:
        """What the data source knew about a round's verdicts, edits and grids; None where truth is unknown."""
        for evaluation in self.evaluations:
            if evaluation.round == round:
                return evaluation.facts.get("truth")
        return None

    # ------------------------------------------------------------------------------------------ data

    @cached_property
    def _opened(self) -> tuple[PairSource | None, str]:
        try:
            return open_source(self.config), ""
        except RepairError as error:
            return None, str(error)

    @property
    def source(self) -> PairSource | None:
        """None if the data cannot be opened here; `source_error` says why."""
        return self._opened[0]

    @property
    def source_error(self) -> str:
        return self._opened[1]

    def captions(self, split: str) -> dict[str, Pair]:
        """The captions of a split by id; empty without a source."""
        if split not in self._captions:
            pairs = () if self.source is None else self.source.pairs(split)
            self._captions[split] = {pair.caption_id: pair for pair in pairs}
        return self._captions[split]

    def caption(self, caption_id: str) -> Pair | None:
        """A caption of the test or the train split; None if it is neither, or there is no source."""
        data = self.config.data
        for split in (data.test_split, data.train_split):
            if caption_id in self.captions(split):
                return self.captions(split)[caption_id]
        return None

    @cached_property
    def own_captions(self) -> dict[str, list[str]]:
        """Caption ids of the test split by image."""
        own: dict[str, list[str]] = {}
        for pair in self.captions(self.config.data.test_split).values():
            own.setdefault(pair.image_id, []).append(pair.caption_id)
        return own

    @cached_property
    def edits(self) -> dict[str, Repair]:
        """Repairs of all rounds by the key of their edit."""
        return {
            repair.key: repair
            for round in self.rounds
            for repair in self.table(round, Repair)
            if repair.status is RepairStatus.REPAIRED and repair.key is not None
        }

    def text(self, key: str) -> str | None:
        """A caption's text by id, or an edited caption's by key; None if it is not known here."""
        if key in self.edits:
            return self.edits[key].text
        pair = None if key.startswith(EDIT) else self.caption(key)
        return None if pair is None else pair.text

    def calls_file(self, name: str) -> Path | None:
        """LEDGER or BLOBS, wherever it is now; None if it is not found. See `pipeline.places.calls_places`."""
        return calls_file(self.folder, self.config, name)

    def no_calls_file(self, name: str) -> str:
        """Where `calls_file` has looked, in words."""
        return no_calls_file(self.folder, self.config, name)

    @cached_property
    def blobs(self) -> BlobStore | None:
        path = self.calls_file(BLOBS)
        return None if path is None else BlobStore.view(path)

    @cached_property
    def ledger(self) -> Ledger | None:
        path = self.calls_file(LEDGER)
        return None if path is None else Ledger.view(path)

    def attempts(self) -> Iterator[Attempt]:
        """Every attempt in the ledger, oldest first; in a shared ledger also those of other runs."""
        if self.ledger is not None:
            for logged in self.ledger.attempts():
                yield logged.attempt

    @cached_property
    def bench(self) -> Workbench:
        """For encoders and features: a workbench that locks and writes nothing of the run."""
        bench = _ViewingBench(self.config, self.folder, Silent())
        bench.view = self
        return bench


class _ViewingBench(Workbench):
    view: RunView

    @cached_property
    def source(self) -> PairSource:
        return self.view.source or open_source(self.config)

    @cached_property
    def blobs(self) -> BlobStore:
        if self.view.blobs is None:
            raise StoreError(f"{self.folder.path} holds no edited images: {self.view.no_calls_file(BLOBS)}")
        return self.view.blobs
