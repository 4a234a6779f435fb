import numpy as np
import pytest
from PIL import Image

from repair.core.errors import ConfigError, DataError
from repair.numerics.cosines import normalise
from repair.numerics.duplicates import dhash, embedding_duplicates, hash_duplicates


def picture(seed, size=(72, 96)):
    """A smooth random picture, uint8 (height, width, 3)."""
    noise = np.random.default_rng(seed).integers(0, 256, size=(6, 7, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize(size[::-1], Image.Resampling.BICUBIC))


def distance(first, second):
    return bin(int(dhash(first)) ^ int(dhash(second))).count("1")


@pytest.mark.parametrize("block_size", [1, 7, 1024])
def test_embedding_pairs_equal_brute_force(block_size):
    vectors = normalise(np.random.default_rng(0).standard_normal((40, 3)))
    vectors[33] = vectors[5]
    found = embedding_duplicates(vectors, threshold=0.95, block_size=block_size)
    cosines = vectors.astype(float) @ vectors.astype(float).T
    assert found.tolist() == [[i, j] for i in range(40) for j in range(i + 1, 40) if cosines[i, j] >= 0.95]
    assert [5, 33] in embedding_duplicates(vectors, threshold=1.0).tolist()


def test_thresholds_at_the_ends():
    same = np.ones((3, 1))
    assert len(embedding_duplicates(same, threshold=1.0)) == 3
    assert embedding_duplicates(same, threshold=1.01).shape == (0, 2)
    assert embedding_duplicates(np.zeros((3, 2)), threshold=0.5).shape == (0, 2)
    with pytest.raises(ConfigError, match="threshold: must be above 0"):
        embedding_duplicates(same, threshold=0.0)


def test_hash_sees_through_size_brightness_and_compression():
    image = picture(1)
    smaller = np.asarray(Image.fromarray(image).resize((50, 40), Image.Resampling.BOX))
    darker = (image * 0.8).astype(np.uint8)
    assert distance(image, image) == 0
    assert distance(image, smaller) <= 4
    assert distance(image, darker) <= 4


def test_hashes_of_different_pictures_are_far_apart():
    hashes = [dhash(picture(seed)) for seed in range(30)]
    assert len(hash_duplicates(hashes, max_distance=8)) == 0


def test_hash_equals_its_definition():
    """Sizes that the grid divides: each cell is the plain mean of its block."""
    grey = np.random.default_rng(2).integers(0, 256, size=(16, 27), dtype=np.uint8)
    cells = grey.reshape(8, 2, 9, 3).mean(axis=(1, 3))
    bits = "".join("1" if cells[r, c] < cells[r, c + 1] else "0" for r in range(8) for c in range(8))
    assert int(dhash(grey)) == int(bits, 2)


@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (8, 9), (9, 8, 3), (500, 5)])
def test_any_size_has_a_hash(shape):
    assert dhash(np.random.default_rng(3).integers(0, 256, size=shape, dtype=np.uint8)).dtype == np.uint64


def test_hash_pairs_equal_brute_force():
    rng = np.random.default_rng(4)
    hashes = rng.integers(0, 2**6, size=1500, dtype=np.uint64) << np.uint64(29)
    codes = [int(h) for h in hashes]
    expected = [
        [i, j]
        for i in range(1500)
        for j in range(i + 1, 1500)
        if codes[i] and codes[j] and (codes[i] ^ codes[j]).bit_count() <= 1
    ]
    assert hash_duplicates(hashes, max_distance=1).tolist() == expected
    assert hash_duplicates(hashes, max_distance=-1).shape == (0, 2)
    assert hash_duplicates([], max_distance=3).shape == (0, 2)


def test_pictures_without_contrast_are_not_duplicates():
    flat = [dhash(np.full((20, 20), grey, dtype=np.uint8)) for grey in (0, 255)]
    assert hash_duplicates(flat, max_distance=64).shape == (0, 2)


@pytest.mark.parametrize("bad", [np.zeros((4, 4)), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4), np.uint8)])
def test_pixels_of_another_kind(bad):
    with pytest.raises(DataError, match="dhash: need uint8"):
        dhash(bad)
