"""What `core.ports` promises of every dual encoder, asked of all adapters."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from repair.core.errors import MissingDependency, StoreError
from repair.core.ports import TrainableEncoder
from repair.encoders.small import SmallEncoder

WORDS = ("a", "red", "dog", "is", "on", "the", "left", "of", "two", "cats", "and", "runs")
LONG = " ".join(["a red dog and two cats"] * 40)
TEXTS = ["a red dog", "two cats and a dog on the left", "a", LONG, "a dog runs, and runs, and runs"]
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Adapter:
    """`make(seed)` gives an encoder with first weights of that seed; `others` prepare in other ways."""

    make: Callable[[int], TrainableEncoder]
    others: tuple[Callable[[], TrainableEncoder], ...]
    other_shape: Callable[[], TrainableEncoder]
    weights_file: str = "model.safetensors"


def small(_: Path) -> Adapter:
    return Adapter(
        make=lambda seed: SmallEncoder(words=WORDS, seed=seed),
        others=(
            lambda: SmallEncoder(words=WORDS, image_size=96),
            lambda: SmallEncoder(words=WORDS[::-1]),
            lambda: SmallEncoder(words=(*WORDS, "zebra")),
        ),
        other_shape=lambda: SmallEncoder(words=(*WORDS, "zebra")),
    )


def towers(_: Path) -> Adapter:
    pytest.importorskip("timm")
    pytest.importorskip("tokenizers")
    from repair.encoders.towers import TowersEncoder

    try:
        TowersEncoder()
    except MissingDependency as error:
        pytest.skip(str(error))
    return Adapter(
        make=lambda seed: TowersEncoder(seed=seed, image_size=64),
        others=(lambda: TowersEncoder(image_size=96),),
        other_shape=lambda: TowersEncoder(image_size=64, n_hidden=32),
    )


def open_clip(folder: Path) -> Adapter:
    pytest.importorskip("open_clip")
    return _open_clip(folder, {})


def open_clip_siglip(folder: Path) -> Adapter:
    """As SigLIP is in open_clip: a text tower of its own, a logit bias."""
    pytest.importorskip("open_clip")
    return _open_clip(folder, {"custom_text": True, "init_logit_bias": -10})


def _open_clip(folder: Path, top: dict[str, object]) -> Adapter:
    from repair.encoders.open_clip import open_clip as build
    from tests.encoders.families import open_clip_folder

    def make(name: str, **settings: object) -> TrainableEncoder:
        place = folder / name
        return build(model=str(place if place.exists() else open_clip_folder(place, **{**top, **settings})))

    return Adapter(
        make=lambda seed: make(f"seed-{seed}", seed=seed),
        others=(
            lambda: make("size", image_size=40),
            lambda: make("length", context_length=12),
            lambda: make("squash", preprocess={"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"}),
            lambda: make("mean", preprocess={"mean": [0.4] * 3, "std": [0.5] * 3}),
        ),
        other_shape=lambda: make("wide", embed_dim=24),
        weights_file="open_clip_model.safetensors",
    )


def hf_clip(folder: Path) -> Adapter:
    return _hf(folder, "clip", {"size": 40})


def hf_siglip(folder: Path) -> Adapter:
    return _hf(folder, "siglip", {"size": 40})


def hf_siglip2(folder: Path) -> Adapter:
    return _hf(folder, "siglip2", {"patches": 9})


def hf_dual(folder: Path) -> Adapter:
    return _hf(folder, "dual", {"size": 40})


def _hf(folder: Path, family: str, other: dict[str, object]) -> Adapter:
    pytest.importorskip("transformers")
    from repair.encoders.hf import hf
    from tests.encoders import families

    def make(name: str, length: int | None = None, **settings: object) -> TrainableEncoder:
        place = folder / name
        save = getattr(families, f"{family}_folder")
        return hf(model=str(place if place.exists() else save(place, **settings)), context_length=length)

    return Adapter(
        make=lambda seed: make(f"seed-{seed}", seed=seed),
        others=(
            lambda: make("other", **other),
            lambda: make("words", words=families.WORDS[::-1]),
            lambda: make("seed-0", length=12),
        ),
        other_shape=lambda: make("wide", hidden=24),
    )


FAMILIES = [small, towers, open_clip, open_clip_siglip, hf_clip, hf_siglip, hf_siglip2, hf_dual]


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda make: make.__name__)
def adapter(request: pytest.FixtureRequest) -> Iterator[Adapter]:
    with tempfile.TemporaryDirectory() as folder:
        yield request.param(Path(folder))


@pytest.fixture(scope="module")
def encoder(adapter: Adapter) -> TrainableEncoder:
    return adapter.make(0)


def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    sizes = [(64, 64), (30, 50), (100, 64), (64, 64), (7, 9)]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def embedded(encoder: TrainableEncoder) -> tuple[np.ndarray, np.ndarray]:
    images, texts = encoder.prepare_images(pictures()), encoder.prepare_texts(TEXTS)
    return encoder.embed_images(images), encoder.embed_texts(texts)


def test_embeddings_are_float32_unit_rows(encoder: TrainableEncoder) -> None:
    for rows in embedded(encoder):
        assert rows.shape == (5, encoder.dim)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=TOLERANCE)


def test_different_inputs_differ(encoder: TrainableEncoder) -> None:
    for rows in embedded(encoder):
        assert np.max(rows @ rows.T - 2 * np.eye(5)) < 1 - 1e-4


def test_order_is_kept(encoder: TrainableEncoder) -> None:
    order = [3, 0, 4, 2, 1]
    images, texts = embedded(encoder)
    turned_images = encoder.embed_images(encoder.prepare_images([pictures()[i] for i in order]))
    turned_texts = encoder.embed_texts(encoder.prepare_texts([TEXTS[i] for i in order]))
    np.testing.assert_allclose(turned_images, images[order], atol=TOLERANCE)
    np.testing.assert_allclose(turned_texts, texts[order], atol=TOLERANCE)


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_batch_size_makes_no_difference(encoder: TrainableEncoder, batch_size: int) -> None:
    images, texts = encoder.prepare_images(pictures()), encoder.prepare_texts(TEXTS)
    one_by_one = encoder.embed_images(images, batch_size=batch_size)
    np.testing.assert_allclose(one_by_one, encoder.embed_images(images), atol=TOLERANCE)
    np.testing.assert_allclose(
        encoder.embed_texts(texts, batch_size=batch_size), encoder.embed_texts(texts), atol=TOLERANCE
    )


def test_a_prepared_row_depends_on_its_item_only(encoder: TrainableEncoder) -> None:
    together = encoder.prepare_images(pictures()), encoder.prepare_texts(TEXTS)
    alone = (
        np.concatenate([encoder.prepare_images([image]) for image in pictures()]),
        np.concatenate([encoder.prepare_texts([text]) for text in TEXTS]),
    )
    for left, right in zip(together, alone, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left.astype(np.float32), right.astype(np.float32), rtol=1e-3, atol=1e-3)


def test_prepared_rows_may_be_read_only_and_stay_as_they_are(encoder: TrainableEncoder) -> None:
    for prepared, embed in (
        (encoder.prepare_images(pictures()), encoder.embed_images),
        (encoder.prepare_texts(TEXTS), encoder.embed_texts),
    ):
        before = prepared.copy()
        prepared.flags.writeable = False
        embed(prepared)
        np.testing.assert_array_equal(prepared, before)


def test_nothing_in_nothing_out(encoder: TrainableEncoder) -> None:
    images, texts = encoder.prepare_images([]), encoder.prepare_texts([])
    assert images.shape[1:] == encoder.prepare_images(pictures()[:1]).shape[1:]
    assert texts.shape[1:] == encoder.prepare_texts(TEXTS[:1]).shape[1:]
    assert encoder.embed_images(images).shape == encoder.embed_texts(texts).shape == (0, encoder.dim)
    assert encoder.n_cut([]) == 0


def test_overlong_texts_are_cut_and_counted(encoder: TrainableEncoder) -> None:
    assert encoder.n_cut(TEXTS) == 1
    assert encoder.n_cut([LONG, LONG, "a dog"]) == 2
    whole, longer = encoder.prepare_texts([LONG, f"{LONG} and two cats more"])
    np.testing.assert_array_equal(whole, longer)


def test_fingerprint_follows_the_weights(adapter: Adapter) -> None:
    encoder = adapter.make(0)
    assert encoder.fingerprint() == adapter.make(0).fingerprint() != adapter.make(1).fingerprint()
    seen = {encoder.fingerprint()}
    for parameter in encoder.module.parameters():
        with torch.no_grad():  # what does not train (a logit bias) counts as well
            parameter[(0,) * parameter.ndim] += 1e-3
        seen.add(encoder.fingerprint())
    assert len(seen) == 1 + len(list(encoder.module.parameters()))


def test_preparation_and_fingerprint_follow_how_inputs_are_prepared(adapter: Adapter) -> None:
    encoders = [adapter.make(0), *(make() for make in adapter.others)]
    assert adapter.make(1).preparation == encoders[0].preparation
    assert len({encoder.preparation for encoder in encoders}) == len(encoders)
    assert len({encoder.fingerprint() for encoder in encoders}) == len(encoders)


def test_embedding_is_the_modules_features_normalised(encoder: TrainableEncoder) -> None:
    """So that training and evaluation see the same model."""
    was_training = encoder.module.training
    encoder.module.eval()
    images = torch.from_numpy(encoder.prepare_images(pictures()))
    texts = torch.from_numpy(encoder.prepare_texts(TEXTS))
    with torch.no_grad():
        found = (
            torch.nn.functional.normalize(encoder.module.image_features(images).float(), dim=1),
            torch.nn.functional.normalize(encoder.module.text_features(texts).float(), dim=1),
        )
    encoder.module.train(was_training)
    for left, right in zip(found, embedded(encoder), strict=True):
        np.testing.assert_allclose(left.numpy(), right, atol=TOLERANCE)


@pytest.mark.parametrize("training", [True, False])
def test_embedding_is_the_same_in_the_midst_of_training(adapter: Adapter, training: bool) -> None:
    encoder = adapter.make(0)
    first = embedded(encoder)
    encoder.module.train(training)
    for left, right in zip(embedded(encoder), first, strict=True):
        np.testing.assert_array_equal(left, right)
    assert encoder.module.training == training


def test_logit_scale_is_kept_within_1_and_100(adapter: Adapter) -> None:
    encoder = adapter.make(0)
    for value, expected in ((-1.0, 1.0), (np.log(20), 20.0), (9.0, 100.0)):
        with torch.no_grad():
            encoder.module.get_parameter("log_scale").fill_(value)
        assert encoder.logit_scale == pytest.approx(expected)


def test_every_parameter_gets_a_gradient(adapter: Adapter) -> None:
    encoder = adapter.make(0)
    images = encoder.module.image_features(torch.from_numpy(encoder.prepare_images(pictures())))
    texts = encoder.module.text_features(torch.from_numpy(encoder.prepare_texts(TEXTS)))
    weights = torch.arange(1.0, 26.0).view(5, 5)
    (encoder.module.log_scale.exp() * (images @ texts.T) * weights).sum().backward()
    trained = [(name, p) for name, p in encoder.module.named_parameters() if p.requires_grad]
    assert [name for name, parameter in trained if parameter.grad is None] == []
    assert len(trained) >= len(list(encoder.module.parameters())) - 1  # all but SigLIP's logit bias


def test_saved_weights_come_back(adapter: Adapter, tmp_path: Path) -> None:
    encoder, other = adapter.make(0), adapter.make(1)
    encoder.save(str(tmp_path / "new" / "folder"), facts={"step": 3})
    other.load_weights(str(tmp_path / "new" / "folder"))
    assert other.fingerprint() == encoder.fingerprint()
    for left, right in zip(embedded(other), embedded(encoder), strict=True):
        np.testing.assert_array_equal(left, right)


def test_equal_weights_are_equal_bytes(adapter: Adapter, tmp_path: Path) -> None:
    for name in ("a", "b"):
        adapter.make(0).save(str(tmp_path / name), facts={"z": 1, "a": 2})
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_weights_that_are_none_or_others(adapter: Adapter, tmp_path: Path) -> None:
    encoder = adapter.make(0)
    before = encoder.fingerprint()
    with pytest.raises(StoreError, match="no checkpoint"):
        encoder.load_weights(str(tmp_path))
    adapter.other_shape().save(str(tmp_path), facts={})
    with pytest.raises(StoreError, match="holds weights"):
        encoder.load_weights(str(tmp_path))
    encoder.save(str(tmp_path), facts={})
    (tmp_path / adapter.weights_file).write_bytes(b"torn")
    with pytest.raises(StoreError, match="cannot read the checkpoint"):
        encoder.load_weights(str(tmp_path))
    assert encoder.fingerprint() == before


def test_saving_where_one_cannot_is_one_clear_error(adapter: Adapter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        adapter.make(0).save(str(tmp_path / "file" / "folder"), facts={})
