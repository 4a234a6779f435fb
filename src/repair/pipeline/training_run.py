"""A training of the pipeline: its recipe from the settings, its rows on disk, and what is made of the weights after."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.ports import TrainableEncoder
from repair.core.progress import Progress
from repair.pipeline.processes import training_together
from repair.store.files import write_bytes
from repair.training.averaging import copied, mix, mixing_curve
from repair.training.loop import Recipe, Training, TrainingData

Evaluate = Callable[[TrainableEncoder], float]


def recipe_of(config: Config) -> Recipe:
    """The training's settings, and the run's seed."""
    t = config.training
    return Recipe(
        loss=t.loss,
        n_steps=t.n_steps,
        batch_pairs=t.batch_pairs,
        grids_per_step=t.grids_per_step,
        local_weight=t.local_weight,
        lr=t.lr,
        weight_decay=t.weight_decay,
        warmup_rate=t.warmup_rate,
        max_grad_norm=t.max_grad_norm,
        eval_every=t.eval_every,
        keep=t.keep,
        patience=t.patience,
        checkpoint_every=t.checkpoint_every,
        seed=config.run.seed,
        micro_batch=t.micro_batch,
        precision=t.precision,
        channels_last=t.channels_last,
        compile=t.compile,
        lora_rank=t.lora_rank,
        lora_alpha=t.lora_alpha,
        lora_targets=t.lora_targets,
        layer_decay=t.layer_decay,
        ema_decay=t.ema_decay,
        sharded=t.parallel == "fsdp",
        collapse_cosine=t.collapse_cosine,
    )


def train_encoder(
    encoder: TrainableEncoder,
    data: TrainingData,
    config: Config,
    *,
    folder: Path,
    rows: Path,
    evaluate: Evaluate,
    progress: Progress,
) -> dict[str, Any]:
    """Train `encoder` in place, its state kept in `folder`, a row a step in the file `rows`; what to say of it.

    Under torchrun all processes train together. With `training.wise_ft` below 1 the encoder ends with that mix of where
    it started and what was trained; `training.wise_ft_curve` measures mixes on val, and with "best" the best of them is
    taken, of equals the one nearest the start.
    """
    settings, recipe = config.training, recipe_of(config)
    mixes = settings.wise_ft != 1 or settings.wise_ft_curve
    start = copied(encoder.module) if mixes else {}
    with training_together(recipe, data, folder) as group:
        training = Training(
            encoder,
            data,
            recipe,
            folder=folder,
            evaluate=evaluate,
            group=group,
            prefetch=None if settings.prefetch else False,
            warn=lambda text: progress.say(f"train: {text}"),
        )
        summary = _run(training, rows, progress)
    summary = {"steps": training.step, **summary}
    if training.best is not None:
        summary |= {"best_step": training.best[0], "best_val_mean_R@1": training.best[1]}
    if mixes:
        trained = copied(encoder.module)
        curve = mixing_curve(
            encoder.module, start, trained, shares=settings.wise_ft_curve, score=lambda: evaluate(encoder)
        )
        share = settings.wise_ft
        if share == "best":
            share = max(sorted(curve), key=lambda point: point[1])[0]
        mix(encoder.module, start, trained, share)
        summary |= {"wise_ft": share, "wise_ft_curve": [list(point) for point in curve]}
    return summary


def _run(training: Training, rows: Path, progress: Progress) -> dict[str, Any]:
    """Train the remaining steps; a row of metrics a step. Rows after the checkpoint are cut off before resuming."""
    kept = rows.read_bytes().splitlines(keepends=True)[: training.step] if rows.exists() else []
    write_bytes(rows, b"".join(kept))
    waited_s = total_s = 0.0
    with rows.open("a", encoding="utf-8") as file, progress.task("train", training.recipe.n_steps) as advance:
        advance(training.step)
        for row in training.run():
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            waited_s, total_s = waited_s + row.wait_s, total_s + row.step_s
            advance(1, f"loss {row.loss:.4f}")
    summary: dict[str, Any] = {}
    for line in rows.read_text(encoding="utf-8").splitlines()[-1:]:
        final = json.loads(line)
        summary = {name: final[name] for name in ("loss", "global_loss", "local_loss", "logit_scale")}
    if total_s:
        progress.say(f"train: the device waited {100 * waited_s / total_s:.1f} % of the time for its inputs")
    return summary
