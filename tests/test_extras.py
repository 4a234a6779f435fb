"""Every extra that the program, its scripts and its pages name is one pip finds, under the very name they use."""

import re
import tomllib
from pathlib import Path

from repair.pipeline.registries import ALL

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])


def test_names_are_normalised() -> None:
    # pip before 23.3 looks an extra up as it is written, and metadata hold it normalised (PEP 685).
    assert {re.sub(r"[-_.]+", "-", name).lower() for name in EXTRAS} == EXTRAS


def test_all_that_are_named_exist() -> None:
    named = {entry.extra for registry in ALL for entry in registry.entries.values() if entry.extra}
    places = [ROOT / "scripts" / "setup", ROOT / "README.md"]
    for folder, pattern in (("src", "*.py"), ("docs", "*.md"), ("configs", "*.toml")):
        places += (ROOT / folder).rglob(pattern)
    for path in places:
        for found in re.findall(
            r"repair-clip\[([a-z_,-]+)\]|extras=\"\[([a-z_,-]+)\]", path.read_text(encoding="utf-8")
        ):
            named |= {name for group in found for name in group.split(",") if name}
    assert named <= EXTRAS, named - EXTRAS
