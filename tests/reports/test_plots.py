import re
from xml.etree import ElementTree

import pytest

from repair.reports import plots
from repair.reports.plots import Estimate


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def by_class(svg: str, name: str) -> list[dict[str, str]]:
    return [e.attrib for e in parsed(svg).iter() if name in e.attrib.get("class", "").split()]


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in parsed(svg).iter("text")]


def test_intervals_stand_in_the_order_of_their_numbers() -> None:
    rows = [
        ("R@1", [("before", Estimate(40, 38, 42)), ("after", Estimate(45, 43, 47))]),
        ("R@5", [("before", Estimate(70, 68, 72)), ("after", Estimate(70, None, None))]),
    ]
    svg = plots.intervals(rows, zero=False, unit="%", label="scores")
    dots = [float(e["cx"]) for e in by_class(svg, "dot")]
    assert dots[0] < dots[1] < dots[2] == dots[3]
    whiskers = by_class(svg, "whisker")
    assert len(whiskers) == 3  # one estimate has no interval
    assert float(whiskers[0]["x1"]) < dots[0] < float(whiskers[0]["x2"])
    assert {"R@1", "R@5"} <= set(texts(svg))


def test_the_zero_line_is_always_in_view() -> None:
    svg = plots.intervals([("R@1", [("difference", Estimate(5, 4, 6))])], zero=True, unit="%", label="differences")
    (zero,) = by_class(svg, "zero")
    (dot,) = by_class(svg, "dot")
    assert 0 < float(zero["x1"]) < float(dot["cx"]) < plots.WIDTH
    assert "+5" in texts(svg) or "+4" in texts(svg)


@pytest.mark.parametrize(
    "counts",
    [
        {"fixed": 30, "newly_broken": 10, "still_failing": 40, "still_right": 20},
        {"fixed": 0, "newly_broken": 0, "still_failing": 5, "still_right": 0},
        {"fixed": 1, "newly_broken": 0, "still_failing": 0, "still_right": 100_000},
    ],
)
def test_flow_bars_have_the_size_of_their_counts(counts: dict[str, int]) -> None:
    svg = plots.flow(counts, label="flow")
    total = sum(counts.values())
    heights = [float(e["height"]) for e in by_class(svg, "right")]
    before, after = counts["still_right"] + counts["newly_broken"], counts["still_right"] + counts["fixed"]
    assert heights == pytest.approx([max(150 * n / total, 0.6) for n in (before, after)], abs=0.06)
    assert len(by_class(svg, "ribbon")) == sum(n > 0 for n in counts.values())
    assert f"{before:,}" in texts(svg)
    assert plots.flow(dict.fromkeys(counts, 0), label="none") == ""


def test_histogram_is_logarithmic_and_shows_single_counts() -> None:
    svg = plots.histogram([[1, 1000], [2, 100], [3, 10], [5, 1]], style="negative", x_label="x", label="links")
    bars = by_class(svg, "negative")
    heights = [float(bar["height"]) for bar in bars]
    steps = [heights[i] - heights[i + 1] for i in range(3)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    assert heights[-1] > 0
    assert float(bars[3]["x"]) - float(bars[2]["x"]) == pytest.approx(
        2 * (float(bars[1]["x"]) - float(bars[0]["x"])), 1e-2
    )


def test_a_long_tail_is_binned_without_losing_anchors() -> None:
    entries = [[value, 3] for value in range(1, 401)]
    svg = plots.histogram(entries, style="negative", x_label="x", label="links")
    titles = [e.text or "" for e in parsed(svg).iter("title")]
    assert len(titles) == 40
    assert titles[0] == "1–10: 30"
    assert sum(int(re.sub(r".*: ", "", title)) for title in titles) == 1200


def test_curves_rise_where_their_numbers_do() -> None:
    svg = plots.curves([("loss", [(1, 3.0), (2, 2.0), (3, 2.5)])], label="loss", dots=True)
    ys = [float(e["cy"]) for e in by_class(svg, "dot")]
    assert ys[0] < ys[2] < ys[1]  # SVG counts downwards
    assert plots.curves([], label="none") == ""
    assert by_class(plots.curves([("lr", [(1, 0.5)])], label="one"), "dot")


def test_labels_are_escaped() -> None:
    svg = plots.intervals([('<b>"&', [("after", Estimate(1, 0, 2))])], zero=False, unit="%", label='"><script>')
    parsed(svg)
    assert "<script>" not in svg
    assert '<b>"&' in texts(svg)
