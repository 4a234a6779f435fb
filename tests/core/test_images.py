"""Every kind of image file comes out upright, RGB, 8 bits; everything else is one clear DataError."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from repair.core.errors import DataError
from repair.core.images import decode, looks_whole, read_header
from tests.data.files import encoded, picture


def pixels(data: bytes) -> np.ndarray:
    image = decode(data, where="a")
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF", "WEBP", "JPEG"])
def test_kinds(kind: str) -> None:
    image = Image.new("RGB", (8, 6), (200, 40, 10))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.abs(pixels(encoded(image, kind, **options)).astype(int) - (200, 40, 10)).max() <= 3


def test_rgb_is_kept_bit_for_bit() -> None:
    image = picture()
    np.testing.assert_array_equal(pixels(encoded(image)), np.asarray(image))
    assert read_header(encoded(image), where="a") == (8, 6)


def test_grey_and_one_bit() -> None:
    grey = Image.fromarray(np.array([[0, 128, 255]], dtype=np.uint8))
    np.testing.assert_array_equal(pixels(encoded(grey))[0, :, 0], [0, 128, 255])
    np.testing.assert_array_equal(pixels(encoded(Image.new("1", (2, 1), 1)))[0, 0], [255, 255, 255])


def test_transparent_parts_are_white() -> None:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    image.putpixel((1, 0), (0, 0, 255, 255))
    np.testing.assert_array_equal(pixels(encoded(image))[0], [[255, 255, 255], [0, 0, 255]])
    grey = Image.new("LA", (1, 1), (0, 0))
    np.testing.assert_array_equal(pixels(encoded(grey))[0, 0], [255, 255, 255])


def test_palette_with_and_without_a_transparent_colour() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 0])
    image.putpixel((1, 0), 1)
    np.testing.assert_array_equal(pixels(encoded(image))[0], [[10, 20, 30], [200, 100, 0]])
    for kind in ("PNG", "GIF"):
        np.testing.assert_array_equal(pixels(encoded(image, kind, transparency=1))[0], [[10, 20, 30], [255, 255, 255]])
    by_byte = encoded(image, "PNG", transparency=bytes([255, 0]))
    np.testing.assert_array_equal(pixels(by_byte)[0], [[10, 20, 30], [255, 255, 255]])


def test_cmyk_has_its_colours() -> None:
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert np.abs(pixels(encoded(red, "JPEG", quality=95)).astype(int) - (255, 0, 0)).max() <= 8


def test_16_bit_greys_are_scaled_not_clipped() -> None:
    values = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(pixels(encoded(Image.fromarray(values), kind))[0, :, 0], [0, 100, 255])


def test_32_bit_integers_from_16_and_from_8_bits() -> None:
    wide = Image.fromarray(np.array([[0, 257 * 100, 65535]], dtype=np.int32))
    np.testing.assert_array_equal(pixels(encoded(wide, "TIFF"))[0, :, 0], [0, 100, 255])
    narrow = Image.fromarray(np.array([[0, 100, 255]], dtype=np.int32))
    np.testing.assert_array_equal(pixels(encoded(narrow, "TIFF"))[0, :, 0], [0, 100, 255])


def test_floating_point_is_refused() -> None:
    with pytest.raises(DataError, match=r"^image a: floating-point pixels"):
        decode(encoded(Image.new("F", (2, 2)), "TIFF"), where="a")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(orientation: int) -> None:
    image = picture()
    exif = image.getexif()
    exif[0x0112] = orientation
    data = encoded(image, exif=exif)
    expected = ImageOps.exif_transpose(Image.open(BytesIO(data)))
    np.testing.assert_array_equal(pixels(data), np.asarray(expected))
    assert decode(data, where="a").size == ((8, 6) if orientation < 5 else (6, 8))


def test_a_damaged_exif_block_does_not_cost_the_image() -> None:
    image = picture((16, 16))
    data = encoded(image, "JPEG", exif=b"Exif\x00\x00" + b"\xff" * 20)
    assert decode(data, where="a").size == (16, 16)


def test_the_first_picture_of_an_animation_counts() -> None:
    first, second = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    for kind in ("GIF", "PNG", "WEBP"):
        data = encoded(first, kind, save_all=True, append_images=[second])
        assert pixels(data)[0, 0, 0] > 250
        assert pixels(data)[0, 0, 2] < 5


@pytest.mark.parametrize("data", [b"", b"hello", b"\xff\xd8\xff", b"<svg></svg>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_not_an_image(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^image pets/cat\.jpg: ") as caught:
        decode(data, where="pets/cat.jpg")
    assert "\n" not in str(caught.value)
    assert "0x" not in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_cut_short(kind: str) -> None:
    data = encoded(picture((64, 64)), kind)
    with pytest.raises(DataError, match=r"^image a: "):
        decode(data[: len(data) // 2], where="a")


def test_looks_whole() -> None:
    for kind in ("PNG", "JPEG"):
        data = encoded(picture((64, 64)), kind)
        assert looks_whole(data)
        assert not looks_whole(data[: len(data) // 2])
    assert looks_whole(b"GIF89a")


def test_too_many_pixels_are_refused_undecoded() -> None:
    data = encoded(Image.new("1", (300, 300)))
    with pytest.raises(DataError, match=r"300 × 300 pixels, more than max_pixels = 1000"):
        decode(data, where="a", max_pixels=1000)
    assert decode(data, where="a", max_pixels=90_000).size == (300, 300)


@pytest.mark.parametrize("side", [12_000, 40_000])
def test_decompression_bombs(side: int) -> None:
    """A PNG head that claims a huge picture, in a few bytes."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    with pytest.raises(DataError, match=r"pixels"):
        decode(data, where="a")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore::PIL.Image.DecompressionBombWarning")
@settings(max_examples=300, deadline=None)
@given(
    kind=st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"]),
    changes=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=20),
    cut=st.floats(0, 1),
)
def test_damaged_files_decode_or_raise_data_error(kind: str, changes: list[tuple[int, int]], cut: float) -> None:
    data = bytearray(encoded(picture((24, 24)), kind))
    for position, value in changes:
        data[position % len(data)] = value
    try:
        mode = decode(bytes(data[: max(1, int(cut * len(data)))]), where="a").mode
    except DataError:
        return
    assert mode == "RGB"
