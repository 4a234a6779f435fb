"""Items that go their way one by one leave the same tables as stages that wait for each other, and the same ledger."""

from pathlib import Path
from typing import Any

import pytest

from repair.core.progress import Silent
from repair.core.records import Candidate, ScoredCandidate
from repair.encoders.small import SmallEncoder
from repair.pipeline.run import run_pipeline
from repair.selection import Rejection
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.pipeline import flaky
from tests.pipeline.tiny import config


def run(folder: Path, *more: str, until: str = "select") -> dict[str, Any]:
    flaky.register()
    folder.mkdir(exist_ok=True)
    settings = config(folder, *flaky.settings(folder), *more)
    return run_pipeline(settings, until=until, reuse=False, progress=Silent())


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "run" / "round-0").glob("*.parquet")}


def answers(folder: Path) -> set[tuple[str, str]]:
    with Ledger.view(folder / "run" / "ledger.sqlite") as ledger:
        return {(logged.attempt.call.key, logged.attempt.outcome) for logged in ledger.attempts()}


@pytest.mark.parametrize(
    "settings",
    [
        ("calls.plan=staged",),
        ("calls.plan=fused", "selection.verify_candidates=true"),
        ("calls.plan=fused", "selection.verify_candidates=true", "selection.min_gain=-1"),
    ],
)
def test_tables_and_calls_are_those_of_the_staged_order(settings: tuple[str, ...], tmp_path: Path) -> None:
    run(tmp_path / "staged", "calls.flow=false", *settings)
    in_stages = flaky.calls(tmp_path / "staged")
    run(tmp_path / "flow", "calls.concurrency=2", *settings)
    by_item = flaky.calls(tmp_path / "flow")

    assert tables(tmp_path / "flow") == tables(tmp_path / "staged")
    assert answers(tmp_path / "flow") == answers(tmp_path / "staged")
    assert sorted(by_item) == sorted(in_stages)

    # Stage by stage, all verdicts come before any edit; one by one, edits begin long before the last verdict.
    def last_first(calls: list[tuple[str, str]]) -> bool:
        tasks = [task for task, _ in calls]
        first_task = tasks[0]
        return len(tasks) - 1 - tasks[::-1].index(first_task) < tasks.index("edit_image")

    assert last_first(in_stages)
    assert not last_first(by_item)


def test_a_refused_drawing_is_followed_by_another_until_two_were_in_vain(tmp_path: Path) -> None:
    wary = ("verification.verifier=world", "verification.options={precision=0.75, recall=0.9}")  # takes much for false
    settings = ("calls.plan=fused", "selection.verify_candidates=true", "selection.min_gain=-1", *wary)
    settings = (*settings, 'mining.directions=["text_to_image"]', "mining.max_failures=30")
    run(tmp_path / "one", *settings, until="edit")
    asked = answers(tmp_path / "one")
    run(tmp_path / "one", *settings, until="select")
    assert answers(tmp_path / "one") == asked  # what the edits were drawn by is what selects
    fates: dict[str, list[str | None]] = {}
    for one in read_table(tmp_path / "one" / "run" / "round-0" / "scored.parquet", ScoredCandidate):
        fates.setdefault(one.failure_id, []).append(one.rejected)
    after_refusal = [fate[1:] for fate in fates.values() if fate[0] == Rejection.REFUSED]
    assert len(after_refusal) >= 5
    assert all(after_refusal)
    for fate in fates.values():
        assert None not in fate[:-1]  # none is drawn after one that was accepted
        assert sum(reason in (Rejection.LOW_GAIN, Rejection.REFUSED) for reason in fate) <= 2


def test_a_single_stage_asks_no_further_and_the_next_goes_on(tmp_path: Path) -> None:
    run(tmp_path / "flow", until="verify")
    assert {task for task, _ in flaky.calls(tmp_path / "flow")} == {"verify"}
    run(tmp_path / "flow", until="instruct")
    assert {task for task, _ in flaky.calls(tmp_path / "flow")} == {"instruct"}
    run(tmp_path / "flow", until="select")
    assert {task for task, _ in flaky.calls(tmp_path / "flow")} == {"edit_text", "edit_image"}


def test_an_edit_is_embedded_once_however_often_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"single": 0}
    embed = SmallEncoder._embed

    def counting(self: SmallEncoder, features: Any, prepared: Any, *, batch_size: int) -> Any:
        counts["single"] += len(prepared) if batch_size == 1 else 0
        return embed(self, features, prepared, batch_size=batch_size)

    monkeypatch.setattr(SmallEncoder, "_embed", counting)
    checked = "selection.verify_candidates=true"
    run(tmp_path / "one", checked)
    found = read_table(tmp_path / "one" / "run" / "round-0" / "candidates.parquet", Candidate)
    once = counts["single"]
    # An edit that is word for word a train caption, or changed nothing, was embedded with the train split.
    assert 0 < once <= len({candidate.key for candidate in found if candidate.key is not None})
    shared = [f"run.calls={tmp_path}/one/run", f"run.cache={tmp_path}/one/cache"]
    run(tmp_path / "two", checked, "selection.min_gain=0.01", *shared)
    assert counts["single"] == once
