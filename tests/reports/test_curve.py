"""Figure 9: the table's numbers, and a picture that parses, stands alone and hides no name."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from repair.reports.benches import Bench, Table
from repair.reports.curve import Line, curve, drawn, figure, lines_of
from tests.reports.benches import bench

SCORES = {"RePair": [0.52, 0.54], "RePair 50%": [0.50, 0.50], "Vanilla": [0.40, 0.42], "La<b>": [0.45, 0.45]}
EQUAL = {"match": "samples", "budget_of": "RePair", "budgets": {"0": 101, "1": 103}, "lr": {}, "val": {}}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("text")]


def test_the_table_tells_samples(tmp_path: Path) -> None:
    table = curve(Bench.open(bench(tmp_path / "b", SCORES, {}, equal=EQUAL)))
    assert isinstance(table, Table)
    assert table.heads == (
        "mean R@1 at", "50 % of the budget, 51 samples", "100 % of the budget, 102 samples",
    )  # fmt: skip
    assert table.rows == (("RePair", "50.00", "53.00"), ("Vanilla", "–", "41.00"), ("La<b>", "–", "45.00"))


def test_one_budget_has_no_curve(tmp_path: Path) -> None:
    opened = Bench.open(bench(tmp_path / "b", {"RePair": [0.5], "Vanilla": [0.4]}, {}))
    assert curve(opened) == "one budget only"
    assert figure(opened) is None


def test_the_picture_stands_alone(tmp_path: Path) -> None:
    opened = Bench.open(bench(tmp_path / "b", SCORES, {}, equal=EQUAL))
    svg = figure(opened)
    assert svg is not None
    assert svg == figure(opened)
    found = texts(svg)
    assert {"RePair 53.00", "Vanilla 41.00", "La<b> 45.00", "50 %", "102"} <= set(found)
    assert "prefers-color-scheme:dark" in svg
    assert "var(" not in svg
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg


def test_seventeen_names_do_not_overlap_and_stay_within() -> None:
    lines = [Line(f"method {k}", ((20, 50.0), (100, 50.0 + k / 1000))) for k in range(16)]
    svg = drawn([Line("RePair", ((20, 51.0), (100, 52.0)), main=True), *lines], {20: "20 %", 100: "100 %"},
                title="t", x_label="x")  # fmt: skip
    assert len(svg.encode()) < 100_000
    heights = sorted(float(y) for y in re.findall(r'<text x="588.0" y="([\d.]+)"', svg))
    assert len(heights) == 17
    assert min(b - a for a, b in pairwise(heights)) > 14
    assert 0 < heights[0] < heights[-1] < 470
    styles = re.findall(r'class="(c\d|main)"( stroke-dasharray="[^"]*")?[^>]*><title>', svg)
    assert len(set(styles)) == len(styles) == 17  # no two lines look the same


def test_a_level_line_is_for_methods_without_a_budget_only(tmp_path: Path) -> None:
    """RePair at two shares is a line, a method measured at 100 % a point, Vanilla level."""
    settings = {"Vanilla": ["method.name=vanilla"], "LaCLIP": ["method.name=laclip"]}
    scores = {"RePair": [0.5], "RePair 50%": [0.4], "Vanilla": [0.3], "LaCLIP": [0.45]}
    opened = Bench.open(bench(tmp_path / "b", scores, settings))
    lines = {line.name: line for line in lines_of(opened)}
    assert [(line.level, len(line.points)) for line in lines.values()] == [(False, 2), (True, 1), (False, 1)]
    svg = str(figure(opened))
    paths = re.findall(r'<path d="([^"]+)" class="\w+"[^>]*><title>(\w+)', svg)
    assert [name for _, name in paths] == ["Vanilla", "RePair"]
    assert paths[0][0].startswith("M58.0 ")  # from the left edge
    circles = re.findall(r"<circle [^>]*><title>(\w+): ([^<]*)", svg)
    assert circles == [("LaCLIP", "100 %: 45.00")]  # a line tells its numbers itself
    assert svg.count("<circle ") == 3
    table = curve(opened)
    assert isinstance(table, Table)
    assert table.note == (
        "In percent, means over seeds. A method that makes no samples has no budget: one number, drawn as a level "
        "line. A method measured at one share only is drawn as a point."
    )
