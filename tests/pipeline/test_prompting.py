"""`repair prompts show`, over a small run of the drawn world."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repair.backends.prompts import shipped_prompts
from repair.cli import app
from repair.core.errors import ConfigError
from repair.core.records import Failure, Verdict
from repair.pipeline.prompting import newest_run, prompt_lines, shown_prompt
from repair.store.tables import read_table
from tests.pipeline import tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    tiny.run(folder, until="instruct")
    return tiny.config(folder).run_path()


def kept(run: Path, direction: str) -> Failure:
    keep = {v.failure_id for v in read_table(run / "round-0" / "verdicts.parquet", Verdict) if v.keep}
    failures = read_table(run / "round-0" / "failures.parquet", Failure)
    return next(f for f in failures if f.failure_id in keep and f.direction.short == direction)


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
@pytest.mark.parametrize("task", ["verify", "instruct", "edit", "plan"])
def test_prompts_are_filled_in_with_a_failure(run: Path, task: str, direction: str) -> None:
    failure = kept(run, direction)
    shown = shown_prompt(task, failure_id=failure.failure_id, run=run)
    text = "\n".join(prompt_lines(shown))
    assert "{{" not in text
    name = {"i2t": "edit_text", "t2i": "edit_image"}[direction] if task == "edit" else task
    assert shown["hash"] == shipped_prompts()[name].digest
    assert name in text.splitlines()[0]
    if name != "edit_image":
        assert '<data name="retrieved_item">' in text
        assert "[JPEG, " in text
        for unsent in (failure.failure_id, failure.query_id, failure.false_positive_id):
            assert f'"{unsent}"' not in text


def test_the_command_prints_and_the_open_template_needs_no_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = kept(run, "i2t")
    printed = CliRunner().invoke(app, ["prompts", "show", "verify", "--failure", failure.failure_id, "--run", str(run)])
    assert printed.exit_code == 0, printed.output
    assert printed.output.startswith("prompt verify v1 (b2:")
    as_json = CliRunner().invoke(app, ["prompts", "show", "edit", "--json"])
    assert "{{instruction}}" in json.loads(as_json.output)["messages"][-1]["content"]
    monkeypatch.chdir(run.parent.parent)
    assert newest_run(Path(run.parent.name)) == Path(run.parent.name) / run.name


def test_what_cannot_be_shown(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'unknown task "verfy".*did you mean "verify"'):
        shown_prompt("verfy", failure_id=None, run=None)
    with pytest.raises(ConfigError, match='no failure "nowhere"'):
        shown_prompt("verify", failure_id="nowhere", run=run)
    with pytest.raises(ConfigError, match="name one with --run"):
        newest_run(tmp_path)
    dropped = {v.failure_id for v in read_table(run / "round-0" / "verdicts.parquet", Verdict) if not v.keep}
    with pytest.raises(ConfigError, match="has no instruction"):
        shown_prompt("edit", failure_id=sorted(dropped)[0], run=run)
