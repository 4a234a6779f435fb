"""kill -9 at random moments: the end is that of an uninterrupted run, and no answer is paid for twice."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from repair.core.calls import CallOutcome
from repair.store.ledger import Ledger
from tests.pipeline.killing import finish, start
from tests.pipeline.tiny import table_bytes

_N_KILLS = 5  # `benchmarks/kills.py` does a hundred


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
