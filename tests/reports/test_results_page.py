"""One page of several benches: sections, commands without this machine's folders, pictures beside it."""

from pathlib import Path

import pytest

from repair.core.errors import ConfigError, StoreError
from repair.reports.benches import Bench
from repair.reports.paths import command_line, without_folders
from repair.reports.results_page import results_page, write_results
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


def test_paths_inside_values_lose_their_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    told = {
        "bench.suite_data='/home/me/c.jsonl'": "bench.suite_data='c.jsonl'",
        'data.options={path="/home/me/my files/c.jsonl", n=2}': 'data.options={path="c.jsonl", n=2}',
        "data.options={path=/home/me/c.jsonl,n=2}": "data.options={path=c.jsonl,n=2}",
        "--set=run.folder=/srv/my runs": "--set=run.folder=my runs",
        "x=['~/a/b', \"file:///c/d\"]": "x=['b', \"d\"]",
        f"run.cache={tmp_path}/runs/.cache": "run.cache=runs/.cache",
        "a/b": "a/b",
        "http://localhost:8000/v1": "http://localhost:8000/v1",
        "url='http://localhost/v1'": "url='http://localhost/v1'",
    }
    assert {word: without_folders(word) for word in told} == told


def test_refusals_write_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    opened = Bench.open(bench(folder, CURVE, {}))
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "page-one-figure-9.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    for name in ("", "folder.md", "one", "one/bench.json", "page.png", ".md", "one/bench.json/page.md"):
        with pytest.raises(ConfigError, match="--out"):
            write_results([opened], tmp_path / name if name else Path(), command=["repair"])
    with pytest.raises(ConfigError, match="is a folder"):
        write_results([opened], tmp_path / "page.md", command=["repair"])
    damaged = folder / "RePair-0" / "round-0" / "repairs.parquet"
    damaged.write_bytes(b"torn")
    with pytest.raises(StoreError, match="torn"):
        write_results([Bench.open(folder)], tmp_path / "other.md", command=["repair"])
    assert sorted(tmp_path.iterdir()) == before


def test_two_benches_of_one_name(tmp_path: Path) -> None:
    opened = [Bench.open(bench(tmp_path / place / "my bench", CURVE, {})) for place in ("a", "b")]
    written = write_results(opened, tmp_path / "page.md", command=["repair"])
    names = ["page.md", "page-my bench-figure-9.svg", "page-my bench-figure-9-2.svg"]
    assert [path.name for path in written] == names
    page = written[0].read_text()
    assert [line for line in page.splitlines() if line.startswith("## ")] == ["## my bench", "## my bench (2)"]
    assert "](page-my%20bench-figure-9.svg)" in page
    assert "](page-my%20bench-figure-9-2.svg)" in page


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    settings = {"Vanilla": ["method.name=vanilla"]}
    page = results_page([Bench.open(bench(tmp_path / "one", {"Vanilla": [0.4]}, settings))], command=["repair"])
    last = page.splitlines()[-1]
    assert last.startswith("Left out: Claims (neither RePair beside another method nor several rounds of it); ")
    assert "Table 2, Table 9, Table 12, Table 16, Table 17, Table 18, Figures 7, 8 (no run of RePair at its" in last
    assert "Figure 9 (one budget only)" in last
    assert "seed 0;" in page
