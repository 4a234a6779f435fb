import json
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from repair.core.errors import RunLocked, StoreError
from repair.store.lock import Lock, holder

HOLD = """
import sys
from pathlib import Path
from repair.store.lock import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

HOLD_AND_FORK = """
import os, sys
from pathlib import Path
from repair.store.lock import Lock
lock = Lock(Path(sys.argv[1]))
child = os.fork()
if child == 0:  # it speaks for itself, so that whoever reads knows it has been through the fork
    print(os.getpid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


def start(script: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_a_held_lock_names_its_holder_and_a_dead_one_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = start(HOLD, path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunLocked) as caught:
            Lock(path)
        assert f"process {process.pid} on {socket.gethostname()}" in str(caught.value)
        assert holder(path) == (process.pid, socket.gethostname())
    finally:
        end(process)
    assert json.loads(path.read_text())["pid"] == process.pid  # it could not clean up
    assert holder(path) is None
    lock = Lock(path)
    assert holder(path) == (os.getpid(), socket.gethostname())
    lock.release()
    assert holder(path) is None


def test_a_forked_child_does_not_keep_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = start(HOLD_AND_FORK, path)
    assert process.stdout is not None
    assert process.stdin is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # still there, waiting for its input to end
        Lock(path).release()
    finally:
        process.stdin.close()
        process.stdout.close()


def test_a_lock_is_exclusive_within_one_process_too(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with pytest.raises(RunLocked, match=f"process {os.getpid()} "):
        Lock(tmp_path / "lock")
    lock.release()
    lock.release()
    Lock(tmp_path / "lock").release()


def _try(path: Path) -> bool:
    try:
        Lock(path).release()
    except RunLocked:
        return False
    return True


def test_spawned_workers_neither_hold_nor_end_the_lock(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_try, (tmp_path / "lock",)) is False
    assert _try(tmp_path / "lock") is False
    lock.release()
    assert _try(tmp_path / "lock") is True


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="absent/lock"):
        Lock(tmp_path / "absent" / "lock")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "host": "y"}'])
def test_an_unreadable_lock_file_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "lock").write_text(text)
    assert holder(tmp_path / "lock") is None
    assert holder(tmp_path / "absent") is None
