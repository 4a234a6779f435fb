"""A pen that draws in units of a thing's own height, from the point where it touches the ground."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Points = Sequence[tuple[float, float]]

SKIN: Colour = (240, 196, 160)
DARK: Colour = (34, 30, 34)
LIGHT: Colour = (150, 152, 160)


class Pen:
    """Draws on an RGBA tile. Coordinates are (right, up) from the foot point, in heights of the thing.

    `unit` is that height in tile pixels, `wobble` four numbers in [-1, 1] for small differences of shape.
    """

    def __init__(
        self,
        *,
        image: Image.Image,
        x: float,
        y: float,
        unit: float,
        mirrored: bool,
        colour: Colour,
        wobble: npt.NDArray[np.float64],
    ) -> None:
        self._draw = ImageDraw.Draw(image)
        self._x, self._y, self._unit, self._sign = x, y, unit, -1 if mirrored else 1
        self.colour = colour
        self.wobble = [float(w) for w in wobble]
        self.edge: Colour = LIGHT if sum(colour) < 170 else DARK
        self._edge_width = max(2, round(0.035 * unit))

    def shade(self, factor: float) -> Colour:
        """The thing's colour, darker (< 1) or lighter (> 1)."""
        r, g, b = (min(255, round(c * factor)) for c in self.colour)
        return r, g, b

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self._x + self._sign * x * self._unit, self._y - y * self._unit

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Colour, *, edge: bool = True) -> None:
        cx, cy = self.at(x, y)
        rx, ry = rx * self._unit, ry * self._unit
        box = (cx - rx, cy - ry, cx + rx, cy + ry)
        self._draw.ellipse(box, fill=fill, outline=self.edge if edge else None, width=self._edge_width if edge else 0)

    def polygon(self, points: Points, fill: Colour, *, edge: bool = True) -> None:
        corners = [self.at(x, y) for x, y in points]
        self._draw.polygon(corners, fill=fill)
        if edge:
            self._draw.line([*corners, corners[0]], fill=self.edge, width=self._edge_width, joint="curve")

    def box(self, left: float, bottom: float, right: float, top: float, fill: Colour, *, edge: bool = True) -> None:
        self.polygon([(left, bottom), (right, bottom), (right, top), (left, top)], fill, edge=edge)

    def limb(self, points: Points, width: float, fill: Colour, *, edge: bool = True) -> None:
        """A thick bent line with round ends."""
        joints = [self.at(x, y) for x, y in points]
        passes = [(width * self._unit + 2 * self._edge_width, self.edge)] if edge else []
        for thickness, colour in [*passes, (width * self._unit, fill)]:
            self._draw.line(joints, fill=colour, width=max(1, round(thickness)), joint="curve")
            for x, y in (joints[0], joints[-1]):
                r = thickness / 2
                self._draw.ellipse((x - r, y - r, x + r, y + r), fill=colour)

    def arc(self, x: float, y: float, radius: float, start: int, end: int, width: float, fill: Colour) -> None:
        cx, cy = self.at(x, y)
        r = radius * self._unit
        if self._sign < 0:
            start, end = 180 - end, 180 - start
        self._draw.arc((cx - r, cy - r, cx + r, cy + r), start, end, fill=fill, width=max(1, round(width * self._unit)))

    def shadow(self) -> None:
        """A soft patch where the thing stands, whether or not it touches the ground."""
        cx, cy = self._x, self._y
        rx, ry = 0.36 * self._unit, 0.06 * self._unit
        self._draw.ellipse((cx - rx, cy - ry, cx + rx, cy + ry), fill=(0, 0, 0, 70))
