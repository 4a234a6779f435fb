"""One writer per run folder, by flock: it ends with the process that holds it, however that process ends.

POSIX only (Linux, macOS, WSL). The lock file also says who holds it, for people.
"""

import fcntl
import json
import os
import socket
import weakref
from pathlib import Path
from typing import NamedTuple

from repair.core.errors import RunLocked
from repair.store.files import storing


class Holder(NamedTuple):
    pid: int
    host: str

    def alive(self) -> bool:
        """Whether that process may still exist; processes of other hosts are taken to."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Lock:
    """Held from construction until `release`, or until this process ends.

    `path` is a file, made if need be, that will say who holds the lock; or a folder, which then is locked itself and
    says nothing. Raises RunLocked, naming pid and host where known, if another process (or another Lock of this one)
    holds it; `advice` ends its line. What a dead process left in the file is overwritten.
    """

    def __init__(self, path: Path, *, advice: str = "give another --run name") -> None:
        self._is_folder = path.is_dir()
        with storing(path):
            self._handle = os.open(path, os.O_RDONLY if self._is_folder else os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            except BlockingIOError as error:
                os.close(self._handle)
                raise RunLocked(_locked(path, advice)) from error
            except OSError:
                os.close(self._handle)
                raise
            _held.add(self)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self in _held:
            _held.discard(self)
            self._write(b"")
            os.close(self._handle)

    def _write(self, text: bytes) -> None:
        if not self._is_folder:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text, 0)

    def _forget(self) -> None:
        os.close(self._handle)


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _forget_in_child() -> None:
    # A forked worker inherits the handle, and the lock would outlive us if the worker did.
    for lock in list(_held):
        lock._forget()
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def holder(path: Path) -> Holder | None:
    """Who holds the lock at `path`; None if nobody does, as far as can be told from outside without touching it."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        found = Holder(int(facts["pid"]), str(facts["host"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.alive() else None


def _locked(path: Path, advice: str) -> str:
    folder = path if path.is_dir() else path.parent
    found = None if path.is_dir() else holder(path)
    who = f"process {found.pid} on {found.host}" if found else "another process"
    return f"{folder} is in use by {who}: wait for it, stop it, or {advice}"
