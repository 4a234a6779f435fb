"""Several variants of one config over several seeds, compared on the same test items.

A bench file is a config with one more section:

    [bench]
    seeds = [0, 1, 2]
    seed_settings = ["run.seed", "data.options.seed"]     # what a seed sets; default: run.seed
    references = ["vanilla", "repair"]                    # what each variant is compared with; default: the first
    split = "test"                                        # default: data.test_split
    match = "samples"                                     # equal budgets: samples, calls or steps; default: none
    budget_of = "repair"                                  # whose use is the budget; default: the first reference
    fractions = [0.5, 1.0]                                # of that budget, the whole among them, each a row of its
                                                          # own; default: [1.0]; not with match = "steps"
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
resumes like any other; the table is made from the folders alone, and that of another command line is kept beside it.
What is wrong with the section or with any variant is said before any run (`bench_file.py`).

Whatever the match, every step of every variant encodes as many items. Under `samples` no variant trains on more
samples than `budget_of` has repairs in that seed, under `calls` no other method asks for more calls; which variants of
RePair are held, and how, is said in `budgets.allowance`. The learning rate is chosen by mean R@1 on the val split, at
the whole budget; the test split is never looked at. `budget_of` itself, at its whole budget of samples, is held by
nothing.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from repair.config import Config, load_config, toml_literal
from repair.core.errors import ConfigError, RunMismatch, StoreError
from repair.core.progress import Progress
from repair.core.records import Direction
from repair.numerics import statistics
from repair.pipeline.bench_file import BenchFile, Equal, read_bench, slug
from repair.pipeline.bench_suites import BASE, NO_SUITES, TABLE, Suites, judge_runs, open_suites
from repair.pipeline.budgets import Use, allowance, best_rate, has_samples, last_stage, reference_use
from repair.store.files import read_json, storing, write_json


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
    equal: Equal | None = None  # how budgets are matched and learning rates chosen
    account: Mapping[str, Any] = field(default_factory=dict)  # budgets and rates, once known
    suites: Suites = NO_SUITES
    notes: tuple[str, ...] = ()  # what of the file does not hold this time, for people

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(variant for variant, _ in self.configs))


def load_plan(path: Path, overrides: Sequence[str] = (), *, match: str | None = None, only: Sequence[str] = ()) -> Plan:
    """Read a bench file; `match` comes before the file's; with `only`, these variants and the references. Raises
    ConfigError naming what is wrong with its [bench] section or any variant's settings."""
    asked = read_bench(path, overrides, match=match, only=only)
    root = _config(str(path), asked, [])
    folder = Path(root.run.folder) / path.stem
    configs = {}
    for seed in asked.seeds:
        seeded = [f"{name}={seed}" for name in asked.seed_settings]
        _config(f"{path}: bench.seed_settings", asked, seeded)
        for variant, changes in asked.variants.items():
            places = {
                "run.folder": str(folder),
                "run.name": f"{slug(variant)}-seed-{seed}",
                "run.calls": f"{folder}/calls-seed-{seed}",
                "run.cache": str(root.cache_path()),
            }
            placed = [f"{name}={toml_literal(place)}" for name, place in places.items()]
            configs[variant, seed] = _config(f"{path}: {variant}", asked, [*seeded, *changes, *placed])
    plan = Plan(
        name=path.stem,
        folder=folder,
        seeds=asked.seeds,
        references=asked.references,
        split=asked.split or root.data.test_split,
        configs={(variant, seed): configs[variant, seed] for variant in asked.variants for seed in asked.seeds},
        paper=asked.paper,
        equal=asked.equal,
        suites=asked.suites,
        notes=asked.notes,
    )
    _require_comparable(path, plan)
    return plan


def _config(where: str, asked: BenchFile, changes: Sequence[str]) -> Config:
    """The file's config with these changes. Raises ConfigError, each of its lines after `where`."""
    try:
        return load_config(asked.content, overrides=[*asked.overrides, *changes])
    except ConfigError as error:
        lines = [line.removeprefix("config: ") for line in str(error).splitlines()]
        raise ConfigError("\n".join(f"{where}: {line}" for line in lines)) from None


def _require_comparable(path: Path, plan: Plan) -> None:
    """Raises ConfigError, before any run, for what would only be noticed at the end of some, or never."""
    for variant in plan.variants:
        configs = [plan.configs[variant, seed] for seed in plan.seeds]
        data = configs[0].data
        evaluated = dict.fromkeys((data.val_split, data.test_split))
        if plan.split not in evaluated:
            raise ConfigError(
                f"{path}: {variant}: bench.split must be a split that is evaluated, {' or '.join(evaluated)} "
                f"(data.val_split, data.test_split), not {toml_literal(plan.split)}"
            )
        if len({config.fingerprint() for config in configs}) < len(configs):
            raise ConfigError(
                f"{path}: {variant}: its seeds would all be equal: bench.seed_settings must name what a seed changes, "
                'e.g. ["run.seed"], and the variant must leave it'
            )
    if plan.equal is not None and plan.equal.match != "steps":
        name = plan.configs[plan.equal.budget_of, plan.seeds[0]].method.name
        if name != "repair":
            raise ConfigError(
                f'{path}: bench.budget_of must name a variant of method.name=repair, not "{plan.equal.budget_of}" '
                f"(method.name={name}): set bench.budget_of"
            )


def _require_choices(path: Path, plan: Plan, *, progress: Progress) -> None:
    """Whatever a variant names exists and takes its options. Raises ConfigError, before any run."""
    from repair.pipeline.run import stages_of
    from repair.pipeline.stages_methods import require_tools
    from repair.pipeline.workbench import Workbench

    for variant in plan.variants:
        config = plan.configs[variant, plan.seeds[0]]
        try:
            workbench = Workbench.without_folder(config, progress=progress)
            stages_of(config)
            require_tools(config)
            workbench.make_backends()
        except ConfigError as error:
            raise ConfigError(f"{path}: {variant}: {error}") from None


def run_bench(
    path: Path, overrides: Sequence[str], *, progress: Progress, match: str | None = None, only: Sequence[str] = ()
) -> dict[str, Any]:
    """Run what is not finished, then compare. Also written to `bench.json` in the bench's folder."""
    plan = load_plan(path, overrides, match=match, only=only)
    _require_choices(path, plan, progress=progress)
    for note in plan.notes:
        progress.say(note)
    # Opened before any run, so that a wrong path costs no night.
    session = None
    if plan.suites.names:
        first = plan.configs[plan.variants[0], plan.seeds[0]]
        session = open_suites(plan.suites, first, where=str(path), progress=progress)
    if plan.equal is not None:
        plan = _settled(plan, plan.equal, progress=progress)
    for variant, seed in _order(plan):
        progress.say(f"bench: {variant}, seed {seed}")
        _run(plan.configs[variant, seed], progress=progress)
    command = bench_command(path, overrides, match=match, only=only)
    table = {**compare(plan), "command": command}
    _keep_other(plan.folder, command, progress=progress)
    write_json(plan.folder / TABLE, table)
    if session is not None:
        configs = {variant: [plan.configs[variant, seed] for seed in plan.seeds] for variant in plan.variants}
        table["suites"] = judge_runs(session, configs, folder=plan.folder, progress=progress)
        write_json(plan.folder / TABLE, table)
    tables = shlex.join(["repair", "tables", str(plan.folder)])
    progress.say(f"bench: wrote {plan.folder / TABLE}; `{tables}` prints the paper's tables from it")
    return table


def _run(config: Config, *, until: str | None = None, progress: Progress) -> None:
    """One run of the bench. Raises what `run_pipeline` raises, with the way out that there is in a bench."""
    from repair.pipeline.run import run_pipeline

    try:
        run_pipeline(config, until=until, reuse=False, progress=progress)
    except RunMismatch as error:
        what, _, _ = str(error).partition(": give another --run name")
        raise RunMismatch(
            f"{what}: copy the bench file under another name, or remove the run folder {config.run_path()}"
        ) from None


def _keep_other(folder: Path, command: Sequence[str], *, progress: Progress) -> None:
    """Set the table of another command line aside, as bench-1.json and so on; that of the same one is replaced."""
    path = folder / TABLE
    if not path.exists():
        return
    try:
        known = read_json(path)
    except StoreError:
        known = None
    if isinstance(known, dict) and known.get("command") == list(command):
        return
    number = 1
    while (aside := path.with_stem(f"{path.stem}-{number}")).exists():
        number += 1
    with storing(aside):
        path.rename(aside)
    progress.say(f"bench: the {TABLE} of another command line is kept as {aside}")


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
    shares = {variant: _shares(plan, equal, variant) for variant in plan.variants}
    use = _uses(plan, equal, shares, progress=progress)
    chosen: dict[str, float | None] = {}
    on_val: dict[str, dict[str, float]] = {}
    for variant in plan.variants:
        scores: dict[float, float] = {}
        for rate in equal.rates if len(equal.rates) > 1 else ():
            found = []
            for seed in equal.tune_seeds:
                config = _at(plan, equal, variant, seed, rate=rate, use=use[seed])
                progress.say(f"bench: {variant}, lr {rate:g}, seed {seed}, for choosing on {config.data.val_split}")
                _run(config, progress=progress)
                found.append(_scores(config, config.data.val_split, config.pipeline.rounds - 1)["mean R@1"])
            scores[rate] = float(np.mean(found))
        chosen[variant] = best_rate(scores) if scores else next(iter(equal.rates), None)
        on_val[variant] = {f"{rate:g}": score for rate, score in scores.items()}
    configs = {}
    for variant in plan.variants:
        for fraction in shares[variant]:
            label = variant if fraction == 1 else f"{variant} {fraction:.0%}"
            for seed in plan.seeds:
                configs[label, seed] = _at(
                    plan, equal, variant, seed, rate=chosen[variant], use=use[seed], fraction=fraction
                )
    budgets = {seed: used.n for seed, used in use.items()}
    account = {"match": equal.match, "budget_of": equal.budget_of, "budgets": budgets, "lr": chosen, "val": on_val}
    return replace(plan, configs=configs, account=account)


def _uses(plan: Plan, equal: Equal, shares: Mapping[str, Sequence[float]], *, progress: Progress) -> dict[int, Use]:
    """What the reference uses, by seed. Raises ConfigError if a variant cannot be held to one of its `shares` of it."""
    if equal.match == "steps":
        return dict.fromkeys(plan.seeds, Use(0))
    uses = {}
    for seed in plan.seeds:
        first = equal.rates[:1] or (plan.configs[equal.budget_of, seed].training.lr,)
        reference = _at(plan, equal, equal.budget_of, seed, rate=first[0])
        progress.say(f"bench: {equal.budget_of}, seed {seed} (for the budget)")
        _run(reference, until=last_stage(reference, equal.match), progress=progress)
        uses[seed] = reference_use(reference, equal.match)
        for variant, fractions in shares.items():
            for fraction in fractions:
                allowance(plan.configs[variant, seed], equal.match, uses[seed], fraction)
    return uses


def _shares(plan: Plan, equal: Equal, variant: str) -> list[float]:
    """Those of the budget that the variant has a row of, the whole first."""
    budgeted = has_samples(plan.configs[variant, plan.seeds[0]])
    return sorted(equal.fractions[variant], reverse=True) if budgeted else [1.0]


def _at(
    plan: Plan,
    equal: Equal,
    variant: str,
    seed: int,
    *,
    rate: float | None,
    use: Use | None = None,
    fraction: float = 1.0,
) -> Config:
    """The config of one run. Its name tells all that differs, so that no two budgets or rates share a folder.

    Without a `use` it is the reference before its use is known. At its whole budget of samples the reference is that
    very run; a variant without samples is the same at any budget, and held by none.
    """
    first = plan.configs[variant, seed]
    is_budget = equal.match == "samples" and variant == equal.budget_of and fraction == 1
    held = use is not None and equal.match != "steps" and not is_budget and has_samples(first)
    more = allowance(first, equal.match, use, fraction) if held and use is not None else []
    name = slug(variant)
    if rate is not None and equal.rates:
        more.append(f"training.lr={rate!r}")
        name += f"-lr-{rate:g}"
    if held:
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


def _scores(config: Config, split: str, round: int | None) -> dict[str, float]:
    name = "base" if round is None else f"round-{round}"
    facts = read_json(config.run_path() / "evaluation" / f"{name}.json")["splits"][split]
    scores: dict[str, float] = {}
    for direction in Direction:
        for metric, value in facts[str(direction)]["metrics"].items():
            scores[f"{direction.short} {metric}"] = value["value"] if isinstance(value, dict) else value
    for kind in ("R@1", "true R@1"):
        both = [scores[f"{d.short} {kind}"] for d in Direction if f"{d.short} {kind}" in scores]
        if len(both) == len(Direction):
            scores["mean R@1" if kind == "R@1" else "mean true R@1"] = sum(both) / len(both)
    return scores
