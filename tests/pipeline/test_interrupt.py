"""Ctrl-C on a real `repair` process: once lets the calls in flight end, twice aborts them; both say how to go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repair.store.ledger import Ledger
from tests.pipeline import flaky
from tests.pipeline.tiny import overrides

ROOT = Path(__file__).parents[2]


def start(folder: Path) -> "subprocess.Popen[str]":
    """`repair verify CONFIG`, two calls at once, none of which is answered while `hangs` is there."""
    (folder / "my.toml").write_text("")
    (folder / "hangs").touch()
    os.mkfifo(folder / "calls")
    settings = overrides(folder, *flaky.settings(folder), "calls.concurrency=2")
    arguments = ["verify", str(folder / "my.toml"), *(word for setting in settings for word in ("--set", setting))]
    return subprocess.Popen(
        [sys.executable, "-c", flaky.COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "REPAIR_RUN__NAME": "run"},
    )


def first_calls(folder: Path, n: int) -> list[str]:
    """Read the names of the first `n` calls as they are made: `calls` is a pipe."""
    handle = os.open(folder / "calls", os.O_RDWR)  # both ends, so that it is not at its end between two writers
    with os.fdopen(handle) as pipe:
        return [pipe.readline().split()[1] for _ in range(n)]


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Ctrl-C, until it is said to have arrived."""
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    for line in process.stderr:
        if "finishing the calls in flight; Ctrl-C again aborts them" in line:
            return
    pytest.fail("it ended without a word")


def test_once_drains_and_the_command_named_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        asked = first_calls(tmp_path, 2)
        interrupt(process)
        (tmp_path / "hangs").unlink()
        errors = process.communicate()[1]
    finally:
        process.kill()
    assert process.returncode == 130
    last = errors.splitlines()[-1]
    assert last.startswith("repair: interrupted; everything finished is kept: `repair verify ")
    assert last.endswith("` goes on from here")
    with Ledger.view(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.n_leased() == 0
        assert {logged.attempt.call.failure_id for logged in ledger.attempts()} == set(asked)


def test_twice_aborts(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        first_calls(tmp_path, 2)
        interrupt(process)
        process.send_signal(signal.SIGINT)
        errors = process.communicate()[1]
    finally:
        process.kill()
    assert process.returncode == 130
    assert "aborted with 2 calls in flight, which may be billed without an answer: `repair verify " in errors
    with Ledger.open(tmp_path / "run" / "ledger.sqlite") as ledger:
        assert ledger.n_maybe_lost == 2
