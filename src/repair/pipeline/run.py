"""Run the stages in order, each at most once for the same key, round after round."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.errors import ConfigError, suggest
from repair.core.progress import Progress
from repair.pipeline import ahead, evaluating, stages_methods, stages_repair, stages_train
from repair.pipeline.graph import Stage, Work, stage_key
from repair.pipeline.places import config_at
from repair.pipeline.spending import cost_lines, pair_costs
from repair.pipeline.stages_repair import FAILED_CALLS
from repair.pipeline.tools import Toolbox, file_identity
from repair.pipeline.workbench import Workbench
from repair.store.run_folder import StageState, is_run_folder

# What belongs to no round: the model everything starts from.
BASE = (
    Stage("fit", stages_train.fit, ("data", "encoder")),
    Stage("eval", evaluating.evaluate, ("data", "encoder", "evaluation"), inputs=("fit",)),
)

_CALLS = ("calls.plan", "calls.planner", "calls.planner_options")
_EDIT = ("editing", "instruction", *_CALLS)

# What the encoder of a round depends on, and what is known to match by a round: declared once, read by several stages.
_WEIGHTS: dict[str, Any] = {"base": ("fit",), "earlier": ("train",)}
_KNOWN = ("mine", "verify", "select")

ROUND = (
    Stage("mine", stages_train.mine, ("data", "encoder", "mining"), **_WEIGHTS),
    Stage("verify", stages_repair.verify, ("verification", *_CALLS), inputs=("mine",)),
    Stage("instruct", stages_repair.instruct, ("verification.enabled", *_EDIT), inputs=("mine", "verify")),
    Stage("edit", stages_repair.edit, ("selection", *_EDIT), inputs=("mine", "verify", "instruct"), **_WEIGHTS),
    Stage(
        "select",
        stages_repair.select,
        ("selection", "editing", "verification"),
        inputs=("mine", "verify", "instruct", "edit"),
        **_WEIGHTS,
    ),
    Stage("link", stages_train.link, ("links", "data"), inputs=("select",), earlier=("select",)),
    Stage(
        "grids",
        stages_train.grids,
        ("grids", "mining", "verification", "training.loss", "training.n_steps", "training.grids_per_step"),
        inputs=(*_KNOWN, "link"),
        earlier=_KNOWN,
    ),
    Stage(
        "train",
        stages_train.train,
        ("training", "pipeline.train_from"),
        inputs=(*_KNOWN, "grids"),
        base=("fit",),
        earlier=(*_KNOWN, "train"),
    ),
    Stage(
        "eval",
        evaluating.evaluate,
        ("data", "evaluation"),
        inputs=(*_KNOWN, "edit", "link", "grids", "train"),
        earlier=("select",),
    ),
)
STAGE_NAMES = tuple(stage.name for stage in ROUND)

# Another method than RePair: one round, after mining and verifying where its samples are failures.
_SAMPLES = Stage(
    "samples",
    stages_methods.make_samples,
    ("data", "encoder", "method", "mining.near_duplicate_bits", "mining.near_duplicate_cosine"),
    version=2,
    **_WEIGHTS,
)
METHOD = (
    _SAMPLES,
    Stage(
        "train",
        stages_methods.train_on_samples,
        ("training", "method", "mining.extra_positives"),
        inputs=("samples",),
        base=("fit",),
    ),
    Stage("eval", evaluating.evaluate, ("data", "evaluation"), inputs=("samples", "train")),
)
METHOD_ON_FAILURES = (
    *ROUND[:2],
    replace(_SAMPLES, inputs=("mine", "verify")),
    replace(METHOD[1], inputs=("mine", "verify", "samples")),
    METHOD[2],
)


def stages_of(config: Config) -> tuple[Stage, ...]:
    """The stages of a round of the config's method. Raises ConfigError for an unknown method."""
    method = stages_methods.method_of(config.method.name, config.method.options)
    if method.is_repair:
        return ROUND
    if config.pipeline.rounds > 1:
        raise ConfigError(f"pipeline.rounds: {method.title} has one round, not {config.pipeline.rounds}")
    return METHOD_ON_FAILURES if method.failures else METHOD


def stages_until(config: Config, until: str | None) -> tuple[str, ...]:
    """The stages of a round up to and including `until` (None: all). Raises ConfigError if there is no such stage."""
    names = tuple(stage.name for stage in stages_of(config))
    if until is not None and until not in names:
        raise ConfigError(f'unknown stage "{until}" of method "{config.method.name}": {suggest(until, names)}')
    return names[: names.index(until) + 1] if until else names


def run_pipeline(
    config: Config,
    *,
    until: str | None,
    reuse: bool,
    progress: Progress,
    retry_failed: bool = False,
    command: str = "",
) -> dict[str, Any]:
    """Bring a run up to and including stage `until` of its last round (None: all), and say what each stage did.

    A finished stage keeps its failed calls as failed; with `retry_failed` it runs again, and they are asked first.
    `command` is what the user would type to run this again, for the lines that say how to go on.
    The result: {"run": folder, "plan", "stages": [{"round", "stage", "cached", "seconds", "summary"}, …], "calls": what
    they came to for each kept failure (`spending.pair_costs`)}.
    """
    stages, wanted = stages_of(config), stages_until(config, until)
    stages_methods.require_tools(config)
    with Workbench.open(config, progress=progress, reuse=reuse, command=command) as bench:
        executor = _Executor(bench, retry_failed=retry_failed)
        for stage in BASE:
            if stage.name != "eval" or "eval" in wanted:
                executor.run(stage, None)
        for round in range(config.pipeline.rounds):
            last = round == config.pipeline.rounds - 1
            needed = [stage for stage in stages if not last or stage.name in wanted]
            for stage in needed:
                if stage.name == ahead.STAGES[0] and config.calls.flow:
                    executor.ask_ahead([each for each in needed if each.name in ahead.STAGES], round)
                executor.run(stage, round)
        costs = pair_costs(bench.folder.path, config.calls_path() / "ledger.sqlite")
        return {"run": str(bench.folder.path), "plan": config.calls.plan, "stages": executor.done, "calls": costs}


def summary_lines(outcome: Mapping[str, Any]) -> list[str]:
    """The scores before and after, and where the report is; what each stage did was said as it went."""
    lines = [f"run {outcome['run']}", *cost_lines(outcome["calls"], outcome["plan"])]
    lines += evaluating.evaluation_lines(outcome)
    if "report" in outcome:
        lines.append(f"report: {outcome['report']}")
    return lines


def locate_run(config: Path, overrides: Sequence[str]) -> Path:
    """The run folder that a config file, or the folder itself, names. Raises ConfigError if it does not exist."""
    path = config if config.is_dir() else config_at(config, overrides=overrides).run_path()
    if not is_run_folder(path):
        raise ConfigError(f"{path} is not a run folder yet: `repair run {config}` makes it")
    return path


class _Executor:
    """Runs stages whose key has changed; keeps what the others left."""

    def __init__(self, bench: Workbench, *, retry_failed: bool = False) -> None:
        self._bench = bench
        self._retry_failed = retry_failed
        self._states: dict[tuple[int | None, str], StageState] = {}
        self.done: list[dict[str, Any]] = []

    def run(self, stage: Stage, round: int | None) -> None:
        bench = self._bench
        started = time.monotonic()
        key, state = self._kept(stage, round)
        cached = state is not None
        if state is None:
            work: Work = stage.run(bench, round)
            state = bench.folder.finish_stage(round, stage.name, key, outputs=work.outputs, summary=work.summary)
        self._states[round, stage.name] = state
        seconds = time.monotonic() - started
        self.done.append(
            {
                "round": round,
                "stage": stage.name,
                "cached": cached,
                "seconds": float(f"{seconds:.2f}"),
                "summary": state.summary,
            }
        )
        how = "kept from before" if cached else f"{seconds:.1f} s"
        bench.progress.say(stage_line(round, stage.name, state.summary, how=how, command=bench.command))

    def ask_ahead(self, stages: Sequence[Stage], round: int) -> None:
        """Make the calls of those of `stages` (in order) that will run, item by item."""
        for stage in stages:
            _, state = self._kept(stage, round)
            if state is None:
                ahead.ask_ahead(self._bench, round, start=stage.name, last=stages[-1].name)
                return
            self._states[round, stage.name] = state

    def _kept(self, stage: Stage, round: int | None) -> tuple[str, StageState | None]:
        """The stage's key now, and its state if it need not run again. The stages it reads must have run."""
        bench = self._bench
        key = stage_key(stage, bench.config, round=round, inputs=self._inputs(stage, round), facts=self._facts(stage))
        state = bench.folder.stage_done(round, stage.name, key)
        if state is not None and self._retry_failed and state.summary.get(FAILED_CALLS):
            state = None
        return key, state

    def _inputs(self, stage: Stage, round: int | None) -> dict[str, str]:
        read: list[tuple[int | None, str]] = [(None, name) for name in stage.base]
        read += [(round, name) for name in stage.inputs]
        read += [(r, name) for r in range(round or 0) for name in stage.earlier]
        return {path: digest for place in read for path, digest in self._states[place].outputs.items()}

    def _facts(self, stage: Stage) -> dict[str, str]:
        """Fingerprints of what the stage uses beside settings and files."""
        return {name: fact(self._bench) for name, fact in _FACTS.get(stage.name, {}).items()}


def _data(bench: Workbench) -> str:
    return bench.source.fingerprint


def _encoder(bench: Workbench) -> str:
    return bench.plain_encoder.fingerprint()


def _asked(*names: str) -> Callable[[Workbench], str]:
    """Fingerprints of backends; under the fused plan the planner answers in their place."""

    def fact(bench: Workbench) -> str:
        chosen = ["planner"] if bench.config.calls.plan == "fused" else []
        chosen += [name for name in names if not chosen or name == "image_editor"]
        return str(sorted(bench.backend_facts(*chosen).items()))

    return fact


def _verifier(bench: Workbench) -> str:
    return _asked("verifier")(bench) if bench.config.verification.enabled else "not asked"


def _checker(setting: str) -> Callable[[Workbench], str]:
    """The verifier's fingerprint where an optional check asks it, whatever the call plan."""

    def fact(bench: Workbench) -> str:
        return bench.verifier.fingerprint if bench.config.flat()[setting] else "not asked"

    return fact


def _tools(bench: Workbench) -> str:
    """Fingerprints of what a method's samples are made with, or read from."""
    released = bench.config.method.released
    if released:
        return str(sorted((name, file_identity(Path(str(path)))) for name, path in released.items()))
    return str(sorted(Toolbox.of(bench.config, bench.method).fingerprints().items()))


def _editors(bench: Workbench) -> str:
    """Fingerprints of the editors; with the verifier's where its word decides whether another image is drawn."""
    editors = _asked("text_editor", "image_editor")(bench)
    asked = bench.config.calls.plan == "fused" and bench.config.selection.verify_candidates
    return f"{editors} {bench.verifier.fingerprint}" if asked else editors


_FACTS: dict[str, dict[str, Callable[[Workbench], str]]] = {
    "fit": {"data": _data, "encoder": _encoder},
    "eval": {"data": _data, "encoder": _encoder},
    "mine": {"data": _data, "encoder": _encoder},
    "verify": {"verifier": _verifier},
    "instruct": {"backends": _asked("instructor")},
    "edit": {"backends": _editors, "encoder": _encoder},
    "select": {"encoder": _encoder, "data": _data, "checker": _checker("selection.verify_candidates")},
    "link": {"data": _data},
    "grids": {"data": _data, "checker": _checker("grids.verify_cells")},
    "samples": {"data": _data, "encoder": _encoder, "tools": _tools},
    "train": {"data": _data, "encoder": _encoder},
}


def stage_line(round: int | None, stage: str, summary: Mapping[str, Any], *, how: str, command: str) -> str:
    """What a stage did, on one line: `round 0 verify (3.2 s): image_to_text kept 812, …`.

    If calls failed, it ends with the command that asks them again: `command` with --retry-failed.
    """
    place = "base" if round is None else f"round {round}"
    line = f"{place} {stage} ({how}): {_told({k: v for k, v in summary.items() if k != FAILED_CALLS})}"
    if summary.get(FAILED_CALLS):
        line += f"; {summary[FAILED_CALLS]} calls failed: `{retry_command(command)}` asks them again"
    return line


def retry_command(command: str) -> str:
    return command if "--retry-failed" in command else f"{command} --retry-failed"


def _told(summary: Mapping[str, Any]) -> str:
    parts = []
    for name, value in summary.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{k} {_number(v)}" for k, v in value.items() if not isinstance(v, (Mapping, list)))
            parts.append(f"{name}: {inner}" if inner else name)
        elif not isinstance(value, list):
            parts.append(f"{name} {_number(value)}")
    return "; ".join(parts) if parts else "done"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
