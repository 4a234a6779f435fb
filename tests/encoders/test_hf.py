"""transformers models: the same embeddings as the library's own, checkpoints it loads, families it knows."""

import json

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torch.nn import functional

from repair.core.errors import ConfigError, StoreError
from repair.encoders.hf import hf
from repair.pipeline.registries import ENCODERS
from tests.encoders import families

TEXTS = ["a red dog on the left", "two cats", "a man in front of a horse and a tree and a bird and two dog and a cats"]
KINDS = ["clip", "siglip", "siglip2", "dual"]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return getattr(families, f"{kind}_folder")(tmp_path_factory.mktemp("hf") / kind)


def pictures():
    rng = np.random.default_rng(1)
    sizes = [(60, 40), (33, 90), (32, 32)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def by_the_library(kind, place):
    """As the library's documentation has it: the processor's pixels, the tokenizer's ids."""
    model = transformers.AutoModel.from_pretrained(place).eval()
    pixels = transformers.AutoImageProcessor.from_pretrained(place)(pictures(), return_tensors="pt")
    tokenizer = transformers.AutoTokenizer.from_pretrained(place)
    tokens = tokenizer(TEXTS, padding="max_length", truncation=True, max_length=16, return_tensors="pt")
    wanted = ("input_ids",) if kind.startswith("siglip") else ("input_ids", "attention_mask")
    with torch.no_grad():
        images = model.get_image_features(**pixels).pooler_output
        texts = model.get_text_features(**{name: tokens[name] for name in wanted}).pooler_output
    return functional.normalize(images, dim=1).numpy(), functional.normalize(texts, dim=1).numpy()


def by_us(encoder):
    images = encoder.prepare_images(pictures())
    assert images.dtype == np.uint8
    return encoder.embed_images(images), encoder.embed_texts(encoder.prepare_texts(TEXTS))


def test_embeddings_are_the_librarys_own(kind, folder):
    for mine, theirs in zip(by_us(hf(model=str(folder))), by_the_library(kind, folder), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)


def test_what_is_saved_the_library_loads(kind, folder, tmp_path):
    encoder = hf(model=str(folder))
    with torch.no_grad():
        for parameter in encoder.module.parameters():
            parameter.mul_(1.25)
    encoder.save(str(tmp_path), facts={"steps": 3})
    for mine, theirs in zip(by_us(encoder), by_the_library(kind, tmp_path), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
    again = ENCODERS.build(f"hf:{tmp_path}", seed=0)
    assert again.fingerprint() == encoder.fingerprint()
    card = (tmp_path / "README.md").read_text()
    assert "library_name: transformers" in card


def test_siglips_bias_is_kept_and_never_trained(kind, folder):
    frozen = [name for name, p in hf(model=str(folder)).module.named_parameters() if not p.requires_grad]
    assert frozen == (["model.logit_bias"] if kind.startswith("siglip") else [])


def test_siglip_attends_to_its_padding(kind, folder):
    """Trained with texts padded to the full length and no mask, it must be used so; the others must not see it."""
    encoder = hf(model=str(folder))
    other = encoder.prepare_texts(TEXTS[:1])
    other[0, 0, -1] = 9  # the last token of the padding
    same = np.allclose(encoder.embed_texts(other), by_us(encoder)[1][:1], atol=1e-5)
    assert same == (not kind.startswith("siglip"))


def test_long_captions_are_counted(folder):
    encoder = hf(model=str(folder))
    assert encoder.n_cut(TEXTS) == 1
    assert encoder.prepare_texts(TEXTS).shape == (3, 2, 16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ["a " * n + "dog" for n in range(1, 18)]
    n_long = sum(len(tokenizer(text)["input_ids"]) > 16 for text in texts)
    assert 0 < n_long < len(texts)
    assert encoder.n_cut(texts) == n_long


def test_half_precision_weights_become_masters_in_float32(folder, tmp_path):
    half = transformers.AutoModel.from_pretrained(folder, dtype=torch.float16)
    half.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    transformers.AutoImageProcessor.from_pretrained(folder).save_pretrained(tmp_path)
    assert {p.dtype for p in hf(model=str(tmp_path)).module.parameters()} == {torch.float32}


def test_models_that_are_refused(folder, tmp_path):
    with pytest.raises(StoreError, match=r"cannot load .*Give a local folder"):
        hf(model=str(tmp_path / "nowhere"))
    transformers.BertConfig().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="of the family bert; families with two towers into one space: clip, siglip"):
        hf(model=str(tmp_path))
    transformers.CLIPConfig().save_pretrained(tmp_path)
    with pytest.raises(StoreError, match="cannot load"):
        hf(model=str(tmp_path))
    with pytest.raises(ConfigError, match=r"context_length .*must be from 2 to 16, not 17"):
        hf(model=str(folder), context_length=17)


def changed(place, change):
    """The CLIP folder with its files changed by `change(folder, weights)`."""
    families.clip_folder(place)
    weights = load_file(place / "model.safetensors")
    change(place, weights)
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    return str(place)


def in_json(path, *keys, value):
    content = json.loads(path.read_text())
    at = content
    for key in keys[:-1]:
        at = at[key]
    at[keys[-1]] = value
    path.write_text(json.dumps(content))


WRONG = {
    "missing": (
        lambda _, weights: weights.pop("logit_scale"),
        "1 weights are missing or of another shape.* logit_scale",
    ),
    "shape": (
        lambda _, weights: weights.update({"visual_projection.weight": torch.zeros(5, 16)}),
        r"1 weights are missing or of another shape .* visual_projection\.weight",
    ),
    "padding": (lambda at, _: in_json(at / "tokenizer_config.json", "pad_token", value=None), "has no pad_token"),
    "words": (
        lambda at, _: in_json(at / "tokenizer.json", "model", "vocab", "a", value=5000),
        "the parts of .* do not fit together",
    ),
    "nan": (
        lambda _, weights: weights["visual_projection.weight"].fill_(torch.nan),
        "give embeddings that are not finite",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_parts_that_do_not_fit_are_refused_at_once(name, tmp_path):
    """transformers alone would draw what is missing anew, every time another, and only warn."""
    change, message = WRONG[name]
    with pytest.raises(StoreError, match=message):
        hf(model=changed(tmp_path / "model", change))


def test_saved_weights_must_be_whole(tmp_path):
    encoder = hf(model=str(families.clip_folder(tmp_path / "clip")))
    encoder.save(str(tmp_path / "saved"), facts={})
    weights = load_file(tmp_path / "saved" / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "saved" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(StoreError, match=r"cannot read the checkpoint .*1 weights are missing"):
        encoder.load_weights(str(tmp_path / "saved"))


def test_another_family_does_not_fit(tmp_path):
    hf(model=str(families.clip_folder(tmp_path / "clip"))).save(str(tmp_path / "saved"), facts={})
    with pytest.raises(StoreError, match="holds weights"):
        hf(model=str(families.siglip_folder(tmp_path / "siglip"))).load_weights(str(tmp_path / "saved"))
