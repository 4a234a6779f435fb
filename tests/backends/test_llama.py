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
        tiny.run(
            tmp_path,
            'mining.directions=["image_to_text"]',
            f"mining.max_failures={N_FAILURES}",
            "verification.verifier=chat",
            f"verification.options={options}",
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
    folder = tiny.config(tmp_path).run_path() / "round-0"
    failures = read_table(folder / "failures.parquet", Failure)
    verdicts = read_table(folder / "verdicts.parquet", Verdict)
    assert len(verdicts) == len(failures) == N_FAILURES
    assert all(v.error or v.keep or v.criterion for v in verdicts)
    instructions = read_table(folder / "instructions.parquet", Instruction)
    assert len(instructions) == sum(v.keep for v in verdicts)
    candidates = read_table(folder / "candidates.parquet", Candidate)
    assert all(c.error or c.text for c in candidates)
    with Ledger.view(tiny.config(tmp_path).run_path() / "ledger.sqlite") as ledger:
        rows = ledger.usage()
    assert sum(row.tokens_in for row in rows) == server.tokens_in > 0
    assert sum(row.tokens_out for row in rows) == server.tokens_out
