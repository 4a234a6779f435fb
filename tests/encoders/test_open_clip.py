"""open_clip models: the same embeddings as the library's own, checkpoints it loads, and weights it must not take."""

import json
import zipfile

import numpy as np
import open_clip as library
import pytest
import torch
from PIL import Image
from torch.nn import functional

from repair.core.errors import ConfigError, StoreError
from repair.encoders.open_clip import open_clip
from repair.encoders.pretrained import pieces
from repair.pipeline.registries import ENCODERS
from tests.encoders import families

TEXTS = ["a red dog on the left", "two cats", "a man in front of a blue horse, and a tree, and a bird " * 3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return families.open_clip_folder(tmp_path_factory.mktemp("model") / "m", init_logit_bias=-10, custom_text=True)


def pictures():
    rng = np.random.default_rng(1)
    sizes = [(60, 40), (33, 90), (32, 32)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def by_the_library(place):
    model, preprocess = library.create_model_from_pretrained(f"local-dir:{place}")
    tokens = library.get_tokenizer(f"local-dir:{place}")(TEXTS)
    with torch.no_grad():
        images = model.eval().encode_image(torch.stack([preprocess(picture) for picture in pictures()]))
        texts = model.encode_text(tokens)
    return functional.normalize(images, dim=1).numpy(), functional.normalize(texts, dim=1).numpy()


def by_us(encoder):
    images, texts = encoder.prepare_images(pictures()), encoder.prepare_texts(TEXTS)
    assert images.dtype == np.uint8
    return encoder.embed_images(images), encoder.embed_texts(texts)


def test_embeddings_are_the_librarys_own(folder):
    for mine, theirs in zip(by_us(open_clip(model=str(folder))), by_the_library(folder), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_what_is_saved_the_library_loads(folder, tmp_path):
    encoder = open_clip(model=str(folder))
    with torch.no_grad():
        for parameter in encoder.module.parameters():
            parameter.mul_(1.25)
    encoder.save(str(tmp_path), facts={"steps": 3, "data": {"pairs": 12}})
    for mine, theirs in zip(by_us(encoder), by_the_library(tmp_path), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-6)
    again = ENCODERS.build(f"open_clip:{tmp_path}", seed=0)
    assert again.fingerprint() == encoder.fingerprint()
    assert again.preparation == encoder.preparation
    card = (tmp_path / "README.md").read_text()
    assert "library_name: open_clip" in card
    assert "| pairs | 12 |" in card
    assert "| steps | 3 |" in card
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_logit_bias_is_kept_and_never_trained(folder):
    module = open_clip(model=str(folder)).module
    assert module.model.logit_bias.item() == -10
    assert [name for name, p in module.named_parameters() if not p.requires_grad] == ["model.logit_bias"]


def test_long_captions_are_counted(folder):
    encoder = open_clip(model=str(folder))
    assert encoder.n_cut(TEXTS) == 1
    assert (encoder.prepare_texts(TEXTS)[:, -1] == 49407).tolist() == [False, False, True]
    assert encoder.n_cut(["a " * 14]) == 0
    assert encoder.n_cut(["a " * 15]) == 1


def test_a_checkpoint_file_and_drawn_weights(folder, tmp_path):
    name = families.open_clip_name(tmp_path)
    first, same, other = (open_clip(model=f"{name}/none", seed=seed) for seed in (3, 3, 4))
    assert first.fingerprint() == same.fingerprint() != other.fingerprint()
    path = tmp_path / "epoch_1.pt"
    weights = {f"module.{key}": value for key, value in other.module.model.state_dict().items()}
    torch.save({"epoch": 1, "state_dict": weights}, path)  # as open_clip's training script leaves it
    assert open_clip(model=f"{name}/{path}").fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("ViT-B-32/openai", r'"openai" were trained with QuickGELU.*write open_clip:ViT-B-32-quickgelu/openai'),
        ("ViT-B-32-quickgelu/laion2b_s34b_b79k", "neither a file nor pretrained weights.*Choices: .*openai"),
        ("ViT-B-32-quickgelu/opnai", 'did you mean "openai"'),
        ("ViT-B-23/openai", 'unknown model "ViT-B-23": did you mean "ViT-B-32"'),
        ("ViT-B-32", "names no weights: write open_clip:NAME/PRETRAINED_OR_PATH"),
        ("nowhere/at/all", 'unknown model "nowhere".*a folder must exist'),
        ("/nowhere/epoch.pt", r"is no folder; of a checkpoint name the model too: open_clip:NAME//nowhere/epoch\.pt"),
        ("hf-hub:", 'open_clip: "hf-hub:": Empty identifier'),
    ],
)
def test_models_that_are_refused_with_the_fix(model, message):
    with pytest.raises(ConfigError, match=message):
        open_clip(model=model)


def test_openais_archive_needs_quick_gelu(tmp_path):
    name = families.open_clip_name(tmp_path)
    path = tmp_path / "ViT-tiny.pt"
    with zipfile.ZipFile(path, "w") as archive:  # what marks a TorchScript archive
        archive.writestr("ViT-tiny/code/__torch__/model.py", "")
    with pytest.raises(ConfigError, match=r"QuickGELU.*set encoder\.options\.quick_gelu=true"):
        open_clip(model=f"{name}/{path}")
    with pytest.raises(StoreError, match="cannot load"):  # past the guard, it is no archive after all
        open_clip(model=f"{name}/{path}", quick_gelu=True)


def test_the_activation_is_part_of_the_fingerprint(folder):
    plain, quick = open_clip(model=str(folder)), open_clip(model=str(folder), quick_gelu=True)
    assert plain.fingerprint() != quick.fingerprint()
    assert plain.preparation == quick.preparation
    assert not np.allclose(by_us(plain)[0], by_us(quick)[0], atol=1e-4)


def test_options(folder, tmp_path):
    larger = open_clip(model=str(folder), image_size=40)
    assert larger.prepare_images(pictures()).shape == (3, 3, 40, 40)
    larger.save(str(tmp_path), facts={})
    assert json.loads((tmp_path / "open_clip_config.json").read_text())["model_cfg"]["vision_cfg"]["image_size"] == 40
    half = open_clip(model=str(folder), precision="bf16")
    assert half.fingerprint() != open_clip(model=str(folder)).fingerprint()
    for close, exact in zip(by_us(half), by_us(open_clip(model=str(folder))), strict=True):
        np.testing.assert_allclose(close, exact, atol=0.05)
        np.testing.assert_allclose(np.linalg.norm(close, axis=1), 1, atol=1e-5)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match='device "cuda", but torch sees no GPU'):
            open_clip(model=str(folder), device="cuda")
    with pytest.raises(ConfigError, match='device "gpu" is not one'):
        open_clip(model=str(folder), device="gpu")
    for device in ("meta", "xpu"):  # torch knows them; this machine has none, or nothing can be read from it
        with pytest.raises(ConfigError, match=f'device "{device}" cannot be used: .*: write auto, cpu or cuda'):
            open_clip(model=str(folder), device=device)
    with pytest.raises(ConfigError, match=f"is a whole model: write open_clip:{folder}"):
        open_clip(model=f"{families.open_clip_name(tmp_path)}/{folder}")


@pytest.mark.parametrize("n", [0, 3, 7, 8])
def test_rows_read_ahead_are_the_rows(n):
    rows = np.arange(2 * n).reshape(n, 2)
    for ahead in (False, True):
        found = list(pieces(rows, 4, ahead=ahead))
        assert [len(piece) for piece in found] == [4] * (n // 4) + [n % 4] * (n % 4 > 0)
        assert np.array_equal(np.concatenate([rows[:0], *found]), rows)


def test_a_full_disk_is_one_clear_error(folder, tmp_path, monkeypatch):
    encoder = open_clip(model=str(folder))
    monkeypatch.setattr("repair.encoders.open_clip._WEIGHTS_FILE", "no such folder/weights")  # nor can that be written
    with pytest.raises(StoreError, match=r"cannot write .*; nothing was half-written"):
        encoder.save(str(tmp_path / "out"), facts={})
    assert list((tmp_path / "out").iterdir()) == []


def test_folders_without_what_is_needed(tmp_path):
    with pytest.raises(StoreError, match=r"no readable open_clip_config\.json"):
        open_clip(model=str(tmp_path))
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": families.open_clip_config()}))
    with pytest.raises(StoreError, match=r"cannot load.*could not be loaded"):
        open_clip(model=str(tmp_path))
