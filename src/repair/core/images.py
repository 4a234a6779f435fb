"""Safe decoding: encoded bytes of any common image file to one RGB picture, or one clear error."""

import struct
import zlib
from io import BytesIO
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError

from repair.core.errors import DataError

MAX_PIXELS = 64_000_000  # 192 MB once decoded; a small file can claim far more (a decompression bomb)

_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What Pillow's readers raise on broken files, each found by feeding it some.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    NotImplementedError,
    struct.error,
    zlib.error,
    Warning,  # for who turns warnings into errors
)
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)


class Header(NamedTuple):
    """What an image file says of itself, before its pixels are read."""

    width: int
    height: int


def read_header(data: bytes, *, where: str) -> Header:
    """Width and height in pixels, from the first bytes only.

    Raises DataError naming `where` if `data` is not an image.
    """
    return Header(*_open(data, where=where).size)


def decode(data: bytes, *, where: str, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """The picture in `data` as RGB, 8 bits a channel, upright.

    Of an animation or a multi-picture file the first picture counts. Transparent parts are laid over white. An EXIF
    orientation is applied; one that cannot be read is ignored. 16-bit greys are scaled to 8 bits. `where` names the
    item in errors.

    Raises DataError if `data` is not an image, is cut short or broken, has more than `max_pixels`, or a
    pixel type whose range is unknown (floating point).
    """
    image = _open(data, where=where)
    check_size(Header(*image.size), where=where, max_pixels=max_pixels)
    try:
        image.load()
        return _upright(_rgb(image, where=where), _orientation(image))
    except MemoryError as error:
        raise DataError(f"image {where}: not enough memory for {image.width} × {image.height} pixels") from error
    except _BROKEN as error:
        raise DataError(f"image {where}: broken or cut short ({_one_line(error)})") from error


def check_size(header: Header, *, where: str, max_pixels: int) -> None:
    """Raises DataError if the image claims more than `max_pixels`."""
    if header.width * header.height > max_pixels:
        raise DataError(
            f"image {where}: {header.width} × {header.height} pixels, more than max_pixels = {max_pixels}: "
            "shrink it, or raise rules.max_pixels"
        )


def looks_whole(data: bytes) -> bool:
    """False if the end marker that JPEG and PNG files close with is missing: a cheap sign of a file cut short.

    True for other formats. A file may be broken although it looks whole.
    """
    tail = data[-64:]
    if data.startswith(b"\xff\xd8"):
        return b"\xff\xd9" in tail
    if data.startswith(b"\x89PNG"):
        return b"IEND" in tail
    return True


def _open(data: bytes, *, where: str) -> Image.Image:
    if not data:
        raise DataError(f"image {where}: the file is empty")
    try:
        return Image.open(BytesIO(data))
    except UnidentifiedImageError as error:  # its own text names a memory address
        raise DataError(f"image {where}: not an image file that can be read (JPEG, PNG, WebP, …)") from error
    except _BOMB as error:
        raise DataError(f"image {where}: far too many pixels (a decompression bomb?)") from error
    except _BROKEN as error:
        raise DataError(f"image {where}: broken or cut short ({_one_line(error)})") from error


def _rgb(image: Image.Image, *, where: str) -> Image.Image:
    if image.mode == "F":
        raise DataError(f"image {where}: floating-point pixels, whose range is unknown: save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, picture).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_16_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    # Mode I holds 32 bits but comes from 16-bit files; values of 255 and less all over mean 8 bits after all.
    scaled = values // 257 if image.mode != "I" or values.max(initial=0) > 255 else values
    return Image.fromarray(np.clip(scaled, 0, 255).astype(np.uint8)).convert("RGB")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except _BROKEN:
        return 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
