"""Bytes by content hash, in one SQLite file: thirty thousand edited images need not be thirty thousand files.

Bytes are checked against their hash on reading: what is torn counts as absent.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from repair.core.errors import StoreError
from repair.core.identity import hash_bytes
from repair.store.database import GroupWriter, Migration, explaining, open_for_reading, open_for_writing


def _create_blobs(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL)")


MIGRATIONS = (Migration("create blobs", _create_blobs),)


class BlobStore:
    """A core.calls.BlobBox on disk. A context manager. Reading is safe from any thread."""

    def __init__(self, path: Path, reader: sqlite3.Connection, writer: GroupWriter | None) -> None:
        self.path = path
        self._reader = reader
        self._writer = writer

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create or open. Raises StoreError if the file is damaged or foreign."""
        connection = open_for_writing(path, MIGRATIONS)
        return cls(path, open_for_reading(path, MIGRATIONS), GroupWriter(path, connection))

    @classmethod
    def view(cls, path: Path) -> Self:
        """Open for reading only, also while another process writes. Raises StoreError."""
        return cls(path, open_for_reading(path, MIGRATIONS), None)

    def put(self, data: bytes) -> "Future[str]":
        """Keep `data`; the result is its content hash, once it is safe on disk. Torn bytes are replaced."""
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading only")
        digest = hash_bytes(data)

        def write(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT INTO blobs VALUES (?, ?) ON CONFLICT (hash) DO UPDATE SET data = excluded.data "
                "WHERE data IS NOT excluded.data",
                (digest, data),
            )
            return digest

        return self._writer.submit(write, durable=True)

    def put_many(self, items: Iterable[bytes]) -> list[str]:
        """Keep all `items`; returns their content hashes, in order, once they are safe on disk."""
        return [future.result() for future in [self.put(data) for data in items]]

    def get(self, digest: str) -> bytes | None:
        """The bytes of `digest`; None if there are none or they are not what they were."""
        with explaining(self.path):
            row = self._reader.execute("SELECT data FROM blobs WHERE hash = ?", (digest,)).fetchone()
        if row is None or not isinstance(row[0], bytes) or hash_bytes(row[0]) != digest:
            return None
        return row[0]

    def digests(self) -> Iterator[str]:
        """Every hash there is, in ascending order, bytes unchecked."""
        with explaining(self.path):
            for (digest,) in self._reader.execute("SELECT hash FROM blobs ORDER BY hash"):
                yield digest

    def size(self) -> tuple[int, int]:
        """How many blobs, and how many bytes in them."""
        with explaining(self.path):
            n, n_bytes = self._reader.execute("SELECT count(*), coalesce(sum(length(data)), 0) FROM blobs").fetchone()
        return int(n), int(n_bytes)

    def close(self) -> None:
        """Finish what is queued and close. The writer goes last, so that it folds the WAL into the file."""
        self._reader.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
