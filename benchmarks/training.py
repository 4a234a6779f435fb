"""A training step: ours beside open_clip's own training loop and sentence-transformers' trainer, in one run.

    python benchmarks/training.py [--pairs 64] [--steps 12] [--repeats 3] [--threads 2]

Every method encodes as many images and captions a step (--pairs of each), with a vision transformer and a text
transformer of the same size, in fp32 on the CPU. Each measurement is a fresh process, the methods take turns, forwards
and backwards, and medians are printed: wall and processor seconds a step (the first two left out; on a busy machine
only the latter mean something) and the peak memory of the process above what it held when model and data were ready.

  open_clip   open_clip_train.train.train_one_epoch with ClipLoss
  st          SentenceTransformerTrainer with MultipleNegativesRankingLoss on a CLIP model of transformers
  vanilla     ours, training.loss=vanilla
  grids       ours, training.loss=local_grids: a quarter global pairs, the rest grids
  pieces      vanilla with training.micro_batch = pairs / 4 (gradient caching)
"""

import argparse
import itertools
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

METHODS = ("open_clip", "st", "vanilla", "grids", "pieces")
Stamp = tuple[float, float]  # wall clock and processor time, in seconds
N_IMAGES, SIZE, LENGTH = 256, 96, 32
WARM_UP = 2


def main() -> None:
    options = _options()
    if options.method:
        print(json.dumps(_measure(options)))
        return
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    for turn in range(options.repeats):
        for method in METHODS[:: -1 if turn % 2 else 1]:  # both orders: a machine that slows down hits all alike
            runs[method].append(_in_process(method))
            print(f"{turn + 1}/{options.repeats} {method}: {runs[method][-1]['cpu_s']:.3f} cpu s", file=sys.stderr)
    print(f"a step of {options.pairs} pairs, {options.threads} threads, median of {options.repeats}")
    print(f"{'':12}{'s / step':>10}{'ratio':>8}{'cpu s':>10}{'ratio':>8}{'peak MB':>10}{'ratio':>8}")
    medians = {m: {key: statistics.median(run[key] for run in runs[m]) for key in runs[m][0]} for m in METHODS}
    base = medians["open_clip"]
    for method in METHODS:
        own = medians[method]
        print(
            f"{method:12}{own['seconds']:>10.3f}{own['seconds'] / base['seconds']:>8.2f}"
            f"{own['cpu_s']:>10.3f}{own['cpu_s'] / base['cpu_s']:>8.2f}"
            f"{own['peak_mb']:>10.0f}{own['peak_mb'] / base['peak_mb']:>8.2f}"
        )
    for key in ("seconds", "cpu_s"):
        print(f"grids / vanilla, {key}: {medians['grids'][key] / medians['vanilla'][key]:.3f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("pairs", 64), ("steps", 12), ("repeats", 3), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_process(method: str) -> dict[str, float]:
    command = [sys.executable, __file__, *sys.argv[1:], "--method", method]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{method}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(options: argparse.Namespace) -> dict[str, float]:
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        stamps, before = _BY_METHOD[options.method](options, Path(folder))
    steps = list(itertools.pairwise(stamps))[WARM_UP:]
    return {
        "seconds": statistics.median(b[0] - a[0] for a, b in steps),
        "cpu_s": statistics.median(b[1] - a[1] for a, b in steps),
        "peak_mb": (_resident() - before) / 1024,
    }


def _now() -> Stamp:
    return time.perf_counter(), time.process_time()


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _open_clip_model() -> Any:
    """About 5M parameters a tower, and the config they come from."""
    import open_clip

    config = {
        "embed_dim": 128,
        "vision_cfg": {"image_size": SIZE, "layers": 6, "width": 192, "patch_size": 12, "head_width": 32},
        "text_cfg": {"context_length": LENGTH, "vocab_size": 49408, "width": 192, "heads": 6, "layers": 6},
    }
    return open_clip.model.CLIP(**config, output_dict=True), config


def _data() -> tuple[Any, Any]:
    import torch

    images = torch.randint(0, 256, (N_IMAGES, 3, SIZE, SIZE), dtype=torch.uint8)
    texts = torch.randint(1, 49000, (N_IMAGES, LENGTH), dtype=torch.int32)
    texts[:, -1] = 49407
    return images, texts


def _by_open_clip(options: argparse.Namespace, _: Path) -> tuple[list[Stamp], int]:
    import torch
    from open_clip import ClipLoss
    from open_clip_train.train import train_one_epoch

    model, _config = _open_clip_model()
    images, texts = _data()
    before = _resident()
    stamps: list[Stamp] = []

    class Loader:
        num_batches, num_samples = options.steps, options.steps * options.pairs

        def __iter__(self) -> Any:
            for step in range(options.steps):
                rows = [(step * options.pairs + n) % N_IMAGES for n in range(options.pairs)]
                stamps.append(_now())
                yield images[rows].float().div(255).sub(0.5).div(0.5), texts[rows].long()
            stamps.append(_now())

    data = {"train": SimpleNamespace(dataloader=Loader(), set_epoch=lambda _: None)}
    args = SimpleNamespace(
        device="cpu",
        precision="fp32",
        distill=False,
        accum_freq=1,
        skip_scheduler=True,
        grad_clip_norm=1.0,
        horovod=False,
        rank=0,
        local_rank=0,
        log_local=False,
        world_size=1,
        batch_size=options.pairs,
        log_every_n_steps=1,
        wandb=False,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.1)
    train_one_epoch(model, data, ClipLoss(), 0, optimizer, None, None, None, args)
    return stamps, before


def _ours(options: argparse.Namespace, *, loss: str, micro_batch: int | None = None) -> tuple[list[Stamp], int]:
    import open_clip

    from repair.core.records import Grid, Pair
    from repair.encoders.open_clip import OpenClipEncoder
    from repair.training.loop import Recipe, Training, TrainingData
    from repair.training.matching import MatchTable
    from repair.training.prepared import Prepared

    model, config = _open_clip_model()
    open_clip.factory.set_model_preprocess_cfg(model, {"size": SIZE, "mean": [0.5] * 3, "std": [0.5] * 3})
    tokenizer = open_clip.SimpleTokenizer(context_length=LENGTH)
    encoder = OpenClipEncoder(model, config=config, tokenizer=tokenizer, device="cpu", precision="fp32")
    images, texts = _data()
    keys = [f"i{n}" for n in range(N_IMAGES)], [f"t{n}" for n in range(N_IMAGES)]
    pairs = [Pair(image_id=i, caption_id=t, text=t, split="train") for i, t in zip(*keys, strict=True)]
    n_global = options.pairs // 4
    per_step = (options.pairs - n_global) // 3
    n_global = options.pairs - 3 * per_step
    grids = []
    for step in range(options.steps):
        for index in range(per_step):
            rows = [(step * 7 + 3 * index + n) % N_IMAGES for n in range(3)]
            items = tuple(keys[0][row] for row in rows), tuple(keys[1][row] for row in rows)
            grids.append(Grid(step=step, index=index, images=items[0], texts=items[1], n_synthetic=0))  # type: ignore[arg-type]
    data = TrainingData(
        pairs=pairs,
        grids=grids,
        matches=MatchTable(list(zip(*keys, strict=True))),
        images=Prepared((keys[0], images.numpy()), what="image"),
        texts=Prepared((keys[1], texts.numpy()), what="caption"),
    )
    recipe = Recipe(
        loss=loss,  # type: ignore[arg-type]
        n_steps=options.steps,
        batch_pairs=n_global,
        grids_per_step=per_step,
        max_grad_norm=1.0,
        micro_batch=micro_batch,
    )
    before = _resident()
    stamps = [_now()]
    for _ in Training(encoder, data, recipe).run():
        stamps.append(_now())
    return stamps, before


def _by_sentence_transformers(options: argparse.Namespace, folder: Path) -> tuple[list[Stamp], int]:
    import datasets
    import numpy as np
    import transformers
    from PIL import Image
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, losses
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from tokenizers import Tokenizer, models, pre_tokenizers

    size = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6}
    text = {**size, "vocab_size": 49408, "max_position_embeddings": LENGTH, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CLIPConfig(
        text_config={**text, "bos_token_id": 1},
        vision_config={**size, "image_size": SIZE, "patch_size": 12},
        projection_dim=128,
    )
    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{n}": n + 3 for n in range(1000)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<s>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", model_max_length=LENGTH
    )
    images = transformers.CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    model = SentenceTransformer(str(folder), device="cpu")
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)) for _ in range(N_IMAGES)]
    captions = [" ".join(f"w{n}" for n in rng.integers(0, 1000, LENGTH - 1)) + " </s>" for _ in range(N_IMAGES)]
    stamps: list[Stamp] = []

    class Clock(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            stamps.append(_now())

    before = _resident()
    trainer = SentenceTransformerTrainer(
        model=model,
        args=Arguments(
            output_dir=str(folder / "out"),
            max_steps=options.steps + 1,
            per_device_train_batch_size=options.pairs,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=datasets.Dataset.from_dict({"image": pictures, "caption": captions}),
        loss=losses.MultipleNegativesRankingLoss(model),
        callbacks=[Clock()],
    )
    trainer.train()
    return stamps, before


_BY_METHOD = {
    "open_clip": _by_open_clip,
    "st": _by_sentence_transformers,
    "vanilla": lambda options, _: _ours(options, loss="vanilla"),
    "grids": lambda options, _: _ours(options, loss="local_grids"),
    "pieces": lambda options, _: _ours(options, loss="vanilla", micro_batch=max(1, options.pairs // 4)),
}


if __name__ == "__main__":
    main()
