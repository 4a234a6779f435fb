"""One page of several benches: sections, commands without this machine's folders, pictures beside it."""

from pathlib import Path

import pytest

from repair.core.errors import ConfigError, DataError
from repair.reports.benches import Bench
from repair.reports.results_page import command_line, results_page, write_results
from tests.reports.benches import bench

CURVE = {"RePair": [0.5, 0.6], "RePair 50%": [0.5, 0.5]}


def test_commands_tell_no_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["repair", "bench", f"{tmp_path}/configs/b.toml", "--set", "run.folder=/srv/secret/runs"]
    assert command_line(words) == "repair bench configs/b.toml --set run.folder=runs"
    words = ["repair", "tables", "runs/b", "/home/me/c", "--set", 'bench.suites=["world(n=2)"]']
    assert command_line(words) == "repair tables runs/b c --set 'bench.suites=[\"world(n=2)\"]'"
    assert command_line(["repair", "bench.suites=['world']"]) == "repair \"bench.suites=['world']\""


def test_a_page_of_two_benches(tmp_path: Path) -> None:
    command = ["repair", "bench", "configs/one.toml", "--set", "bench.seeds=[0]"]
    folders = [
        bench(tmp_path / "one", CURVE, {}, command=command),
        bench(tmp_path / "two", {"RePair": [0.5], "Vanilla": [0.4]}, {"Vanilla": ["method.name=vanilla"]}),
    ]
    opened = [Bench.open(folder) for folder in folders]
    words = ["repair", "tables", *map(str, folders), "--out", str(tmp_path / "page.md")]
    written = write_results(opened, tmp_path / "page.md", command=words)
    assert [path.name for path in written] == ["page.md", "page-one-figure-9.svg"]
    page = written[0].read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == ["## one", "## two"]
    assert "repair bench configs/one.toml --set 'bench.seeds=[0]'\nrepair tables one two --out page.md\n" in page
    assert "repair bench configs/two.toml\n" in page  # of a bench that did not keep its command
    assert "](page-one-figure-9.svg)" in page
    assert str(tmp_path) not in page
    assert str(tmp_path) not in written[1].read_text()


def test_a_page_of_one_bench_has_its_name(tmp_path: Path) -> None:
    opened = Bench.open(bench(tmp_path / "one", CURVE, {}))
    page = results_page([opened], command=["repair", "tables", "one"])
    assert page.startswith("# one\n")
    assert "\n## Figure 9: budget curve" in page


def test_refused(tmp_path: Path) -> None:
    opened = Bench.open(bench(tmp_path / "one", CURVE, {}))
    with pytest.raises(ConfigError, match='two benches are called "one"'):
        write_results([opened, opened], tmp_path / "page.md", command=["repair"])
    with pytest.raises(DataError, match="there is no such file"):
        Bench.open(tmp_path / "none")


def test_a_bench_that_has_moved_finds_its_runs(tmp_path: Path) -> None:
    folder = bench(tmp_path / "one", CURVE, {})
    moved = folder.rename(tmp_path / "elsewhere")
    opened = Bench.open(moved)
    assert opened.config("RePair").run.name == "RePair-0"
    assert all(path.parent == moved for path in opened.runs["RePair"])
