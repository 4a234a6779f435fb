"""Which of the processes that write to one database are alive: each holds a lock file beside it, named by itself.

A lock ends with its process, however that ends, so what a dead process left can be told from what a living one needs.
"""

import uuid
from pathlib import Path

from repair.core.errors import RunLocked
from repair.store.lock import Lock


class Owner:
    """This process (or one opening in it) among those that write to `path`."""

    def __init__(self, path: Path) -> None:
        """Take a new name, and clear away the files of dead ones."""
        self._path = path
        self.name, self._lock = self._take_name()
        for file in path.parent.glob(self._file("*").name):
            name = file.name.removeprefix(f"{path.name}-").removesuffix(".lock")
            if name != self.name:
                self.is_alive(name)

    def is_alive(self, name: str) -> bool:
        """Whether that owner still is; the file of one that is not is removed."""
        if name == self.name:
            return True
        file = self._file(name)
        if not file.exists():
            return False
        try:
            lock = Lock(file)
        except RunLocked:
            return True
        file.unlink(missing_ok=True)  # names are never used again
        lock.release()
        return False

    def leave(self) -> None:
        """Be no owner any more."""
        self._file(self.name).unlink(missing_ok=True)
        self._lock.release()

    def _take_name(self) -> tuple[str, Lock]:
        while True:
            name = uuid.uuid4().hex
            try:
                lock = Lock(self._file(name))
            except RunLocked:
                continue  # another process that clears away was quicker than our lock, and took us for dead
            if self._file(name).exists():
                return name, lock
            lock.release()

    def _file(self, name: str) -> Path:
        return self._path.with_name(f"{self._path.name}-{name}.lock")
