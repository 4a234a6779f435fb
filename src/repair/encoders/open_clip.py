"""`open_clip:…`: any open_clip model as an encoder; what is saved, open_clip loads.

    open_clip:ViT-B-32-quickgelu/openai      a model of the library and one of its pretrained tags
    open_clip:ViT-B-16/weights/epoch_5.pt    … or a checkpoint of it; an absolute path after the slash: ViT-B-16//data/…
    open_clip:ViT-B-32/none                  … or first weights drawn from the seed
    open_clip:runs/mine/round-0/weights      a folder with open_clip_config.json and weights, as saved here
    open_clip:hf-hub:ORGANISATION/MODEL      a repository with such files

OpenAI's weights were trained with QuickGELU; with the other activation they lose points silently. A tag or an OpenAI
archive whose activation does not fit the model is refused.
"""

import json
import zipfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import open_clip as library
import safetensors.torch
import torch
from open_clip.factory import parse_model_name
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from torch import Tensor, nn

from repair.core.errors import ConfigError, StoreError, suggest
from repair.core.identity import hash_bytes, hash_value
from repair.core.ports import Array
from repair.encoders.pretrained import Precision, PretrainedEncoder, PretrainedModule, one_line

_CONFIG_FILE = "open_clip_config.json"
_WEIGHTS_FILE = "open_clip_model.safetensors"
_NONE = "none"


class OpenClipModule(PretrainedModule):
    """uint8 (n, 3, height, width) and token ids (n, length) to (n, dim) features, not normalised."""

    def image_features(self, prepared: Tensor) -> Tensor:
        features: Tensor = self.model.encode_image(self.normalised(prepared), normalize=False)  # type: ignore[operator]
        return features

    def text_features(self, prepared: Tensor) -> Tensor:
        features: Tensor = self.model.encode_text(prepared.long(), normalize=False)  # type: ignore[operator]
        return features


class OpenClipEncoder(PretrainedEncoder):
    """A TrainableEncoder over an open_clip model. `prepare_images` gives uint8 (n, 3, height, width), `prepare_texts`
    int32 (n, context_length) token ids."""

    name = "open_clip"
    weights_file = _WEIGHTS_FILE
    hub_library = "open_clip"
    loading = 'model, preprocess = open_clip.create_model_from_pretrained("local-dir:FOLDER")'

    def __init__(
        self, model: nn.Module, *, config: Mapping[str, Any], tokenizer: Any, device: str, precision: Precision
    ) -> None:
        """`config` is the model's entry ("model_cfg") as open_clip keeps it, `tokenizer` one of open_clip's."""
        super().__init__(device=device, precision=precision)
        self._config = dict(config)
        self._tokenizer = tokenizer
        self._preprocess = PreprocessCfg(**cast(Any, model.visual).preprocess_cfg)
        whole = image_transform_v2(self._preprocess, is_train=False)
        self._to_size = whole.transforms[:-2]  # all but to-tensor and normalise, which the module does
        self._length = int(tokenizer.context_length)
        self.module = OpenClipModule(model, mean=self._preprocess.mean, std=self._preprocess.std)
        self.module.to(self.device).eval()
        self.dim = int(self._config["embed_dim"])
        self.architecture = {key: value for key, value in self._config.items() if not key.startswith("init_")}
        self.preparation = hash_value(
            {
                "family": "open_clip",
                "preprocess": asdict(self._preprocess),
                "tokenizer": _tokenizer_facts(tokenizer),
            }
        )

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        """uint8 (n, 3, height, width): the model's own resizing and cropping, before scaling and normalising."""
        size = self._preprocess.size
        height, width = (size, size) if isinstance(size, int) else size
        out = np.empty((len(images), 3, height, width), dtype=np.uint8)
        for row, image in zip(out, images, strict=True):
            picture = image.convert("RGB")
            for step in self._to_size:
                picture = step(picture)
            row[:] = np.asarray(picture).transpose(2, 0, 1)
        return out

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        """int32 (n, context_length) token ids. Over-long texts lose their end, not the end token."""
        if not texts:
            return np.empty((0, self._length), dtype=np.int32)
        ids: Array = self._tokenizer(list(texts)).numpy().astype(np.int32)
        return ids

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many of `texts` have more tokens than the context, special tokens included."""
        return sum(_n_tokens(self._tokenizer, text) > self._length for text in texts)

    def _write(self, folder: Path, *, card: str) -> None:
        preprocess = {key: value for key, value in asdict(self._preprocess).items() if key not in ("mode", "size")}
        config = {"model_cfg": self._config, "preprocess_cfg": preprocess}
        (folder / _CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(card, encoding="utf-8")
        if isinstance(self._tokenizer, library.tokenizer.HFTokenizer):
            self._tokenizer.save_pretrained(folder)
        weights = cast(nn.Module, self.module.model).state_dict()
        flat = {name: value.detach().float().cpu().contiguous().clone() for name, value in weights.items()}
        safetensors.torch.save_file(flat, str(folder / _WEIGHTS_FILE), metadata={"format": "pt"})

    def _read_weights(self, folder: Path) -> Mapping[str, Tensor]:
        weights: Mapping[str, Tensor] = safetensors.torch.load_file(str(folder / _WEIGHTS_FILE))
        return weights


def open_clip(
    *,
    model: str,
    image_size: int | None = None,
    quick_gelu: bool | None = None,
    device: str = "auto",
    precision: Precision = "fp32",
    seed: int = 0,
) -> OpenClipEncoder:
    """The encoder by name; see the module for what `model` can be.

    `image_size` in pixels, if not the model's own; `quick_gelu` sets the activation. `seed` draws first weights where
    none are loaded. Raises ConfigError for a model, tag or path that is not there or an activation that does not fit
    the weights, StoreError for weights that cannot be read.
    """
    name, weights = _parsed(model)
    config = _config_of(name, model=model)
    if quick_gelu is not None:
        config["quick_gelu"] = quick_gelu
    if image_size is not None:
        config["vision_cfg"]["image_size"] = image_size
    if weights is not None:
        _guard_activation(name, weights, config)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            built = library.create_model(
                name,
                pretrained=None if weights == _NONE else weights,
                require_pretrained=weights != _NONE,
                force_image_size=image_size,
                quick_gelu=bool(config.get("quick_gelu", False)),
                pretrained_text=False,
            )
        tokenizer = library.get_tokenizer(name)
    except Exception as error:
        raise StoreError(f'encoder open_clip: cannot load "{model}": {one_line(error)}') from error
    encoder = OpenClipEncoder(built, config=config, tokenizer=tokenizer, device=device, precision=precision)
    encoder.check_parts(model)
    return encoder


def _parsed(model: str) -> tuple[str, str | None]:
    """The name open_clip knows the model by, and its weights: tag, path or "none"; None if the name implies them."""
    if Path(model).is_dir():
        return f"local-dir:{model}", None
    try:
        if parse_model_name(model)[0] is not None:
            return model, None
    except ValueError as error:
        raise ConfigError(f'encoder open_clip: "{model}": {error}') from error
    name, slash, weights = model.partition("/")
    if not slash or not weights:
        raise ConfigError(
            f'encoder open_clip: "{model}" names no weights: write open_clip:NAME/PRETRAINED_OR_PATH, '
            "open_clip:NAME/none for drawn ones, or an existing folder"
        )
    if not name:
        raise ConfigError(
            f'encoder open_clip: "{model}" is no folder; of a checkpoint name the model too: open_clip:NAME/{model}'
        )
    if name not in library.list_models():
        near = suggest(name, library.list_models()).partition("? Choices")[0]
        hint = f"{near}? " if near.startswith("did") else ""
        raise ConfigError(
            f'encoder open_clip: unknown model "{name}": {hint}`python -c "import open_clip; '
            'print(open_clip.list_models())"` lists them; a folder must exist'
        )
    tags = library.list_pretrained_tags_by_model(name)
    if (Path(weights) / _CONFIG_FILE).is_file():
        raise ConfigError(f'encoder open_clip: "{weights}" is a whole model: write open_clip:{weights}')
    if weights != _NONE and weights not in tags and not Path(weights).is_file():
        raise ConfigError(
            f'encoder open_clip: "{weights}" is neither a file nor pretrained weights of {name}: '
            f"{suggest(weights, [*tags, _NONE])}"
        )
    return name, weights


def _config_of(name: str, *, model: str) -> dict[str, Any]:
    schema, place = parse_model_name(name)
    if schema is None:
        return deepcopy(library.get_model_config(name))
    try:
        if schema == "local-dir":
            content = json.loads((Path(place) / _CONFIG_FILE).read_text(encoding="utf-8"))
        else:
            content = library.factory._get_hf_config(place)
        return dict(content["model_cfg"])
    except Exception as error:
        raise StoreError(f'encoder open_clip: "{model}" holds no readable {_CONFIG_FILE}: {one_line(error)}') from error


def _guard_activation(name: str, weights: str, config: Mapping[str, Any]) -> None:
    """Refuse weights known to be trained with the other activation."""
    has = bool(config.get("quick_gelu", False))
    tag = library.get_pretrained_cfg(name, weights) if weights != _NONE else {}
    if tag:
        needs = bool(tag.get("quick_gelu", False))
    elif Path(weights).is_file() and _is_openai_archive(Path(weights)):
        needs = True
    else:
        return  # a plain checkpoint does not say
    if needs == has:
        return
    other = f"{name}-quickgelu" if needs else name.removesuffix("-quickgelu")
    known = other in library.list_models() and other != name
    fix = f"write open_clip:{other}/{weights}" if known else f"set encoder.options.quick_gelu={str(needs).lower()}"
    raise ConfigError(
        f'encoder open_clip: the weights "{weights}" were trained with {"QuickGELU" if needs else "GELU"}, the model '
        f"{name} has {'QuickGELU' if has else 'GELU'}, which silently costs points: {fix}"
    )


def _is_openai_archive(path: Path) -> bool:
    """OpenAI published TorchScript archives; open_clip's own checkpoints are plain pickles or safetensors."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any("/code/" in name for name in archive.namelist())


def _tokenizer_facts(tokenizer: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": type(tokenizer).__name__, "length": int(tokenizer.context_length)}
    clean = getattr(tokenizer, "clean_fn", None)
    if clean is not None:
        facts["clean"] = repr(clean.func if isinstance(clean, partial) else getattr(clean, "__name__", clean))
    if isinstance(tokenizer, library.SimpleTokenizer):
        return {**facts, "words": hash_bytes("\n".join(tokenizer.encoder).encode())}
    return {**facts, "words": hash_value(tokenizer.tokenizer.backend_tokenizer.to_str())}


def _n_tokens(tokenizer: Any, text: str) -> int:
    if isinstance(tokenizer, library.SimpleTokenizer):
        return len(tokenizer.encode(text)) + 2
    clean = getattr(tokenizer, "clean_fn", str)
    return len(tokenizer.tokenizer(clean(text)).input_ids)
