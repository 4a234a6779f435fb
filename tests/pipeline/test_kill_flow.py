"""kill -9 while items flow from stage to stage: nothing answered is asked again, what was lost counts."""

import contextlib
import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from repair.core.calls import CallOutcome
from repair.store.ledger import Ledger
from tests.pipeline import flaky
from tests.pipeline.killing import finish, start

_CONCURRENCY = 3


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
