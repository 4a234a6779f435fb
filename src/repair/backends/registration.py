"""An edited image laid on its source: same size, same framing, and whether anything was changed at all.

Editors return another size, shift the picture by some pixels or zoom into it; by pixels such an edit looks like a
change of everything. Zoom and shift are found by phase correlation of gradients, which a local edit does not disturb,
and undone; what the edit no longer shows at the border is taken from the source.
"""

import io
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from repair.core.errors import BadReply

FloatImage = npt.NDArray[np.float64]

WORKING_SIDE = 256  # pixels of the longer side at which the framing is found
ZOOMS = np.arange(0.80, 1.2501, 0.01)
MAX_SHIFT = 0.15  # of a side; more is another picture, not a shifted one
MIN_AGREEMENT = 0.15  # peak of the phase correlation from which two pictures show the same framing
BLOCK = 8  # pixels of a side of the blocks that are compared
CHANGED = 10.0  # difference of a block's mean, of 255, in its most changed channel; re-encoding stays below
NO_OP = 0.002  # share of changed blocks below which nothing was edited
QUALITY = 95

_GAIN = 1.25  # how much better than "nothing moved" another framing must fit
_SMALLEST = 16
_COARSE = 0.2  # cycles a pixel from which detail counts for little


class Framing(NamedTuple):
    """The edit shows the source enlarged by `zoom` about its centre and moved by (`right`, `down`), in shares of its
    sides. `agreement` is the peak of the phase correlation, about 1 for equal pictures."""

    zoom: float
    right: float
    down: float
    agreement: float


class Registered(NamedTuple):
    """The edit in the source's size and framing; `changed` is the share of blocks that differ."""

    image: Image.Image
    framing: Framing
    changed: float

    @property
    def no_op(self) -> bool:
        return self.changed < NO_OP

    def facts(self) -> dict[str, float | bool]:
        """For the record of the call."""
        zoom, right, down, agreement = (round(float(value), 4) for value in self.framing)
        return {
            "zoom": zoom,
            "right": right,
            "down": down,
            "agreement": agreement,
            "changed": round(self.changed, 4),
            "no_op": self.no_op,
        }


def register(edited: Image.Image, source: Image.Image) -> Registered:
    """`edited` in size and framing of `source`, both RGB.

    Raises BadReply for what no editor means: an image of a few pixels, or of a single colour.
    """
    if min(edited.size) < _SMALLEST:
        raise BadReply(f"the edited image has {edited.width} × {edited.height} pixels")
    pixels = np.asarray(edited)
    if (pixels == pixels[0, 0]).all():
        raise BadReply("the edited image is of one colour: the editor's safety filter blanks images in this way")
    resized = edited if edited.size == source.size else edited.resize(source.size, Image.Resampling.LANCZOS)
    framing = framing_of(resized, source)
    if (framing.zoom, framing.right, framing.down) != (1.0, 0.0, 0.0):
        resized = _reframed(resized, source, framing)
    return Registered(resized, framing, changed_share(resized, source))


def registered_bytes(registered: Registered, source: bytes) -> bytes:
    """The edit as JPEG; of an edit that changed nothing the source itself, which selection knows as a no-op."""
    if registered.no_op:
        return source
    out = io.BytesIO()
    registered.image.save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()


def framing_of(edited: Image.Image, source: Image.Image) -> Framing:
    """How `edited`, already of the source's size, is framed. No zoom and no shift unless another framing fits
    clearly better than none."""
    factor = min(1.0, WORKING_SIDE / max(source.size))
    width, height = (max(_SMALLEST, round(side * factor)) for side in source.size)
    small, target = (
        image.convert("L").resize((width, height), Image.Resampling.BILINEAR) for image in (edited, source)
    )
    spectrum = np.conj(np.fft.rfft2(_gradients(target)))
    at_rest = float(_correlation(small, spectrum)[0, 0])
    peaks = [_peak(_correlation(_unzoomed(small, zoom), spectrum)) for zoom in ZOOMS]
    best = int(np.argmax([peak[0] for peak in peaks]))
    found, down, right = peaks[best]
    moved = abs(ZOOMS[best] - 1) > 0.005 or max(abs(right), abs(down)) >= 0.5
    if not moved or found < max(MIN_AGREEMENT, _GAIN * at_rest):
        return Framing(1.0, 0.0, 0.0, at_rest)
    zoom = _between(ZOOMS, [peak[0] for peak in peaks], best)
    # The shift was found after unzooming; in the edit's own pixels it is larger by the zoom.
    return Framing(zoom, zoom * right / width, zoom * down / height, found)


def changed_share(edited: Image.Image, source: Image.Image) -> float:
    """Share of blocks of BLOCK × BLOCK pixels whose mean colour differs by more than CHANGED in some channel."""
    difference = np.asarray(edited, dtype=np.float64) - np.asarray(source, dtype=np.float64)
    height, width = difference.shape[0] // BLOCK * BLOCK, difference.shape[1] // BLOCK * BLOCK
    if height == 0 or width == 0:
        return float(np.abs(difference).max() > CHANGED)
    blocks = difference[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, -1).mean(axis=(1, 3))
    return float((np.abs(blocks).max(axis=-1) > CHANGED).mean())


def _peak(surface: FloatImage) -> tuple[float, float, float]:
    """The highest value within MAX_SHIFT, and how far down and right of rest it lies, in pixels."""
    height, width = surface.shape
    reach = (max(1, int(MAX_SHIFT * height)), max(1, int(MAX_SHIFT * width)))
    near = np.roll(surface, reach, axis=(0, 1))[: 2 * reach[0] + 1, : 2 * reach[1] + 1]
    row, column = (int(index) for index in np.unravel_index(int(near.argmax()), near.shape))
    down = _vertex(*(float(near[min(max(row + step, 0), 2 * reach[0]), column]) for step in (-1, 0, 1)))
    right = _vertex(*(float(near[row, min(max(column + step, 0), 2 * reach[1])]) for step in (-1, 0, 1)))
    return float(near[row, column]), row - reach[0] + down, column - reach[1] + right


def _correlation(image: Image.Image, target: npt.NDArray[np.complex128]) -> FloatImage:
    """Phase correlation with the spectrum `target` (conjugate), 1 at its peak for equal pictures; fine detail, where
    decoders differ, counts less than coarse."""
    spectrum = np.fft.rfft2(_gradients(image)) * target
    down, right = np.fft.fftfreq(image.height), np.fft.fftfreq(image.width)
    weight = np.exp(-(np.hypot(down[:, None], right[None, :]) ** 2) / _COARSE**2)
    phases = spectrum / np.maximum(np.abs(spectrum), 1e-9) * weight[:, : spectrum.shape[1]]
    surface: FloatImage = np.fft.irfft2(phases, s=(image.height, image.width)) / weight.mean()
    return surface


def _gradients(image: Image.Image) -> FloatImage:
    """Gradient magnitude under a window: no edges of the frame, no brightness."""
    down, right = np.gradient(np.asarray(image, dtype=np.float64))
    window = np.outer(np.hanning(image.height), np.hanning(image.width))
    magnitude = np.hypot(down, right)
    weighted: FloatImage = (magnitude - magnitude.mean()) * window
    return weighted


def _unzoomed(image: Image.Image, zoom: float) -> Image.Image:
    """`image` shrunk by `zoom` about its centre, in its old size."""
    width, height = image.size
    corner = ((1 - zoom) * width / 2, (1 - zoom) * height / 2)
    return image.transform(
        image.size, Image.Transform.AFFINE, (zoom, 0, corner[0], 0, zoom, corner[1]), Image.Resampling.BILINEAR
    )


def _reframed(edited: Image.Image, source: Image.Image, framing: Framing) -> Image.Image:
    """The edit moved and zoomed back; where it then shows nothing, the source."""
    width, height = source.size
    zoom = framing.zoom
    left = (1 - zoom) * width / 2 + framing.right * width
    top = (1 - zoom) * height / 2 + framing.down * height
    matrix = (zoom, 0, left, 0, zoom, top)
    back = edited.transform(source.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)
    inside = Image.new("L", edited.size, 255).transform(source.size, Image.Transform.AFFINE, matrix)
    return Image.composite(back, source, inside)


def _vertex(before: float, at: float, after: float) -> float:
    """Offset of the top of the parabola through three values, in steps from the middle one."""
    bend = before - 2 * at + after
    return 0.0 if bend >= 0 else float(np.clip(0.5 * (before - after) / bend, -0.5, 0.5))


def _between(steps: npt.NDArray[np.float64], heights: list[float], best: int) -> float:
    if not 0 < best < len(steps) - 1:
        return float(steps[best])
    offset = _vertex(heights[best - 1], heights[best], heights[best + 1])
    return float(steps[best] + offset * (steps[1] - steps[0]))
