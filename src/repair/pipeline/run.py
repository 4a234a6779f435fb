"""Run the stages in order, each at most once for the same key, round after round."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.config import Config, load_config
from repair.core.errors import ConfigError, suggest
from repair.core.progress import Progress
from repair.pipeline import evaluating, stages_repair, stages_train
from repair.pipeline.graph import Stage, Work, stage_key
from repair.pipeline.workbench import Workbench
from repair.store.run_folder import StageState

# What belongs to no round: the model everything starts from.
BASE = (
    Stage("fit", stages_train.fit, ("data", "encoder")),
    Stage("eval", evaluating.evaluate, ("data", "encoder", "evaluation"), inputs=("fit",)),
)

_CALLS = ("calls.plan", "calls.planner", "calls.planner_options")
_EDIT = ("editing", "instruction", *_CALLS)

# What the encoder of a round depends on, and what is known to match by a round: declared once, read by several stages.
_WEIGHTS = {"base": ("fit",), "earlier": ("train",)}
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


def run_pipeline(config: Config, *, until: str | None, reuse: bool, progress: Progress) -> dict[str, Any]:
    """Bring a run up to and including stage `until` of its last round (None: all), and say what each stage did.

    The result: {"run": folder, "stages": [{"round", "stage", "cached", "seconds", "summary"}, …]}.
    """
    if until is not None and until not in STAGE_NAMES:
        raise ConfigError(f'unknown stage "{until}": {suggest(until, STAGE_NAMES)}')
    with Workbench.open(config, progress=progress, reuse=reuse) as bench:
        executor = _Executor(bench)
        wanted = STAGE_NAMES[: STAGE_NAMES.index(until) + 1] if until else STAGE_NAMES
        for stage in BASE:
            if stage.name != "eval" or "eval" in wanted:
                executor.run(stage, None)
        for round in range(config.pipeline.rounds):
            last = round == config.pipeline.rounds - 1
            for stage in ROUND:
                if not last or stage.name in wanted:
                    executor.run(stage, round)
        return {"run": str(bench.folder.path), "stages": executor.done}


def summary_lines(outcome: Mapping[str, Any]) -> list[str]:
    """The scores before and after, and where the report is; what each stage did was said as it went."""
    lines = [f"run {outcome['run']}", *evaluating.evaluation_lines(outcome)]
    if "report" in outcome:
        lines.append(f"report: {outcome['report']}")
    return lines


def locate_run(config: Path, overrides: Sequence[str]) -> Path:
    """The run folder that a config file, or the folder itself, names. Raises ConfigError if it does not exist."""
    path = config if config.is_dir() else load_config(config, overrides=overrides).run_path()
    if not (path / "run.json").exists():
        raise ConfigError(f"{path} is not a run folder yet: `repair run {config}` makes it")
    return path


class _Executor:
    """Runs stages whose key has changed; keeps what the others left."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._states: dict[tuple[int | None, str], StageState] = {}
        self.done: list[dict[str, Any]] = []

    def run(self, stage: Stage, round: int | None) -> None:
        bench = self._bench
        key = stage_key(stage, bench.config, round=round, inputs=self._inputs(stage, round), facts=self._facts(stage))
        started = time.monotonic()
        state = bench.folder.stage_done(round, stage.name, key)
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
        bench.progress.say(
            stage_line(round, stage.name, state.summary, how="kept from before" if cached else f"{seconds:.1f} s")
        )

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


_FACTS: dict[str, dict[str, Callable[[Workbench], str]]] = {
    "fit": {"data": _data, "encoder": _encoder},
    "eval": {"data": _data, "encoder": _encoder},
    "mine": {"data": _data, "encoder": _encoder},
    "verify": {"verifier": _verifier},
    "instruct": {"backends": _asked("instructor")},
    "edit": {"backends": _asked("text_editor", "image_editor"), "encoder": _encoder},
    "select": {"encoder": _encoder, "data": _data, "checker": _checker("selection.verify_candidates")},
    "link": {"data": _data},
    "grids": {"data": _data, "checker": _checker("grids.verify_cells")},
    "train": {"data": _data, "encoder": _encoder},
}


def stage_line(round: int | None, stage: str, summary: Mapping[str, Any], *, how: str) -> str:
    """What a stage did, on one line: `round 0 verify (3.2 s): image_to_text kept 812, …`."""
    place = "base" if round is None else f"round {round}"
    return f"{place} {stage} ({how}): {_told(summary)}"


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
