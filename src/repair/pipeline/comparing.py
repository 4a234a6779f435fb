"""`repair compare`: two evaluations read from their folders, whichever command wrote them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair.core.errors import ConfigError, RepairError
from repair.core.ports import PairSource
from repair.core.records import Direction
from repair.evaluation.document import RESULTS, FromItems, Outcome, read_results
from repair.evaluation.pictures import FolderPictures
from repair.evaluation.versus import Versus, versus
from repair.numerics.statistics import N_RESAMPLES
from repair.pipeline.evaluating import QueryRank
from repair.pipeline.places import config_of
from repair.pipeline.sources import open_source
from repair.store.run_folder import RunFolder, is_run_folder
from repair.store.tables import read_table
from repair.world.source import WorldSource

Picture = Callable[[str], bytes | None]  # (name) to encoded bytes, None if it cannot be had here


@dataclass(frozen=True, slots=True)
class Side:
    """One method: its seeds' outcomes, and how its pictures are found, by suite."""

    name: str
    runs: tuple[tuple[Outcome, ...], ...]
    partial: tuple[str, ...]
    pictures: Mapping[str, Picture] = field(repr=False)
    scores: Mapping[str, Sequence[FromItems]] = field(repr=False)  # how they follow from the outcomes, by suite


def compare(
    a: str, b: str, *, confidence: float = 0.95, n_bootstrap: int = N_RESAMPLES, seed: int = 0, items: int | None = None
) -> tuple[dict[str, Any], list[Versus], Side]:
    """B against A: the JSON form, the comparisons, and the side whose pictures are shown.

    `a` and `b` are folders that `repair eval --out` wrote, or folders of runs ("RUN" is what the run ended with,
    "RUN@base" or "RUN@round-0" another of its evaluations); several seeds of one method are joined by commas.

    Raises ConfigError for a folder that is neither, and what reading raises.
    """
    first, second = _side(a), _side(b)
    scores = {**second.scores, **first.scores}
    found = versus(first.runs, second.runs, scores=scores, confidence=confidence, n_bootstrap=n_bootstrap, seed=seed)
    facts = {
        "a": {"name": first.name, "n_seeds": len(first.runs)},
        "b": {"name": second.name, "n_seeds": len(second.runs)},
        "partial": {"A": ", ".join(first.partial), "B": ", ".join(second.partial)},
        "settings": {"confidence": confidence, "n_bootstrap": n_bootstrap, "seed": seed},
        "comparisons": [one.to_json(items=items) for one in found],
    }
    return facts, found, second if second.pictures else first


def _side(spec: str) -> Side:
    parts = [part.strip() for part in spec.split(",") if part.strip()]
    if not parts:
        raise ConfigError("compare: name two evaluations, each a folder (or several, joined by commas)")
    read = [_read(part) for part in parts]
    return Side(
        name=spec,
        runs=tuple(one.outcomes for one in read),
        partial=tuple(sorted({name for one in read for name in one.partial})),
        pictures=read[0].pictures,
        scores=read[0].scores,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """One seed's evaluation."""

    outcomes: tuple[Outcome, ...]
    partial: tuple[str, ...]
    pictures: Mapping[str, Picture]
    scores: Mapping[str, Sequence[FromItems]]


def _read(spec: str) -> _Read:
    path, _, when = spec.partition("@")
    folder = Path(path).expanduser()
    if (folder / RESULTS).is_file():
        document, outcomes = read_results(folder)
        partial = tuple(suite.suite for suite in document.suites if suite.partial)
        return _Read(
            tuple(outcomes),
            partial,
            {suite.suite: _pictures(suite.pictures) for suite in document.suites},
            {suite.suite: suite.from_items for suite in document.suites},
        )
    if is_run_folder(folder):
        return _run(folder, when)
    if (folder / "table.json").is_file():
        inside = ", ".join(sorted(str(path.parent) for path in folder.glob(f"*/{RESULTS}")))
        raise ConfigError(f"{folder} holds several models: name one of {inside}")
    raise ConfigError(f"{folder} holds neither {RESULTS} (repair eval --out) nor run.json (a run's folder)")


def _pictures(place: Mapping[str, Any]) -> Picture:
    if place.get("kind") == "world":
        options = {"n_train": 0, "n_val": 0, **dict(place.get("options") or {})}
        return _of_source(lambda: WorldSource(**options))
    pictures = FolderPictures(Path(str(place.get("root", "."))))
    return lambda name: _tried(lambda: pictures.item(name).read())


def _of_source(make: Callable[[], PairSource]) -> Picture:
    kept: list[PairSource] = []

    def read(name: str) -> bytes | None:
        if not kept:
            kept.append(make())
        return _tried(lambda: kept[0].read_image(name.split("/")[0] if isinstance(kept[0], WorldSource) else name))

    return read


def _tried(read: Callable[[], bytes]) -> bytes | None:
    try:
        return read()
    except RepairError:
        return None


def _run(folder: Path, when: str) -> _Read:
    """The ranks of a run's evaluation, with texts and owners from its data."""
    tables = {
        path.name.removesuffix("-ranks.parquet"): path for path in (folder / "evaluation").glob("*-ranks.parquet")
    }
    rounds = sorted((name for name in tables if name != "base"), key=lambda name: int(name.removeprefix("round-")))
    chosen = when or (rounds[-1] if rounds else "base")
    if chosen not in tables:
        raise ConfigError(
            f'run {folder} has no evaluation "{chosen}": it has {", ".join(sorted(tables)) or "none yet"}'
        )
    source = open_source(config_of(RunFolder.view(folder)))
    rows = read_table(tables[chosen], QueryRank)
    outcomes: list[Outcome] = []
    names = []
    for split in dict.fromkeys(row.split for row in rows):
        names.append(f"run: {split}")
        outcomes += _outcomes(names[-1], [row for row in rows if row.split == split], source, split)
    return _Read(tuple(outcomes), (), dict.fromkeys(names, _of_source(lambda: source)), {})


def _outcomes(name: str, rows: Sequence[QueryRank], source: PairSource, split: str) -> list[Outcome]:
    pairs = {pair.caption_id: pair for pair in source.pairs(split)}
    first: dict[str, str] = {}
    for pair in pairs.values():
        first.setdefault(pair.image_id, pair.text)
    found = []
    for row in rows:
        by_image = row.direction is Direction.IMAGE_TO_TEXT
        image = row.query_id if by_image else pairs[row.query_id].image_id
        found.append(
            Outcome(
                suite=name,
                group=str(row.direction),
                task=str(row.direction),
                item=row.query_id,
                cluster=image,
                image=image,
                query="" if by_image else pairs[row.query_id].text,
                expected=first[image] if by_image else image,
                got=pairs[row.top1_id].text if by_image else row.top1_id,
                hit=row.rank == 1,
                rank=row.rank,
                margin=None,
            )
        )
    return found
