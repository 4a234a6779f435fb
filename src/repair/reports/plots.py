"""Small SVG plots, drawn by hand: they follow the page's light or dark colours, need no script, and equal numbers give
equal bytes. Colours are CSS classes (templates/style.css); every plot is 360 units wide and scales with its box.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 360
_LEFT, _RIGHT = 78, 12
_ROW = 30


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval; `low` and `high` are None where there is none."""

    value: float
    low: float | None
    high: float | None


def intervals(rows: Sequence[tuple[str, Sequence[tuple[str, Estimate]]]], *, zero: bool, unit: str, label: str) -> str:
    """One row a name, on a common scale: each row has one or more (class, estimate), drawn one below the other.

    With `zero` the line at zero is drawn and always in view.
    """
    estimates = [estimate for _, row in rows for _, estimate in row]
    ends = [x for e in estimates for x in (e.value, e.low, e.high) if x is not None] + ([0.0] if zero else [])
    if not ends:
        return ""
    axis = Axis(*_padded(min(ends), max(ends), unit="" if zero else unit), _LEFT, WIDTH - _RIGHT)
    height = _ROW * len(rows) + 26
    parts = [axis.grid(8, height - 22), axis.labels(height - 8, signed=zero)]
    if zero:
        parts.append(_line(axis(0), 6, axis(0), height - 22, "zero"))
    for place, (name, row) in enumerate(rows):
        middle = 8 + _ROW * (place + 0.5)
        parts.append(_text(_LEFT - 8, middle + 4, name, "name end"))
        for k, (style, e) in enumerate(row):
            y = middle + (k - (len(row) - 1) / 2) * 10
            if e.low is not None and e.high is not None:
                parts.append(_line(axis(e.low), y, axis(e.high), y, f"whisker {style}"))
            parts.append(f'<circle cx="{axis(e.value):.1f}" cy="{y:.1f}" r="4" class="dot {style}"/>')
    return _svg(height, parts, label)


def flow(counts: dict[str, int], *, label: str) -> str:
    """Where the queries went: right and wrong before (left) to right and wrong after (right), ribbons by count.

    `counts` has fixed, newly_broken, still_failing, still_right.
    """
    total = sum(counts.values())
    if not total:
        return ""
    top, span, gap, bar = 22, 150, 10, 14
    x0, x1 = 84, WIDTH - 84 - bar

    def size(n: int) -> float:
        return span * n / total

    n_right, n_now = counts["still_right"] + counts["newly_broken"], counts["still_right"] + counts["fixed"]
    left = {"right": (top, n_right), "wrong": (top + size(n_right) + gap, total - n_right)}
    right = {"right": (top, n_now), "wrong": (top + size(n_now) + gap, total - n_now)}
    ribbons = (
        ("still_right", left["right"][0], right["right"][0]),
        ("newly_broken", left["right"][0] + size(counts["still_right"]), right["wrong"][0]),
        ("fixed", left["wrong"][0], right["right"][0] + size(counts["still_right"])),
        ("still_failing", left["wrong"][0] + size(counts["fixed"]), right["wrong"][0] + size(counts["newly_broken"])),
    )
    parts = [_text(x0 + bar, 12, "before", "name end"), _text(x1, 12, "after", "name")]
    for name, y0, y1 in sorted(ribbons, key=lambda ribbon: ribbon[0] in ("fixed", "newly_broken")):
        if counts[name]:
            parts.append(_ribbon(x0 + bar, y0, x1, y1, max(size(counts[name]), 0.6), name, counts[name]))
    for x, side, anchor in ((x0, left, "end"), (x1, right, "")):
        for state, (y, n) in side.items():
            parts.append(f'<rect x="{x}" y="{y:.1f}" width="{bar}" height="{max(size(n), 0.6):.1f}" class="{state}"/>')
            at = x - 6 if anchor else x + bar + 6
            middle = max(y + size(n) / 2, y + 6)
            parts.append(_text(at, middle - 1, f"{n:,}", f"value {anchor}"))
            parts.append(_text(at, middle + 11, state, f"tick {anchor}"))
    return _svg(top + span + gap + 14, parts, label)


def histogram(entries: Sequence[Sequence[int]], *, style: str, x_label: str, label: str) -> str:
    """Bars of [value, count] with a logarithmic count axis, from 1 up; more than 40 values are binned."""
    if not entries:
        return ""
    top = max(value for value, _ in entries)
    width = max(1, math.ceil(top / 40))
    bins: dict[int, int] = {}
    for value, count in entries:
        bins[(value - 1) // width] = bins.get((value - 1) // width, 0) + count
    n_bins = (top - 1) // width + 1
    decades = max(1, math.ceil(math.log10(max(bins.values()) + 0.001)))
    height, base, head = 168, 132, 10
    left, right = 44, WIDTH - _RIGHT

    def y(count: float) -> float:
        # A count of one stands half a decade tall, or it could not be seen.
        return base - (base - head) * (math.log10(count) + 0.5) / (decades + 0.5)

    parts = []
    for decade in range(decades + 1):
        parts.append(_line(left, y(10**decade), right, y(10**decade), "gridline"))
        parts.append(_text(left - 6, y(10**decade) + 4, f"{10**decade:,}", "tick end"))
    step = (right - left) / n_bins
    pad = min(1.5, step * 0.12)
    for place, count in sorted(bins.items()):
        first, last = place * width + 1, place * width + width
        name = f"{first}" if width == 1 else f"{first}–{last}"
        parts.append(
            f'<rect x="{left + place * step + pad:.1f}" y="{y(count):.1f}" width="{min(step - 2 * pad, 26):.1f}" '
            f'height="{base - y(count):.1f}" class="{style}"><title>{name}: {count:,}</title></rect>'
        )
    parts.append(_line(left, base, right, base, "axis"))
    each = max(1, math.ceil(n_bins / 8))
    for place in range(0, n_bins, each):
        centre = left + place * step + pad + min(step - 2 * pad, 26) / 2
        parts.append(_text(centre, base + 14, str(place * width + 1), "tick mid"))
    parts.append(_text((left + right) / 2, base + 30, x_label, "tick mid"))
    return _svg(height, parts, label)


def curves(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    *,
    label: str,
    dots: bool = False,
    x_label: str = "step",
) -> str:
    """Lines of (class, points) on common axes, by default over steps; `dots` marks every point, not only the last."""
    points = [point for _, line in series for point in line]
    if not points:
        return ""
    height, head, base, left, right = 176, 10, 146, 44, WIDTH - 16
    low, high = _padded(min(y for _, y in points), max(y for _, y in points), unit="")
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    x_axis = Axis(x_low, max(x_high, x_low + 1), left, right)
    y_axis = Axis(low, high, base, head)
    parts = []
    for tick in y_axis.ticks(4):
        parts.append(_line(left, y_axis(tick), right, y_axis(tick), "gridline"))
        parts.append(_text(left - 6, y_axis(tick) + 4, number(tick), "tick end"))
    for tick in x_axis.ticks(5):
        parts.append(_text(x_axis(tick), base + 14, number(tick), "tick mid"))
    parts.append(_line(left, base, right, base, "axis"))
    parts.append(_text((left + right) / 2, base + 28, x_label, "tick mid"))
    for style, line in series:
        path = " ".join(f"{'M' if k == 0 else 'L'}{x_axis(x):.1f} {y_axis(y):.1f}" for k, (x, y) in enumerate(line))
        parts.append(f'<path d="{path}" class="curve {style}"/>')
        marked = line if dots or len(line) == 1 else line[-1:]
        parts += [f'<circle cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="3" class="dot {style}"/>' for x, y in marked]
    return _svg(height, parts, label)


class Axis:
    """From numbers to places between `start` and `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self._start, self._end = low, high, start, end

    def __call__(self, value: float) -> float:
        return self._start + (self._end - self._start) * (value - self.low) / (self.high - self.low)

    def ticks(self, n: int) -> list[float]:
        """About `n` round numbers within the axis."""
        raw = (self.high - self.low) / n
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def grid(self, top: float, bottom: float) -> str:
        return "".join(_line(self(tick), top, self(tick), bottom, "gridline") for tick in self.ticks(5))

    def labels(self, y: float, *, signed: bool) -> str:
        return "".join(
            _text(self(t), y, f"{'+' if signed and t > 1e-12 else ''}{number(t)}", "tick mid") for t in self.ticks(5)
        )


def _padded(low: float, high: float, *, unit: str) -> tuple[float, float]:
    """A little air on both sides; percentages stay within 0 to 100."""
    air = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - air, high + air
    return (max(low, 0.0), min(high, 100.0)) if unit == "%" else (low, high)


def _ribbon(x0: float, y0: float, x1: float, y1: float, thick: float, style: str, n: int) -> str:
    mid = (x0 + x1) / 2
    path = (
        f"M{x0:.1f} {y0:.1f} C{mid:.1f} {y0:.1f} {mid:.1f} {y1:.1f} {x1:.1f} {y1:.1f} "
        f"L{x1:.1f} {y1 + thick:.1f} C{mid:.1f} {y1 + thick:.1f} {mid:.1f} {y0 + thick:.1f} {x0:.1f} {y0 + thick:.1f} Z"
    )
    return f'<path d="{path}" class="ribbon {style}"><title>{style.replace("_", " ")}: {n:,}</title></path>'


def _svg(height: float, parts: Sequence[str], label: str) -> str:
    inner = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">{inner}</svg>'


def _line(x0: float, y0: float, x1: float, y1: float, style: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" class="{style}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>'


def number(value: float) -> str:
    """As an axis shows it."""
    if abs(value) < 1e-12:
        return "0"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "\N{MINUS SIGN}")
