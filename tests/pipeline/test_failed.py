"""Failed calls: kept as failed by a finished stage, asked again on demand and first, and named in the summary."""

from pathlib import Path
from typing import Any

import pytest

from repair.core.progress import Silent
from repair.core.records import Verdict
from repair.pipeline.run import run_pipeline, stage_line
from repair.store.tables import read_table
from tests.pipeline import flaky
from tests.pipeline.tiny import config


class Heard(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def run(folder: Path, *more: str, until: str = "select", **how: Any) -> tuple[dict[str, Any], Heard]:
    flaky.register()
    heard = Heard()
    settings = config(folder, *flaky.settings(folder), *more)
    return run_pipeline(settings, until=until, reuse=False, progress=heard, command="repair run my.toml", **how), heard


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "run" / "round-0").glob("*.parquet")}


@pytest.mark.parametrize("plan", ["staged", "fused"])
def test_failed_calls_stay_failed_until_they_are_asked_again(plan: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    run(whole, f"calls.plan={plan}")

    (broken / "fails").write_text("verify 0\ninstruct 1\nedit_text 2\nedit_image 1\nplan 0\n")
    outcome, heard = run(broken, f"calls.plan={plan}")
    failing = [s["stage"] for s in outcome["stages"] if s["summary"].get("failed_calls")]
    assert failing == (["verify", "instruct", "edit"] if plan == "staged" else ["verify", "edit"])
    named = [line for line in heard.lines if "`repair run my.toml --retry-failed` asks them again" in line]
    assert len(named) == len(failing)
    first_failed = {f for task, f in flaky.calls(broken) if task in ("verify", "plan")} - {
        v.failure_id for v in read_table(broken / "run" / "round-0" / "verdicts.parquet", Verdict) if v.error is None
    }
    assert first_failed

    (broken / "fails").unlink()
    outcome, _ = run(broken, f"calls.plan={plan}")
    assert all(stage["cached"] for stage in outcome["stages"])
    assert not flaky.calls(broken)

    outcome, _ = run(broken, f"calls.plan={plan}", retry_failed=True)
    assert not any(stage["summary"].get("failed_calls") for stage in outcome["stages"])
    verified = [f for task, f in flaky.calls(broken) if task in ("verify", "plan")]
    assert set(verified) == first_failed
    assert tables(broken) == tables(whole)
    outcome, _ = run(broken, f"calls.plan={plan}", retry_failed=True)
    assert all(stage["cached"] for stage in outcome["stages"])
    assert not flaky.calls(broken)


def test_an_unfinished_stage_asks_what_failed_before_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "fails").write_text("verify 0\n")
    with pytest.raises(Exception, match="max_calls"):
        run(tmp_path, "calls.max_calls=16", "calls.concurrency=1", until="verify")
    asked = [f for _, f in flaky.calls(tmp_path)]
    assert len(asked) == 16
    (tmp_path / "fails").unlink()
    run(tmp_path, "calls.concurrency=1", until="verify")
    again = [f for _, f in flaky.calls(tmp_path)]
    failed = [f for f in again if f in asked]
    assert failed
    assert again[: len(failed)] == failed  # first, and only they are asked twice
    assert len(again) == len(set(again))


def test_a_candidate_check_that_failed_leaves_the_failure_failed_not_unrepaired(tmp_path: Path) -> None:
    check = ("selection.verify_candidates=true", "verification.enabled=false")
    (tmp_path / "fails").write_text("verify\n")
    outcome, _ = run(tmp_path, *check)
    select = outcome["stages"][-1]["summary"]
    assert select["failed_calls"]
    assert sum(select[d]["failed"] for d in ("image_to_text", "text_to_image"))
    (tmp_path / "fails").unlink()
    outcome, _ = run(tmp_path, *check, retry_failed=True)
    assert not outcome["stages"][-1]["cached"]
    select = outcome["stages"][-1]["summary"]
    assert "failed_calls" not in select
    assert sum(select[d]["repaired"] for d in ("image_to_text", "text_to_image"))


def test_a_drawing_whose_check_failed_waits_and_no_further_one_is_paid_for(tmp_path: Path) -> None:
    settings = ("calls.plan=fused", "selection.verify_candidates=true", "selection.min_gain=-1")
    settings = (*settings, 'mining.directions=["text_to_image"]')
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    run(whole, *settings)
    (broken / "fails").write_text("verify 0\n")
    outcome, _ = run(broken, *settings)
    failing = [s["stage"] for s in outcome["stages"] if s["summary"].get("failed_calls")]
    assert failing == ["edit", "select"]
    (broken / "fails").unlink()
    run(broken, *settings, retry_failed=True)
    assert tables(broken) == tables(whole)
    drawn = [sorted(f for task, f, _ in flaky.requests(place) if task == "edit_image") for place in (whole, broken)]
    assert drawn[0] == drawn[1]


def test_the_verifier_of_drawings_is_in_the_key_of_the_edits_where_it_is_asked(tmp_path: Path) -> None:
    for checked in ("true", "false"):
        place = tmp_path / checked
        place.mkdir()
        fused = ("calls.plan=fused", f"selection.verify_candidates={checked}", "verification.verifier=world")
        run(place, *fused, "verification.options={recall=0.9}")
        config_ = config(place, *flaky.settings(place), *fused, "verification.options={recall=0.8}")
        outcome = run_pipeline(config_, until="select", reuse=True, progress=Silent())
        kept = {stage["stage"]: stage["cached"] for stage in outcome["stages"]}
        assert kept["edit"] is (checked == "false")


def test_the_retry_command_is_not_doubled() -> None:
    line = stage_line(0, "verify", {"failed_calls": 2}, how="1 s", command="repair run a.toml --retry-failed")
    assert line == "round 0 verify (1 s): done; 2 calls failed: `repair run a.toml --retry-failed` asks them again"
