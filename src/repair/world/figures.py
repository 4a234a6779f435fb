"""How each kind looks, and each pose of those that can act. Heights run from 0 (ground) to about 1."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from repair.world.creatures import draw_beast, draw_bird, draw_person
from repair.world.pens import DARK, Pen

__all__ = ["FIGURES", "SEAT_HEIGHTS", "Pen"]

Figure = Callable[[Pen, str], None]
_TRUNK = (120, 84, 56)
_GLASS = (196, 228, 244)


def _car(pen: Pen, _: str) -> None:
    pen.polygon([(-0.3, 0.4), (-0.19, 0.68), (0.14, 0.68), (0.27, 0.4)], pen.colour)
    pen.polygon([(-0.22, 0.42), (-0.15, 0.61), (-0.03, 0.61), (-0.03, 0.42)], _GLASS, edge=False)
    pen.polygon([(0.02, 0.42), (0.02, 0.61), (0.11, 0.61), (0.19, 0.42)], _GLASS, edge=False)
    pen.box(-0.52, 0.12, 0.52, 0.42, pen.colour)
    for x in (-0.29, 0.29):
        pen.ellipse(x, 0.12, 0.13, 0.13, DARK, edge=False)
        pen.ellipse(x, 0.12, 0.06, 0.06, (190, 190, 196), edge=False)


def _boat(pen: Pen, _: str) -> None:
    pen.limb([(0.0, 0.25), (0.0, 0.97)], 0.035, _TRUNK, edge=False)
    pen.polygon([(0.05, 0.36), (0.05, 0.95), (0.46, 0.36)], (246, 246, 240))
    pen.polygon([(-0.05, 0.36), (-0.05, 0.86), (-0.36, 0.36)], (246, 246, 240))
    pen.polygon([(-0.52, 0.3), (0.52, 0.3), (0.34, 0.02), (-0.34, 0.02)], pen.colour)


def _bicycle(pen: Pen, _: str) -> None:
    for x in (-0.29, 0.29):
        pen.arc(x, 0.22, 0.22, 0, 360, 0.06, DARK)
        pen.arc(x, 0.22, 0.17, 0, 360, 0.02, (214, 214, 220))
    frame = [(-0.29, 0.22), (-0.12, 0.52), (0.2, 0.52), (-0.02, 0.22), (-0.29, 0.22)]
    for edge in (True, False):
        pen.limb(frame, 0.07, pen.colour, edge=edge)
        pen.limb([(0.29, 0.22), (0.18, 0.64), (0.3, 0.68)], 0.07, pen.colour, edge=edge)
        pen.limb([(-0.12, 0.52), (-0.15, 0.62)], 0.06, pen.colour, edge=edge)
    pen.limb([(-0.24, 0.63), (-0.07, 0.63)], 0.07, DARK, edge=False)


def _tree(pen: Pen, _: str) -> None:
    pen.box(-0.07, 0.0, 0.07, 0.4, _TRUNK)
    w = 0.03 * pen.wobble[0]
    pen.ellipse(-0.2, 0.5 + w, 0.21, 0.19, pen.colour)
    pen.ellipse(0.2, 0.5 - w, 0.21, 0.19, pen.colour)
    pen.ellipse(0.0, 0.72, 0.28, 0.27, pen.colour)
    pen.ellipse(0.0, 0.56, 0.26, 0.16, pen.colour, edge=False)


def _flower(pen: Pen, _: str) -> None:
    pen.limb([(0.0, 0.0), (0.03 * pen.wobble[0], 0.6)], 0.06, (60, 140, 60))
    pen.polygon([(0.0, 0.12), (0.3, 0.34), (0.12, 0.12)], (60, 140, 60))
    pen.polygon([(0.0, 0.12), (-0.3, 0.3), (-0.12, 0.1)], (60, 140, 60))
    for x, y in ((0.0, 0.87), (0.19, 0.74), (0.12, 0.54), (-0.12, 0.54), (-0.19, 0.74)):
        pen.ellipse(x, y - 0.02, 0.13, 0.13, pen.colour)
    pen.ellipse(0.0, 0.68, 0.1, 0.1, (255, 226, 110) if sum(pen.colour) < 480 else (150, 96, 40), edge=False)


def _ball(pen: Pen, _: str) -> None:
    pen.ellipse(0.0, 0.36, 0.36, 0.36, pen.colour)
    pen.arc(-0.34, 0.5, 0.42, -40, 50, 0.05, pen.edge)
    pen.arc(0.36, 0.2, 0.42, 150, 235, 0.05, pen.edge)
    pen.ellipse(-0.1, 0.54, 0.07, 0.06, (255, 255, 255), edge=False)


def _kite(pen: Pen, _: str) -> None:
    w = 0.05 * pen.wobble[0]
    tail = [(0.0, 0.32), (0.09 + w, 0.2), (-0.07, 0.1), (0.06, 0.0)]
    pen.limb(tail, 0.035, pen.shade(0.75))
    pen.polygon([(0.0, 0.98), (0.31, 0.68), (0.0, 0.28), (-0.31, 0.68)], pen.colour)
    pen.limb([(0.0, 0.96), (0.0, 0.3)], 0.025, pen.edge, edge=False)
    pen.limb([(-0.29, 0.68), (0.29, 0.68)], 0.025, pen.edge, edge=False)


def _chair(pen: Pen, _: str) -> None:
    for x in (-0.25, 0.25):
        pen.box(x - 0.045, 0.0, x + 0.045, 0.42, pen.shade(0.85))
    pen.box(-0.32, 0.86, -0.2, 0.4, pen.colour)
    pen.box(-0.32, 0.38, 0.34, 0.5, pen.colour)
    pen.box(-0.34, 0.74, -0.18, 0.95, pen.colour)


def _box(pen: Pen, _: str) -> None:
    pen.polygon([(-0.42, 0.56), (-0.24, 0.72), (0.5, 0.72), (0.34, 0.56)], pen.shade(1.12))
    pen.polygon([(0.34, 0.0), (0.5, 0.18), (0.5, 0.72), (0.34, 0.56)], pen.shade(0.72))
    pen.box(-0.42, 0.0, 0.34, 0.56, pen.colour)
    pen.limb([(-0.4, 0.28), (0.32, 0.28)], 0.03, pen.edge, edge=False)


def _umbrella(pen: Pen, _: str) -> None:
    pen.limb([(0.0, 0.9), (0.0, 0.12)], 0.05, (110, 100, 96), edge=False)
    pen.arc(0.07, 0.12, 0.09, 0, 180, 0.05, (110, 100, 96))
    dome = [(-0.48, 0.52), (-0.42, 0.7), (-0.24, 0.87), (0.0, 0.94), (0.24, 0.87), (0.42, 0.7), (0.48, 0.52)]
    pen.polygon([*dome, (0.32, 0.58), (0.16, 0.52), (0.0, 0.58), (-0.16, 0.52), (-0.32, 0.58)], pen.colour)
    for x in (-0.16, 0.16):
        pen.limb([(x, 0.54), (0.3 * x, 0.92)], 0.025, pen.edge, edge=False)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        "man": lambda pen, action: draw_person(pen, action, who="man"),
        "woman": lambda pen, action: draw_person(pen, action, who="woman"),
        "child": lambda pen, action: draw_person(pen, action, who="child"),
        "dog": lambda pen, action: draw_beast(pen, action, who="dog"),
        "cat": lambda pen, action: draw_beast(pen, action, who="cat"),
        "horse": lambda pen, action: draw_beast(pen, action, who="horse"),
        "bird": draw_bird,
        "car": _car,
        "boat": _boat,
        "bicycle": _bicycle,
        "tree": _tree,
        "flower": _flower,
        "ball": _ball,
        "kite": _kite,
        "chair": _chair,
        "box": _box,
        "umbrella": _umbrella,
    }
)

# Where something rests on a thing, in its heights: far from none and from a whole row, see `scenes` on levels.
SEAT_HEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "man": 0.7, "woman": 0.7, "child": 0.7, "dog": 0.6, "cat": 0.55, "horse": 0.68, "bird": 0.6,
        "car": 0.68, "boat": 0.36, "bicycle": 0.62, "tree": 0.7, "flower": 0.7, "ball": 0.7, "kite": 0.7,
        "chair": 0.5, "box": 0.64, "umbrella": 0.7,
    }
)  # fmt: skip
