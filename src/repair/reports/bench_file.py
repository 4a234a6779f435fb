"""bench.json, checked once at the door: whatever the tables read is there and of the right type."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from repair.core.errors import DataError
from repair.core.records import Direction
from repair.pipeline.bench_suites import BASE, TABLE
from repair.reports.paths import command_line

_NEEDED = ("mean R@1", *(f"{direction.short} R@1" for direction in Direction))
_AGAIN = "run `repair bench` again, which keeps the runs that are done"

Values = Annotated[list[float], Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, pattern=r"^[^\n\r]+$")]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Row(_Part):
    variant: Name
    mean: dict[str, float]
    seeds: dict[str, Values]


class _Equal(_Part):
    match: Literal["samples", "calls", "steps"]
    budget_of: str
    budgets: dict[str, int] = {}


class _Suite(_Part):
    suite: Name
    kind: str
    headline: Annotated[str, Field(pattern=" / ")]
    n_items: int
    scores: list[Annotated[str, Field(pattern=" / ")]]
    seeds: dict[str, dict[str, Values]]


class _File(_Part):
    bench: Annotated[str, Field(pattern=r"^[^/\\\n\r]+$")]  # it names files
    split: str
    seeds: Annotated[list[int], Field(min_length=1)]
    rows: Annotated[list[_Row], Field(min_length=1)]
    runs: Annotated[dict[Name, Annotated[list[str], Field(min_length=1)]], Field(min_length=1)]
    command: Annotated[list[str], Field(min_length=1)] | None = None
    equal: _Equal | None = None
    suites: list[_Suite] = []


def place_of(given: Path) -> Path:
    """The file that `given`, a bench's folder or a .json file in it, names. Raises DataError if there is none."""
    path = given if given.suffix == ".json" and not given.is_dir() else given / TABLE
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such file: give the folder of a bench, or a .json file in it that `repair bench` "
            "wrote when it was done"
        )
    return path


def read_bench(path: Path) -> dict[str, Any]:
    """What the file holds. Raises DataError naming the first thing that is missing or wrong, and what mends it."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}): {_AGAIN}") from error
    if not isinstance(facts, dict):
        raise DataError(f"{path}: holds no bench but a JSON {type(facts).__name__}: {again(facts)}")
    try:
        wrong = _disagreement(_File.model_validate(facts))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        message = first["msg"][0].lower() + first["msg"][1:]
        wrong = f"{where}: {message}"
    if wrong:
        raise DataError(f"{path}: {wrong}; a finished bench has it: {again(facts)}")
    return facts


def again(facts: Any) -> str:
    """What mends a bench, in words: its own command line, where it kept one."""
    command = facts.get("command") if isinstance(facts, Mapping) else None
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return _AGAIN.replace("repair bench", command_line(command))
    return _AGAIN


def _disagreement(file: _File) -> str:
    """What the parts of the file say of each other that cannot be, in words; "" if nothing."""
    n, rows = len(file.seeds), {row.variant: row for row in file.rows}
    if len(rows) < len(file.rows):
        return "rows: a variant has two rows"
    for variant, runs in file.runs.items():
        if variant not in rows:
            return f'rows: none of "{variant}", which has runs'
        if len(runs) != n:
            return f"runs.{variant}: {len(runs)} runs for {n} seeds"
    for variant, row in rows.items():
        if variant != BASE and variant not in file.runs:
            return f'runs: none of "{variant}", which has a row'
        for metric in _NEEDED:
            if metric not in row.mean or metric not in row.seeds:
                return f"rows: {variant} has no {metric}"
        for metric, values in row.seeds.items():
            if len(values) != n:
                return f"rows: {variant} has {len(values)} values of {metric} for {n} seeds"
    for suite in file.suites:
        if wrong := _of_suite(suite, n, (BASE, *file.runs)):
            return f"suites: {suite.suite}: {wrong}"
    return ""


def _of_suite(suite: _Suite, n: int, variants: tuple[str, ...]) -> str:
    if suite.headline not in suite.scores:
        return f'its headline "{suite.headline}" is none of its scores'
    if BASE not in suite.seeds:
        return "no scores of the base"
    for variant, found in suite.seeds.items():
        if variant not in variants:
            return f'"{variant}" is no variant of the bench'
        for name in suite.scores:
            if len(found.get(name, ())) != n:
                return f"{variant} has {len(found.get(name, ()))} values of {name} for {n} seeds"
    return ""
