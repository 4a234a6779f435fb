"""The six settings, drawn: sky or wall above a ground, marks typical of the place, and fine texture."""

from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from repair.core.identity import derive_rng

_SCALE = 4
_HORIZON = 0.30  # of the height
_TEXTURE = 5.0
_TINT = 9.0

Colour = tuple[int, int, int]
_LOOKS: dict[str, tuple[Colour, Colour]] = {
    "park": ((168, 214, 244), (134, 190, 92)),
    "beach": ((150, 212, 250), (240, 220, 164)),
    "street": ((196, 204, 212), (132, 132, 138)),
    "snow": ((188, 206, 226), (236, 242, 250)),
    "room": ((226, 204, 182), (172, 130, 96)),
    "night": ((20, 24, 60), (48, 58, 84)),
}


def backdrop(setting: str, noise: int, size: int) -> Image.Image:
    """An RGB picture of an empty `setting`."""
    rng = derive_rng(noise, "backdrop")
    variant = int(rng.integers(4))
    pixels = _clean(setting, variant, size) + rng.uniform(-_TINT, _TINT, 3).astype(np.float32)
    pixels = pixels + _TEXTURE * rng.standard_normal((size, size, 1), dtype=np.float32)
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8), "RGB")


@lru_cache(maxsize=256)
def _clean(setting: str, variant: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    n = size * _SCALE
    far, near = _LOOKS[setting]
    image = Image.new("RGB", (n, n), near)
    pen = ImageDraw.Draw(image)
    horizon = int(n * _HORIZON)
    pen.rectangle((0, 0, n, horizon), fill=far)
    _MARKS[setting](pen, n, horizon, variant)
    return np.asarray(image.reduce(_SCALE), dtype=np.float32)


def _park(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    for i in range(-1, 5):
        x = (i * 0.27 + 0.07 * variant) * n
        pen.ellipse((x, horizon - 0.09 * n, x + 0.3 * n, horizon + 0.1 * n), fill=(112, 172, 84))
    for i in range(12):
        x, y = ((i * 0.37 + variant * 0.11) % 1) * n, horizon + ((i * 0.61 + 0.2) % 1) * (n - horizon)
        pen.line((x, y, x + 0.01 * n, y - 0.025 * n), fill=(96, 156, 66), width=max(1, n // 128))


def _beach(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    pen.rectangle((0, horizon * 0.45, n, horizon * 1.15), fill=(60, 150, 204))
    for i in range(5):
        x = (i * 0.25 + 0.06 * variant) * n - 0.1 * n
        pen.arc((x, horizon * 0.75, x + 0.16 * n, horizon), 200, 340, fill=(230, 244, 250), width=max(1, n // 80))


def _street(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    x, i = -0.05 * n * variant, 0
    while x < n:
        width, height = (0.16 + 0.05 * ((i + variant) % 3)) * n, (0.14 + 0.07 * ((i * 2 + variant) % 3)) * n
        pen.rectangle((x, horizon - height, x + width - 0.01 * n, horizon), fill=(150 + 12 * (i % 3), 128, 118))
        x, i = x + width, i + 1
    for k in range(4):
        left = (k * 0.28 + 0.06 * variant) * n
        for y in (0.655, 0.99):
            pen.rectangle((left, (y - 0.012) * n, left + 0.12 * n, (y + 0.012) * n), fill=(236, 232, 214))


def _snow(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    for i in range(3):
        x = (i * 0.36 - 0.1 + 0.05 * variant) * n
        pen.polygon([(x, horizon), (x + 0.17 * n, horizon - 0.2 * n), (x + 0.34 * n, horizon)], fill=(150, 168, 194))
        pen.polygon(
            [(x + 0.10 * n, horizon - 0.12 * n), (x + 0.17 * n, horizon - 0.2 * n), (x + 0.24 * n, horizon - 0.12 * n)],
            fill=(246, 250, 255),
        )
    for i in range(26):
        x, y, r = ((i * 0.37 + variant * 0.13) % 1) * n, ((i * 0.61 + variant * 0.07) % 1) * n, 0.008 * n
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(255, 255, 255), outline=(206, 218, 234))


def _room(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    x = (0.12 + 0.18 * variant) * n
    pen.rectangle((x, 0.05 * n, x + 0.2 * n, 0.23 * n), fill=(166, 210, 238), outline=(250, 246, 238), width=n // 50)
    pen.line((x + 0.1 * n, 0.05 * n, x + 0.1 * n, 0.23 * n), fill=(250, 246, 238), width=n // 64)
    pen.rectangle((0, horizon - 0.02 * n, n, horizon), fill=(250, 240, 226))
    for y in (0.45, 0.62, 0.82):
        pen.line((0, y * n, n, y * n), fill=(150, 110, 78), width=max(1, n // 100))


def _night(pen: ImageDraw.ImageDraw, n: int, horizon: int, variant: int) -> None:
    x = (0.1 + 0.22 * variant) * n
    pen.ellipse((x, 0.04 * n, x + 0.12 * n, 0.16 * n), fill=(244, 240, 200))
    for i in range(14):
        sx, sy, r = ((i * 0.37 + variant * 0.17) % 1) * n, ((i * 0.77 + 0.07) % 0.93) * horizon, 0.007 * n
        pen.ellipse((sx - r, sy - r, sx + r, sy + r), fill=(250, 250, 230))


_MARKS = {"park": _park, "beach": _beach, "street": _street, "snow": _snow, "room": _room, "night": _night}
