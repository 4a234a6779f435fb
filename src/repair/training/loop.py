"""Train a dual encoder step by step, and resume it exactly.

On a CPU, for the same number of threads, a run that was stopped at any point and resumed ends with the same bits as one
that was not: the batch, the random numbers inside the model and the learning rate depend on the seed and the step
alone, and everything else is in the checkpoint.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from repair.core.errors import DataError, TrainingError
from repair.core.identity import derive_seed, hash_value
from repair.core.ports import TrainableEncoder
from repair.core.records import Grid, Pair
from repair.numerics.losses import clamp_log_scale, logit_scale, mean_cosine
from repair.store.files import write_json
from repair.training import checkpoint, parallel, sharding
from repair.training.adapters import Adapters
from repair.training.averaging import Average, copied, put
from repair.training.batches import Batch, Batches, Loss
from repair.training.checkpoint import TrainingState
from repair.training.compilation import not_compiled, require_backend
from repair.training.compositions.batches import ComposedBatch, ComposedBatches
from repair.training.encoding import Precision, Tower, cached_step, whole_step
from repair.training.inputs import Inputs, Rows
from repair.training.matching import MatchTable
from repair.training.memory import out_of_memory
from repair.training.objective import Parts, features_loss
from repair.training.optimizer import build_optimizer, learning_rate, set_lr
from repair.training.parallel import ALONE, Group
from repair.training.prepared import Prepared

Evaluate = Callable[[TrainableEncoder], float]
Warn = Callable[[str], None]
_FAILED_BATCH = "failed-batch.json"
_COLLAPSE_EVERY = 50  # steps between looks at the batch's mean cosine


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train. Everything but `checkpoint_every` and `collapse_cosine` changes the result.

    `loss` and the two batch sizes: see `batches.Batches`. `local_weight` is λ. `betas` and `eps` are AdamW's, as CLIP's
    are published; the paper does not say. `eval_every` steps, and at the end if it is not 0, `evaluate` is asked for
    a score, higher is better; `keep="best"` ends with the weights of the best one (the first of equals), and `patience`
    stops after so many evaluations in a row that were no better.

    `micro_batch`: items encoded at once, with the loss and gradient of the whole batch (`encoding.cached_step`).
    `precision`: autocast of the towers; weights, optimiser and losses stay in float32. `compile`: a torch.compile
    backend. `lora_*`: low-rank adapters, merged at the end (`adapters`). `layer_decay`: factor on the learning rate for
    each layer further from the output. `ema_decay`: the running average of the weights is what is evaluated and kept.
    `sharded`: under several processes each holds a shard of the model (FSDP2) rather than all of it.
    `collapse_cosine`: mean cosine of a batch's images or captions from which to warn.
    """

    loss: Loss = "local_grids"
    n_steps: int = 1000
    batch_pairs: int = 128
    grids_per_step: int = 32
    local_weight: float = 1.0
    lr: float = 1e-5
    weight_decay: float = 0.1
    warmup_rate: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    max_grad_norm: float | None = None
    eval_every: int = 0
    keep: Literal["last", "best"] = "last"
    patience: int | None = None
    checkpoint_every: int = 200
    seed: int = 0
    micro_batch: int | None = None
    precision: Precision = "fp32"
    channels_last: bool = False
    compile: str = ""
    lora_rank: int = 0
    lora_alpha: float = 16.0
    lora_targets: str = ""
    layer_decay: float = 1.0
    ema_decay: float = 0.0
    sharded: bool = False
    collapse_cosine: float = 0.98


# The settings check the same; a recipe can be made without them.
_RULES: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (("n_steps", "batch_pairs", "checkpoint_every", "micro_batch", "patience"), "at least 1", lambda x: x >= 1),
    (("grids_per_step", "eval_every", "lora_rank", "local_weight", "weight_decay"), "at least 0", lambda x: x >= 0),
    (("lr", "max_grad_norm", "lora_alpha"), "a number above 0", lambda x: 0 < x < math.inf),
    (("warmup_rate",), "from 0 to 1", lambda x: 0 <= x <= 1),
    (("ema_decay",), "at least 0 and below 1", lambda x: 0 <= x < 1),
    (("layer_decay",), "above 0 and at most 1", lambda x: 0 < x <= 1),
    (("loss",), f"one of {', '.join(get_args(Loss))}", lambda x: x in get_args(Loss)),
    (("precision",), f"one of {', '.join(get_args(Precision))}", lambda x: x in get_args(Precision)),
    (("keep",), "last or best", lambda x: x in ("last", "best")),
)
_N_FIRST_OPTIONS = [f.name for f in fields(Recipe)].index("seed") + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """`pairs`: the split trained on; `grids`: those of every step; the rest knows all items of both, edits included.

    `batches`: where every step's batch comes from, instead of pairs and grids (other methods than RePair).
    """

    pairs: Sequence[Pair]
    grids: Sequence[Grid]
    matches: MatchTable
    images: Prepared
    texts: Prepared
    batches: Batches | ComposedBatches | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One finished step, of all processes together. Only the last three fields depend on the machine."""

    step: int  # 1 … n_steps
    loss: float
    global_loss: float
    local_loss: float | None  # mean over the grids, before λ
    lr: float
    logit_scale: float  # α after the step
    grad_norm: float | None  # before clipping; None without clipping
    n_pairs: int  # the budget, repeated items counted as often as they occur
    n_images: int  # distinct, as encoded
    n_texts: int
    score: float | None  # of the evaluation after this step, if there was one
    step_s: float
    pairs_per_s: float
    wait_s: float = 0.0  # of step_s, how long the device waited for its inputs


class Training:
    """One training run over an encoder, whose weights it changes in place.

    `encoder` holds the weights to start from, also when resuming. With a `folder`, the state is kept there every
    `checkpoint_every` steps and at the end. If it holds the state of this very run (same recipe, start weights, pairs,
    grids, and `data_key`, which may name what else the data depend on), training goes on from there; the state of any
    other run is replaced. Raises TrainingError for a recipe that cannot run, DataError for items that were not
    prepared.

    With a `group` of several processes each makes the same Training and runs it: the first one writes, and the others
    read the folder when resuming. `evaluate` is asked in the first one only. `prefetch` reads the next batch while a
    step computes (None: on a GPU). `warn` hears of what looks wrong but is no error.
    """

    def __init__(
        self,
        encoder: TrainableEncoder,
        data: TrainingData,
        recipe: Recipe,
        *,
        folder: Path | None = None,
        evaluate: Evaluate | None = None,
        data_key: str = "",
        clock: Callable[[], float] = time.perf_counter,
        group: Group = ALONE,
        prefetch: bool | None = None,
        warn: Warn | None = None,
    ) -> None:
        _check(recipe, evaluate, group)
        self.encoder = encoder
        self.data = data
        self.recipe = recipe
        self.folder = folder
        self._evaluate = evaluate if group.first else None
        self._evaluated_by_first = bool(parallel.told(group, evaluate is not None))
        self._clock = clock
        self._group = group
        self._warn = warn
        self._batches = data.batches or Batches(
            data.pairs,
            data.grids,
            matches=data.matches,
            loss=recipe.loss,
            n_steps=recipe.n_steps,
            batch_pairs=recipe.batch_pairs,
            grids_per_step=recipe.grids_per_step,
            seed=recipe.seed,
        )
        _check_prepared(self._batches, data, n_steps=recipe.n_steps)
        key = parallel.told(group, _key(recipe, encoder, data, data_key) if group.first else None)
        self._state = TrainingState(key=key)
        self._best: dict[str, Tensor] | None = None
        self._device = encoder.module.get_parameter("log_scale").device
        on_gpu = self._device.type == "cuda"
        self._inputs = Inputs(
            self._batches, data.images, data.texts, group=group, prefetch=on_gpu if prefetch is None else prefetch
        )
        self._module = self._made_ready(encoder.module)
        clamp_log_scale(self._module.get_parameter("log_scale"))
        self._optimizer = build_optimizer(
            self._module,
            weight_decay=recipe.weight_decay,
            betas=recipe.betas,
            eps=recipe.eps,
            layer_decay=recipe.layer_decay,
        )
        if self._module is not self.encoder.module:
            for settings in self._optimizer.param_groups:
                settings["foreach"] = False  # shards and whole scalars cannot be stepped together
        towers: tuple[Any, Any] = self._module.image_features, self._module.text_features
        if recipe.compile:
            towers = torch.compile(towers[0], backend=recipe.compile), torch.compile(towers[1], backend=recipe.compile)
        self._towers: tuple[Tower, Tower] = towers
        self._scaler = torch.amp.GradScaler(self._device.type) if recipe.precision == "fp16" else None
        self._average = Average(self._module, decay=recipe.ema_decay) if recipe.ema_decay else None
        self._resume()

    def _made_ready(self, module: torch.nn.Module) -> torch.nn.Module:
        """What is trained: the encoder's own module, with adapters if wished, or shards of a copy of it."""
        recipe = self.recipe
        parallel.same_start(module, self._group)
        if recipe.channels_last:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._adapters = None
        if recipe.lora_rank:
            self._adapters = Adapters(
                module,
                rank=recipe.lora_rank,
                alpha=recipe.lora_alpha,
                targets=recipe.lora_targets,
                seed=derive_seed(recipe.seed, "adapters"),
            )
        return sharding.sharded(module, self._group) if recipe.sharded and self._group.world > 1 else module

    def _resume(self) -> None:
        folder = self.folder
        kept = checkpoint.read_state(folder) if folder is not None and self._group.first else None
        kept = parallel.told(self._group, kept)
        if folder is not None and kept is not None and kept.key == self._state.key:
            tensors = checkpoint.load(folder, module=self._module, optimizer=self._optimizer)
            self._best = tensors.best
            if self._average is not None:
                self._average.load(tensors.average)
            if self._scaler is not None and kept.scaler is not None:
                self._scaler.load_state_dict(dict(kept.scaler))
            self._state = kept
            self._finish()

    @property
    def step(self) -> int:
        """Finished steps: 0, or where the checkpoint stood. Rows of later steps will be yielded (again)."""
        return self._state.step

    @property
    def finished(self) -> bool:
        return self._state.finished

    @property
    def best(self) -> tuple[int, float] | None:
        """Step and score of the best evaluation so far."""
        step, score = self._state.best_step, self._state.best_score
        return None if step is None or score is None else (step, score)

    def run(self) -> Iterator[StepRow]:
        """Train the remaining steps, a row each; the state is kept after its row was taken.

        So rows written out as they come reach at least as far as the checkpoint: cut them at `step` before resuming.
        When exhausted, the encoder holds the final weights. Raises TrainingError when a loss is not finite, naming the
        step and the file with the batch's ids, or when memory runs out, naming what to change.
        """
        state = self._state
        with self._inputs:
            while not state.finished:
                row = self._train_step(state.step)
                state.step += 1
                state.finished = state.step >= self.recipe.n_steps or self._out_of_patience()
                yield row
                if state.finished or state.step % self.recipe.checkpoint_every == 0:
                    self._keep()
        self._finish()

    def _keep(self) -> None:
        if self.folder is None:
            return
        self._state.scaler = None if self._scaler is None else self._scaler.state_dict()
        checkpoint.save(
            self.folder,
            self._state,
            module=self._module,
            optimizer=self._optimizer,
            best=self._best,
            average=None if self._average is None else self._average.weights,
            write=self._group.first,
        )

    def _train_step(self, step: int) -> StepRow:
        start = self._clock()
        recipe = self.recipe
        rows = self._inputs(step, last=recipe.n_steps)
        lr = learning_rate(step, n_steps=recipe.n_steps, lr=recipe.lr, warmup_rate=recipe.warmup_rate)
        set_lr(self._optimizer, lr)
        self._module.train()
        self._optimizer.zero_grad(set_to_none=True)
        parts = self._backward(rows)
        grad_norm = self._update(rows.batch)
        log_scale = self._module.get_parameter("log_scale")
        clamp_log_scale(log_scale)
        if self._average is not None:
            self._average.update(self._module, step=step + 1)
        losses = [value for value in (parts.total, parts.global_loss, parts.local_loss) if value is not None]
        sums = parallel.sum_values([value.item() for value in losses], self._group)
        seconds = self._clock() - start  # after the values came back: a GPU has then done all of the step
        return StepRow(
            step=step + 1,
            loss=sums[0],
            global_loss=sums[1],
            local_loss=None if parts.local_loss is None else sums[2],
            lr=lr,
            logit_scale=math.exp(log_scale.item()),
            grad_norm=grad_norm,
            n_pairs=rows.batch.n_pairs,
            n_images=len(rows.batch.image_keys),
            n_texts=len(rows.batch.text_keys),
            score=self._score(step + 1),
            step_s=seconds,
            pairs_per_s=rows.batch.n_pairs / seconds if seconds > 0 else 0.0,
            wait_s=rows.waited_s,
        )

    def _backward(self, rows: Rows) -> Parts:
        step, recipe = rows.batch.step, self.recipe
        devices = [self._device] if self._device.type == "cuda" else []
        # For dropout and the like; processes draw differently, since they encode different items.
        names = (step,) if self._group.world == 1 else (step, self._group.rank)
        seed = derive_seed(recipe.seed, "training", *names)

        def loss(z_images: Tensor, z_texts: Tensor) -> Parts:
            if step % _COLLAPSE_EVERY == 0:
                self._look(step, z_images, z_texts)
            scale = logit_scale(self._module.get_parameter("log_scale"))
            return self._loss(z_images, z_texts, scale, rows)

        all_finite = True

        def finite(total: Tensor) -> bool:
            nonlocal all_finite
            here = bool(torch.isfinite(total))
            all_finite = here if self._group.world == 1 else not sum(parallel.sum_values([not here], self._group))
            return all_finite

        def backward(total: Tensor) -> None:
            scaled = total if self._scaler is None else self._scaler.scale(total)
            scaled.backward()  # type: ignore[no-untyped-call]

        options: dict[str, Any] = {"device": self._device, "precision": recipe.precision}
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            try:
                if recipe.micro_batch is None:
                    parts = whole_step(self._towers, rows.images, rows.texts, loss, backward, finite, **options)
                else:
                    parts = cached_step(
                        self._towers,
                        rows.images,
                        rows.texts,
                        loss,
                        backward,
                        finite,
                        size=recipe.micro_batch,
                        seed=seed,
                        **options,
                    )
            except (RuntimeError, MemoryError) as error:
                instead = out_of_memory(error, rows, recipe.micro_batch, recipe.precision)
                instead = instead or not_compiled(error, recipe.compile)
                if instead is None:
                    raise
                raise instead from error
        if not all_finite:
            raise self._not_finite(rows.batch, parts.total.item())
        return parts

    def _loss(self, z_images: Tensor, z_texts: Tensor, scale: Tensor, rows: Rows) -> Parts:
        weight = self.recipe.local_weight
        if rows.share is not None:
            return parallel.share_loss(z_images, z_texts, scale, rows.share, self._group, local_weight=weight)
        if self._group.world > 1 and isinstance(rows.batch, ComposedBatch):
            return parallel.gathered_loss(z_images, z_texts, scale, rows.batch, self._group, local_weight=weight)
        return features_loss(z_images, z_texts, scale, rows.batch, local_weight=weight)

    def _look(self, step: int, z_images: Tensor, z_texts: Tensor) -> None:
        """Warn if all images or all captions of the batch lie on nearly one point."""
        if self._warn is None:
            return
        for what, features in (("images", z_images), ("captions", z_texts)):
            if len(features) > 1 and (cosine := mean_cosine(features)) >= self.recipe.collapse_cosine:
                self._warn(
                    f"step {step + 1}: the {what} of the batch have a mean cosine of {cosine:.3f}: the embedding has "
                    "collapsed, or never spread; lower training.lr, or check what the encoder was loaded from"
                )

    def _update(self, batch: Batch) -> float | None:
        """Sum gradients over processes, clip, step; the gradient's norm before clipping, if it was asked for."""
        parallel.sum_gradients(sharding.own_to_sum(self._module), self._group)
        if self._scaler is None:
            norm = self._clip(batch)
            self._optimizer.step()
            return norm
        self._scaler.unscale_(self._optimizer)
        norm = self._clip(batch)  # not finite: the scale was too large, the step is left out and the scale halved
        self._scaler.step(self._optimizer)
        self._scaler.update()
        if self._scaler.get_scale() < 1:  # halved so often that it is not the scale
            raise self._stopped(batch, "the gradient is not finite, however small its scale")
        return norm

    def _clip(self, batch: Batch) -> float | None:
        if self.recipe.max_grad_norm is None:
            return None
        clip = sharding.clip if self._module is not self.encoder.module else torch.nn.utils.clip_grad_norm_
        norm = clip(self._module.parameters(), self.recipe.max_grad_norm).item()
        if not math.isfinite(norm) and self._scaler is None:
            raise self._stopped(batch, f"the gradient's norm is {norm}")
        return norm

    def _not_finite(self, batch: Batch, loss: float) -> TrainingError:
        """Whose batch it was: this one's, or, if the weights came broken, that of the step before, whose loss was
        finite and whose gradient was not (without clipping nobody looks at it)."""
        parameters = (parallel.own_part(parameter) for parameter in self._module.parameters())
        if batch.step and not all(bool(torch.isfinite(parameter).all()) for parameter in parameters):
            return self._stopped(
                self._batches(batch.step - 1), "its gradient is not finite, and so are the weights after it"
            )
        return self._stopped(batch, f"the loss is {loss}")

    def _stopped(self, batch: Batch, what: str) -> TrainingError:
        where = ""
        if self.folder is not None:
            path = self.folder / _FAILED_BATCH
            write_json(path, {"step": batch.step + 1, "images": batch.image_keys, "texts": batch.text_keys})
            where = f"; its items are in {path}"
        fixes = "lower training.lr, set training.max_grad_norm=1" + (
            ", or training.precision=bf16" if self._scaler else ""
        )
        return TrainingError(f"step {batch.step + 1}: {what}{where}: {fixes}")

    def _score(self, n_done: int) -> float | None:
        every = self.recipe.eval_every
        if not self._evaluated_by_first or not every or (n_done % every and n_done != self.recipe.n_steps):
            return None
        self._module.eval()
        with self._judged() as module:
            score = float(self._evaluate(self.encoder)) if self._evaluate is not None else 0.0
            score = float(parallel.told(self._group, score))
            state = self._state
            if score > (-math.inf if state.best_score is None else state.best_score):
                state.best_step, state.best_score, state.n_worse = n_done, score, 0
                if self.recipe.keep == "best":
                    self._best = copied(module)
            else:
                state.n_worse += 1
        return score

    @contextmanager
    def _judged(self) -> Iterator[torch.nn.Module]:
        """The encoder holds the weights to be judged, until the context ends; gives the module that has them."""
        if self._average is not None:
            with self._average.in_place(self._module):
                yield self._module
            return
        if self._module is not self.encoder.module:
            put(self.encoder.module, sharding.whole_state(self._module))
        yield self.encoder.module

    def _out_of_patience(self) -> bool:
        return self.recipe.patience is not None and self._state.n_worse >= self.recipe.patience

    def _finish(self) -> None:
        """Once all steps are done: the weights to end with, whole, plain and in the encoder's module."""
        self._module.eval()
        if not self._state.finished:
            return
        if self._module is not self.encoder.module:
            put(self.encoder.module, sharding.whole_state(self._module))
            self.encoder.module.eval()
        if self._best is not None:
            self.encoder.module.load_state_dict(self._best)
        elif self._average is not None:
            put(self.encoder.module, self._average.weights)
        if self._adapters is not None:
            self._adapters.merge()
            self._adapters = None


def _check(recipe: Recipe, evaluate: Evaluate | None, group: Group) -> None:
    for names, rule, fits in _RULES:
        for name in names:
            value = getattr(recipe, name)
            if value is not None and not fits(value):
                raise TrainingError(f"training.{name} must be {rule}, not {value}")
    if recipe.compile:
        require_backend(recipe.compile)
    if recipe.sharded and group.world > 1:
        clash = {
            "micro_batch": recipe.micro_batch is not None,
            "lora_rank": recipe.lora_rank > 0,
            "ema_decay": recipe.ema_decay > 0,
            "precision=fp16": recipe.precision == "fp16",
        }
        for name, wanted in clash.items():
            if wanted:
                raise TrainingError(f"training.parallel=fsdp cannot go with training.{name}: set training.parallel=ddp")
    evaluated = (evaluate is not None or not group.first) and recipe.eval_every
    if (recipe.keep == "best" or recipe.patience is not None) and not evaluated:
        raise TrainingError('training.keep="best" and patience need evaluations: set training.eval_every')


def _check_prepared(batches: Batches | ComposedBatches, data: TrainingData, *, n_steps: int) -> None:
    for prepared, keys in zip((data.images, data.texts), batches.keys(n_steps), strict=True):
        missing = prepared.missing(keys)
        if missing:
            raise DataError(f"{len(missing)} {prepared.what}s to train on were not prepared, the first is {missing[0]}")


def _key(recipe: Recipe, encoder: TrainableEncoder, data: TrainingData, data_key: str) -> str:
    passing = ("checkpoint_every", "collapse_cosine")
    settings = {f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name not in passing}
    # Options that came later name another training only where they are used: older checkpoints stay good.
    plain = {f.name: f.default for f in fields(recipe)[_N_FIRST_OPTIONS:]}
    settings = {name: value for name, value in settings.items() if name not in plain or value != plain[name]}
    return hash_value(
        {
            "recipe": settings,
            "weights": encoder.fingerprint(),
            "pairs": [[pair.image_id, pair.caption_id] for pair in data.pairs],
            "grids": [[grid.step, *grid.images, *grid.texts] for grid in data.grids],
            "data": data_key,
            # composed batches name themselves; older checkpoints, without them, stay good
            **({"batches": data.batches.identity} if isinstance(data.batches, ComposedBatches) else {}),
        }
    )
