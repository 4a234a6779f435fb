"""Table 3 by exact numbers."""

from pathlib import Path
from typing import Any

from repair.reports.benches import Bench
from repair.reports.suite_tables import compositional
from tests.reports.benches import bench

HEAD = "mean of error types / accuracy"


def suite(**more: Any) -> dict[str, Any]:
    seeds = {
        "base": {HEAD: [0.5, 0.5], "object / accuracy": [0.4, 0.4], "object / blind": [0, 0]},
        "RePair": {HEAD: [0.7, 0.8], "object / accuracy": [0.6, 0.8], "object / blind": [0, 0]},
        "RePair 50%": {HEAD: [0.6, 0.6], "object / accuracy": [0.6, 0.6], "object / blind": [0, 0]},
        "vanilla": {HEAD: [0.6, 0.7], "object / accuracy": [0.5, 0.5], "object / blind": [0, 0]},
    }
    found = {"suite": "world", "kind": "choice", "headline": HEAD, "n_items": 3000, "seeds": seeds, **more}
    return {"scores": list(found["seeds"]["base"]), **found}


def test_headline_parts_difference_and_paper(tmp_path: Path) -> None:
    scores = {"RePair": [0.5, 0.5], "RePair 50%": [0.5, 0.5], "vanilla": [0.4, 0.4]}
    (table,) = compositional(Bench.open(bench(tmp_path / "b", scores, {}, suites=[suite()])))
    assert table.title == "compositional, suite world"
    assert table.heads[:4] == ("method", "mean of error types", "object", "Δ to RePair")
    assert table.heads[4] == "paper: VG-Attr / VG-Rel / COCO-Ord / Flickr-Ord"
    assert table.rows == (
        ("base", "50.00", "40.00", "-25.00 [-88.53, +38.53]", "–"),
        ("RePair", "75.00", "70.00", "–", "–"),
        ("vanilla", "65.00", "50.00", "-10.00 [-10.00, -10.00]", "62.6 / 51.6 / 25.4 / 31.1"),
    )
    assert "not comparable" in table.note


def test_many_parts_are_left_to_the_folder(tmp_path: Path) -> None:
    many = {f"relation {k} / accuracy": [0.5] for k in range(13)}
    found = suite(seeds={name: {HEAD: [0.5], **many} for name in ("base", "RePair")}, kind="retrieval")
    (table,) = compositional(Bench.open(bench(tmp_path / "b", {"RePair": [0.5]}, {}, suites=[found])))
    assert table.heads == ("method", "mean of error types", "Δ to RePair")
    assert "Its 13 parts" in table.note


def test_a_bench_without_suites_has_none(tmp_path: Path) -> None:
    assert compositional(Bench.open(bench(tmp_path / "b", {"RePair": [0.5]}, {}))) == []
