#!/usr/bin/env python
"""Train the base checkpoint that is shipped with the embedded world (src/repair/world/base.safetensors).

    python scripts/train_world_base.py                       # reproduce it, some 20 minutes on 2 cores
    python scripts/train_world_base.py --steps 300 --out /tmp/base   # a try
    python scripts/train_world_base.py --check 400           # train nothing: what do 400 further steps add to val?

Symmetric InfoNCE on the world's `train` split, the very pairs a run then mines, as people mine the data their model was
fitted to. AdamW, a warm-up and a cosine down to 0; the weights are rounded to half precision; another number of threads
gives other last bits. RePair mends a trained
model's failures, so the base must have stopped improving: the curve on `val` is printed and kept in base.json, then
the labelled and the true R@1 on `train`, `val` and `test`.
"""

import argparse
import copy
import io
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional

from repair.core.identity import derive_rng
from repair.encoders.small import SmallEncoder, words_of, write_checkpoint
from repair.world import vocabulary, wording
from repair.world.source import WorldSource

BASE = "base"
OUT = Path(__file__).parent.parent / "src" / "repair" / "world"
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """A split, prepared: image i owns the captions `owned[i]`."""

    name: str
    image_ids: list[str]
    texts: list[str]
    owner: Ints  # (captions,) index of the caption's image
    owned: list[Ints]
    text_class: Ints  # (captions,) equal exactly for equal captions
    images: npt.NDArray[np.uint8]
    tokens: npt.NDArray[np.int16]


def world_words() -> list[str]:
    """Every word of the world's grammar, sorted."""
    forms = [form for category in vocabulary.CATEGORIES for pair in vocabulary.nouns(category) for form in pair]
    for table in (
        vocabulary.COLOURS,
        vocabulary.SIZES,
        vocabulary.ACTIONS,
        vocabulary.SETTINGS,
        vocabulary.RELATIONS,
        vocabulary.QUANTITIES,
    ):
        forms += [form for synonyms in table.values() for form in synonyms]
    forms += [*wording.OPENERS, *wording.SEPARATORS, *wording.CHAINED, *wording.WEARING, "an", "is", "are"]
    return sorted({word for form in forms for word in words_of(form)})


def prepared(source: WorldSource, name: str, encoder: SmallEncoder) -> Split:
    """The images of a split and their captions."""
    started = time.perf_counter()
    ids: list[str] = []
    texts: list[str] = []
    owner: list[int] = []
    for pair in source.pairs(name):
        if not ids or pair.image_id != ids[-1]:
            ids.append(pair.image_id)
        texts.append(pair.text)
        owner.append(len(ids) - 1)
    images = np.concatenate(
        [
            encoder.prepare_images(
                [Image.open(io.BytesIO(source.read_image(image_id))) for image_id in ids[start : start + 500]]
            )
            for start in range(0, len(ids), 500)
        ]
    )
    owners = np.asarray(owner)
    classes = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    print(
        f"{name}: {len(ids):,} images, {len(texts):,} captions, {len(classes):,} distinct, "
        f"{encoder.n_cut(texts)} cut, {time.perf_counter() - started:.0f} s",
        flush=True,
    )
    return Split(
        name=name,
        image_ids=ids,
        texts=texts,
        owner=owners,
        owned=np.split(np.arange(len(texts)), np.flatnonzero(np.diff(owners)) + 1),
        text_class=np.asarray([classes[text] for text in texts]),
        images=images,
        tokens=encoder.prepare_texts(texts),
    )


def loss_of(module: torch.nn.Module, split: Split, images: Ints, captions: Ints) -> torch.Tensor:
    """Symmetric InfoNCE of the pairs; an equal caption of another image is no negative."""
    z_image = functional.normalize(module.image_features(torch.from_numpy(split.images[images])), dim=1)
    z_text = functional.normalize(module.text_features(torch.from_numpy(split.tokens[captions])), dim=1)
    logits = module.log_scale.exp().clamp(1, 100) * z_image @ z_text.T
    same = torch.from_numpy(split.text_class[captions])
    logits = logits.masked_fill((same[:, None] == same[None, :]) & ~torch.eye(len(same), dtype=torch.bool), -1e4)
    labels = torch.arange(len(same))
    return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2


def fit(
    encoder: SmallEncoder,
    split: Split,
    *,
    steps: int,
    batch: int,
    lr: float,
    seed: int,
    every: int,
    val: Split | None,
) -> list[dict[str, float]]:
    """Train in place; returns the curve on `val`."""
    module, curve = encoder.module, []
    decayed = [p for p in module.parameters() if p.dim() > 1]
    others = [p for p in module.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98))
    warmup = max(1, steps // 20)
    started, total, n_seen = time.perf_counter(), 0.0, 0
    order: Ints = np.empty(0, dtype=np.int64)
    rng = derive_rng(seed, "train_world_base", split.name)
    for step in range(steps):
        for group in optimizer.param_groups:
            done = (step - warmup) / max(1, steps - warmup)
            group["lr"] = lr * ((step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * done)))
        if len(order) < batch:
            order = np.concatenate([order, rng.permutation(len(split.image_ids))])
        images, order = order[:batch], order[batch:]
        captions = np.asarray([rng.choice(split.owned[image]) for image in images])
        loss = loss_of(module, split, images, captions)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        total, n_seen = total + float(loss.detach()), n_seen + 1
        if val is not None and ((step + 1) % every == 0 or step + 1 == steps):
            spent = time.perf_counter() - started
            row = {
                "step": step + 1,
                "loss": round(total / n_seen, 4),
                "scale": round(encoder.logit_scale, 2),
            }
            row |= labelled_recall(encoder, val)
            curve.append(row)
            print(json.dumps(row | {"seconds": round(spent)}), flush=True)
            total, n_seen = 0.0, 0
    return curve


def similarities(encoder: SmallEncoder, split: Split) -> npt.NDArray[np.float32]:
    return encoder.embed_images(split.images) @ encoder.embed_texts(split.tokens).T


def labelled_recall(encoder: SmallEncoder, split: Split) -> dict[str, float]:
    """R@1 in %, own captions only."""
    s = similarities(encoder, split)
    i2t = split.owner[s.argmax(axis=1)] == np.arange(len(split.image_ids))
    t2i = s.argmax(axis=0) == split.owner
    return {"i2t": round(100 * float(i2t.mean()), 2), "t2i": round(100 * float(t2i.mean()), 2)}


def true_recall(encoder: SmallEncoder, split: Split, source: WorldSource) -> dict[str, float]:
    """R@1 in % where the top item counts if it is true of the query, labelled or not."""
    s = similarities(encoder, split)
    contents = [source.read_image(image_id) for image_id in split.image_ids]
    i2t = [source.holds(contents[i], split.texts[j]) for i, j in enumerate(s.argmax(axis=1))]
    t2i = [source.holds(contents[i], split.texts[j]) for j, i in enumerate(s.argmax(axis=0))]
    return {"i2t_true": round(100 * float(np.mean(i2t)), 2), "t2i_true": round(100 * float(np.mean(t2i)), 2)}


def write(encoder: SmallEncoder, out: Path, facts: dict[str, Any]) -> None:
    path = out / f"{BASE}.safetensors"
    write_checkpoint(encoder, path, facts_path=out / f"{BASE}.json", facts=facts, half=True)
    print(f"wrote {path}", flush=True)


def more_of_the_same(encoder: SmallEncoder, train: Split, val: Split, *, steps: int, batch: int) -> None:
    """Print R@1 on `val` before and after `steps` further vanilla steps on `train`."""
    print("base", json.dumps(labelled_recall(encoder, val)), flush=True)
    for lr in (1e-4, 5e-4):
        copied = copy.copy(encoder)
        copied.module = copy.deepcopy(encoder.module)
        fit(copied, train, steps=steps, batch=batch, lr=lr, seed=1, every=steps, val=None)
        print(f"{steps} steps at lr {lr:g}", json.dumps(labelled_recall(copied, val)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--every", type=int, default=250, help="steps between two measurements on val")
    parser.add_argument("--check", type=int, default=0, help="print what so many further steps add, and end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    source = WorldSource()
    encoder = SmallEncoder(words=world_words(), image_size=64, seed=options.seed)
    n_parameters = sum(p.numel() for p in encoder.module.parameters())
    print(f"{n_parameters:,} parameters, {len(encoder.words)} words, world {source.fingerprint}", flush=True)
    train, val = prepared(source, "train", encoder), prepared(source, "val", encoder)
    if options.check:
        encoder.module.load_state_dict(load_file(options.out / f"{BASE}.safetensors"))
        more_of_the_same(encoder, train, val, steps=options.check, batch=224)
        return
    settings = {"steps": options.steps, "batch": options.batch, "lr": options.lr, "seed": options.seed}
    curve = fit(encoder, train, every=options.every, val=val, **settings)
    encoder.module.half().float()  # what is stored, and so what a run starts from
    facts: dict[str, Any] = {
        "command": "python scripts/train_world_base.py",
        **settings,
        "world": source.fingerprint,
        "parameters": n_parameters,
        "val_curve": curve,
    }
    for split in (train, val, prepared(source, "test", encoder)):
        facts[split.name] = labelled_recall(encoder, split) | true_recall(encoder, split, source)
        print(split.name, json.dumps(facts[split.name]), flush=True)
    write(encoder, options.out, facts)


if __name__ == "__main__":
    main()
