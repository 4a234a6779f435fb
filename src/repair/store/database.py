"""SQLite as the ledger and the blob store use it: WAL, numbered migrations, one writer thread with group commit.

A commit takes what has queued up while the last one ran, up to 100 writes: under load one fsync serves many writes, and
a lone write does not wait for company. A write whose future has resolved survives the death of the process; with
`durable` also that of the machine.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from repair.core.errors import StoreError
from repair.store.files import storing

Result = TypeVar("Result")
Operation = Callable[[sqlite3.Connection], Result]

_MAX_WRITES_PER_COMMIT = 100
_BUSY_S = 30.0
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


class Migration(NamedTuple):
    """One step of a schema's history. Applied once, in order, whole or not at all; never edited afterwards."""

    name: str
    apply: Operation[None]


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one clear StoreError about `path`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(path, error) from error


def explain(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _CORRUPT:
        return StoreError(
            f"{path} is damaged or not a database of this project ({error}): move it away; its calls will be made again"
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreError(
            f"cannot write {path}: the disk is full; what is finished is kept: make room and run it again"
        )
    if code == sqlite3.SQLITE_BUSY:
        return StoreError(f"{path} is being written by another process: stop it, or give another --run name")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"cannot read or write {path}: {error} (disk full, quota, or a broken disk); what was finished is kept"
        )
    return StoreError(f"cannot use {path}: {error}")


def open_for_writing(path: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    """Create or open the database and bring its schema up to date. Raises StoreError."""
    with explaining(path), storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _tuned(sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False))
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            _migrate(connection, migrations, path)
        except BaseException:
            connection.close()
            raise
    return connection


def open_for_reading(path: Path, migrations: Sequence[Migration]) -> sqlite3.Connection:
    """Open an existing database without ever changing it, also while another process writes. Raises StoreError."""
    if not path.is_file():
        raise StoreError(f"cannot read {path}: there is no such file")
    with explaining(path):
        try:
            connection = _connect_read_only(path, "mode=ro")
        except sqlite3.OperationalError:
            # On a medium that cannot be written SQLite cannot make its -shm file; without a -wal file none is needed.
            if path.with_name(f"{path.name}-wal").exists():
                raise
            connection = _connect_read_only(path, "immutable=1")
        _check_version(connection, migrations, path)
    return connection


def _connect_read_only(path: Path, how: str) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.resolve()))}?{how}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except BaseException:
        connection.close()
        raise
    return _tuned(connection)


def _tuned(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("PRAGMA cache_size=-65536")
    return connection


def _check_version(connection: sqlite3.Connection, migrations: Sequence[Migration], path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise StoreError(f"{path} was written by a newer version of repair (schema {version}): update repair")
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreError(f"{path} is a database, but not one of this project: give another --run name")
    return version


def _migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], path: Path) -> None:
    version = _check_version(connection, migrations, path)
    for number, migration in enumerate(migrations[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS migrations "
                "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, at_s REAL NOT NULL)"
            )
            migration.apply(connection)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (number, migration.name, time.time()))
            connection.execute(f"PRAGMA user_version={number}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def damage(path: Path, connection: sqlite3.Connection) -> str | None:
    """What SQLite's own check finds wrong with the file, first finding only; None if nothing. Reads all of it."""
    try:
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        return str(explain(path, error))
    return None if found == "ok" else f"{path} is damaged: {found}"


class _Job(NamedTuple):
    operation: Operation[Any]
    durable: bool
    future: "Future[Any]"


class GroupWriter:
    """The only thread that writes to one database. It owns `connection` and closes it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection
        self._durable: bool | None = None
        self._closed = False
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"writer of {path.name}", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation[Result], *, durable: bool) -> "Future[Result]":
        """Run `operation` in a coming transaction, in the order of submission. Its future carries its result, or the
        StoreError that kept it from being written."""
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()  # a waiter that gives up must not take the write with it
        self._queue.put(_Job(operation, durable, future))
        return future

    def close(self) -> None:
        """Finish what is queued, then close the connection."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()
            self._connection.close()

    def _run(self) -> None:
        while True:
            batch, last = self._next_batch()
            if batch and not self._commit(batch):
                # One bad write must not take its neighbours with it.
                for job in batch:
                    self._commit([job], alone=True)
            if last:
                return

    def _next_batch(self) -> tuple[list[_Job], bool]:
        batch: list[_Job] = []
        job = self._queue.get()
        while job is not None:
            batch.append(job)
            if len(batch) == _MAX_WRITES_PER_COMMIT:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: list[_Job], *, alone: bool = False) -> bool:
        try:
            self._set_durable(any(job.durable for job in batch))
            self._connection.execute("BEGIN IMMEDIATE")
            results = [job.operation(self._connection) for job in batch]
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - it belongs to the waiter, not to this thread
            self._rollback()
            if alone or len(batch) == 1:
                batch[0].future.set_exception(explain(self._path, error) if isinstance(error, sqlite3.Error) else error)
                return True
            return False
        for job, result in zip(batch, results, strict=True):
            job.future.set_result(result)
        return True

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                return  # SQLite has rolled back by itself (disk full, I/O error)

    def _set_durable(self, durable: bool) -> None:
        if durable is not self._durable:
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable
