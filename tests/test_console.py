"""What people see while calls are made: the live panel on a terminal, lines elsewhere; never a key."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from repair import console
from repair.calls.engine import CallEngine
from repair.calls.prices import Seat
from repair.console import ConsoleProgress
from repair.core.errors import BadReply, RateLimited
from repair.core.redaction import keep_secret
from repair.pipeline.asking import Asker, ask_all
from tests.calls.support import Backend, Delays, ask_backend, stores


def shown(folder: Path, *, terminal: bool) -> str:
    """All that was printed while eight items were asked about; one fails, one meets a 429, two are in the ledger."""
    out = io.StringIO()
    progress = ConsoleProgress(Console(file=out, force_terminal=terminal, width=140, highlight=False, soft_wrap=True))
    faults = {(5, 1): RateLimited("429"), (6, 1): BadReply("not JSON")}
    backend = Backend(lambda index, number: faults.get((index, number), "answer"))

    async def one(index: int) -> bool:
        return (await ask_backend(engine, index, backend, place="here|model")).error is None

    with stores(folder) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=3, sleep=Delays())
        asker = Asker(engine, 0, 3, lambda _: Seat("here|model", "model"))
        ask_all(asker, one, [0, 1], label="before", progress=console.ConsoleProgress(Console(file=io.StringIO())))
        out.truncate(0)
        engine = CallEngine(ledger, blobs, concurrency=3, sleep=Delays())
        asker = Asker(engine, 0, 3, lambda _: Seat("here|model", "model"))
        ask_all(asker, one, range(8), label="verify", progress=progress, filtered=lambda kept: not kept)
    return out.getvalue()


def test_the_live_panel_tells_where_the_calls_stand(tmp_path: Path) -> None:
    text = shown(tmp_path, terminal=True)
    last = text[text.rindex("8/8") :]
    assert "/s" in last  # the rate
    assert "ETA" in last
    assert "verify: 5 done, 2 cached, 1 failed" in last
    assert "1 filtered, 70 tokens, price unknown, in flight" in last
    assert "1 x 429" in last


def test_elsewhere_it_is_a_line_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_PLAIN_EVERY_S", 0.0)
    lines = shown(tmp_path, terminal=False).splitlines()
    assert len(lines) == 8
    assert lines[3].startswith("  verify 4/8 (50 %), ")
    assert ", ETA " in lines[3]
    assert "\x1b" not in "".join(lines)
    assert "verify: 5 done, 2 cached, 1 failed; 1 filtered, " in lines[-1]


def test_a_key_is_in_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_PLAIN_EVERY_S", 0.0)
    keep_secret("sk-live-0123456789abcdef")
    for terminal in (True, False):
        out = io.StringIO()
        progress = ConsoleProgress(Console(file=out, force_terminal=terminal, width=100, soft_wrap=True))
        progress.say("the server said sk-live-0123456789abcdef")
        with progress.task("verify", 1) as advance:
            advance(1, "refused: sk-live-0123456789abcdef")
        assert "verify" in out.getvalue()
        assert "0123456789abcdef" not in out.getvalue()
