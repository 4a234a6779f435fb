"""A run without repairs, or without any grid, has a report like any other."""

from pathlib import Path

import pytest

from repair.reports.html import write_report
from tests.pipeline.tiny import run


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("no-grids", ["training.grids_per_step=0", "training.loss=vanilla", "verification.enabled=false"]),
        ("negclip", ["method.name=negclip", "method.max_samples=6"]),
    ],
)
def test_the_report_is_written(tmp_path: Path, name: str, settings: list[str]) -> None:
    run(tmp_path, f"run.name={name}", *settings)
    page = write_report(tmp_path / name).read_text(encoding="utf-8")
    assert "Against the truth" in page
    assert ("What NegCLIP made" in page) == (name == "negclip")
    assert ("What went wrong in kept edits" in page) == (name == "no-grids")
    assert page.rstrip().endswith("</html>")
