"""A picture put onto the canvas an image editor works on, and taken off again."""

from typing import NamedTuple

import numpy as np
from PIL import Image


class Canvas(NamedTuple):
    """`image` is what the editor gets; `box` is where the source lies in it (left, top, right, bottom)."""

    image: Image.Image
    box: tuple[int, int, int, int]

    def taken_off(self, edited: Image.Image) -> Image.Image:
        """The source's part of an edit of this canvas, whatever the size it came back in."""
        if edited.size != self.image.size:
            edited = edited.resize(self.image.size, Image.Resampling.LANCZOS)
        return edited.crop(self.box)


def canvas_of(
    source: Image.Image,
    *,
    size: tuple[int, int] | None,
    max_area: int,
    multiple: int,
    min_area: int = 0,
    min_side: int = 0,
) -> Canvas:
    """`source` scaled to fit `size` (width, height) and centred, its edges repeated outwards to fill the rest.

    So an editor that works at one shape only never squeezes a picture. Without `size` the canvas has the source's own
    shape: from `min_area` to `max_area` pixels, sides multiples of `multiple`; a side below `min_side` is filled up.
    """
    if size is None:
        width, height = working_size(source.size, min_area=min_area, max_area=max_area, multiple=multiple)
        size = (max(width, min_side), max(height, min_side))
    factor = min(size[0] / source.width, size[1] / source.height)
    inner = (min(size[0], max(1, round(source.width * factor))), min(size[1], max(1, round(source.height * factor))))
    scaled = source if inner == source.size else source.resize(inner, Image.Resampling.LANCZOS)
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    box = (left, top, left + inner[0], top + inner[1])
    if inner == size:
        return Canvas(scaled, box)
    sides = ((top, size[1] - inner[1] - top), (left, size[0] - inner[0] - left), (0, 0))
    return Canvas(Image.fromarray(np.pad(np.asarray(scaled), sides, mode="edge")), box)


def working_size(source: tuple[int, int], *, max_area: int, multiple: int, min_area: int = 0) -> tuple[int, int]:
    """The source's size (width, height), brought between `min_area` and `max_area`, sides multiples of `multiple`."""
    area = source[0] * source[1]
    factor = (min(max(area, min_area), max_area) / area) ** 0.5
    width, height = (max(multiple, round(side * factor / multiple) * multiple) for side in source)
    return width, height
