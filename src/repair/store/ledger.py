"""Every model call of a run, kept: answers are never asked twice, failed attempts keep their cost and their reason.

A lease is written before a call is sent; the attempt and the end of its lease are one transaction. A lease that
outlives its process is a call that may have been billed without an answer: reopening turns it into a `lost` row.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from repair.core.calls import Answer, Attempt, Call, CallOutcome, Spent
from repair.core.errors import StoreError
from repair.core.records import Usage
from repair.store.database import GroupWriter, damage, explaining, open_for_reading, open_for_writing
from repair.store.files import storing
from repair.store.ledger_rows import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    LoggedAttempt,
    Mark,
    UsageRow,
    attempt_values,
    call_values,
    logged_attempt,
)
from repair.store.ledger_schema import MIGRATIONS
from repair.store.lock import Lock

_KEYS_PER_LOOKUP = 500

_LOST = """
INSERT INTO calls (
    {call}, attempt, outcome, error, raw, tokens_in, tokens_out, n_images, price_usd, latency_s, estimated,
    started_s, finished_s
)
SELECT {call}, 1 + (SELECT count(*) FROM calls c WHERE c.key = l.key), 'lost', 'the process ended during the call', '',
    reserved_tokens_in, reserved_tokens_out, reserved_images, reserved_usd, 0.0, 1, started_s, started_s
FROM leases l ORDER BY id
""".format(call=", ".join(CALL_COLUMNS))


class Ledger:
    """A core.calls.CallLedger on disk. A context manager. Reading is safe from any thread."""

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        *,
        writer: GroupWriter | None = None,
        lock: Lock | None = None,
        n_maybe_lost: int = 0,
    ) -> None:
        self.path = path
        self.n_maybe_lost = n_maybe_lost  # calls in flight when the process before this one died
        self._reader = reader
        self._writer = writer
        self._lock = lock
        self._lease_ids = count(1)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create or open for writing, alone: the file's folder is locked, since several runs may share a ledger.

        Raises RunLocked if another process writes to a ledger there, StoreError if the file is damaged, foreign, or of
        a newer version.
        """
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path.parent, advice="give another --run name or folder for calls")
        try:
            connection = open_for_writing(path, MIGRATIONS)
            try:
                with explaining(path):
                    n_maybe_lost = _settle_lost_leases(connection)
                reader = open_for_reading(path, MIGRATIONS)
            except BaseException:
                connection.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(path, reader, writer=GroupWriter(path, connection), lock=lock, n_maybe_lost=n_maybe_lost)

    @classmethod
    def view(cls, path: Path) -> Self:
        """Open for reading only, also while another process writes. Raises StoreError."""
        return cls(path, open_for_reading(path, MIGRATIONS))

    # ------------------------------------------------------------------------------------------ answers

    def get(self, key: str) -> Answer | None:
        """The answer of a finished call; None if there is none."""
        rows = self._rows("SELECT value, blob FROM calls WHERE key = ? AND outcome = 'done'", (key,))
        return Answer(*rows[0]) if rows else None

    def get_many(self, keys: Iterable[str]) -> dict[str, Answer]:
        """The answers of those `keys` that are finished."""
        found: dict[str, Answer] = {}
        for chunk in _chunks(list(keys), _KEYS_PER_LOOKUP):
            marks = ",".join("?" * len(chunk))
            rows = self._rows(
                f"SELECT key, value, blob FROM calls WHERE outcome = 'done' AND key IN ({marks})", tuple(chunk)
            )
            for key, value, blob in rows:
                found[key] = Answer(value, blob)
        return found

    # ------------------------------------------------------------------------------------------ writing

    def lease(self, call: Call, *, reserved: Usage, started_s: float) -> "Future[int]":
        """Note that `call` is about to be sent, with what was reserved for it. The result names the lease."""
        lease = next(self._lease_ids)
        values = (
            lease,
            *call_values(call),
            reserved.tokens_in,
            reserved.tokens_out,
            reserved.n_images,
            reserved.price_usd,
            started_s,
        )

        def write(connection: sqlite3.Connection) -> int:
            connection.execute(f"INSERT INTO leases VALUES ({','.join('?' * len(values))})", values)
            return lease

        # Not fsynced: a lease has to survive this process, not the machine.
        return self._submit(write, durable=False)

    def record(self, attempt: Attempt, *, lease: int) -> "Future[None]":
        """Keep a finished attempt and end its lease, in one transaction.

        A done answer is never overwritten: a second one is kept as `superseded`, for its cost.
        """
        key, values = attempt.call.key, attempt_values(attempt)

        def write(connection: sqlite3.Connection) -> None:
            if attempt.outcome is CallOutcome.DONE and _has_answer(connection, key):
                spare = attempt_values(attempt, outcome=CallOutcome.SUPERSEDED, error="another answer stands already")
                _insert(connection, key, spare)
            else:
                _insert(connection, key, values)
            connection.execute("DELETE FROM leases WHERE id = ?", (lease,))

        return self._submit(write, durable=True)

    def supersede(self, key: str) -> "Future[None]":
        """The done answer of `key` cannot be used any more (its bytes are gone): keep the row, but not as an answer."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE calls SET outcome = 'superseded', error = 'its bytes are gone' "
                "WHERE key = ? AND outcome = 'done'",
                (key,),
            )

        return self._submit(write, durable=True)

    def mark(self, mark: Mark) -> "Future[None]":
        """Keep a person's answer about a failure; a rater's second answer to a question replaces the first."""
        values = (mark.failure_id, mark.question, mark.rater, mark.answer, mark.at_s)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?)", values)

        return self._submit(write, durable=True)

    # ------------------------------------------------------------------------------------------ what happened

    def spent(self) -> Spent:
        """Everything used so far, failed and lost attempts included."""
        ((n_calls, tokens, price_usd, n_unpriced),) = self._rows(
            "SELECT count(*), coalesce(sum(tokens_in + tokens_out), 0), coalesce(total(price_usd), 0.0), "
            "coalesce(sum(price_usd IS NULL), 0) FROM calls"
        )
        return Spent(n_calls=n_calls, tokens=tokens, price_usd=price_usd, n_unpriced=n_unpriced)

    def usage(self) -> list[UsageRow]:
        """Counts and costs by task, backend, model and outcome, in that order."""
        return [
            UsageRow(task, backend, model_id, CallOutcome(outcome), *numbers)
            for task, backend, model_id, outcome, *numbers in self._rows(
                "SELECT task, backend, model_id, outcome, count(*), sum(tokens_in), sum(tokens_out), sum(n_images), "
                "total(price_usd), sum(price_usd IS NULL), sum(estimated), total(latency_s) "
                "FROM calls GROUP BY task, backend, model_id, outcome ORDER BY task, backend, model_id, outcome"
            )
        ]

    def n_leased(self) -> int:
        """How many calls are in flight now (or were, if the process that made them has died)."""
        return int(self._rows("SELECT count(*) FROM leases")[0][0])

    def attempts(self, *, failure_id: str | None = None, key: str | None = None) -> Iterator[LoggedAttempt]:
        """The attempts on record, oldest first: all, those first made for one failure, or those of one request."""
        where, values = [], []
        for column, value in (("failure_id", failure_id), ("key", key)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        condition = f"WHERE {' AND '.join(where)}" if where else ""
        columns = ", ".join(("attempt", *ATTEMPT_COLUMNS))
        with explaining(self.path):
            for row in self._reader.execute(f"SELECT {columns} FROM calls {condition} ORDER BY id", values):
                yield logged_attempt(row)

    def marks(self) -> list[Mark]:
        """Every person's answer, by failure, question and rater."""
        rows = self._rows(
            "SELECT failure_id, question, rater, answer, at_s FROM marks ORDER BY failure_id, question, rater"
        )
        return [Mark(*row) for row in rows]

    def damage(self) -> str | None:
        """What is wrong with the file, in one line; None if nothing. Reads all of it."""
        return damage(self.path, self._reader)

    def close(self) -> None:
        """Finish what is queued and close. The writer goes last, so that it folds the WAL into the file."""
        self._reader.close()
        if self._writer is not None:
            self._writer.close()
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with explaining(self.path):
            return self._reader.execute(query, values).fetchall()

    def _submit(self, write: Any, *, durable: bool) -> "Future[Any]":
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading only")
        return self._writer.submit(write, durable=durable)


def _settle_lost_leases(connection: sqlite3.Connection) -> int:
    connection.execute("BEGIN IMMEDIATE")
    try:
        n_lost = int(connection.execute("SELECT count(*) FROM leases").fetchone()[0])
        connection.execute(_LOST)
        connection.execute("DELETE FROM leases")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return n_lost


def _has_answer(connection: sqlite3.Connection, key: str) -> bool:
    query = "SELECT 1 FROM calls WHERE key = ? AND outcome = 'done'"
    return connection.execute(query, (key,)).fetchone() is not None


def _insert(connection: sqlite3.Connection, key: str, values: tuple[Any, ...]) -> None:
    columns = ", ".join(ATTEMPT_COLUMNS)
    connection.execute(
        f"INSERT INTO calls (attempt, {columns}) VALUES "
        f"(1 + (SELECT count(*) FROM calls WHERE key = ? AND outcome <> 'done'), {','.join('?' * len(values))})",
        (key, *values),
    )


def _chunks(keys: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
