"""From scenes to pictures: anti-aliased, and each thing's pixels depend on that thing (and what it rests on) alone.

Every thing is drawn on a tile of its own at 4 x the final resolution, reduced, and laid over the background; things are
laid from the bottom row up, so that what rests on something stands before it. Jitter, hue and texture come from the
thing's own noise seed and the background's, so an edit of one thing leaves all pixels outside its tile (and the tiles
of things resting on it) as they were.
"""

import colorsys
import io
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, PngImagePlugin

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.world.backdrops import backdrop
from repair.world.figures import FIGURES, SEAT_HEIGHTS, Pen
from repair.world.scenes import JITTER, N_COLUMNS, Scene, Thing, supports
from repair.world.vocabulary import COLOURS

SUPERSAMPLING = 4
TILE = 1.7  # side of a thing's tile, in cells
_HEIGHTS = {"small": 0.66, "big": 1.06}  # of a cell
# Where the things of column 0 and row 0 stand, in cells from the left and from the top, and how far the next are.
_FIRST_COLUMN, _FIRST_ROW, _STEP = 0.56, 1.1, 0.94
_HUE_NOISE = 0.012
_TONE_NOISE = 0.06
_TEXTURE = 7.0  # standard deviation of pixel noise, of 255
_PNG_KEY = "repair-world-scene"
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"

_HSV = {
    "red": (0.99, 0.88, 0.86),
    "orange": (0.075, 0.95, 1.0),
    "yellow": (0.15, 0.85, 1.0),
    "green": (0.36, 0.80, 0.62),
    "blue": (0.60, 0.85, 0.90),
    "purple": (0.78, 0.70, 0.70),
    "brown": (0.06, 0.70, 0.48),
    "black": (0.66, 0.15, 0.16),
    "white": (0.12, 0.03, 0.97),
}
assert set(_HSV) == set(COLOURS)


def draw(scene: Scene, *, size: int = 64) -> Image.Image:
    """An RGB picture of `size` x `size` pixels, the same for the same scene."""
    image = backdrop(scene.setting, scene.noise, size)
    resting = supports(scene)
    order = sorted(range(len(scene.things)), key=lambda i: (-scene.things[i].place.row, scene.things[i].place.column))
    for i in order:
        tile, corner = _tile(scene, i, resting, size)
        image.paste(tile, corner, tile)
    return image


def region(scene: Scene, index: int, *, size: int = 64) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of the tile of one thing: it changes no pixel outside. May stick out of the image."""
    left, top, side, _, _ = _frame(scene, index, supports(scene), size)
    return left, top, left + side, top + side


def encode_png(image: Image.Image, scene: Scene) -> bytes:
    """PNG bytes of `image` with the scene's JSON as a tEXt chunk: truth travels with the bytes, never in the pixels."""
    info = PngImagePlugin.PngInfo()
    info.add_text(_PNG_KEY, scene.to_json())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", pnginfo=info, compress_level=1)
    return buffer.getvalue()


def render(scene: Scene, *, size: int = 64) -> bytes:
    """`encode_png(draw(scene), scene)`."""
    return encode_png(draw(scene, size=size), scene)


def read_scene(png: bytes) -> Scene:
    """The scene in the bytes of `encode_png`. Raises DataError for bytes that carry none."""
    if not png.startswith(_PNG_SIGNATURE):
        raise DataError("this image is not a PNG of the embedded world, so nothing is known of what it shows")
    at = len(_PNG_SIGNATURE)
    while at + 8 <= len(png):
        length, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        key, _, value = png[at + 8 : at + 8 + length].partition(b"\0") if kind == b"tEXt" else (b"", b"", b"")
        if key == _PNG_KEY.encode():
            return _scene(value.decode("latin-1"))
        at += 12 + length
    raise DataError("this PNG carries no scene of the embedded world, so nothing is known of what it shows")


@lru_cache(maxsize=1 << 16)
def _scene(text: str) -> Scene:
    return Scene.from_json(text)


def _frame(scene: Scene, index: int, resting: dict[int, int], size: int) -> tuple[int, int, int, float, float]:
    """Tile corner and side in pixels, and the foot point of the thing within the tile, in pixels."""
    cell = size / N_COLUMNS
    dx, dy = _foot(scene, index, resting)
    side = int(np.ceil(TILE * cell))
    left, top = int(np.floor(dx * cell - side / 2)), int(np.floor(dy * cell - side * 0.86))
    return left, top, side, dx * cell - left, dy * cell - top


def _foot(scene: Scene, index: int, resting: dict[int, int]) -> tuple[float, float]:
    """Where a thing touches the ground, in cells from the top left corner."""
    thing = scene.things[index]
    rng = derive_rng(thing.noise, "jitter")
    jx, jy = rng.uniform(-JITTER, JITTER, 2)
    if index in resting:
        below = scene.things[resting[index]]
        x, y = _foot(scene, resting[index], resting)
        return x + 0.5 * jx, y - SEAT_HEIGHTS[below.kind] * _HEIGHTS[below.size]
    return _FIRST_COLUMN + _STEP * thing.place.column + jx, _FIRST_ROW + _STEP * thing.place.row - abs(jy)


def _tile(scene: Scene, index: int, resting: dict[int, int], size: int) -> tuple[Image.Image, tuple[int, int]]:
    thing = scene.things[index]
    left, top, side, x, y = _frame(scene, index, resting, size)
    rng = derive_rng(thing.noise, "look")
    big = Image.new("RGBA", (side * SUPERSAMPLING, side * SUPERSAMPLING), (0, 0, 0, 0))
    pen = Pen(
        image=big,
        x=x * SUPERSAMPLING,
        y=y * SUPERSAMPLING,
        unit=_HEIGHTS[thing.size] * size / N_COLUMNS * SUPERSAMPLING,
        mirrored=bool(rng.random() < 0.5),
        colour=_tone(thing, rng),
        wobble=rng.uniform(-1, 1, 4),
    )
    if index not in resting:
        pen.shadow()
    FIGURES[thing.kind](pen, thing.action or "")
    tile = big.reduce(SUPERSAMPLING)
    return _textured(tile, rng), (left, top)


def _tone(thing: Thing, rng: np.random.Generator) -> tuple[int, int, int]:
    h, s, v = _HSV[thing.colour]
    dh, ds, dv = rng.uniform(-1, 1, 3)
    h, s, v = (h + dh * _HUE_NOISE) % 1.0, s * (1 + ds * _TONE_NOISE), v * (1 + dv * _TONE_NOISE)
    r, g, b = colorsys.hsv_to_rgb(h, min(s, 1.0), min(v, 1.0))
    return round(255 * r), round(255 * g), round(255 * b)


def _textured(tile: Image.Image, rng: np.random.Generator) -> Image.Image:
    pixels: npt.NDArray[np.float32] = np.asarray(tile, dtype=np.float32).copy()
    pixels[..., :3] += _TEXTURE * rng.standard_normal(pixels.shape[:2], dtype=np.float32)[..., None]
    return Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8), "RGBA")
