"""A tiny trainable encoder and a tiny data set: eight things, an image and captions of each, edits, grids."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from repair.core.identity import hash_bytes, hash_value
from repair.core.records import Grid, Pair
from repair.training.loop import TrainingData
from repair.training.matching import MatchTable
from repair.training.prepared import Prepared

N_IMAGES, N_CAPTIONS, DIM_IMAGE, DIM_TEXT, DIM = 24, 2, 6, 5, 8


class TinyModule(nn.Module):
    def __init__(self, *, dropout=0.0):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(DIM_IMAGE, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, DIM))
        self.text = nn.Sequential(nn.Linear(DIM_TEXT, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, DIM))
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        self.n_encoded = []

    def image_features(self, prepared):
        self.n_encoded.append(len(prepared))
        return self.image(prepared)

    def text_features(self, prepared):
        self.n_encoded.append(len(prepared))
        return self.text(prepared)


class TinyEncoder:
    """A TrainableEncoder whose items arrive prepared."""

    name = "tiny"
    dim = DIM
    preparation = "none"

    def __init__(self, *, seed=0, dropout=0.0):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = TinyModule(dropout=dropout)

    def fingerprint(self):
        return hash_value({name: hash_bytes(v.numpy().tobytes()) for name, v in self.module.state_dict().items()})

    def embed_images(self, prepared, *, batch_size=256):
        with torch.no_grad():
            return functional.normalize(self.module.image(torch.from_numpy(prepared)), dim=1).numpy()

    def embed_texts(self, prepared, *, batch_size=256):
        with torch.no_grad():
            return functional.normalize(self.module.text(torch.from_numpy(prepared)), dim=1).numpy()


def pairs():
    return [
        Pair(image_id=f"i{i}", caption_id=f"t{i}.{c}", text=f"caption {c} of {i}", split="train")
        for i in range(N_IMAGES)
        for c in range(N_CAPTIONS)
    ]


def grids(n_steps, grids_per_step, *, seed=0):
    """Any distinct thirds; an edited caption for each second image."""
    rng = np.random.default_rng(seed)
    out = []
    for step in range(n_steps):
        for index in range(grids_per_step):
            a, b, c = (int(n) for n in rng.choice(N_IMAGES, 3, replace=False))
            images = (f"i{a}", f"i{b}", f"i{c}")
            texts = (f"t{a}.0", f"e{b}", f"t{c}.1")
            out.append(Grid(step=step, index=index, images=images, texts=texts, n_synthetic=1))
    return out


def data(n_steps, grids_per_step, *, seed=0):
    """Inputs are noisy views of a hidden vector of each image, so that there is something to learn."""
    rng = np.random.default_rng(7)
    hidden = rng.normal(size=(N_IMAGES, DIM_TEXT)).astype(np.float32)
    view = rng.normal(size=(DIM_TEXT, DIM_IMAGE)).astype(np.float32)
    captions = np.repeat(hidden, N_CAPTIONS, axis=0) + 0.05 * rng.normal(size=(N_IMAGES * N_CAPTIONS, DIM_TEXT))
    edits = hidden + 0.05 * rng.normal(size=hidden.shape)
    rows = pairs()
    return TrainingData(
        pairs=rows,
        grids=grids(n_steps, grids_per_step, seed=seed),
        matches=MatchTable([(p.image_id, p.caption_id) for p in rows] + [(f"i{n}", f"e{n}") for n in range(N_IMAGES)]),
        images=Prepared(([f"i{n}" for n in range(N_IMAGES)], hidden @ view), what="image"),
        texts=Prepared(
            ([p.caption_id for p in rows], captions.astype(np.float32)),
            ([f"e{n}" for n in range(N_IMAGES)], edits.astype(np.float32)),
            what="text",
        ),
    )
