"""The [bench] section of a bench file, read and checked: whatever is wrong with it is one line, before any run."""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
)

from repair.config import parse_override, toml_literal
from repair.core.errors import ConfigError, suggest
from repair.core.records import Direction
from repair.pipeline.bench_suites import BASE, Suites, checked_suites
from repair.pipeline.budgets import Match

_PREFIX = "bench."
_ALL = ""  # in place of a variant's name: what holds for all of them
_SHOWN_CHARACTERS = 80
_TAKEN = re.compile(r"calls|(.*-)?(samples|calls)-\d+")  # by folders that a bench makes itself


def _distinct(values: list[Any]) -> list[Any]:
    if len({f"{value:g}" if isinstance(value, float) else value for value in values}) < len(values):
        raise ValueError("named twice")
    return values


def _shares(values: list[float]) -> list[float]:
    percents = [round(100 * value) for value in values]
    if len(set(percents)) < len(values) or 0 in percents or 1.0 not in values:
        raise ValueError("two of the same percent, or the whole is missing")
    return values


def _points(value: Any) -> float | list[float]:
    values = value if isinstance(value, list) else [value]
    if isinstance(value, list) and len(value) != len(Direction):
        raise ValueError("one for each direction")
    if not all(type(one) in (int, float) and math.isfinite(one) for one in values):
        raise ValueError("not a number")
    return value  # type: ignore[no-any-return]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _by_variant(value: Any) -> Any:
    return value if isinstance(value, dict) else {_ALL: value}


_Whole = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Seeds = Annotated[list[_Whole], Field(min_length=1), AfterValidator(_distinct)]
_Words = Annotated[list[Annotated[str, Field(min_length=1)]], AfterValidator(_distinct)]
_SomeWords = Annotated[_Words, Field(min_length=1)]
_Shares = Annotated[list[_Share], AfterValidator(_shares)]
_SHARES = "a list of shares of the budget up to 1, 1.0 among them, no two of the same percent"


class Section(BaseModel):
    """[bench] as a file has it; a field's description is its rule, as a message says it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)

    seeds: _Seeds = Field([0, 1, 2], description="a list of whole numbers from 0, each once")
    seed_settings: _SomeWords = Field(["run.seed"], description='a list of settings, each once, e.g. ["run.seed"]')
    variants: dict[str, list[str]] = Field(
        {}, min_length=2, description="a table of two variants or more, each a list of settings"
    )
    references: _SomeWords | None = Field(None, description="a list of variants, each once")
    split: str | None = Field(None, description='the name of a split, e.g. "test"')
    match: Match | None = Field(None, description=f"one of {', '.join(get_args(Match))}")
    budget_of: str | None = Field(None, description="the name of a variant")
    fractions: Annotated[dict[str, _Shares], BeforeValidator(_by_variant)] | None = Field(
        None, description=f"{_SHARES}; or a table of such lists by variant"
    )
    lr_grid: Annotated[list[_Share], AfterValidator(_distinct)] = Field(
        [], description="a list of numbers above 0, at most 1, each once"
    )
    tune_seeds: _Seeds | None = Field(None, description="a list of some of bench.seeds, each once")
    suites: _Words = Field([], description="a list of texts, each once: suites of `repair eval --suite`")
    suite_data: Annotated[list[str], BeforeValidator(_listed)] = Field([], description="a text or a list of texts")
    paper: dict[str, Annotated[float | list[float], PlainValidator(_points)]] = Field(
        {}, description="a table of differences by variant"
    )


_PARTS = {  # the rule of what a table holds for a variant
    "variants": 'a list of settings, e.g. ["training.lr=1e-5"]',
    "fractions": _SHARES,
    "paper": "a number or [i2t, t2i], in points",
}


@dataclass(frozen=True, slots=True)
class Equal:
    """How a bench matches budgets and chooses learning rates."""

    match: Match
    budget_of: str
    fractions: Mapping[str, tuple[float, ...]]  # by variant
    rates: tuple[float, ...]  # () for the file's own
    tune_seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BenchFile:
    """What a bench file and its command line ask for, before any config is made of it."""

    content: Mapping[str, Any]  # the config that every variant starts from
    overrides: tuple[str, ...]  # of that config
    seeds: tuple[int, ...]
    seed_settings: tuple[str, ...]
    variants: Mapping[str, Sequence[str]]  # those that run, with their settings
    references: tuple[str, ...]
    split: str | None
    equal: Equal | None
    suites: Suites
    paper: Mapping[str, float | list[float]]
    notes: tuple[str, ...]  # what of the file does not hold this time, for people


def read_bench(
    path: Path, overrides: Sequence[str] = (), *, match: str | None = None, only: Sequence[str] = ()
) -> BenchFile:
    """A bench file with what the command line changes: `bench.…` among `overrides`, `match`, and `only`, which keeps
    these variants, the references and the one whose use is the budget.

    Raises ConfigError, a line for each fault, naming file, setting, rule and choices.
    """
    where = str(path)
    section_said, content = _split_file(path)
    given = {name: value for name, value in map(parse_override, overrides) if name.startswith(_PREFIX)}
    given = {name.removeprefix(_PREFIX): value for name, value in given.items()}
    section = _checked(where, section_said | given)
    if match is not None and match not in get_args(Match):
        raise ConfigError(f"--match must be {_rule('match')}, not {_shown(match)}")
    _check_names(where, section.variants)
    references = section.references or [next(iter(section.variants))]
    budget_of = section.budget_of or references[0]
    for setting, names in (
        ("bench.references", references),
        ("bench.budget_of", [budget_of]),
        ("bench.paper", section.paper),
        ("bench.fractions", [name for name in section.fractions or () if name != _ALL]),
        ("--only", only),
    ):
        for name in names:
            if name not in section.variants:
                raise ConfigError(f'{where}: {setting} names "{name}": {suggest(name, section.variants)}')
    kept = {*only, *references, budget_of} if only else set(section.variants)
    equal, notes = _equal(where, section, given, match, budget_of)
    return BenchFile(
        content=content,
        overrides=tuple(text for text in overrides if not parse_override(text)[0].startswith(_PREFIX)),
        seeds=tuple(section.seeds),
        seed_settings=tuple(section.seed_settings),
        variants={name: changes for name, changes in section.variants.items() if name in kept},
        references=tuple(references),
        split=section.split,
        equal=equal,
        suites=checked_suites(section.suites, section.suite_data, where=where),
        paper=section.paper,
        notes=notes,
    )


def slug(variant: str) -> str:
    """The variant's name as a folder has it."""
    return "".join(c if c.isalnum() else "-" for c in variant.lower())


def _equal(
    where: str, section: Section, given: Mapping[str, Any], match: str | None, budget_of: str
) -> tuple[Equal | None, tuple[str, ...]]:
    tune_seeds, notes = _tune_seeds(where, section, given)
    asked = match or section.match
    if asked is None and not section.lr_grid and section.fractions is None:
        return None, ()
    by_variant = section.fractions or {}
    common = by_variant.get(_ALL, [1.0])
    fractions = {name: tuple(by_variant.get(name, common)) for name in section.variants}
    if asked in (None, "steps") and any(share != 1 for shares in fractions.values() for share in shares):
        # A file written for another match may be asked for steps on the command line: then its shares mean nothing.
        if "fractions" in given or (match is None and "match" not in given):
            raise ConfigError(
                f"{where}: bench.fractions are shares of a budget, and match=steps has none: "
                "set bench.match to samples or calls, or leave bench.fractions out"
            )
        notes = (*notes, "bench: the file's fractions are left out, since match=steps has no budget to share")
        fractions = dict.fromkeys(fractions, (1.0,))
    equal = Equal(
        match=asked or "steps",  # type: ignore[arg-type]  # checked by the caller
        budget_of=budget_of,
        fractions=fractions,
        rates=tuple(float(rate) for rate in section.lr_grid),
        tune_seeds=tune_seeds,
    )
    return equal, notes if len(equal.rates) > 1 or asked == "steps" else ()


def _tune_seeds(where: str, section: Section, given: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The seeds that choose, and a note if the file's are none of those that the command line asks for."""
    seeds, said = section.seeds, section.tune_seeds or section.seeds[:1]
    strange = [seed for seed in said if seed not in seeds]
    if not strange:
        return tuple(said), ()
    if "tune_seeds" in given or "seeds" not in given:
        raise ConfigError(f"{where}: bench.tune_seeds names {strange[0]}, which is none of bench.seeds: {seeds}")
    chosen = [seed for seed in said if seed in seeds] or seeds[:1]
    told = ", ".join(map(str, chosen))
    return tuple(chosen), (f"bench: learning rates are chosen by seed {told}, since seed {strange[0]} does not run",)


def _check_names(where: str, variants: Mapping[str, Any]) -> None:
    """Names become rows of tables ("NAME 50%" is a share of the budget) and folders."""
    folders: dict[str, str] = {}
    for name in variants:
        told = f"{where}: bench.variants: the name {_shown(name)}"
        folder = slug(name)
        if not name.strip() or "|" in name or not name.isprintable():
            raise ConfigError(f"{told} cannot stand in a table: use words, without | and line breaks")
        if folder == BASE:
            raise ConfigError(f'{told} is the row of what every variant starts from: use another, e.g. "base model"')
        if re.search(r"\d\s*%\s*$", name):
            raise ConfigError(f"{told} reads like a share of a budget: use one that does not end in a percentage")
        if _TAKEN.fullmatch(folder):
            raise ConfigError(f"{told} has the folder of something else in a bench: use another name")
        if folder in folders:
            raise ConfigError(f"{told} has the same folder as {_shown(folders[folder])}: use another name")
        folders[folder] = name


def _checked(where: str, said: Mapping[str, Any]) -> Section:
    try:
        return Section.model_validate(dict(said))
    except ValidationError as error:
        lines = dict.fromkeys(f"{where}: {_explain(said, fault['loc'], fault['type'])}" for fault in error.errors())
        raise ConfigError("\n".join(lines)) from None


def _explain(said: Mapping[str, Any], loc: Sequence[Any], kind: str) -> str:
    """What is wrong at a place of the section: the setting, its rule, and what it is instead."""
    field = str(loc[0])
    if kind == "extra_forbidden":
        return f'unknown setting "bench.{field}": {suggest(field, Section.model_fields)}'
    name, rule, value = f"bench.{field}", _rule(field), said.get(field, {})
    parts = [part for part in loc[1:] if isinstance(value, Mapping) and part in value]
    if field in _PARTS and parts:
        name, rule, value = f"{name}.{parts[0]}", _PARTS[field], value[parts[0]]
    return f"{name} must be {rule}, not {_shown(value)}"


def _rule(field: str) -> str:
    return str(Section.model_fields[field].description)


def _shown(value: Any) -> str:
    text = toml_literal(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _split_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The [bench] section and the rest, which is a config."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such bench file; configs/bench-world.toml is one") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a readable TOML file: {error}") from None
    section = content.pop("bench", None)
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: a bench file needs a [bench] section; configs/bench-world.toml is one")
    return section, content
