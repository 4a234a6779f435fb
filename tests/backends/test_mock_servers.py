"""A run against mock servers that nobody here wrote: the client survives what they inject, and asks for nothing twice.

Skipped without them; docs/servers.md says how to get them.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from repair.core.calls import CallOutcome
from repair.core.errors import RepairError
from repair.core.records import Candidate, Failure, Instruction, Verdict
from repair.pipeline.sources import open_source
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.backends import mocks
from tests.pipeline import tiny

needs_llmock = pytest.mark.skipif(bool(mocks.missing("llmock")), reason=mocks.missing("llmock"))
needs_fakellm = pytest.mark.skipif(bool(mocks.missing("fakellm")), reason=mocks.missing("fakellm"))
pytestmark = pytest.mark.slow

N_FAILURES = 6
VERDICT = {"reason": "another colour", "query_matches_ground_truth": True, "candidate_matches_query": False}
TOLD = {
    "error_types": ["attribute"],
    "residual": "red",
    "scaffold": "a dog",
    "instruction": "Change the colour to blue.",
}
EDIT = {"caption": "a blue dog in a park"}


def settings(address: str, **options: str) -> tuple[str, ...]:
    """The staged plan over captions, every model behind the one server."""
    given = {"model": '"gpt-4o"', "base_url": f'"{address}/v1"', "image_as": '"captions"', **options}
    chat = "{" + ", ".join(f"{name}={value}" for name, value in given.items()) + "}"
    return (
        'mining.directions=["image_to_text"]',
        f"mining.max_failures={N_FAILURES}",
        "verification.verifier=chat",
        f"verification.options={chat}",
        "instruction.instructor=chat",
        f"instruction.options={chat}",
        "editing.text_editor=chat",
        f"editing.text_options={chat}",
        "calls.max_failed_rate=1",
    )


def outcomes(folder: Path) -> Counter[tuple[str, CallOutcome]]:
    with Ledger.view(folder / "run" / "ledger.sqlite") as ledger:
        return Counter((logged.attempt.call.task, logged.attempt.outcome) for logged in ledger.attempts())


def reasons(folder: Path) -> list[str]:
    with Ledger.view(folder / "run" / "ledger.sqlite") as ledger:
        return [logged.attempt.error for logged in ledger.attempts() if logged.attempt.error]


def rows(folder: Path, table: str, kind: type[Any]) -> list[Any]:
    return list(read_table(folder / "run" / "round-0" / f"{table}.parquet", kind))


@needs_llmock
def test_llmock_injects_faults_and_finds_nothing_to_blame(tmp_path: Path) -> None:
    text = {"type": "reply", "times": 1}
    with mocks.llmock(tmp_path) as address:
        scenario = [
            {"type": "fail", "status": 429, "retry_after": 1, "times": 3},
            {"type": "fail", "status": 429, "times": 2},
            *({"type": "fail", "status": status, "times": 2} for status in (500, 502, 503, 504)),
            {"type": "fail", "status": 400, "code": "context_length_exceeded", "message": "maximum context length"},
            {**text, "text": "I would rather talk about something else."},
            {**text, "text": '{"instruction": "', "finish_reason": "length"},
            {**text, "text": "", "finish_reason": "content_filter"},
            {"type": "delay", "seconds": 0.2, "times": 2},
        ]
        mocks.post(f"{address}/_llmock/scenario", {"behaviors": scenario})
        tiny.run(tmp_path, *settings(address, server='"openai"'), "verification.enabled=false", until="select")
        waiting = mocks.get(f"{address}/_llmock/scenario")
        requests = mocks.get(f"{address}/_llmock/requests")["requests"]
        verdict = mocks.get(f"{address}/_llmock/verdict")
    assert not waiting["pending"]  # all of it was injected
    assert verdict["errors"] == 0, verdict["findings"]
    told, edits = rows(tmp_path, "instructions", Instruction), rows(tmp_path, "candidates", Candidate)
    assert len(told) == N_FAILURES
    assert len(edits) == 3 * sum(row.error is None for row in told)
    assert all(row.error or row.text for row in edits)
    assert sum("max_tokens" in reason for reason in reasons(tmp_path)) == 1
    # By the server's own log, what was answered was not asked for again.
    answered = Counter(request["fingerprint"] for request in requests if request["status"] == 200)
    assert set(answered.values()) == {1}
    ended = Counter(outcome for _, outcome in outcomes(tmp_path).elements())
    assert ended[CallOutcome.UNAVAILABLE] == 8  # the 5xx; 429 is no attempt
    assert len(requests) == ended.total() + 5 + _n_second_turns(tmp_path)


def _n_second_turns(folder: Path) -> int:
    """Answers that did not fit were asked about once more, within the same call."""
    with Ledger.view(folder / "run" / "ledger.sqlite") as ledger:
        return sum("\n" in logged.attempt.raw for logged in ledger.attempts())


@needs_llmock
def test_llmock_turns_the_key_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPAIR_TEST_KEY", "sk-a-key-that-nobody-may-see")
    with mocks.llmock(tmp_path) as address:
        fault = {"type": "fail", "status": 401, "message": "no such key: sk-a-key-that-nobody-may-see", "times": None}
        mocks.post(f"{address}/_llmock/scenario", {"behaviors": [fault]})
        with pytest.raises(RepairError, match="answered 401") as caught:
            tiny.run(tmp_path, *settings(address, api_key_env='"REPAIR_TEST_KEY"'), until="verify")
        requests = mocks.get(f"{address}/_llmock/requests")["requests"]
    assert "nobody" not in str(caught.value) + "".join(reasons(tmp_path))
    assert len(requests) <= N_FAILURES  # those in flight; none was tried again


@needs_llmock
def test_llmock_serves_batches(tmp_path: Path) -> None:
    with mocks.llmock(tmp_path) as address:
        batched = {"batch": "true", "batch_wait_s": "0.5", "batch_poll_s": "0.1", "repair_turn": "false"}
        tiny.run(tmp_path, *settings(address, **batched), "calls.concurrency=64", until="verify")
        paths = Counter(request["path"] for request in mocks.get(f"{address}/_llmock/requests")["requests"])
    assert paths["/v1/batches"] >= 1
    assert paths["/v1/chat/completions"] == 0
    assert len(rows(tmp_path, "verdicts", Verdict)) == N_FAILURES
    assert outcomes(tmp_path).total() == N_FAILURES  # in batches llmock answers any schema with plain text


@needs_fakellm
def test_fakellm_by_its_rules(tmp_path: Path) -> None:
    tiny.run(tmp_path, *settings("http://127.0.0.1:9"), until="mine")  # nothing is asked yet
    faults: list[dict[str, Any]] = [
        {"status": 500, "error": "boom"},
        {"status": 413, "error": "too long"},
        {"content": "Sure! Here you are."},
        {"tool_calls": [{"name": "answer", "arguments": VERDICT}]},
    ]
    rules: list[dict[str, Any]] = [
        {"name": "again", "when": {"messages_contain": "This answer cannot be used"}, "respond": {"content": "No."}},
        {"name": "edit", "when": {"messages_contain": "Write the edited caption"}, "respond": _says(EDIT)},
        {"name": "instruct", "when": {"messages_contain": "Say what must change"}, "respond": _says(TOLD)},
    ]
    for caption, fault in zip(_false_positives(tmp_path), faults, strict=False):
        shown = f'"retrieved_item">\ncaption: "{caption}"'
        rules.append({"name": f"fault {len(rules)}", "when": {"messages_contain": shown}, "respond": fault})
    with mocks.fakellm(tmp_path, [*rules, {"name": "verify", "respond": _says(VERDICT)}]) as address:
        tiny.run(tmp_path, *settings(address), until="select", reuse=True)
    verdicts = rows(tmp_path, "verdicts", Verdict)
    said = sorted(row.error for row in verdicts if row.error)
    assert len(said) == len(faults)
    for part, reason in zip(("answered 413", "answered 500", "not JSON", "is empty"), said, strict=True):
        assert part in reason
    kept = [row for row in verdicts if row.keep]
    assert len(kept) == N_FAILURES - len(faults)
    assert Counter(row.text for row in rows(tmp_path, "candidates", Candidate)) == {EDIT["caption"]: 3 * len(kept)}
    ended = outcomes(tmp_path)
    assert ended[("verify", CallOutcome.UNAVAILABLE)] == 5  # one item, as often as is tried
    assert ended[("verify", CallOutcome.REFUSED)] == 1


def _says(answer: dict[str, Any]) -> dict[str, Any]:
    return {"content": json.dumps(answer)}


def _false_positives(folder: Path) -> list[str]:
    config = tiny.config(folder)
    texts = {pair.caption_id: pair.text for pair in open_source(config).pairs(config.data.train_split)}
    return [texts[failure.false_positive_id] for failure in rows(folder, "failures", Failure)]
