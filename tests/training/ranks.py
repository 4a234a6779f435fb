"""Trainings for one process or several, and a program that runs them as one of two: `ranks.py OUT RANK PORT`.

What torchrun sets in the environment is all the processes know of each other.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from repair.core.synthesis import Sample, SampleKind
from repair.training import parallel
from repair.training.compositions.batches import ComposedBatches
from repair.training.loop import Recipe, Training
from tests.training import tiny

N_STEPS = 4
PLAIN = Recipe(n_steps=N_STEPS, batch_pairs=7, grids_per_step=3, lr=0.01, warmup_rate=0.25, checkpoint_every=2)
CASES = {
    "local_grids": PLAIN,
    "full_matrix": replace(PLAIN, loss="full_matrix"),
    "local_and_full": replace(PLAIN, loss="local_and_full"),
    "vanilla": replace(PLAIN, loss="vanilla"),
    "one_grid": replace(PLAIN, grids_per_step=1),  # one process has none
    "pieces": replace(PLAIN, micro_batch=3),
    "clipped": replace(PLAIN, max_grad_norm=0.05, ema_decay=0.9, layer_decay=0.5),
    "bf16": replace(PLAIN, precision="bf16"),
}
SHARDED = {"fsdp": replace(PLAIN, sharded=True), "fsdp_clipped": replace(PLAIN, sharded=True, max_grad_norm=0.05)}


def data_of(recipe):
    return tiny.data(N_STEPS, recipe.grids_per_step)


# Of other methods every loss there is: each row of a batch has one of everything.
COMPOSED = {
    "terms": {
        "negatives": 1,
        "negative_images": 1,
        "views": True,
        "units": 1,
        "terms": (("views", 0.5), ("focal", 0.5), ("ranked", 0.5), ("intra", 0.5), ("units", 0.5)),
    },
    "triplet": {"pairs": "triplet"},
}


def composed(name):
    """Batches of another method; its samples are items of other images."""
    from repair.core.composition import Composition

    kinds = [
        (SampleKind.NEGATIVE_CAPTION, {"text_key": "e{5}", "text": "x"}),
        (SampleKind.NEGATIVE_IMAGE, {"image_key": "i{4}"}),
        (SampleKind.POSITIVE_IMAGE, {"image_key": "i{1}"}),
        (SampleKind.UNIT, {"text_key": "e{2}", "text": "x", "foil_key": "e{3}", "foil": "y"}),
        (SampleKind.PAIR, {"image_key": "i{6}", "text_key": "e{7}", "text": "x"}),
    ]
    samples = [
        Sample(
            sample_id=f"{kind}:t{n}.0/0",
            builder="test",
            index=0,
            how="swap",
            kind=kind,
            image_id=f"i{n}",
            caption_id=f"t{n}.0",
            **{key: value.format(*((n + k) % tiny.N_IMAGES for k in range(8))) for key, value in content.items()},
        )
        for n in range(tiny.N_IMAGES)
        for kind, content in kinds
    ]
    data = tiny.data(N_STEPS, 0)
    made = Composition(**COMPOSED[name])
    batches = ComposedBatches(data.pairs, samples, made, matches=data.matches, n_items=25, seed=0)
    return replace(data, batches=batches)


def outcome(recipe, data, *, group=parallel.ALONE, folder=None, n_steps=None):
    """Rows, the gradients of the first step and the final weights of one training."""
    run = Training(tiny.TinyEncoder(), data, recipe, group=group, folder=folder)
    rows, gradients = [], {}
    for row in run.run():
        rows.append([row.loss, row.global_loss, row.local_loss or 0.0, row.logit_scale, row.grad_norm or 0.0])
        if row.step == 1 and not recipe.sharded:
            gradients = {name: p.grad.clone() for name, p in run.encoder.module.named_parameters()}
        if row.step == n_steps:
            return None
    return {
        "rows": torch.tensor(rows),
        **gradients,
        **{f"final.{k}": v for k, v in run.encoder.module.state_dict().items()},
    }


def main():
    out, rank, port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    group = parallel.join()
    found = {}
    for name, recipe in {**CASES, **SHARDED}.items():
        found[name] = outcome(recipe, data_of(recipe), group=group)
    for name in COMPOSED:
        found[name] = outcome(replace(PLAIN, loss="vanilla"), composed(name), group=group)
    for name in ("local_grids", "fsdp"):  # stopped after the third step, gone on from the second
        recipe = {**CASES, **SHARDED}[name]
        outcome(recipe, data_of(recipe), group=group, folder=out / name, n_steps=3)
        found[f"{name}_resumed"] = outcome(recipe, data_of(recipe), group=group, folder=out / name)
    told = parallel.told(group, {"from": group.rank})
    torch.save(found, out / f"rank-{rank}.pt")
    (out / f"rank-{rank}.json").write_text(json.dumps(told))
    parallel.leave()


if __name__ == "__main__":
    main()
