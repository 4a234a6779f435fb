"""The staged plan through a real llama.cpp server: whatever a tiny model answers, each item ends and all is counted."""

from pathlib import Path

import pytest

from repair.core.records import Candidate, Failure, Instruction, Verdict
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.backends import llama
from tests.pipeline import tiny

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(llama.missing()), reason=llama.missing())]

N_FAILURES = 3


def test_every_item_ends_and_the_ledger_counts_what_the_server_counts(tmp_path: Path) -> None:
    with llama.llama_server(tmp_path) as address:
        # Without the server's cache every prompt token is processed, so that its own totals are those of the requests.
        options = (
            f'{{model="gemma", base_url="{address}/v1", server="llama.cpp", image_as="captions", max_tokens=120, '
            "extra={cache_prompt=false}}"
        )
        common = (
            'mining.directions=["image_to_text"]',
            f"mining.max_failures={N_FAILURES}",
            f"run.calls={tmp_path}/calls",
        )
        tiny.run(
            tmp_path,
            *common,
            "run.name=verified",
            "verification.verifier=chat",
            f"verification.options={options}",
            "calls.concurrency=2",
            "calls.max_failed_rate=1",
            until="verify",
        )
        # The small model hardly ever keeps a failure; all are kept here, so that the other two are asked as well.
        tiny.run(
            tmp_path,
            *common,
            "run.name=edited",
            "verification.enabled=false",
            "instruction.instructor=chat",
            f"instruction.options={options}",
            "editing.text_editor=chat",
            f"editing.text_options={options}",
            "editing.n_candidates=1",
            "calls.concurrency=2",
            "calls.max_failed_rate=1",
            until="edit",
        )
        server = llama.counts(address)
    runs = tmp_path
    failures = read_table(runs / "verified" / "round-0" / "failures.parquet", Failure)
    verdicts = read_table(runs / "verified" / "round-0" / "verdicts.parquet", Verdict)
    assert len(verdicts) == len(failures) == N_FAILURES
    assert all(v.error or v.keep or v.criterion for v in verdicts)
    instructions = read_table(runs / "edited" / "round-0" / "instructions.parquet", Instruction)
    assert len(instructions) == N_FAILURES
    candidates = read_table(runs / "edited" / "round-0" / "candidates.parquet", Candidate)
    assert len(candidates) == sum(told.error is None for told in instructions)
    assert all(c.error or c.text for c in candidates)
    with Ledger.view(tmp_path / "calls" / "ledger.sqlite") as ledger:
        rows = ledger.usage()
    assert sum(row.tokens_in for row in rows) == server.tokens_in > 0
    assert sum(row.tokens_out for row in rows) == server.tokens_out
