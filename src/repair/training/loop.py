"""Train a dual encoder step by step, and resume it exactly.

On a CPU, for the same number of threads, a run that was stopped at any point and resumed ends with the same bits as one
that was not: the batch, the random numbers inside the model and the learning rate depend on the seed and the step
alone, and everything else is in the checkpoint.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from repair.core.errors import DataError, TrainingError
from repair.core.identity import derive_seed, hash_value
from repair.core.ports import TrainableEncoder
from repair.core.records import Grid, Pair
from repair.numerics.losses import clamp_log_scale
from repair.store.files import write_json
from repair.training import checkpoint
from repair.training.batches import Batch, Batches, Loss
from repair.training.checkpoint import TrainingState
from repair.training.compositions.batches import ComposedBatches
from repair.training.matching import MatchTable
from repair.training.objective import Parts, batch_loss
from repair.training.optimizer import build_optimizer, learning_rate, set_lr
from repair.training.prepared import Prepared

Evaluate = Callable[[TrainableEncoder], float]
_FAILED_BATCH = "failed-batch.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to train. Everything but `checkpoint_every` changes the result.

    `loss` and the two batch sizes: see `batches.Batches`. `local_weight` is λ. `betas` and `eps` are AdamW's, as CLIP's
    are published; the paper does not say. `eval_every` steps, and at the end if it is not 0, `evaluate` is asked for
    a score, higher is better; `keep="best"` ends with the weights of the best one (the first of equals), and `patience`
    stops after so many evaluations in a row that were no better.
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
    """One finished step. Only the last two fields depend on the machine."""

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


class Training:
    """One training run over an encoder, whose weights it changes in place.

    `encoder` holds the weights to start from, also when resuming. With a `folder`, the state is kept there every
    `checkpoint_every` steps and at the end. If it holds the state of this very run (same recipe, start weights, pairs,
    grids, and `data_key`, which may name what else the data depend on), training goes on from there; the state of any
    other run is replaced. Raises TrainingError for a recipe that cannot run, DataError for items that were not
    prepared.
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
    ) -> None:
        _check(recipe, evaluate)
        self.encoder = encoder
        self.data = data
        self.recipe = recipe
        self.folder = folder
        self._evaluate = evaluate
        self._clock = clock
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
        self._state = TrainingState(key=_key(recipe, encoder, data, data_key))
        self._best: dict[str, Tensor] | None = None
        self._module = encoder.module
        clamp_log_scale(self._module.get_parameter("log_scale"))
        self._optimizer = build_optimizer(
            self._module, weight_decay=recipe.weight_decay, betas=recipe.betas, eps=recipe.eps
        )
        kept = checkpoint.read_state(folder) if folder is not None else None
        if folder is not None and kept is not None and kept.key == self._state.key:
            self._best = checkpoint.load(folder, module=self._module, optimizer=self._optimizer)
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
        step and the file with the batch's ids.
        """
        state = self._state
        while not state.finished:
            row = self._train_step(state.step)
            state.step += 1
            state.finished = state.step == self.recipe.n_steps or self._out_of_patience()
            yield row
            if self.folder is not None and (state.finished or state.step % self.recipe.checkpoint_every == 0):
                checkpoint.save(self.folder, state, module=self._module, optimizer=self._optimizer, best=self._best)
        self._finish()

    def _train_step(self, step: int) -> StepRow:
        start = self._clock()
        recipe = self.recipe
        batch = self._batches(step)
        lr = learning_rate(step, n_steps=recipe.n_steps, lr=recipe.lr, warmup_rate=recipe.warmup_rate)
        set_lr(self._optimizer, lr)
        self._module.train()
        self._optimizer.zero_grad(set_to_none=True)
        parts = self._backward(batch)
        grad_norm = self._clip(batch)
        self._optimizer.step()
        log_scale = self._module.get_parameter("log_scale")
        clamp_log_scale(log_scale)
        seconds = self._clock() - start
        return StepRow(
            step=step + 1,
            loss=parts.total.item(),
            global_loss=parts.global_loss.item(),
            local_loss=None if parts.local_loss is None else parts.local_loss.item(),
            lr=lr,
            logit_scale=math.exp(log_scale.item()),
            grad_norm=grad_norm,
            n_pairs=batch.n_pairs,
            n_images=len(batch.image_keys),
            n_texts=len(batch.text_keys),
            score=self._score(step + 1),
            step_s=seconds,
            pairs_per_s=batch.n_pairs / seconds if seconds > 0 else 0.0,
        )

    def _backward(self, batch: Batch) -> Parts:
        device = self._module.get_parameter("log_scale").device
        images = self.data.images.take(batch.image_keys).to(device)
        texts = self.data.texts.take(batch.text_keys).to(device)
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(derive_seed(self.recipe.seed, "training", batch.step))  # for dropout and the like
            parts = batch_loss(self._module, images, texts, batch, local_weight=self.recipe.local_weight)
            if not torch.isfinite(parts.total):
                raise self._stopped(batch, f"the loss is {parts.total.item()}")
            parts.total.backward()  # type: ignore[no-untyped-call]
        return parts

    def _clip(self, batch: Batch) -> float | None:
        if self.recipe.max_grad_norm is None:
            return None
        norm = torch.nn.utils.clip_grad_norm_(self._module.parameters(), self.recipe.max_grad_norm).item()
        if not math.isfinite(norm):
            raise self._stopped(batch, f"the gradient's norm is {norm}")
        return norm

    def _stopped(self, batch: Batch, what: str) -> TrainingError:
        where = ""
        if self.folder is not None:
            path = self.folder / _FAILED_BATCH
            write_json(path, {"step": batch.step + 1, "images": batch.image_keys, "texts": batch.text_keys})
            where = f"; its items are in {path}"
        return TrainingError(f"step {batch.step + 1}: {what}{where}. Lower training.lr or set training.max_grad_norm=1")

    def _score(self, n_done: int) -> float | None:
        every = self.recipe.eval_every
        if self._evaluate is None or not every or (n_done % every and n_done != self.recipe.n_steps):
            return None
        self._module.eval()
        score = float(self._evaluate(self.encoder))
        state = self._state
        if state.best_score is None or score > state.best_score:
            state.best_step, state.best_score, state.n_worse = n_done, score, 0
            if self.recipe.keep == "best":
                self._best = {name: value.detach().clone() for name, value in self._module.state_dict().items()}
        else:
            state.n_worse += 1
        return score

    def _out_of_patience(self) -> bool:
        return self.recipe.patience is not None and self._state.n_worse >= self.recipe.patience

    def _finish(self) -> None:
        self._module.eval()
        if self._state.finished and self._best is not None:
            self._module.load_state_dict(self._best)


def _check(recipe: Recipe, evaluate: Evaluate | None) -> None:
    for name in ("n_steps", "batch_pairs", "checkpoint_every"):
        if getattr(recipe, name) < 1:
            raise TrainingError(f"training.{name} must be at least 1, not {getattr(recipe, name)}")
    if (recipe.keep == "best" or recipe.patience is not None) and (evaluate is None or not recipe.eval_every):
        raise TrainingError('training.keep="best" and patience need evaluations: set training.eval_every')


def _check_prepared(batches: Batches | ComposedBatches, data: TrainingData, *, n_steps: int) -> None:
    for prepared, keys in zip((data.images, data.texts), batches.keys(n_steps), strict=True):
        missing = prepared.missing(keys)
        if missing:
            raise DataError(f"{len(missing)} {prepared.what}s to train on were not prepared, the first is {missing[0]}")


def _key(recipe: Recipe, encoder: TrainableEncoder, data: TrainingData, data_key: str) -> str:
    settings = {f.name: getattr(recipe, f.name) for f in fields(recipe) if f.name != "checkpoint_every"}
    return hash_value(
        {
            "recipe": settings,
            "weights": encoder.fingerprint(),
            "pairs": [[pair.image_id, pair.caption_id] for pair in data.pairs],
            "grids": [[grid.step, *grid.images, *grid.texts] for grid in data.grids],
            "data": data_key,
        }
    )
