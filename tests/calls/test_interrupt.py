import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from repair.calls.engine import CallEngine
from repair.calls.flow import map_ordered
from repair.calls.interrupt import run_interruptible
from repair.core.errors import Interrupted
from repair.core.ports import Reply
from repair.store.ledger import Ledger
from tests.calls.support import USAGE, Backend, ask, ask_backend, stores

STUBBORN = """
import asyncio, sys
from pathlib import Path
from repair.calls.engine import CallEngine
from repair.calls.interrupt import run_interruptible
from repair.core.errors import Interrupted
from tests.calls.support import ask, stores

async def hang():
    print("in flight", flush=True)
    await asyncio.Event().wait()

with stores(Path(sys.argv[1])) as (ledger, blobs):
    engine = CallEngine(ledger, blobs, concurrency=1)
    try:
        run_interruptible(engine, ask(engine, 1, hang), on_drain=lambda n: print("draining", n, flush=True))
    except Interrupted as error:
        print(error, flush=True)
"""


async def all_of(engine: CallEngine, backend: Backend, n_items: int) -> list[Any]:
    async def one(index: int) -> Any:
        return await ask_backend(engine, index, backend)

    return [outcome.value async for outcome in map_ordered(one, range(n_items), concurrency=4)]


def test_work_without_interruption_gives_its_result(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=2)
        before = signal.getsignal(signal.SIGINT)
        for _ in range(2):
            assert run_interruptible(engine, all_of(engine, Backend(lambda *_: "x"), 9)) == ["x"] * 9
        assert signal.getsignal(signal.SIGINT) is before


def test_one_interrupt_drains_keeps_and_says_how_to_go_on(tmp_path: Path) -> None:
    def script(index: int, _: int) -> str:
        if index == 30:
            os.kill(os.getpid(), signal.SIGINT)
        return "x"

    drained: list[int] = []
    backend = Backend(script, n_turns=4)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=4)
        with pytest.raises(Interrupted, match="everything finished is kept: run the same command again") as caught:
            run_interruptible(engine, all_of(engine, backend, 500), on_drain=drained.append)
        assert caught.value.exit_code == 130
        assert len(drained) == 1
        assert 0 <= drained[0] <= 4
        assert ledger.n_leased() == 0
        assert ledger.spent().n_calls == sum(backend.runs.values()) < 100
    with stores(tmp_path) as (ledger, blobs):
        assert ledger.n_maybe_lost == 0
        engine = CallEngine(ledger, blobs, concurrency=4)
        assert run_interruptible(engine, all_of(engine, Backend(lambda *_: "x"), 500)) == ["x"] * 500


def test_an_interrupt_is_not_forgotten_when_the_work_could_finish(tmp_path: Path) -> None:
    async def work() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(3):
            await asyncio.sleep(0)
        return "finished"

    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        with pytest.raises(Interrupted):
            run_interruptible(engine, work())


def test_two_interrupts_abort_a_call_that_does_not_end(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "in flight\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "draining 1\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline().startswith("aborted with 1 calls in flight, which may be billed")
        assert process.wait() == 0
    finally:
        process.kill()
        process.communicate()
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.n_maybe_lost == 1


def test_outside_the_main_thread_it_runs_without_catching(tmp_path: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        with stores(tmp_path) as (ledger, blobs):
            engine = CallEngine(ledger, blobs, concurrency=2)

            async def run() -> Reply[str]:
                return Reply("x", USAGE, "")

            found.append(run_interruptible(engine, ask(engine, 1, run)).value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["x"]
