"""Several variants of one config over several seeds, compared on the same test items.

A bench file is a config with one more section:

    [bench]
    seeds = [0, 1, 2]
    seed_settings = ["run.seed", "data.options.seed"]     # what a seed sets; default: run.seed
    references = ["vanilla", "repair"]                    # what each variant is compared with; default: the first
    split = "test"                                        # default: data.test_split
    match = "samples"                                     # equal budgets: samples, calls or steps; default: none
    budget_of = "repair"                                  # whose use is the budget; default: the first reference
    fractions = [0.5, 1.0]                                # of that budget, each a row of its own; default: [1.0]
                                                          # or of some variants only: { repair = [0.5, 1.0] }
    lr_grid = [3e-5, 1e-4]                                # chosen for each variant on val; default: the file's lr
    tune_seeds = [0]                                      # the seeds that choose; default: the first
    suites = ["world"]                                    # of `repair eval --suite`, for every run; default: none
    suite_data = "captions.jsonl"                         # for suites that need data

    [bench.variants]
    repair = []                                           # settings on top of the file's, as after --set
    vanilla = ["training.loss=vanilla"]

    [bench.paper]                                         # the paper's differences to the last reference, in points
    vanilla = [-2.10, -1.96]                              # of R@1, i2t and t2i, or a number: of their mean

`--set bench.seeds=[0]` and the like change this section; `--only NAME` keeps these variants and the references. Runs of
one seed share their calls, so a variant asks only what no other asked before. Each run is a folder of its own and
resumes like any other; the table is made from the folders alone.

Whatever the match, every step of every variant encodes as many items. Under `samples` no variant trains on more
samples than `budget_of` has repairs in that seed, under `calls` none asks for more calls. The learning rate is chosen
by mean R@1 on the val split, at the whole budget; the test split is never looked at.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from repair.config import Config, load_config, parse_override
from repair.core.errors import ConfigError, suggest
from repair.core.progress import Progress
from repair.core.records import Direction
from repair.numerics import statistics
from repair.pipeline.bench_suites import BASE, NO_SUITES, Suites, checked_suites, judge_runs, open_suites
from repair.pipeline.budgets import Match, allowance, best_rate, checked_match, has_samples, reference_use
from repair.store.files import write_json

_PREFIX = "bench."
_KEYS = frozenset(
    {"seeds", "seed_settings", "references", "split", "variants", "paper"}
    | {"match", "budget_of", "fractions", "lr_grid", "tune_seeds", "suites", "suite_data"}
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a bench file asks for."""

    name: str
    folder: Path
    seeds: tuple[int, ...]
    references: tuple[str, ...]
    split: str
    configs: Mapping[tuple[str, int], Config]  # by variant and seed
    paper: Mapping[
        str, float | list[float]
    ]  # its differences to the last reference: of i2t and t2i R@1, or of the mean
    equal: "Equal | None" = None  # how budgets are matched and learning rates chosen
    account: Mapping[str, Any] = field(default_factory=dict)  # budgets and rates, once known
    suites: Suites = NO_SUITES

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(variant for variant, _ in self.configs))


@dataclass(frozen=True, slots=True)
class Equal:
    """How a bench matches budgets and chooses learning rates."""

    match: Match
    budget_of: str
    fractions: Mapping[str, tuple[float, ...]]  # by variant
    rates: tuple[float, ...]  # () for the file's own
    tune_seeds: tuple[int, ...]


def load_plan(path: Path, overrides: Sequence[str] = (), *, match: str | None = None, only: Sequence[str] = ()) -> Plan:
    """Read a bench file; `match` comes before the file's; with `only`, these variants and the references. Raises
    ConfigError naming what is wrong with its [bench] section or any variant's settings."""
    section, base = _split_file(path)
    section |= {
        name.removeprefix(_PREFIX): value for name, value in map(parse_override, overrides) if name.startswith(_PREFIX)
    }
    overrides = [override for override in overrides if not override.startswith(_PREFIX)]
    unknown = sorted(set(section) - _KEYS)
    if unknown:
        raise ConfigError(f'{path}: unknown setting "bench.{unknown[0]}": {suggest(unknown[0], _KEYS)}')
    seeds = _seeds(path, section.get("seeds", [0, 1, 2]))
    variants: dict[str, list[str]] = section.get("variants") or {}
    if len(variants) < 2:
        raise ConfigError(f"{path}: [bench.variants] needs two variants or more, each a list of settings")
    references = section.get("references", [next(iter(variants))])
    for name in references:
        if name not in variants:
            raise ConfigError(f'{path}: bench.references names "{name}": {suggest(str(name), variants)}')
    for name in only:
        if name not in variants:
            raise ConfigError(f'{path}: --only names "{name}": {suggest(name, variants)}')
    every = variants
    if only:
        kept = {*only, *references, section.get("budget_of")}
        variants = {name: changes for name, changes in variants.items() if name in kept}
    root = load_config(base, overrides=overrides)
    folder = Path(root.run.folder) / path.stem
    configs = {}
    for variant, changes in variants.items():
        for seed in seeds:
            places = [
                f"run.folder={folder}",
                f"run.name={_slug(variant)}-seed-{seed}",
                f"run.calls={folder}/calls-seed-{seed}",
                f"run.cache={root.cache_path()}",
            ]
            seeded = [f"{name}={seed}" for name in section.get("seed_settings", ["run.seed"])]
            configs[variant, seed] = load_config(base, overrides=[*overrides, *seeded, *changes, *places])
    return Plan(
        name=path.stem,
        folder=folder,
        seeds=tuple(seeds),
        references=tuple(references),
        split=section.get("split", root.data.test_split),
        configs=configs,
        paper=_paper(path, section.get("paper", {}), every),
        equal=_equal(path, section, every, references, seeds, match),
        suites=checked_suites(section, where=str(path)),
    )


def _equal(
    path: Path,
    section: Mapping[str, Any],
    variants: Mapping[str, Any],
    references: Sequence[str],
    seeds: Sequence[int],
    match: str | None,
) -> Equal | None:
    asked = match or section.get("match")
    if asked is None and not section.get("lr_grid") and not section.get("fractions"):
        return None
    budget_of = section.get("budget_of", references[0])
    if budget_of not in variants:
        raise ConfigError(f'{path}: bench.budget_of names "{budget_of}": {suggest(str(budget_of), variants)}')
    tune_seeds = section.get("tune_seeds", list(seeds[:1]))
    for seed in tune_seeds:
        if seed not in seeds:
            raise ConfigError(f"{path}: bench.tune_seeds names {seed}, which is none of bench.seeds: {list(seeds)}")
    return Equal(
        match=checked_match(asked or "steps", where=f"{path}: bench"),
        budget_of=budget_of,
        fractions=_fractions(path, section.get("fractions", [1.0]), variants),
        rates=_numbers(path, "lr_grid", section.get("lr_grid", []), most=1.0),
        tune_seeds=tuple(tune_seeds),
    )


def _paper(path: Path, said: Any, variants: Mapping[str, Any]) -> dict[str, float | list[float]]:
    for variant, value in said.items():
        if variant not in variants:
            raise ConfigError(f'{path}: bench.paper names "{variant}": {suggest(str(variant), variants)}')
        values = value if isinstance(value, list) else [value]
        if len(values) not in (1, len(Direction)) or not all(type(v) in (int, float) for v in values):
            raise ConfigError(f"{path}: bench.paper.{variant} must be a number or [i2t, t2i], in points, not {value!r}")
    return dict(said)


def _fractions(path: Path, said: Any, variants: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    given = said if isinstance(said, dict) else dict.fromkeys(variants, said)
    for name in given:
        if name not in variants:
            raise ConfigError(f'{path}: bench.fractions names "{name}": {suggest(str(name), variants)}')
    return {name: _numbers(path, "fractions", given.get(name, [1.0]), most=1.0) for name in variants}


def _numbers(path: Path, name: str, values: Any, *, most: float) -> tuple[float, ...]:
    if not isinstance(values, list) or not all(isinstance(v, (int, float)) and 0 < v <= most for v in values):
        raise ConfigError(f"{path}: bench.{name} must be a list of numbers above 0, at most {most:g}, not {values!r}")
    return tuple(float(value) for value in values)


def run_bench(
    path: Path, overrides: Sequence[str], *, progress: Progress, match: str | None = None, only: Sequence[str] = ()
) -> dict[str, Any]:
    """Run what is not finished, then compare. Also written to `bench.json` in the bench's folder."""
    from repair.pipeline.run import run_pipeline

    plan = load_plan(path, overrides, match=match, only=only)
    # Opened before any run, so that a wrong path costs no night.
    session = None
    if plan.suites.names:
        session = open_suites(plan.suites, plan.configs[plan.variants[0], plan.seeds[0]], progress=progress)
    if plan.equal is not None:
        plan = _settled(plan, plan.equal, progress=progress)
    for variant, seed in _order(plan):
        progress.say(f"bench: {variant}, seed {seed}")
        run_pipeline(plan.configs[variant, seed], until=None, reuse=False, progress=progress)
    command = bench_command(path, overrides, match=match, only=only)
    table = {**compare(plan), "command": command}
    write_json(plan.folder / "bench.json", table)
    if session is not None:
        configs = {variant: [plan.configs[variant, seed] for seed in plan.seeds] for variant in plan.variants}
        table["suites"] = judge_runs(session, configs, folder=plan.folder, progress=progress)
        write_json(plan.folder / "bench.json", table)
    return table


def bench_command(path: Path, overrides: Sequence[str], *, match: str | None, only: Sequence[str] = ()) -> list[str]:
    """The words of the command line that makes this bench, or goes on with it."""
    settings = [word for override in overrides for word in ("--set", override)]
    kept = [word for name in only for word in ("--only", name)]
    return ["repair", "bench", str(path), *kept, *settings, *(["--match", match] if match else [])]


def _order(plan: Plan) -> list[tuple[str, int]]:
    """References over all seeds first, then the rest seed by seed: a bench cut short has its main comparison."""
    others = [variant for variant in plan.variants if variant not in plan.references]
    return [(v, seed) for variants in (plan.references, others) for seed in plan.seeds for v in variants]


def _settled(plan: Plan, equal: Equal, *, progress: Progress) -> Plan:
    """The plan with budgets known and learning rates chosen: a variant for each fraction, named "repair 50 %"."""
    from repair.pipeline.run import run_pipeline

    use = {}
    for seed in plan.seeds:
        first = equal.rates[:1] or (plan.configs[equal.budget_of, seed].training.lr,)
        reference = _at(plan, equal, equal.budget_of, seed, rate=first[0])
        use[seed] = reference_use(reference, equal.match, progress=progress)
    chosen: dict[str, float | None] = {}
    on_val: dict[str, dict[str, float]] = {}
    for variant in plan.variants:
        scores: dict[float, float] = {}
        for rate in equal.rates if len(equal.rates) > 1 else ():
            found = []
            for seed in equal.tune_seeds:
                config = _at(plan, equal, variant, seed, rate=rate, use=use[seed])
                progress.say(f"bench: {variant}, lr {rate:g}, seed {seed}, for choosing on {config.data.val_split}")
                run_pipeline(config, until=None, reuse=False, progress=progress)
                found.append(_scores(config, config.data.val_split, config.pipeline.rounds - 1)["mean R@1"])
            scores[rate] = float(np.mean(found))
        chosen[variant] = best_rate(scores) if scores else next(iter(equal.rates), None)
        on_val[variant] = {f"{rate:g}": score for rate, score in scores.items()}
    configs = {}
    for variant in plan.variants:
        budgeted = has_samples(plan.configs[variant, plan.seeds[0]])
        for fraction in sorted(equal.fractions[variant], reverse=True) if budgeted else [1.0]:
            label = variant if fraction == 1 else f"{variant} {fraction:.0%}"
            for seed in plan.seeds:
                configs[label, seed] = _at(
                    plan, equal, variant, seed, rate=chosen[variant], use=use[seed], fraction=fraction
                )
    account = {"match": equal.match, "budget_of": equal.budget_of, "budgets": use, "lr": chosen, "val": on_val}
    return replace(plan, configs=configs, account=account)


def _at(
    plan: Plan,
    equal: Equal,
    variant: str,
    seed: int,
    *,
    rate: float | None,
    use: int | None = None,
    fraction: float = 1.0,
) -> Config:
    """The config of one run. Its name tells all that differs, so that no two budgets or rates share a folder.

    Without a `use` it is the reference before its use is known.
    """
    first = plan.configs[variant, seed]
    more = [] if use is None else allowance(first, equal.match, use, fraction)
    name = _slug(variant)
    if rate is not None and equal.rates:
        more.append(f"training.lr={rate!r}")
        name += f"-lr-{rate:g}"
    if use is not None and equal.match != "steps":
        name += f"-{equal.match}-{round(100 * fraction)}"
    return load_config(
        first.model_dump(mode="json", exclude_none=True),
        overrides=[*more, f"run.name={name}-seed-{seed}"],
        environment={},
    )


def compare(plan: Plan) -> dict[str, Any]:
    """Rows of metrics by variant, and each variant's differences to the references, paired over seeds."""
    final = {
        variant: [
            _scores(plan.configs[variant, seed], plan.split, plan.configs[variant, seed].pipeline.rounds - 1)
            for seed in plan.seeds
        ]
        for variant in plan.variants
    }
    start = [_scores(plan.configs[plan.variants[0], seed], plan.split, None) for seed in plan.seeds]
    rows = []
    for variant, scores in {BASE: start, **final}.items():
        rows.append(
            {
                "variant": variant,
                "mean": {name: float(np.mean([s[name] for s in scores])) for name in scores[0]},
                "seeds": {name: [s[name] for s in scores] for name in scores[0]},
                "differences": {
                    reference: _differences(final[reference], scores)
                    for reference in plan.references
                    if reference != variant
                },
                "paper": plan.paper.get(variant),
            }
        )
    return {
        "bench": plan.name,
        "split": plan.split,
        "seeds": list(plan.seeds),
        "references": list(plan.references),
        "rows": rows,
        **({"equal": dict(plan.account)} if plan.account else {}),
        "runs": {
            variant: [str(plan.configs[variant, seed].run_path()) for seed in plan.seeds] for variant in plan.variants
        },
    }


def _differences(reference: list[dict[str, float]], scores: list[dict[str, float]]) -> dict[str, Any]:
    """By metric: mean over seeds, t-interval and t-test of the paired differences (no interval from one seed)."""
    return {
        name: asdict(statistics.paired_seeds([r[name] for r in reference], [s[name] for s in scores]))
        for name in scores[0]
    }


def _slug(variant: str) -> str:
    """The variant's name as a folder has it."""
    return "".join(c if c.isalnum() else "-" for c in variant.lower())


def _scores(config: Config, split: str, round: int | None) -> dict[str, float]:
    name = "base" if round is None else f"round-{round}"
    path = config.run_path() / "evaluation" / f"{name}.json"
    facts = json.loads(path.read_text(encoding="utf-8"))["splits"][split]
    scores: dict[str, float] = {}
    for direction in Direction:
        for metric, value in facts[str(direction)]["metrics"].items():
            scores[f"{direction.short} {metric}"] = value["value"] if isinstance(value, dict) else value
    for kind in ("R@1", "true R@1"):
        both = [scores[f"{d.short} {kind}"] for d in Direction if f"{d.short} {kind}" in scores]
        if len(both) == len(Direction):
            scores["mean R@1" if kind == "R@1" else "mean true R@1"] = sum(both) / len(both)
    return scores


def _split_file(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
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


def _seeds(path: Path, seeds: Any) -> list[int]:
    if not isinstance(seeds, list) or not seeds or not all(type(s) is int and s >= 0 for s in seeds):
        raise ConfigError(f"{path}: bench.seeds must be a list of whole numbers from 0, not {seeds!r}")
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"{path}: bench.seeds names a seed twice: {seeds}")
    return seeds
