"""`small`: a two-tower encoder of under a million parameters, trained from scratch on the embedded world.

It is the default encoder because it needs nothing: no download, no GPU, a step of 128 pairs in a third of a second on
two cores. Text is cut into whole words of a fixed vocabulary; words outside it all become one unknown token.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from PIL import Image
from torch.nn import functional

from repair.core.errors import ConfigError, StoreError
from repair.core.identity import canonical_json, hash_bytes, hash_value
from repair.core.ports import Array, FloatArray
from repair.encoders.small_towers import STRIDE, SmallModule, seeded

PAD, UNKNOWN, END = 0, 1, 2
_FIRST_WORD = 3  # words follow the three special tokens, in the order of the vocabulary
_LENGTH = 40  # tokens of a text, the end token included
_DIM = 128
_ARCHITECTURE = "small-2"  # a change of the towers needs a new name: old weights are then refused
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_MODEL_FILE = "model.safetensors"
_FACTS_FILE = "model.json"


def words_of(text: str) -> list[str]:
    """The words of `text`, lower-cased, punctuation dropped.

    Example:
        >>> words_of("A red dog, left of two cats.")
        ['a', 'red', 'dog', 'left', 'of', 'two', 'cats']
    """
    return [word.lower() for word in _WORD.findall(text)]


class SmallEncoder:
    """A TrainableEncoder (see `core.ports`). `prepare_images` gives uint8 (n, 3, size, size), `prepare_texts` int16
    (n, 40) token ids; features have 128 dimensions."""

    name = "small"
    dim = _DIM

    def __init__(self, *, words: Sequence[str], image_size: int = 64, seed: int = 0) -> None:
        """`words` is the vocabulary, lower case, without repeats; `seed` draws the first weights."""
        if image_size % STRIDE or not 32 <= image_size <= 128:
            raise ConfigError(f"image_size of encoder small: a multiple of {STRIDE} from 32 to 128, not {image_size}")
        if len(set(words)) != len(words) or not words:
            raise ConfigError(
                f"vocabulary of encoder small: distinct words, at least one, not {len(words)} with repeats"
            )
        self.words = tuple(words)
        self.image_size = image_size
        self._ids = {word: _FIRST_WORD + index for index, word in enumerate(self.words)}
        self.preparation = hash_value(
            {"architecture": _ARCHITECTURE, "image_size": image_size, "length": _LENGTH, "words": list(self.words)}
        )
        n_tokens = _FIRST_WORD + len(self.words)
        self.module = seeded(
            lambda: SmallModule(image_size=image_size, n_tokens=n_tokens, length=_LENGTH, dim=_DIM), seed=seed
        )

    @property
    def logit_scale(self) -> float:
        """α, clamped to [1, 100]."""
        return min(max(float(self.module.log_scale.detach().exp()), 1.0), 100.0)

    def fingerprint(self) -> str:
        """Content hash of every weight (name, shape, float32 bytes) and of `preparation`."""
        weights = {
            name: [list(value.shape), hash_bytes(value.detach().float().contiguous().numpy().tobytes())]
            for name, value in self.module.state_dict().items()
        }
        return hash_value({"preparation": self.preparation, "weights": weights})

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        """uint8 (n, 3, size, size): RGB, squeezed to a square with a bilinear filter if not of that size already."""
        size = (self.image_size, self.image_size)
        out = np.empty((len(images), 3, *size), dtype=np.uint8)
        for row, image in zip(out, images, strict=True):
            rgb = image.convert("RGB")
            if rgb.size != size:
                rgb = rgb.resize(size, Image.Resampling.BILINEAR)
            row[:] = np.asarray(rgb).transpose(2, 0, 1)
        return out

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        """int16 (n, 40): word ids, an end token, zeros. Texts of more than 39 words lose their end."""
        out = np.zeros((len(texts), _LENGTH), dtype=np.int16)
        for row, text in zip(out, texts, strict=True):
            ids = [self._ids.get(word, UNKNOWN) for word in words_of(text)[: _LENGTH - 1]]
            row[: len(ids) + 1] = [*ids, END]
        return out

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more than 39 words."""
        return sum(len(words_of(text)) > _LENGTH - 1 for text in texts)

    def embed_images(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, 128) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.image_features, prepared, batch_size=batch_size)

    def embed_texts(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, 128) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.text_features, prepared, batch_size=batch_size)

    def _embed(
        self, features: Callable[[torch.Tensor], torch.Tensor], prepared: Array, *, batch_size: int
    ) -> FloatArray:
        out = np.empty((len(prepared), _DIM), dtype=np.float32)
        with torch.no_grad():
            for start in range(0, len(prepared), batch_size):
                rows = torch.from_numpy(np.array(prepared[start : start + batch_size]))  # a copy: it may be read-only
                out[start : start + batch_size] = functional.normalize(features(rows).float(), dim=1).numpy()
        return out

    def save(self, folder: str, *, facts: Mapping[str, Any]) -> None:
        """Write `model.safetensors` (weights, vocabulary, facts) and `model.json` (the facts again, to be read by
        people) into `folder`. Raises StoreError if it cannot; what was there before is then still whole."""
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the checkpoint folder {path}: {error.strerror}") from error
        write_checkpoint(self, path / _MODEL_FILE, facts_path=path / _FACTS_FILE, facts=facts)

    def load_weights(self, folder: str) -> None:
        """Take the weights saved in `folder`; raises StoreError unless image size and vocabulary are these here."""
        path = Path(folder) / _MODEL_FILE
        header, weights = _read_checkpoint(path)
        for key, mine in (("image_size", self.image_size), ("words", list(self.words))):
            if header[key] != mine:
                raise StoreError(
                    f"{path} holds weights for another {key.replace('words', 'vocabulary')}: "
                    f"build the encoder with checkpoint={folder!r} instead"
                )
        _take(self.module, weights, path=path)


def small(
    *, checkpoint: str = "base", image_size: int | None = None, vocabulary: str | None = None, seed: int = 0
) -> SmallEncoder:
    """The encoder by name.

    `checkpoint`: "base" (trained on the world's `train` split, shipped), "none" (first weights drawn from `seed`),
    or a folder written by `save`. `image_size` in pixels: with "none" 64 unless given, else that of the checkpoint.
    `vocabulary`: with "none" only, a text file with a word a line; the world's words unless given.
    Raises ConfigError for settings that clash, StoreError for a checkpoint that cannot be read.
    """
    if checkpoint != "none" and vocabulary is not None:
        raise ConfigError('encoder small: option "vocabulary" needs checkpoint="none", since weights bring their own')
    path = _base_path() if checkpoint in ("base", "none") else Path(checkpoint) / _MODEL_FILE
    if checkpoint == "none":
        words = _read_words(Path(vocabulary)) if vocabulary is not None else _read_checkpoint(path)[0]["words"]
        return SmallEncoder(words=words, image_size=image_size or 64, seed=seed)
    header, weights = _read_checkpoint(path)
    if image_size not in (None, header["image_size"]):
        raise ConfigError(
            f'encoder small: image_size={image_size}, but checkpoint "{checkpoint}" was trained at '
            f'{header["image_size"]}: leave image_size out, or set checkpoint="none"'
        )
    encoder = SmallEncoder(words=header["words"], image_size=header["image_size"], seed=seed)
    _take(encoder.module, weights, path=path)
    return encoder


def write_checkpoint(
    encoder: SmallEncoder, path: Path, *, facts_path: Path, facts: Mapping[str, Any], half: bool = False
) -> None:
    """Write one checkpoint; with `half` the weights are stored in 16 bits (what is loaded is then the rounded value).

    The safetensors file is complete in itself and replaced in one rename, last: a crash leaves the old one.
    """
    header = {
        "architecture": _ARCHITECTURE,
        "image_size": encoder.image_size,
        "words": list(encoder.words),
        "facts": dict(facts),
    }
    dtype = torch.float16 if half else torch.float32
    weights = {name: value.detach().to(dtype).contiguous() for name, value in encoder.module.state_dict().items()}
    # One key only: safetensors does not promise an order of several, and equal checkpoints must be equal bytes.
    data = safetensors.torch.save(weights, metadata={"repair": canonical_json(header)})
    readable = {"architecture": _ARCHITECTURE, "image_size": encoder.image_size, "content": hash_bytes(data), **facts}
    _replace(facts_path, (json.dumps(readable, indent=2, ensure_ascii=False) + "\n").encode())
    _replace(path, data)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise StoreError(f"no checkpoint of encoder small at {path}: give a folder that holds {_MODEL_FILE}")
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("repair", "null"))
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise StoreError(f"cannot read the checkpoint {path}: {error}") from error
    if not isinstance(header, dict) or header.get("architecture") != _ARCHITECTURE:
        found = header.get("architecture") if isinstance(header, dict) else None
        raise StoreError(f"{path} is not a checkpoint of encoder small: architecture {found}, not {_ARCHITECTURE}")
    return header, weights


def _take(module: torch.nn.Module, weights: Mapping[str, torch.Tensor], *, path: Path) -> None:
    expected = {name: value.shape for name, value in module.state_dict().items()}
    found = {name: value.shape for name, value in weights.items()}
    if expected != found:
        wrong = sorted(set(expected.items()) ^ set(found.items()))[0][0]
        raise StoreError(
            f"{path} holds weights of another shape: {wrong} is {found.get(wrong)}, not {expected.get(wrong)}"
        )
    module.load_state_dict(weights)


def _base_path() -> Path:
    return Path(str(resources.files("repair") / "world" / "base.safetensors"))


def _read_words(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the vocabulary of encoder small, {path}: {error}") from error
    return list(dict.fromkeys(word for line in text.splitlines() for word in words_of(line)))
