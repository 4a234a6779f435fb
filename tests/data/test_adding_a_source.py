"""The worked example of docs/adding-a-source.md is code that runs."""

import re
from pathlib import Path
from typing import Any

from PIL import Image

from repair.data.rules import Rules

DOC = Path(__file__).parents[2] / "docs" / "adding-a-source.md"


def test_the_worked_example_reads_what_it_says(tmp_path: Path) -> None:
    code = re.search(r"```python\n(# src.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code.group(1), names)
    for name in ("a", "b"):
        Image.new("RGB", (20, 20), "red" if name == "a" else "blue").save(tmp_path / f"{name}.png")
    (tmp_path / "x.txt").write_text("a.png\ta red thing\na.png\tred\nb.png\ta blue thing\nno tab here\n")

    source = names["lines_source"](path=tmp_path / "x.txt", images=tmp_path, rules=Rules(max_bad_rate=0.5))

    assert [(p.image_id, p.caption_id, p.text) for p in source.pairs("train")] == [
        ("a.png", "a.png#0", "a red thing"),
        ("a.png", "a.png#1", "red"),
        ("b.png", "b.png#0", "a blue thing"),
    ]
    assert [bad.reason for bad in source.set_aside] == ["no tab"]
