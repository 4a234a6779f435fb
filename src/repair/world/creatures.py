"""People, four-legged animals and birds in their poses."""

from repair.world.pens import DARK, SKIN, Pen, Points

_LEGS = (62, 66, 84)
_HAIR = {"man": (70, 48, 34), "woman": (96, 52, 26), "child": (226, 178, 70)}

# Of a person: where the hips are, the legs' paths and the arms' paths.
_STAND: tuple[Points, ...] = ([(-0.07, 0.4), (-0.08, 0.03)], [(0.07, 0.4), (0.08, 0.03)])
_DOWN: tuple[Points, ...] = ([(-0.13, 0.68), (-0.2, 0.42)], [(0.13, 0.68), (0.2, 0.42)])
_PEOPLE: dict[str, tuple[float, tuple[Points, ...], tuple[Points, ...]]] = {
    "standing": (0.0, _STAND, _DOWN),
    "waving": (0.0, _STAND, ([(-0.13, 0.68), (-0.2, 0.42)], [(0.13, 0.68), (0.3, 0.78), (0.27, 0.99)])),
    "running": (
        0.0,
        ([(-0.05, 0.42), (-0.2, 0.24), (-0.42, 0.3)], [(0.05, 0.42), (0.24, 0.32), (0.2, 0.04)]),
        ([(-0.1, 0.68), (-0.28, 0.52), (-0.36, 0.66)], [(0.1, 0.68), (0.28, 0.55), (0.38, 0.7)]),
    ),
    "jumping": (
        0.06,
        ([(-0.06, 0.42), (-0.26, 0.26), (-0.3, 0.12)], [(0.06, 0.42), (0.26, 0.26), (0.3, 0.12)]),
        ([(-0.12, 0.68), (-0.3, 0.8), (-0.36, 0.96)], [(0.12, 0.68), (0.3, 0.8), (0.36, 0.96)]),
    ),
    "sitting": (
        -0.24,
        ([(-0.04, 0.34), (0.26, 0.4), (0.28, 0.26)], [(0.02, 0.32), (0.34, 0.34), (0.38, 0.26)]),
        ([(-0.12, 0.66), (-0.2, 0.38)], [(0.1, 0.66), (0.26, 0.5)]),
    ),
}


def draw_person(pen: Pen, action: str, *, who: str) -> None:
    """A man in trousers, a woman in a dress with long hair, a child with a large head; clothes carry the colour."""
    lift, legs, arms = _PEOPLE[action]
    scale = 0.8 if who == "child" else 1.0

    def moved(points: Points) -> Points:
        return [(scale * x, scale * (y + lift)) for x, y in points]

    for leg in legs:
        pen.limb(moved(leg), 0.09 * scale, SKIN if who == "woman" else _LEGS)
    for arm in arms:
        pen.limb(moved(arm), 0.065 * scale, SKIN if who != "man" else pen.colour)
    body: Points = [(-0.17, 0.36), (0.17, 0.36), (0.15, 0.72), (-0.15, 0.72)]
    if who == "woman":
        body = [(-0.27, 0.24), (0.27, 0.24), (0.11, 0.73), (-0.11, 0.73)]
        if action == "sitting":
            body = [(-0.18, 0.3), (0.3, 0.28), (0.28, 0.42), (0.11, 0.73), (-0.11, 0.73)]
    pen.polygon(moved(body), pen.colour)
    _head(pen, who, scale, lift)


def _head(pen: Pen, who: str, scale: float, lift: float) -> None:
    radius = 0.17 if who == "child" else 0.125
    y = scale * (0.84 + lift) + (0.04 if who == "child" else 0.0)
    if who == "woman":
        pen.polygon([(-0.15, y - 0.18), (0.15, y - 0.18), (0.14, y + 0.06), (-0.14, y + 0.06)], _HAIR[who])
    pen.ellipse(0.0, y + 0.035, radius + 0.015, radius + 0.01, _HAIR[who])
    pen.ellipse(0.02, y - 0.015, radius * 0.86, radius * 0.86, SKIN, edge=False)


_BEASTS = {  # body length and thickness, leg length, head radius, neck rise
    "dog": (0.30, 0.145, 0.26, 0.135, 0.16),
    "cat": (0.25, 0.135, 0.20, 0.14, 0.17),
    "horse": (0.31, 0.15, 0.42, 0.11, 0.27),
}


def draw_beast(pen: Pen, action: str, *, who: str) -> None:
    """A dog with hanging ears, a cat with pointed ears and a long tail, a horse with long legs and a mane."""
    length, thick, leg, _, _ = _BEASTS[who]
    if action == "sleeping":
        _lie(pen, who)
        return
    if action == "sitting":
        _sit(pen, who)
        return
    low = leg + 0.5 * thick
    lift, tilt = (0.17, 0.16) if action == "jumping" else (0.0, 0.0)
    y = low + lift + 0.06
    hind, fore = (-length + 0.06, y - 0.5 * tilt), (length - 0.06, y + 0.5 * tilt)
    for (x, hip), spread in ((hind, -1), (fore, 1)):
        for k in (0, 1):
            foot = {
                "standing": (x + 0.06 * k * spread, 0.03),
                "running": (x + spread * (0.24 - 0.3 * k), 0.05 + 0.06 * k),
            }
            fx, fy = foot.get(action, (x + spread * (0.16 + 0.06 * k), hip - leg * 0.75))
            pen.limb([(x + 0.04 * k * spread, hip), (fx, fy)], 0.075, pen.colour)
    _tail(pen, who, hind[0] - 0.05, hind[1] + 0.03, up=action != "standing")
    pen.limb([hind, fore], 1.75 * thick, pen.colour)
    _beast_head(pen, who, fore[0] + 0.04, fore[1])


def _sit(pen: Pen, who: str) -> None:
    _, thick, leg, _, _ = _BEASTS[who]
    height = 0.3 + 0.4 * leg
    _tail(pen, who, -0.24, 0.08, up=False)
    pen.ellipse(-0.1, 0.17, 0.22, 0.17, pen.colour)
    pen.limb([(-0.1, 0.2), (0.1, height)], 1.5 * thick, pen.colour)
    pen.limb([(0.13, height), (0.17, 0.04)], 0.075, pen.colour)
    _beast_head(pen, who, 0.12, height + 0.03)


def _lie(pen: Pen, who: str) -> None:
    length, thick, _, radius, _ = _BEASTS[who]
    _tail(pen, who, -length + 0.02, 0.1, up=False)
    pen.ellipse(-0.02, 0.17, length + 0.1, thick + 0.03, pen.colour)
    pen.limb([(length - 0.1, 0.06), (length + 0.12, 0.05)], 0.075, pen.colour)
    _skull(pen, who, length + 0.04, radius + 0.05, asleep=True)


def _beast_head(pen: Pen, who: str, x: float, y: float) -> None:
    rise = _BEASTS[who][4]
    hx, hy = x + 0.12, y + rise
    pen.limb([(x - 0.02, y + 0.02), (hx - 0.02, hy)], 0.17 if who == "horse" else 0.13, pen.colour)
    if who == "horse":
        pen.limb(
            [(x - 0.1, y + 0.14), (hx - 0.12, hy + 0.08)],
            0.07,
            pen.shade(0.45) if sum(pen.colour) > 170 else (120, 116, 120),
        )
    _skull(pen, who, hx, hy, asleep=False)


def _skull(pen: Pen, who: str, x: float, y: float, *, asleep: bool) -> None:
    r = _BEASTS[who][3]
    dark = pen.shade(0.55) if sum(pen.colour) > 170 else (96, 96, 104)
    if who == "horse":
        pen.limb([(x - 0.02, y + 0.02), (x + 0.15, y - 0.1)], 0.14, pen.colour)
        pen.polygon([(x - 0.1, y + 0.06), (x - 0.06, y + 0.2), (x + 0.01, y + 0.07)], pen.colour)
    elif who == "dog":
        pen.ellipse(x + 0.13, y - 0.04, 0.09, 0.07, pen.colour)
        pen.ellipse(x, y, r, r, pen.colour)
        pen.ellipse(x - 0.09, y - 0.03, 0.06, 0.13, dark)
        pen.ellipse(x + 0.2, y - 0.02, 0.03, 0.03, DARK, edge=False)
    else:
        for side in (-1, 1):
            pen.polygon(
                [(x + side * 0.13, y + 0.02), (x + side * 0.12, y + 0.22), (x + side * 0.01, y + 0.1)], pen.colour
            )
        pen.ellipse(x, y, r, 0.9 * r, pen.colour)
    ex = x + (0.05 if who != "cat" else 0.06)
    eye = (250, 250, 240) if sum(pen.colour) < 170 else DARK
    if asleep:
        pen.limb([(ex - 0.04, y + 0.02), (ex + 0.03, y + 0.02)], 0.025, eye, edge=False)
    else:
        pen.ellipse(ex, y + 0.03, 0.028, 0.028, eye, edge=False)
        if who == "cat":
            pen.ellipse(x - 0.05, y + 0.03, 0.028, 0.028, eye, edge=False)


def _tail(pen: Pen, who: str, x: float, y: float, *, up: bool) -> None:
    if who == "cat":
        pen.limb([(x, y), (x - 0.13, y + 0.04), (x - 0.17, y + (0.3 if up else 0.2))], 0.05, pen.colour)
    elif who == "dog":
        pen.limb([(x, y), (x - 0.13, y + (0.2 if up else 0.1))], 0.06, pen.colour)
    else:
        end = (x - 0.2, y + 0.05) if up else (x - 0.1, max(0.05, y - 0.3))
        pen.limb([(x, y), (x - 0.08, y), end], 0.08, pen.shade(0.45) if sum(pen.colour) > 170 else (120, 116, 120))


def draw_bird(pen: Pen, action: str) -> None:
    """A round bird with a beak: on its legs, in the air with wings spread, pecking, or a ball without legs."""
    beak, wing = (246, 176, 40), pen.shade(0.72) if sum(pen.colour) > 170 else (84, 84, 92)
    if action == "flying":
        pen.polygon([(-0.42, 0.5), (-0.14, 0.56), (-0.14, 0.44)], pen.colour)
        pen.polygon([(-0.14, 0.56), (0.12, 0.56), (-0.12, 0.98)], wing)
        pen.ellipse(0.0, 0.5, 0.24, 0.14, pen.colour)
        pen.polygon([(-0.1, 0.52), (0.12, 0.5), (-0.1, 0.14)], wing)
        _bird_head(pen, 0.25, 0.58, beak, asleep=False, down=False)
    elif action == "sleeping":
        pen.polygon([(-0.4, 0.3), (-0.14, 0.28), (-0.16, 0.12)], pen.colour)
        pen.ellipse(0.0, 0.25, 0.29, 0.24, pen.colour)
        pen.ellipse(-0.06, 0.23, 0.16, 0.12, wing)
        _bird_head(pen, 0.14, 0.38, beak, asleep=True, down=False)
    else:
        for x in (-0.05, 0.07):
            pen.limb([(x, 0.24), (x, 0.03), (x + 0.07, 0.02)], 0.04, beak)
        down = action == "eating"
        tail = 0.66 if down else 0.26
        pen.polygon([(-0.44, tail + 0.04), (-0.14, 0.48), (-0.16, 0.3)], pen.colour)
        pen.ellipse(-0.02, 0.4, 0.24, 0.19, pen.colour)
        pen.ellipse(-0.07, 0.4, 0.14, 0.09, wing)
        _bird_head(pen, 0.22, 0.24 if down else 0.66, beak, asleep=False, down=down)


def _bird_head(pen: Pen, x: float, y: float, beak: tuple[int, int, int], *, asleep: bool, down: bool) -> None:
    if down:
        pen.polygon([(x - 0.05, y - 0.08), (x + 0.1, y - 0.06), (x + 0.08, y - 0.23)], beak)
    else:
        pen.polygon([(x + 0.08, y + 0.06), (x + 0.08, y - 0.07), (x + 0.27, y - 0.03)], beak)
    pen.ellipse(x, y, 0.13, 0.13, pen.colour)
    eye = (250, 250, 240) if sum(pen.colour) < 170 else DARK
    if asleep:
        pen.limb([(x, y + 0.02), (x + 0.07, y + 0.02)], 0.025, eye, edge=False)
    else:
        pen.ellipse(x + 0.04, y + 0.03, 0.028, 0.028, eye, edge=False)
