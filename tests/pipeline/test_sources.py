from pathlib import Path

from repair.config import load_config
from repair.pipeline.sources import open_source
from tests.reports.runs import photos


def test_the_world_is_made_once_for_the_same_options(tmp_path: Path) -> None:
    def opened(options: str) -> object:
        return open_source(load_config(None, overrides=[f"data.options={options}"], environment={}))

    first = opened("{n_train=3, n_val=2, n_test=2}")
    assert opened("{n_test=2, n_val=2, n_train=3}") is first
    assert opened("{n_train=4, n_val=2, n_test=2}") is not first


def test_files_are_read_anew(tmp_path: Path) -> None:
    path = photos(tmp_path / "photos")
    overrides = ["data.source=jsonl", f'data.options={{path="{path}"}}', f"run.cache={tmp_path}/cache"]
    config = load_config(None, overrides=overrides, environment={})
    n_before = len(open_source(config).pairs("train"))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[1:]), encoding="utf-8")
    assert len(open_source(config).pairs("train")) == n_before - 2
