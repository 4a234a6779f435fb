"""What the encoders of known model families share: a module over the family's own model, embedding, identity, saving.

A family's model stays an unchanged submodule, so its own library loads what is saved here.
"""

import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import safetensors
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from repair.core.errors import ConfigError, StoreError
from repair.core.identity import hash_bytes, hash_value
from repair.core.ports import Array, FloatArray
from repair.numerics.losses import MAX_LOG_SCALE
from repair.store.files import content_hash, read_json, storing, write_json

Precision = Literal["fp32", "bf16", "fp16"]
FACTS_FILE = "model.json"
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class PretrainedModule(nn.Module):
    """A family's model behind the two methods training needs. `log_scale` is the model's own parameter ln α.

    Pixels arrive as uint8 and are scaled and normalised here, so that the cache holds one byte a value.
    """

    def __init__(
        self, model: nn.Module, *, mean: Sequence[float], std: Sequence[float], factor: float = 1 / 255
    ) -> None:
        super().__init__()
        self.model = model
        self._factor = factor
        self.register_buffer("_mean", torch.tensor(mean, dtype=torch.float32), persistent=False)
        self.register_buffer("_std", torch.tensor(std, dtype=torch.float32), persistent=False)
        bias = getattr(model, "logit_bias", None)
        if isinstance(bias, nn.Parameter):
            bias.requires_grad_(False)  # added to every logit alike, a softmax does not see it: no gradient, ever

    @property
    def log_scale(self) -> nn.Parameter:
        return cast(nn.Parameter, self.model.logit_scale)

    def normalised(self, pixels: Tensor, *, channel_axis: int = 1) -> Tensor:
        """uint8 pixels to what the model was trained on; `channel_axis` is where mean and deviation apply."""
        shape = [1] * pixels.ndim
        shape[channel_axis] = -1
        mean, std = cast(Tensor, self._mean).view(shape), cast(Tensor, self._std).view(shape)
        return pixels.float().mul(self._factor).sub(mean).div(std)


class PretrainedEncoder(ABC):
    """A TrainableEncoder (see `core.ports`) over a `PretrainedModule`; a subclass prepares, and knows its files.

    `device`: "auto" takes a GPU if there is one. `precision` is that of embedding; training has its own setting.
    Embeddings are float32 in any case, and independent of the batch to 1e-5 in fp32.
    """

    name: str
    dim: int
    preparation: str
    module: nn.Module
    architecture: Mapping[str, Any]  # what besides weights and preparation makes the embedding, e.g. activations

    def __init__(self, *, device: str, precision: Precision) -> None:
        self.device = chosen_device(device, encoder=self.name)
        self._precision = precision

    @abstractmethod
    def prepare_images(self, images: Sequence[Image.Image]) -> Array: ...

    @abstractmethod
    def prepare_texts(self, texts: Sequence[str]) -> Array: ...

    @abstractmethod
    def _write(self, folder: Path, *, card: str) -> None:
        """Write the family's own files into the empty `folder`."""

    @abstractmethod
    def _read_weights(self, folder: Path) -> Mapping[str, Tensor]:
        """The weights in `folder` under the names of `module.model`. Raises any error if they cannot be read."""

    weights_file: str  # what holds the weights; without it a folder is no checkpoint
    hub_library: str  # as model hubs call it
    loading: str  # how the library loads a saved folder, as a line of Python for the card

    def check_parts(self, model: str) -> None:
        """Whether preprocessing, tokenizer and both towers fit together, tried on one input each.

        Raises StoreError if they do not: `model` is then named as what was to be loaded.
        """
        try:
            images = self.embed_images(self.prepare_images([Image.new("RGB", (64, 64))]))
            texts = self.embed_texts(self.prepare_texts(["a"]))
        except Exception as error:
            raise StoreError(
                f'encoder {self.name}: the parts of "{model}" do not fit together: {one_line(error)}'
            ) from error
        if not (np.isfinite(images).all() and np.isfinite(texts).all()):
            raise StoreError(f'encoder {self.name}: the weights of "{model}" give embeddings that are not finite')

    @property
    def logit_scale(self) -> float:
        """α, clamped to [1, 100]."""
        log_scale = self.module.get_parameter("log_scale").detach().float()
        return float(log_scale.clamp(0.0, MAX_LOG_SCALE).exp())

    def fingerprint(self) -> str:
        """Content hash of every weight (name, shape, float32 bytes), `preparation`, architecture and precision."""
        weights = {
            name: [list(value.shape), hash_bytes(value.detach().float().cpu().contiguous().numpy().tobytes())]
            for name, value in self.module.state_dict().items()
        }
        kind = {"preparation": self.preparation, "architecture": self.architecture, "precision": self._precision}
        return hash_value({**kind, "weights": weights})

    def embed_images(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, dim) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.image_features, prepared, batch_size=batch_size)  # type: ignore[arg-type]

    def embed_texts(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        """(n, dim) float32 unit rows, in the order of `prepared`."""
        return self._embed(self.module.text_features, prepared, batch_size=batch_size)  # type: ignore[arg-type]

    def _embed(self, features: Callable[[Tensor], Tensor], prepared: Array, *, batch_size: int) -> FloatArray:
        out = np.empty((len(prepared), self.dim), dtype=np.float32)
        was_training = self.module.training
        self.module.eval()
        with torch.no_grad(), autocast(self.device.type, self._precision):
            start = 0
            for rows in pieces(prepared, batch_size, ahead=self.device.type == "cuda"):
                embedded = functional.normalize(features(rows.to(self.device, non_blocking=True)).float(), dim=1)
                out[start : start + len(rows)] = embedded.cpu().numpy()
                start += len(rows)
        self.module.train(was_training)
        return out

    def save(self, folder: str, *, facts: Mapping[str, Any]) -> None:
        """Write the family's own files, a model card and `model.json` with `facts`; the weights take their place last.

        The family's library loads the folder directly. Raises StoreError if it cannot be written.
        """
        place = Path(folder)
        with storing(place):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place, prefix=".", suffix=".tmp") as temporary:
                new = Path(temporary)
                try:
                    self._write(new, card=model_card(self, facts))
                except safetensors.SafetensorError as error:  # how it reports a full disk
                    raise StoreError(f"cannot write {place}: {one_line(error)}; nothing was half-written") from error
                content = content_hash(new / self.weights_file)
                about = {"encoder": self.name, "preparation": self.preparation, "content": content}
                write_json(new / FACTS_FILE, {**about, "facts": dict(facts)})
                for path in sorted(new.iterdir(), key=lambda path: (path.name == self.weights_file, path.name)):
                    shutil.move(path, place / path.name)

    def load_weights(self, folder: str) -> None:
        """Take the weights saved in `folder`. Raises StoreError if there are none, or those of another model."""
        place = Path(folder)
        if not (place / self.weights_file).is_file():
            raise StoreError(
                f"no checkpoint of encoder {self.name} at {place}: give a folder that holds {self.weights_file}"
            )
        if (place / FACTS_FILE).is_file():
            preparation = read_json(place / FACTS_FILE).get("preparation")
            if preparation != self.preparation:
                raise StoreError(
                    f"{place} holds weights for another encoder: its preprocessing, tokenizer or architecture differ; "
                    f"name the folder itself, {self.name}:{place}"
                )
        try:
            weights = self._read_weights(place)
        except Exception as error:
            raise StoreError(f"cannot read the checkpoint {place}: {one_line(error)}") from error
        model = cast(nn.Module, self.module.model)
        expected = {name: value.shape for name, value in model.state_dict().items()}
        found = {name: value.shape for name, value in weights.items()}
        if expected != found:
            wrong = sorted(set(expected.items()) ^ set(found.items()))[0][0]
            raise StoreError(
                f"{place} holds weights of another shape: {wrong} is {found.get(wrong)}, not {expected.get(wrong)}"
            )
        model.load_state_dict(dict(weights))


def pieces(prepared: Array, size: int, *, ahead: bool) -> Iterator[Tensor]:
    """Copies of `prepared` (it may be read-only, or lie on disk), `size` rows at a time, in order. `ahead`: a thread
    reads the next while one is worked on, into pinned memory where there is a GPU."""

    def read(start: int) -> Tensor:
        rows = torch.from_numpy(np.array(prepared[start : start + size]))
        return rows.pin_memory() if ahead and torch.cuda.is_available() else rows

    starts = range(0, len(prepared), size)
    if not ahead:
        yield from map(read, starts)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="rows") as pool:
        waiting: deque[Future[Tensor]] = deque()
        for start in starts:
            waiting.append(pool.submit(read, start))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def chosen_device(name: str, *, encoder: str) -> torch.device:
    """The device of that name; "auto": a GPU if there is one. Raises ConfigError for one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f'encoder {encoder}: device "{name}" is not one: write auto, cpu, cuda or cuda:0') from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f'encoder {encoder}: device "{name}", but torch sees no GPU: write cpu or auto')
    try:
        torch.ones(1, device=device).cpu()
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
    ) as error:  # a kind this torch lacks, a card that is not there
        raise ConfigError(
            f'encoder {encoder}: device "{name}" cannot be used: {one_line(error, limit=120)}: write auto, cpu or cuda'
        ) from error
    return device


def autocast(device_type: str, precision: Precision) -> torch.autocast:
    """Autocast to `precision`; for fp32 a context that does nothing."""
    return torch.autocast(device_type, dtype=_DTYPES.get(precision), enabled=precision != "fp32")


def one_line(error: BaseException, *, limit: int = 300) -> str:
    """The error's text on one line, cut at `limit` characters."""
    text = " ".join(str(error).split())
    if " " not in text:  # a bare key or number says nothing by itself
        text = f"{type(error).__name__} {text}".rstrip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def model_card(encoder: PretrainedEncoder, facts: Mapping[str, Any]) -> str:
    """The README of a saved model: how to load it, and what `facts` say of data, budget and results."""
    lines = [
        "---",
        f"library_name: {encoder.hub_library}",
        "pipeline_tag: zero-shot-image-classification",
        "tags:",
        "- image-text-retrieval",
        "---",
        "",
        "# Image-text dual encoder, fine-tuned with RePair",
        "",
        f"Encoder `{encoder.name}`, {encoder.dim} dimensions, logit scale {encoder.logit_scale:.2f}. Load it with:",
        "",
        "```python",
        encoder.loading,
        "```",
        "",
        *_card_sections(facts),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _card_sections(facts: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in facts.items() if not isinstance(value, Mapping)}
    lines = ["## How it was made", "", *_card_table(plain)] if plain else []
    for title, section in facts.items():
        if isinstance(section, Mapping):
            lines += [f"## {str(title).replace('_', ' ').capitalize()}", "", *_card_table(section)]
    return lines


def _card_table(section: Mapping[str, Any]) -> list[str]:
    cell = {True: "yes", False: "no", None: "not measured"}
    rows = []
    for key, value in section.items():
        shown = cell[value] if isinstance(value, bool) or value is None else str(value)
        rows.append(f"| {str(key).replace('_', ' ')} | {shown.replace('|', chr(92) + '|')} |")
    return ["| | |", "|---|---|", *rows, ""]
