"""The loop over the encoder the demo trains: convolutions in another memory layout, an embedding table, attention."""

import itertools
from dataclasses import replace

import numpy as np
import torch

from repair.encoders.small import SmallEncoder
from repair.training.loop import Recipe, Training
from repair.training.prepared import Prepared
from tests.training import tiny

RECIPE = Recipe(n_steps=4, batch_pairs=4, grids_per_step=2, lr=1e-3, checkpoint_every=2)
WORDS = ["red", "blue", "dog", "cat"]


def data():
    base = tiny.data(4, 2)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(tiny.N_IMAGES, 3, 32, 32), dtype=np.uint8)
    keys = [p.caption_id for p in base.pairs] + [f"e{n}" for n in range(tiny.N_IMAGES)]
    texts = SmallEncoder(words=WORDS, image_size=32).prepare_texts([" ".join(rng.choice(WORDS, 3)) for _ in keys])
    return replace(
        base,
        images=Prepared(([f"i{n}" for n in range(tiny.N_IMAGES)], images), what="image"),
        texts=Prepared((keys, texts), what="text"),
    )


def test_resumes_bit_for_bit(tmp_path):
    whole = Training(SmallEncoder(words=WORDS, image_size=32), data(), RECIPE)
    losses = [row.loss for row in whole.run()]
    killed = Training(SmallEncoder(words=WORDS, image_size=32), data(), RECIPE, folder=tmp_path)
    list(itertools.islice(killed.run(), 3))
    resumed = Training(SmallEncoder(words=WORDS, image_size=32), data(), RECIPE, folder=tmp_path)
    assert resumed.step == 2
    assert [row.loss for row in resumed.run()] == losses[2:]
    for name, value in whole.encoder.module.state_dict().items():
        assert torch.equal(value, resumed.encoder.module.state_dict()[name]), name
