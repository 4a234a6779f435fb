"""Typed settings: a TOML file, then environment variables, then --set; checked once, at the door.

    value of a setting = --set section.key=value
                         else environment REPAIR_SECTION__KEY=value
                         else the config file
                         else the default written here

Every setting says its unit and range in its description; `repair init` and docs/settings.md print those descriptions.
Stages never see these objects: the pipeline passes them the few values they use.
"""

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from repair.core.errors import ConfigError, suggest
from repair.core.identity import hash_value
from repair.core.records import Direction

ENVIRONMENT_PREFIX = "REPAIR_"

# Settings that say how to run, not what to compute: they are not part of a run's identity.
OPERATIONAL = frozenset(
    {"run.name", "run.folder", "run.cache", "run.calls", "run.n_workers"}
    | {"calls.concurrency", "calls.max_usd", "calls.max_tokens", "calls.max_calls", "calls.max_failed_rate"}
    | {"calls.timeout_s", "calls.prices", "calls.flow"}
    | {
        "training.checkpoint_every",
        "training.prefetch",
        "training.collapse_cosine",
        "report.n_failures",
        "report.n_grids",
    }
)

# Settings that came after runs had been made: at their default they compute what was computed without them, so they
# are part of a run's identity only where they are set otherwise, and finished runs stay finished.
LATER = frozenset(
    {f"method.{key}" for key in ("name", "options", "max_samples", "max_calls", "writer", "writer_options")}
    | {f"method.{key}" for key in ("rules", "rules_options", "maker", "maker_options", "released")}
    | {
        "editing.max_misses",
        "training.patience",
        "training.micro_batch",
        "training.precision",
        "training.channels_last",
        "training.compile",
    }
    | {"training.lora_rank", "training.lora_alpha", "training.lora_targets", "training.layer_decay"}
    | {"training.ema_decay", "training.wise_ft", "training.wise_ft_curve", "training.parallel"}
)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class RunSection(Section):
    name: str = Field("", description="Folder of this run below `run.folder`; empty: the config file's name.")
    folder: str = Field("runs", description="Where runs are kept.")
    cache: str = Field(
        "", description="Prepared inputs, embeddings and fitted heads, shared by runs; empty: `.cache` in run.folder."
    )
    calls: str = Field(
        "",
        description="Folder of the ledger and the edited images; runs that share one share answers. Empty: the run's.",
    )
    seed: int = Field(
        0, ge=0, description="Every random stream derives from this seed and from names, never from order."
    )
    n_workers: int = Field(2, ge=1, le=256, description="Threads that decode images; results do not depend on it.")


class MethodSection(Section):
    name: str = Field("repair", description="repair, or another method to compare with; `repair doctor` lists them.")
    options: dict[str, Any] = Field({}, description="Options of the method.")
    writer: str = Field("world", description="Who writes captions for other methods than RePair; none: nobody.")
    writer_options: dict[str, Any] = Field({}, description="Options of the caption writer.")
    rules: str = Field("world_rules", description="Who writes captions by rules, without a call; none: nobody.")
    rules_options: dict[str, Any] = Field({}, description="Options of the rules.")
    maker: str = Field("world", description="Who makes images for other methods than RePair; none: nobody.")
    maker_options: dict[str, Any] = Field({}, description="Options of the image maker.")
    released: dict[str, Any] = Field(
        {},
        description="Samples that a project released, used instead of making some: {format = path}; formats: negclip, "
        "sugarcrepe, coco_cf, cs_clip, laclip, tripletclip.",
    )
    max_samples: int | None = Field(
        None, ge=1, description="Budget of another method: samples used, nested as it grows; shared by its parts."
    )
    max_calls: int | None = Field(
        None, ge=1, description="Budget of another method: calls asked for, answered ones included."
    )


class DataSection(Section):
    source: str = Field("world", description="Where images and captions come from; `repair doctor` lists the choices.")
    options: dict[str, Any] = Field({}, description="Options of the source.")
    train_split: str = Field("train", description="Mined and trained on.")
    val_split: str = Field("val", description="Used for choosing (checkpoint, settings), never for reporting gains.")
    test_split: str = Field("test", description="Reported on.")


class EncoderSection(Section):
    name: str = Field("small", description="The dual encoder; `repair doctor` lists the choices.")
    options: dict[str, Any] = Field({}, description="Options of the encoder.")
    fit: dict[str, Any] = Field({}, description="How untrained heads are fitted first (encoders that have such heads).")


class PipelineSection(Section):
    rounds: int = Field(1, ge=1, le=20, description="Times the loop runs; round r+1 mines with round r's model.")
    train_from: Literal["base", "previous"] = Field(
        "base", description="Where a later round's training starts; repairs of all rounds so far are used (ours)."
    )


class MiningSection(Section):
    strategy: Literal["top_k", "outranking", "random"] = Field(
        "top_k",
        description="top_k: the paper; outranking: only false positives above the ground truth; "
        "random: any non-matching item (ablation w/o Failure).",
    )
    directions: tuple[Direction, ...] = Field(tuple(Direction), description="Which directions are mined.")
    top_k: int = Field(
        3, ge=1, le=1000, description="K_mine: non-matching items taken per query (ours: the paper's is unknown)."
    )
    max_per_query: int = Field(3, ge=1, description="Failures kept per query.")
    max_per_item: int = Field(20, ge=1, description="Failures kept per false-positive item; cuts the long tail.")
    max_failures: int = Field(
        5000, ge=1, description="Failures kept per direction; a seeded subsample, nested as it grows."
    )
    near_duplicate_cosine: float = Field(
        1.01, gt=0, le=1.01, description="Images at least this close count as the same image; 1.01 switches it off."
    )
    near_duplicate_bits: int = Field(
        2,
        ge=-1,
        le=64,
        description="Images whose 64-bit difference hashes differ in at most so many bits count as the "
        "same image; -1 switches it off.",
    )
    extra_positives: str = Field("", description="JSON file of further matching pairs: {image id: [caption id, …]}.")


class VerificationSection(Section):
    enabled: bool = Field(True, description="false: every failure is kept unasked (ablation w/o QC).")
    verifier: str = Field("world", description="Who judges whether a failure is genuine.")
    options: dict[str, Any] = Field({}, description="Options of the verifier.")


class InstructionSection(Section):
    instructor: str = Field("world", description="Who says what must change in a false positive.")
    options: dict[str, Any] = Field({}, description="Options of the instructor.")


class EditingSection(Section):
    text_editor: str = Field("world", description="Who edits captions (image_to_text); none: hard negatives only.")
    text_options: dict[str, Any] = Field({}, description="Options of the text editor.")
    image_editor: str = Field("world", description="Who edits images (text_to_image); none: hard negatives only.")
    image_options: dict[str, Any] = Field({}, description="Options of the image editor.")
    n_candidates: int = Field(3, ge=1, le=16, description="M: edits drawn per failure, one seed each (paper: 3).")
    max_misses: int = Field(
        2,
        ge=1,
        description="Fused plan: images of a failure that gain too little, or that the verifier refuses, before no "
        "further one is drawn (a third is valid one time in four).",
    )


class CallsSection(Section):
    plan: Literal["staged", "fused"] = Field(
        "staged",
        description="staged: the paper's calls (verify, instruct, M edits); "
        "fused: one structured call, lazy image edits.",
    )
    planner: str = Field("world", description="Who answers the fused call.")
    planner_options: dict[str, Any] = Field({}, description="Options of the planner.")
    flow: bool = Field(
        True,
        description="Each failure goes from verify to its last edit without waiting for the others; false: stage by "
        "stage. The results are the same.",
    )
    concurrency: int = Field(
        8,
        ge=1,
        le=4096,
        description="Most calls in flight at once at one place (server and model); fewer where it answers 429.",
    )
    timeout_s: float = Field(
        600.0, gt=0, description="Seconds one call may take, from when it is sent; then it counts as not answered."
    )
    prices: dict[str, Any] = Field(
        {},
        description='US dollars by model: {"name" = {input = 0.15, output = 0.60}} per million tokens; also image '
        '(each one made) and call. A model is named as the server knows it, or "server|model", or as in this config.',
    )
    max_usd: float | None = Field(
        None,
        ge=0,
        description="Spend cap in US dollars for the ledger, failed attempts and other runs that share it included; "
        "refused while a price is unknown.",
    )
    max_tokens: int | None = Field(None, ge=0, description="Cap on tokens in + out, likewise.")
    max_calls: int | None = Field(None, ge=0, description="Cap on calls, likewise.")
    max_failed_rate: float = Field(
        0.1,
        ge=0,
        le=1,
        description="A stage stops when more than this share of its calls failed; those answered in vain in an earlier "
        "session too do not count.",
    )


class SelectionSection(Section):
    rule: Literal["closest", "first"] = Field(
        "closest",
        description="closest: the valid candidate nearest the false positive; first: unchecked (ablation w/o PQC).",
    )
    min_gain: float = Field(
        0.0,
        ge=-2,
        le=2,
        description="δ: validity floor on s(query, candidate) − s(query, false positive), in cosine; -2: none, "
        "for where verify_candidates judges edits (the floor refuses true edits that the model does not understand).",
    )
    noop_cosine: float = Field(
        0.999,
        ge=0,
        le=1.01,
        description="A candidate at least this close to the false positive, without the gain, is a no-op.",
    )
    verify_candidates: bool = Field(
        False,
        description="One more verifier call per selected candidate, which refuses edits that are not true; in the "
        "fused plan per image drawn, and a refused one is followed by another.",
    )


class LinksSection(Section):
    max_positives: int = Field(20, ge=1, description="Hard positives kept per anchor.")
    max_negatives: int = Field(50, ge=1, description="Hard negatives kept per anchor.")
    unrepaired_negatives: bool = Field(
        True, description="A kept failure without a valid edit still gives a hard negative."
    )


class GridsSection(Section):
    use_edits: bool = Field(True, description="false: false positives as hard negatives only (ablation w/o Repair).")
    anchor_synthetic_rate: float = Field(
        0.5, ge=0, le=1, description="Share of grids whose anchor pair holds an edit, where there is one (ours)."
    )
    max_per_item: int = Field(20, ge=1, description="Grids of one epoch that may hold the same image or caption.")
    max_samples: int | None = Field(None, ge=1, description="Budget: repairs used, nested as it grows.")
    verify_cells: bool = Field(False, description="Pay one verifier call for each cell that is only assumed false.")


class TrainingSection(Section):
    loss: Literal["local_grids", "local_and_full", "full_matrix", "vanilla"] = Field(
        "local_grids",
        description="local_grids: the paper; local_and_full: the grids inside the batch's softmax too (ours); "
        "full_matrix: there only (ablation); vanilla: no grids, as many encoded samples.",
    )
    local_weight: float = Field(1.0, ge=0, description="λ: weight of the grids' loss beside the batch's.")
    lr: float = Field(
        1e-5, gt=0, le=1, description="Peak learning rate (paper: 1e-5, 5e-6, 2e-6 or 1e-6, for pretrained CLIP)."
    )
    weight_decay: float = Field(
        0.1, ge=0, le=1, description="AdamW weight decay, not on biases, norms and the logit scale."
    )
    warmup_rate: float = Field(0.1, ge=0, le=1, description="Share of the steps with a rising learning rate.")
    n_steps: int = Field(1000, ge=1, description="Optimiser steps.")
    batch_pairs: int = Field(128, ge=2, description="B: global image-caption pairs a step.")
    grids_per_step: int = Field(32, ge=0, description="Grids a step, three images and three captions each.")
    max_grad_norm: float | None = Field(None, gt=0, description="Clip the gradient's norm; unset: no clipping.")
    micro_batch: int | None = Field(
        None,
        ge=1,
        description="Items encoded at once; the loss and its gradient stay those of the whole batch (gradient caching: "
        "two forward passes for less memory). Unset: all at once.",
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32", description="Autocast of both towers; weights, optimiser and losses stay in fp32."
    )
    channels_last: bool = Field(False, description="Weights of convolutions in channels-last order (faster on GPUs).")
    compile: str = Field("", description="torch.compile both towers with this backend, e.g. inductor; empty: off.")
    lora_rank: int = Field(
        0, ge=0, description="Train low-rank adapters of this rank, merged at the end; 0: everything."
    )
    lora_alpha: float = Field(16.0, gt=0, description="Adapters are scaled by lora_alpha / lora_rank.")
    lora_targets: str = Field(
        "", description="Regular expression of the linear layers that get adapters; empty: all of both towers."
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Factor on the learning rate for each layer further from the output; 1: none."
    )
    ema_decay: float = Field(
        0.0, ge=0, lt=1, description="Average the weights over steps with this decay and use the average; 0: off."
    )
    wise_ft: float | Literal["best"] = Field(
        1.0,
        description="Final weights = (1 - a) start + a trained (WiSE-FT); 1: the trained ones; "
        "best: the mix of wise_ft_curve with the best mean R@1 on val.",
    )
    wise_ft_curve: tuple[float, ...] = Field(
        (), description="Mixes a at which mean R@1 on val is measured after training, for wise_ft=best and the report."
    )
    keep: Literal["last", "best"] = Field(
        "last", description="Which weights a round ends with; best: by mean R@1 on val."
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after so many evaluations on val in a row that were no better; unset: never."
    )
    eval_every: int = Field(
        0, ge=0, description="Steps between evaluations on val; 0: only at the end (keep=best needs > 0)."
    )
    collapse_cosine: float = Field(
        0.98, gt=0, le=1, description="Warn when images or captions of a batch have at least this mean cosine."
    )
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="Under torchrun; ddp: every process holds the model, fsdp: shards of it (FSDP2)."
    )
    prefetch: bool = Field(True, description="On a GPU, read the next batch while this one computes.")
    checkpoint_every: int = Field(200, ge=1, description="Steps between checkpoints for exact resume.")

    @field_validator("wise_ft", mode="before")
    @classmethod
    def _mix(cls, value: Any) -> Any:
        if value == "best" or (type(value) in (int, float) and 0 <= value <= 1):
            return value
        raise ValueError("a number from 0 to 1, or best")


class EvaluationSection(Section):
    recall_at: tuple[int, ...] = Field((1, 5, 10), min_length=1, description="The k of R@k.")
    n_bootstrap: int = Field(2000, ge=100, description="Bootstrap resamples of images for the intervals.")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="Level of the intervals.")


class ReportSection(Section):
    n_failures: int = Field(24, ge=0, description="Repaired failures shown in the gallery.")
    n_grids: int = Field(8, ge=0, description="Grids shown.")


class Config(Section):
    """All settings of one run. `fingerprint()` names what would be computed; how it is run is left out."""

    run: RunSection = RunSection()
    method: MethodSection = MethodSection()
    data: DataSection = DataSection()
    encoder: EncoderSection = EncoderSection()
    pipeline: PipelineSection = PipelineSection()
    mining: MiningSection = MiningSection()
    verification: VerificationSection = VerificationSection()
    instruction: InstructionSection = InstructionSection()
    editing: EditingSection = EditingSection()
    calls: CallsSection = CallsSection()
    selection: SelectionSection = SelectionSection()
    links: LinksSection = LinksSection()
    grids: GridsSection = GridsSection()
    training: TrainingSection = TrainingSection()
    evaluation: EvaluationSection = EvaluationSection()
    report: ReportSection = ReportSection()

    @model_validator(mode="after")
    def _together(self) -> Self:
        splits = (self.data.train_split, self.data.val_split, self.data.test_split)
        if self.data.train_split in splits[1:]:
            raise ValueError(f'data.train_split is "{splits[0]}", which is also evaluated on; name another split')
        if self.training.keep == "best" and self.training.eval_every == 0:
            raise ValueError("training.keep=best needs training.eval_every > 0")
        if self.training.patience is not None and self.training.eval_every == 0:
            raise ValueError("training.patience needs training.eval_every > 0")
        if any(not 0 <= mix <= 1 for mix in self.training.wise_ft_curve):
            raise ValueError("training.wise_ft_curve: mixes lie between 0 and 1")
        if self.training.wise_ft == "best" and not self.training.wise_ft_curve:
            raise ValueError("training.wise_ft=best chooses from training.wise_ft_curve, e.g. [0.3, 0.5, 0.7, 1.0]")
        if self.calls.plan == "fused" and not self.verification.enabled:
            raise ValueError(
                "calls.plan=fused answers verdict and edits in one call, so it cannot go with "
                "verification.enabled=false; set calls.plan=staged"
            )
        if self.training.loss in ("full_matrix", "local_and_full") and self.training.grids_per_step == 0:
            raise ValueError(f"training.loss={self.training.loss} needs training.grids_per_step > 0")
        return self

    def flat(self) -> dict[str, Any]:
        """All settings as {"section.key": JSON value}, in the order of this file."""
        return {
            f"{section}.{key}": value
            for section, values in self.model_dump(mode="json").items()
            for key, value in values.items()
        }

    def identity(self) -> dict[str, Any]:
        """The settings that say what is computed: all but OPERATIONAL ones, and LATER ones at their default."""
        return {
            key: value
            for key, value in self.flat().items()
            if key not in OPERATIONAL and not (key in LATER and value == _FLAT_DEFAULTS[key])
        }

    def fingerprint(self) -> str:
        """Content hash of every setting that can change a result."""
        return hash_value(self.identity())

    def run_path(self) -> Path:
        return Path(self.run.folder) / self.run.name

    def calls_path(self) -> Path:
        """Where a run writes its ledger and its edited images. Where they are found later: `pipeline.places`."""
        return Path(self.run.calls) if self.run.calls else self.run_path()

    def cache_path(self) -> Path:
        return Path(self.run.cache) if self.run.cache else Path(self.run.folder) / ".cache"

    def to_toml(self) -> str:
        """The resolved configuration as a file that loads back to an equal one."""
        lines: list[str] = []
        for section, values in self.model_dump(mode="json").items():
            lines += [f"[{section}]", *(f"{k} = {toml_literal(v)}" for k, v in values.items() if v is not None), ""]
        return "\n".join(lines)


_FLAT_DEFAULTS: Mapping[str, Any] = Config().flat()


def load_config(
    source: Path | Mapping[str, Any] | None = None,
    *,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The settings of a file (or its parsed content; None: defaults), the environment and the overrides.

    Raises ConfigError, one line per fault, naming the setting, the rule, the nearest right name, and where it was set.
    """
    where, content = _content(source)
    values: dict[str, dict[str, Any]] = {}
    origins: dict[str, str] = {}
    assignments = _assignments(where, content, overrides, os.environ if environment is None else environment)
    for origin, name, value in assignments:
        _assign(values, origins, name, value, origin)
    run = values.setdefault("run", {})
    if not run.get("name"):
        run["name"] = source.stem if isinstance(source, Path) else "run"
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(fault, origins) for fault in error.errors())) from None


def settings() -> Iterator[tuple[str, Any, str, str]]:
    """(name, default, type, description) of every setting, in order: for the docs and `repair init`."""
    for section, section_field in Config.model_fields.items():
        annotation = section_field.annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, Section)
        for key, key_field in annotation.model_fields.items():
            yield f"{section}.{key}", key_field.default, _type_name(key_field.annotation), key_field.description or ""


def parse_override(text: str) -> tuple[str, Any]:
    """Name and value of "section.key=value". Raises ConfigError for any other form."""
    name, equals, value = text.partition("=")
    if not equals or "." not in name:
        raise ConfigError(f'--set "{text}": write --set section.key=value, e.g. --set training.lr=5e-6')
    return name.strip(), _literal(value)


def _content(source: Path | Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any]]:
    if isinstance(source, Path):
        return str(source), _read_toml(source)
    return "config", source or {}


def _assignments(
    where: str, content: Mapping[str, Any], overrides: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[str, str, Any]]:
    for section, values in content.items():
        if section == "bench":
            raise ConfigError(f"{where} is a bench file (it has a [bench] section): use `repair bench {where}`")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: {section} stands outside a section; write it below one, e.g. [training]")
        for key, value in values.items():
            yield where, f"{section}.{key}", value
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name != variable and "__" in name:
            section, key = name.lower().split("__", 1)
            yield f"environment {variable}", f"{section}.{key}", _literal(environment[variable])
    for override in overrides:
        yield "--set", *parse_override(override)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file; `repair init` writes one") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _assign(values: dict[str, dict[str, Any]], origins: dict[str, str], name: str, value: Any, origin: str) -> None:
    section, key, *inner = name.split(".")
    if section not in Config.model_fields:
        raise ConfigError(f'{origin}: unknown section "{section}": {suggest(section, Config.model_fields)}')
    known = Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    if key not in known:
        raise ConfigError(f'{origin}: unknown setting "{section}.{key}": {_nearest(f"{section}.{key}")}')
    origins[f"{section}.{key}"] = origin
    if not inner:
        values.setdefault(section, {})[key] = value
        return
    if known[key].annotation != dict[str, Any]:
        raise ConfigError(f'{origin}: "{section}.{key}" has no parts, so "{name}" cannot be set')
    options = dict(values.get(section, {}).get(key, {}))
    target = options
    for part in inner[:-1]:
        target[part] = dict(target.get(part, {}))
        target = target[part]
    target[inner[-1]] = value
    values.setdefault(section, {})[key] = options


def _nearest(name: str) -> str:
    """The nearest setting over all sections, or the choices within this one."""
    near = difflib.get_close_matches(name, [known for known, *_ in settings()], n=1, cutoff=0.75)
    if near:
        return f'did you mean "{near[0]}"?'
    section, key = name.split(".", 1)
    annotation = Config.model_fields[section].annotation
    return suggest(key, annotation.model_fields)  # type: ignore[union-attr]


def _literal(text: str) -> Any:
    """A value as TOML reads it, else the text itself: 1e-5, true, [1, 2], "quoted", plain words."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def toml_literal(value: Any) -> str:
    """`value` as TOML writes it."""
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_toml_key(k)} = {toml_literal(v)}" for k, v in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_literal(v) for v in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(
            {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(
                c, c if c >= " " else f"\\u{ord(c):04x}"
            )
            for c in value
        )
        return f'"{escaped}"'
    return repr(value)


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else toml_literal(key)


def _explain(fault: Any, origins: Mapping[str, str]) -> str:
    name = ".".join(str(part) for part in fault["loc"])
    setting = ".".join(name.split(".")[:2])
    origin = f"{origins[setting]}: " if setting in origins else ""
    message = fault["msg"].removeprefix("Value error, ")
    if not name:
        return f"{origin}{message}"
    return f"{origin}{name}: {message[0].lower()}{message[1:]}, not {fault['input']!r}"


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation))
    if annotation == tuple[Direction, ...]:
        return f"list of {' | '.join(Direction)}"
    if get_origin(annotation) is tuple:
        return f"list of {get_args(annotation)[0].__name__}"
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation).replace("typing.", "").replace("dict[str, Any]", "table").replace(" | None", ", or unset")
