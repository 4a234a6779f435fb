"""kill -9 at random moments: the end is that of an uninterrupted run, and no answer is paid for twice."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from repair.core.calls import CallOutcome
from repair.store.ledger import Ledger
from tests.pipeline import flaky
from tests.pipeline.tiny import overrides, table_bytes

ROOT = Path(__file__).parents[2]
_N_KILLS = 8
_CONCURRENCY = 3
_CODE = """
import sys
from repair.config import load_config
from repair.core.progress import Silent
from repair.pipeline.run import run_pipeline
from tests.pipeline import flaky
flaky.register()
until = sys.argv[1] or None
settings = load_config(None, overrides=sys.argv[2:], environment={})
run_pipeline(settings, until=until, reuse=False, progress=Silent())
"""


def start(folder: Path, *settings: str, until: str = "") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", _CODE, until, *overrides(folder, *settings)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT)


def finish(process: "subprocess.Popen[bytes]") -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()


@pytest.mark.slow
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    began = time.monotonic()
    finish(start(tmp_path / "whole"))
    whole_s = time.monotonic() - began
    rng = random.Random(0)
    for _ in range(_N_KILLS):
        process = start(tmp_path / "killed")
        try:
            process.communicate(timeout=rng.uniform(0.2, 1.0) * whole_s)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
    finish(start(tmp_path / "killed"))
    assert table_bytes(tmp_path / "killed" / "run") == table_bytes(tmp_path / "whole" / "run")
    with Ledger.view(tmp_path / "killed" / "run" / "ledger.sqlite") as ledger:
        done = [logged.attempt.call.key for logged in ledger.attempts() if logged.attempt.outcome is CallOutcome.DONE]
    assert len(done) == len(set(done))


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "run" / "round-0").glob("*.parquet")}


def killed_at(folder: Path, process: "subprocess.Popen[bytes]", n_calls: int) -> None:
    """Kill the process when the backends have been asked `n_calls` times more; `calls` is a pipe meanwhile."""
    handle = os.open(folder / "calls", os.O_RDWR)  # both ends, so that it is not at its end between two writers
    asked = b""
    while asked.count(b"\n") < n_calls:
        asked += os.read(handle, 65536)
    process.kill()
    process.communicate()
    os.set_blocking(handle, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            asked += os.read(handle, 65536)
    os.close(handle)
    with (folder / "log").open("ab") as log:
        log.write(asked)


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["staged", "fused"])
def test_killed_in_the_flow_under_a_budget_nothing_answered_is_asked_again(plan: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    settings = (f"calls.plan={plan}", f"calls.concurrency={_CONCURRENCY}")
    finish(start(whole, *flaky.settings(whole), *settings, until="select"))
    n_whole = len(flaky.requests(whole))

    mine = (*flaky.settings(killed), *settings)
    rng = random.Random(1)
    n_killed, in_flight = 3, 4 * _CONCURRENCY  # four places at most: the verifier, the instructor and two editors
    for _ in range(n_killed):
        os.mkfifo(killed / "calls")
        killed_at(killed, start(killed, *mine, until="select"), rng.randint(3, n_whole // 5))
        (killed / "calls").unlink()
        with Ledger.view(killed / "run" / "ledger.sqlite") as ledger:
            assert ledger.n_leased() <= in_flight

    # What was in flight counts towards the budget, and the budget is not exceeded.
    with Ledger.view(killed / "run" / "ledger.sqlite") as ledger:
        cap = ledger.spent().n_calls + ledger.n_leased() + 7
    process = start(killed, *mine, f"calls.max_calls={cap}", until="select")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert f"calls.max_calls = {cap} ({cap} calls made)" in errors.decode()
    finish(start(killed, *mine, until="select"))

    assert tables(killed) == tables(whole)
    with Ledger.view(killed / "run" / "ledger.sqlite") as ledger:
        outcomes = Counter(logged.attempt.outcome for logged in ledger.attempts())
        keys = [logged.attempt.call.key for logged in ledger.attempts() if logged.attempt.outcome is CallOutcome.DONE]
    assert len(keys) == len(set(keys)) == n_whole
    assert set(outcomes) <= {CallOutcome.DONE, CallOutcome.LOST}
    # By the backends' own log: nothing but what was lost in flight was asked for twice.
    log = (killed / "log").read_text().splitlines() + (killed / "calls").read_text().splitlines()
    repeated = sum(n - 1 for n in Counter(log).values())
    assert repeated <= outcomes[CallOutcome.LOST] <= n_killed * in_flight
