"""Prepared inputs and embeddings are computed once, whatever the order, the company, or the interruptions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.core.ports import Array, FloatArray, ImageItem
from repair.encoders import caches
from repair.encoders.caches import EmbeddingCache, PreparedCache, text_key


class Counting:
    """A DualEncoder of no skill that counts what it is asked."""

    name = "counting"
    dim = 3
    logit_scale = 1.0

    def __init__(self, preparation: str = "p", weights: str = "w") -> None:
        self.preparation = preparation
        self.weights = weights
        self.n_prepared = 0
        self.n_embedded = 0

    def fingerprint(self) -> str:
        return f"{self.preparation} {self.weights}"

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        self.n_prepared += len(images)
        return np.array([image.getpixel((0, 0)) for image in images], dtype=np.uint8).reshape(-1, 3)

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        self.n_prepared += len(texts)
        return np.array([[len(text), ord(text[0])] for text in texts], dtype=np.int16).reshape(-1, 2)

    def n_cut(self, texts: Sequence[str]) -> int:
        return 0

    def embed_images(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        self.n_embedded += len(prepared)
        rows = prepared.astype(np.float32) + 1
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    def embed_texts(self, prepared: Array, *, batch_size: int = 256) -> FloatArray:
        return self.embed_images(np.repeat(prepared, 2, axis=1)[:, :3])


def decode(data: bytes, *, where: str) -> Image.Image:
    if data == b"bad":
        raise DataError(f"image {where}: broken")
    return Image.new("RGB", (1, 1), tuple(data))


def items(*colours: bytes) -> list[ImageItem]:
    return [
        ImageItem(key=f"{number}.png", content_hash=hash_bytes(data), captions=(), read=lambda data=data: data)
        for number, data in enumerate(colours)
    ]


COLOURS = [bytes([n, 2 * n, 3 * n]) for n in range(20)]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "_IMAGE_BATCH": 2,
        "_TEXT_BATCH": 2,
        "_EMBED_BATCH": 2,
        "_IMAGE_SHARD": 4,
        "_TEXT_SHARD": 4,
    }.items():
        monkeypatch.setattr(caches, name, value)


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("n_workers", [1, 3])
def test_images_are_prepared_once_in_order(tmp_path: Path, n_workers: int) -> None:
    encoder = Counting()
    cache = PreparedCache(tmp_path, n_workers=n_workers)
    seen: list[tuple[int, int]] = []
    rows = cache.images(encoder, items(*COLOURS[:9]), decode=decode, progress=lambda *done: seen.append(done))
    np.testing.assert_array_equal(rows, [list(data) for data in COLOURS[:9]])
    assert seen == [(2, 9), (4, 9), (6, 9), (8, 9), (9, 9)]
    again = PreparedCache(tmp_path).images(encoder, items(*COLOURS[8:3:-1]), decode=decode)
    np.testing.assert_array_equal(again, [list(data) for data in COLOURS[8:3:-1]])
    assert encoder.n_prepared == 9


@pytest.mark.usefixtures("small_shards")
def test_equal_contents_and_later_edits(tmp_path: Path) -> None:
    encoder, cache = Counting(), PreparedCache(tmp_path)
    first = [*COLOURS[:5], COLOURS[1], COLOURS[0]]
    cache.images(encoder, items(*first), decode=decode)
    assert encoder.n_prepared == 5
    rows = cache.images(encoder, items(*first, COLOURS[10]), decode=decode)
    assert encoder.n_prepared == 6
    np.testing.assert_array_equal(rows, [list(data) for data in [*first, COLOURS[10]]])


@pytest.mark.usefixtures("small_shards")
def test_the_whole_is_mapped_from_disk_the_second_time(tmp_path: Path) -> None:
    PreparedCache(tmp_path).images(Counting(), items(*COLOURS), decode=decode)
    rows = PreparedCache(tmp_path).images(Counting(), items(*COLOURS), decode=decode)
    assert isinstance(rows.base, np.memmap)
    assert len(list(tmp_path.rglob("*.npy"))) == 1


@pytest.mark.usefixtures("small_shards")
def test_what_was_finished_survives_an_interruption(tmp_path: Path) -> None:
    """No clean-up code runs that a kill would skip, so an exception is as good as a kill here."""
    encoder = Counting()

    def stop(done: int, total: int) -> None:
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        PreparedCache(tmp_path).images(encoder, items(*COLOURS), decode=decode, progress=stop)
    assert encoder.n_prepared == 10
    rows = PreparedCache(tmp_path).images(encoder, items(*COLOURS), decode=decode)
    assert encoder.n_prepared == 10 + 12  # two shards of four were whole
    np.testing.assert_array_equal(rows, [list(data) for data in COLOURS])


@pytest.mark.usefixtures("small_shards")
def test_a_bad_image_is_named_and_what_came_before_is_kept(tmp_path: Path) -> None:
    encoder = Counting()
    with pytest.raises(DataError, match=r"^image 7\.png: broken$"):
        PreparedCache(tmp_path).images(encoder, items(*COLOURS[:7], b"bad", *COLOURS[7:]), decode=decode)
    PreparedCache(tmp_path).images(encoder, items(*COLOURS[:4]), decode=decode)
    assert encoder.n_prepared == 6


def test_another_preparation_starts_anew(tmp_path: Path) -> None:
    cache = PreparedCache(tmp_path)
    for encoder in (Counting("p"), Counting("q")):
        cache.texts(encoder, ["a", "bc"])
        assert encoder.n_prepared == 2
    same = Counting("p", weights="other")
    cache.texts(same, ["bc", "a"])
    assert same.n_prepared == 0


@pytest.mark.usefixtures("small_shards")
def test_texts(tmp_path: Path) -> None:
    encoder, cache = Counting(), PreparedCache(tmp_path)
    texts = [f"{chr(97 + n % 7)}{'x' * n}" for n in range(11)]
    np.testing.assert_array_equal(
        cache.texts(encoder, [*texts, texts[3]]), Counting().prepare_texts([*texts, texts[3]])
    )
    assert encoder.n_prepared == 11


def test_nothing_has_rows_of_the_right_shape(tmp_path: Path) -> None:
    encoder, cache = Counting(), PreparedCache(tmp_path)
    assert cache.texts(encoder, []).shape == (0, 2)
    assert cache.images(encoder, [], decode=decode).shape == (0, 3)
    assert EmbeddingCache(tmp_path).images(encoder, [], np.zeros((0, 3), np.uint8)).shape == (0, 3)


@pytest.mark.usefixtures("small_shards")
def test_embeddings_are_kept_by_weights_and_content(tmp_path: Path) -> None:
    encoder, cache = Counting(), EmbeddingCache(tmp_path)
    prepared = encoder.prepare_images([decode(data, where="") for data in COLOURS])
    keys = [hash_bytes(data) for data in COLOURS]
    first = cache.images(encoder, keys[:15], prepared[:15])
    assert encoder.n_embedded == 15
    np.testing.assert_array_equal(cache.images(encoder, keys[::-1], prepared[::-1])[5:], first[::-1])
    assert encoder.n_embedded == 20
    trained = Counting(weights="trained")
    cache.images(trained, keys, prepared)
    assert trained.n_embedded == 20


def test_images_and_texts_do_not_mix(tmp_path: Path) -> None:
    encoder, cache = Counting(), EmbeddingCache(tmp_path)
    texts = encoder.prepare_texts(["a", "bc"])
    cache.images(encoder, ["k", "l"], np.zeros((2, 3), np.uint8))
    np.testing.assert_array_equal(cache.texts(encoder, ["k", "l"], texts), encoder.embed_texts(texts))


def test_embeddings_of_models_used_long_ago_are_removed(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path, max_models=2)
    encoders = [Counting(weights=str(n)) for n in range(3)]
    prepared = np.zeros((1, 3), np.uint8)
    for encoder in (encoders[0], encoders[1], encoders[0], encoders[2]):
        cache.images(encoder, ["k"], prepared)
    assert [encoder.n_embedded for encoder in encoders] == [1, 1, 1]
    for encoder in (encoders[0], encoders[1]):
        cache.images(encoder, ["k"], prepared)
    assert [encoder.n_embedded for encoder in encoders] == [1, 2, 1]


def test_text_key_is_the_key_of_an_edited_caption() -> None:
    assert text_key("a dog") == hash_bytes(b"a dog")
