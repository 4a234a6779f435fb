"""`hf:…`: dual encoders of the transformers library; what is saved, transformers loads.

    hf:openai/clip-vit-base-patch32        a repository (offline: one already in the local cache)
    hf:models/siglip-b16                   a folder with config.json, weights, tokenizer and image processor

Families: CLIP, SigLIP, SigLIP 2 (fixed size and NaFlex) and VisionTextDualEncoder. SigLIP was trained with texts padded
to the full length and no mask, and is used so; its logit bias, the same for every pair, does not matter to a softmax:
it is kept as it is.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from repair.core.errors import ConfigError, StoreError
from repair.core.identity import hash_value
from repair.core.ports import Array
from repair.encoders.pretrained import Precision, PretrainedEncoder, PretrainedModule, one_line

FAMILIES = ("clip", "siglip", "siglip2", "vision-text-dual-encoder")
_SIGLIP_LENGTH = 64
_MAX_LENGTH = 512  # a tokenizer without a limit of its own claims a huge one


class HfModule(PretrainedModule):
    """Prepared rows to (n, dim) features, not normalised. Texts are (n, 2, length): token ids, then their mask."""

    def __init__(self, model: nn.Module, *, family: str, right_padded: bool, **pixels: Any) -> None:
        super().__init__(model, **pixels)
        self._family = family
        self._right_padded = right_padded

    def image_features(self, prepared: Tensor) -> Tensor:
        if self._family == "siglip2":
            return self._pooled("get_image_features", **self._unpacked(prepared))
        return self._pooled("get_image_features", pixel_values=self.normalised(prepared))

    def text_features(self, prepared: Tensor) -> Tensor:
        ids, mask = prepared[:, 0].long(), prepared[:, 1].long()
        if self._family.startswith("siglip"):
            return self._pooled("get_text_features", input_ids=ids)
        if self._right_padded and len(ids):  # columns in which no text has a token cost time only
            used = int(mask.sum(dim=1).max())
            ids, mask = ids[:, :used], mask[:, :used]
        return self._pooled("get_text_features", input_ids=ids, attention_mask=mask)

    def _pooled(self, method: str, **inputs: Tensor) -> Tensor:
        found = getattr(self.model, method)(**inputs)
        pooled: Tensor = found if isinstance(found, Tensor) else found.pooler_output
        return pooled

    def _unpacked(self, packed: Tensor) -> dict[str, Tensor]:
        """NaFlex rows: patches of uint8 pixels, then rows and columns of patches as two 16-bit numbers."""
        tail = packed[:, -4:].long()
        shapes = torch.stack([tail[:, 0] * 256 + tail[:, 1], tail[:, 2] * 256 + tail[:, 3]], dim=1)
        n_values = int(cast(Any, self.model).config.vision_config.patch_size) ** 2 * 3
        patches = packed[:, :-4].view(len(packed), -1, n_values)
        mask = torch.arange(patches.shape[1], device=packed.device) < shapes.prod(dim=1, keepdim=True)
        pixels = self.normalised(patches.reshape(len(packed), -1, 3), channel_axis=2).view(patches.shape)
        # What pads is zero after normalising, as the image processor has it.
        return {
            "pixel_values": pixels.masked_fill(~mask[..., None], 0.0),
            "pixel_attention_mask": mask.long(),
            "spatial_shapes": shapes,
        }


class HfEncoder(PretrainedEncoder):
    """A TrainableEncoder over a transformers model. `prepare_images` gives uint8 (n, 3, height, width), or packed
    patches for NaFlex, `prepare_texts` int32 (n, 2, length)."""

    name = "hf"
    weights_file = "model.safetensors"
    hub_library = "transformers"
    loading = 'model = transformers.AutoModel.from_pretrained("FOLDER")'

    def __init__(
        self, model: Any, *, tokenizer: Any, image_processor: Any, length: int, device: str, precision: Precision
    ) -> None:
        super().__init__(device=device, precision=precision)
        self._tokenizer = tokenizer
        self._processor = image_processor
        self._length = length
        self._family = str(model.config.model_type)
        normalise, rescale = bool(image_processor.do_normalize), bool(image_processor.do_rescale)
        self.module: HfModule = HfModule(
            model,
            family=self._family,
            right_padded=tokenizer.padding_side == "right",
            mean=image_processor.image_mean if normalise else (0.0,) * 3,
            std=image_processor.image_std if normalise else (1.0,) * 3,
            factor=float(image_processor.rescale_factor) if rescale else 1.0,
        )
        self.module.to(self.device).eval()
        self.architecture = _settings(model.config.to_dict())
        self.preparation = hash_value(
            {
                "family": self._family,
                "images": _settings(image_processor.to_dict()),
                "tokenizer": _tokenizer_facts(tokenizer),
                "length": length,
                "sides": [tokenizer.padding_side, tokenizer.truncation_side],
            }
        )
        self.dim = _embedding_size(model.config)

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        """uint8 rows by the model's own image processor, before scaling and normalising."""
        rows = [self._prepared(image.convert("RGB")) for image in images or [Image.new("RGB", (32, 32))]]
        return np.stack(rows)[: len(images)]

    def _prepared(self, picture: Image.Image) -> Array:
        found = self._processor(picture, do_rescale=False, do_normalize=False, return_tensors="np")
        pixels: Array = np.asarray(found["pixel_values"][0])
        if pixels.dtype != np.uint8:
            pixels = pixels.round().clip(0, 255).astype(np.uint8)
        if self._family != "siglip2":
            return pixels
        shape = np.asarray(found["spatial_shapes"][0], dtype=">u2").view(np.uint8)
        return np.concatenate([pixels.reshape(-1), shape])

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        """int32 (n, 2, length): token ids padded to the full length, and their mask. Over-long texts lose their end."""
        if not texts:
            return np.empty((0, 2, self._length), dtype=np.int32)
        found = self._tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=self._length,
            return_attention_mask=True,
            return_tensors="np",
        )
        return np.stack([found["input_ids"], found["attention_mask"]], axis=1).astype(np.int32)

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more tokens than fit, special tokens included."""
        return sum(len(self._tokenizer(text, verbose=False)["input_ids"]) > self._length for text in texts)

    def _write(self, folder: Path, *, card: str) -> None:
        cast(Any, self.module.model).save_pretrained(folder, max_shard_size="1TB")
        self._tokenizer.save_pretrained(folder)
        self._processor.save_pretrained(folder)
        (folder / "README.md").write_text(card, encoding="utf-8")

    def _read_weights(self, folder: Path) -> Mapping[str, Tensor]:
        loaded = _whole(type(self.module.model), str(folder))
        return cast(Mapping[str, Tensor], loaded.state_dict())


def hf(
    *,
    model: str,
    context_length: int | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
) -> HfEncoder:
    """The encoder by name; see the module for what `model` can be.

    `context_length` in tokens, if not the model's own. Raises ConfigError for a model that is no dual encoder of a
    known family, StoreError if something cannot be loaded.
    """
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # progress is the console's business
    try:
        config = transformers.AutoConfig.from_pretrained(model)
    except Exception as error:
        raise StoreError(
            f'encoder hf: cannot load "{model}": {one_line(error)} Give a local folder, or a repository within reach'
        ) from error
    if config.model_type not in FAMILIES:
        raise ConfigError(
            f'encoder hf: "{model}" is of the family {config.model_type}; families with two towers into one space: '
            f"{', '.join(FAMILIES)}"
        )
    try:
        loaded = _whole(transformers.AutoModel, model)
        tokenizer = transformers.AutoTokenizer.from_pretrained(model)
        processor: Any = transformers.AutoImageProcessor.from_pretrained(model)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise StoreError(f'encoder hf: cannot load "{model}": {one_line(error)}') from error
    own = _own_length(config, tokenizer)
    if context_length is not None and not 1 < context_length <= own:
        raise ConfigError(f'encoder hf: context_length of "{model}" must be from 2 to {own}, not {context_length}')
    if tokenizer.pad_token is None:
        raise StoreError(f'encoder hf: the tokenizer of "{model}" has no pad_token: set one and save it there')
    encoder = HfEncoder(
        loaded,
        tokenizer=tokenizer,
        image_processor=processor,
        length=context_length or own,
        device=device,
        precision=precision,
    )
    encoder.check_parts(model)
    return encoder


def _whole(kind: Any, model: str) -> Any:
    """The model in float32. Raises StoreError if a weight is missing or of another shape: transformers would draw it
    anew, every time another."""
    loaded, found = kind.from_pretrained(
        model, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
    )
    wrong = sorted({*found["missing_keys"], *(entry[0] for entry in found["mismatched_keys"])})
    if wrong:
        raise StoreError(f"{len(wrong)} weights are missing or of another shape than config.json says, e.g. {wrong[0]}")
    return loaded


def _embedding_size(config: Any) -> int:
    """Dimensions of the space both towers map into."""
    if config.model_type.startswith("siglip"):
        return int(getattr(config.text_config, "projection_size", None) or config.text_config.hidden_size)
    return int(config.projection_dim)


def _own_length(config: Any, tokenizer: Any) -> int:
    """How many tokens the text tower takes."""
    positions = int(getattr(config.text_config, "max_position_embeddings", _MAX_LENGTH))
    if config.model_type.startswith("siglip"):
        return min(positions, _SIGLIP_LENGTH)
    if config.text_config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= 2  # their first position is 2
    return min(positions, int(min(tokenizer.model_max_length, _MAX_LENGTH)))


def _tokenizer_facts(tokenizer: Any) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        content = json.loads(backend.to_str())
        return {
            key: value for key, value in content.items() if key not in ("padding", "truncation")
        }  # of the last call
    return [
        type(tokenizer).__name__,
        sorted(tokenizer.get_vocab().items()),
        sorted(map(str, tokenizer.all_special_ids)),
    ]


def _settings(content: Any) -> Any:
    """JSON values of a config, without where it came from and which version wrote it."""
    if isinstance(content, Mapping):
        passing = ("_name_or_path", "transformers_version", "architectures", "dtype")
        return {str(key): _settings(value) for key, value in content.items() if key not in passing}
    if isinstance(content, (list, tuple)):
        return [_settings(value) for value in content]
    return content if isinstance(content, (bool, int, float, str)) or content is None else str(content)
