"""The paper's Figure 9, R@1 against the budget: as a table, and as a picture that stands alone.

The picture is SVG with its own style, light or dark as the reader's screen; equal numbers give equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from scipy.optimize import isotonic_regression

from repair.pipeline.budgets import has_samples
from repair.reports.benches import NONE, Bench, Table, count, score, share_of, whole_of
from repair.reports.plots import Axis, number

_WIDTH, _HEIGHT = 760, 470
_LEFT, _RIGHT, _TOP, _BASE = 58, 566, 64, 408  # of the plot; right of it stand the names
_LINE = 17  # between two names, at least
_HIGHEST, _LOWEST = 52.0, 448.0  # of the names
_LIGHT = ("#b45309", "#15803d", "#7e22ce", "#be123c", "#0e7490", "#4d7c0f", "#a21caf", "#57606a")
_DARK = ("#f0a35e", "#5fc98a", "#c39bf5", "#f58aa0", "#5cc3d6", "#a6c763", "#ea8ff0", "#9aa4b0")
_DASHES = ("", "7 5", "3 5")
_STYLE = """
.ground{fill:#fff}
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#59616c}
.title{font-size:15px;font-weight:600;fill:#16191d}
.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:#e6e9ed}.axis{stroke:#9aa2ad}
path{fill:none;stroke-width:1.5;stroke-linejoin:round}
.main{stroke:#2257c4;stroke-width:3.5}circle.main{fill:#2257c4;stroke:#fff;stroke-width:1.5}
text.main{fill:#2257c4;stroke:none;font-size:13px;font-weight:700}
.leader{stroke-width:.9;opacity:.6}
"""
_STYLE_DARK = """
.ground{fill:#14181c}text{fill:#a5adb8}.title{fill:#e8eaed}.grid{stroke:#2a3037}.axis{stroke:#626b76}
.main{stroke:#78a5ff}circle.main{fill:#78a5ff;stroke:#14181c}text.main{fill:#78a5ff}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One method: its mean R@1, in percent, at each share of the budget, in percent. `main`: RePair itself. `level`: it
    has no budget, so its one number is that of every share."""

    name: str
    points: tuple[tuple[int, float], ...]
    main: bool = False
    level: bool = False


def curve(bench: Bench) -> Table | str:
    """Figure 9 as a table; why there is none, where there is one budget only."""
    shares = _shares(bench)
    if len(shares) < 2:
        return "one budget only"
    rows = []
    lines = lines_of(bench)
    for line in lines:
        found = dict(line.points)
        rows.append((line.name, *(score("R@1", found[s] / 100) if s in found else NONE for s in shares)))
    heads = ("mean R@1 at", *(f"{share} %{_samples(bench, share)}" for share in shares))
    note = "In percent, means over seeds."
    if any(line.level for line in lines):
        note += " A method that makes no samples has no budget: one number, drawn as a level line."
    if any(len(line.points) == 1 and not line.level for line in lines):
        note += " A method measured at one share only is drawn as a point."
    return Table("Figure 9", "budget curve", heads, tuple(rows), note)


def figure(bench: Bench) -> str | None:
    """Figure 9 as a picture; None where there is one budget only."""
    shares = _shares(bench)
    if len(shares) < 2:
        return None
    ticks = {share: f"{share} %" + _samples(bench, share, between="|") for share in shares}
    what = (bench.facts.get("equal") or {}).get("match")
    label = "share of the budget" + (f", and its {what}" if "|" in next(iter(ticks.values())) else "")
    title = f"{bench.facts['bench']}: mean R@1 of both directions, {bench.facts['split']} split"
    n_seeds = len(bench.facts["seeds"])
    below = f"{label} · " + (f"means over {n_seeds} seeds" if n_seeds > 1 else "one seed")
    return drawn(lines_of(bench), ticks, title=title, x_label=below)


def lines_of(bench: Bench) -> list[Line]:
    """Every variant over its budgets, in the order of the bench."""
    found = []
    for variant in dict.fromkeys(whole_of(name) for name in bench.runs):
        names = {share: variant if share == 100 else f"{variant} {share}%" for share in _shares(bench)}
        measured = {share: name for share, name in names.items() if name in bench.runs}
        points = [(share, 100 * float(bench.row(name)["mean"]["mean R@1"])) for share, name in measured.items()]
        level = len(points) == 1 and not has_samples(bench.config(next(iter(measured.values()))))
        found.append(Line(variant, tuple(points), main=variant == bench.repair, level=level))
    return found


def _shares(bench: Bench) -> list[int]:
    return sorted({share_of(name) for name in bench.runs})


def _samples(bench: Bench, share: int, *, between: str = " of the budget, ") -> str:
    """How many samples or calls a share is, mean over seeds; "" where budgets are not counted."""
    equal = bench.facts.get("equal") or {}
    uses = list((equal.get("budgets") or {}).values())
    if equal.get("match") not in ("samples", "calls") or not uses:
        return "" if between == "|" else " of the budget"
    n = float(np.mean([int(use * share / 100) for use in uses]))
    return f"{between}{count(n)}" + ("" if between == "|" else f" {equal['match']}")


# ---------------------------------------------------------------------------------------------- the picture


def drawn(lines: Sequence[Line], ticks: Mapping[int, str], *, title: str, x_label: str) -> str:
    """The picture of `lines`; `ticks` are shares with their words, "|" parting two rows of them.

    A level line is dotted, over all budgets; a method of one share is a point. Names stand at the right, in the order
    of the last points. Nothing to draw gives "".
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    values = [value for line in lines for _, value in line.points]
    air = 0.06 * (max(values) - min(values)) or 0.5
    x = Axis(min(ticks), max(ticks), _LEFT + 14, _RIGHT - 14)
    y = Axis(min(values) - air, max(values) + air, _BASE, _TOP)
    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" class="ground"/>', _text(20, 28, title, "title")]
    for tick in y.ticks(8):
        parts.append(_segment(_LEFT, y(tick), _RIGHT, y(tick), "grid"))
        parts.append(_text(_LEFT - 8, y(tick) + 4, number(tick), "end"))
    parts.append(_text(_LEFT, _TOP - 12, "mean R@1, %", ""))
    parts.append(_segment(_LEFT, _BASE, _RIGHT, _BASE, "axis"))
    for share, words in ticks.items():
        for row, word in enumerate(words.split("|")):
            parts.append(_text(x(share), _BASE + 18 + 15 * row, word, "mid"))
    parts.append(_text((_LEFT + _RIGHT) / 2, _HEIGHT - 12, x_label, "mid"))
    styles = _styles(lines)
    places = _places([y(line.points[-1][1]) for line in lines])
    # RePair last, so that it lies on top.
    for line, at in sorted(zip(lines, places, strict=True), key=lambda pair: pair[0].main):
        style, dashes = styles[line.name]
        parts += _one(line, x, y, at=at, style=style, dashes=dashes)
    dark = "@media (prefers-color-scheme:dark){" + _STYLE_DARK + _colours(_DARK) + "}"
    sheet = f"<style>{_STYLE}{_colours(_LIGHT)}{dark}</style>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img"'
    return f'{head} aria-label="{escape(title)}">{sheet}{"".join(parts)}</svg>\n'


def _one(line: Line, x: Axis, y: Axis, *, at: float, style: str, dashes: str) -> list[str]:
    points = [(x(share), y(value)) for share, value in line.points]
    if line.level:
        points = [(float(_LEFT), points[0][1]), (float(_RIGHT), points[0][1])]
    path = " ".join(f"{'M' if k == 0 else 'L'}{px:.1f} {py:.1f}" for k, (px, py) in enumerate(points))
    shown = escape("; ".join(f"{share} %: {value:.2f}" for share, value in line.points))
    dashes = "1 4" if line.level else dashes
    dash = f' stroke-dasharray="{dashes}" stroke-linecap="round"' if dashes else ""
    title = f"<title>{escape(line.name)}: {shown}</title>"
    parts = []
    if len(points) > 1:
        parts.append(f'<path d="{path}" class="{style}"{dash}>{title}</path>')
    if not line.level:
        alone = title if len(points) == 1 else ""
        size = 4.5 if line.main else 3.5 if alone else 2.4
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{size}" class="{style}">{alone}</circle>' for px, py in points
        ]
    last_x, last_y = points[-1]
    parts.append(f'<path d="M{last_x + 5:.1f} {last_y:.1f} L{_RIGHT + 18} {at:.1f}" class="leader {style}"/>')
    parts.append(_text(_RIGHT + 22, at + 4, f"{line.name} {line.points[-1][1]:.2f}", style))
    return parts


def _styles(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    """Class and dashes of each line: "main", or one of the colours, with other dashes where colours come again."""
    others = [line.name for line in lines if not line.main]
    n = len(_LIGHT)
    styles = {name: (f"c{k % n}", _DASHES[k // n % len(_DASHES)]) for k, name in enumerate(others)}
    return styles | {line.name: ("main", "") for line in lines if line.main}


def _colours(palette: Sequence[str]) -> str:
    """Rules of the classes; text takes the colour as fill, so that names are told apart like lines."""
    return "".join(
        f".c{k}{{stroke:{colour}}}circle.c{k}{{fill:{colour}}}text.c{k}{{fill:{colour};stroke:none}}"
        for k, colour in enumerate(palette)
    )


def _places(wanted: Sequence[float]) -> list[float]:
    """Heights for names as near to those wanted as can be, a line apart, within the picture."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    step = min(_LINE, (_LOWEST - _HIGHEST) / max(len(wanted) - 1, 1))
    # With k lines taken off the k-th name, "a line apart" is "not falling": a least-squares fit of such numbers.
    nearest = isotonic_regression([wanted[i] - k * step for k, i in enumerate(order)]).x
    within = np.clip(nearest, _HIGHEST, _LOWEST - step * (len(wanted) - 1))
    places = {i: float(height + k * step) for k, (i, height) in enumerate(zip(order, within, strict=True))}
    return [places[i] for i in range(len(wanted))]


def _segment(x0: float, y0: float, x1: float, y1: float, style: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" class="{style}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}">{escape(text)}</text>'
