"""Every model call of a run, kept: answers are never asked twice, failed attempts keep their cost and their reason.

A lease is written before a call is sent; the attempt and the end of its lease are one transaction. A lease that
outlives its process is a call that may have been billed without an answer: the next process to open the ledger turns it
into a `lost` row.

Several processes may write to one ledger. Each holds a lock file of its own beside it for as long as it lives, however
it ends: that is how the others know whose leases are still good.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from repair.core.calls import NO_CAPS, Answer, Attempt, Call, CallOutcome, Caps, Grant, Spent
from repair.core.errors import StoreError
from repair.core.records import Usage
from repair.store.database import GroupWriter, damage, explain, explaining, open_for_reading, open_for_writing
from repair.store.ledger_rows import (
    ATTEMPT_COLUMNS,
    CALL_COLUMNS,
    FailureUsage,
    LoggedAttempt,
    Mark,
    UsageRow,
    attempt_values,
    call_values,
    logged_attempt,
)
from repair.store.ledger_schema import MIGRATIONS
from repair.store.owners import Owner

_ANSWER = "SELECT value, blob FROM calls WHERE key = ? AND outcome = 'done'"
_LEASE_COLUMNS = (
    "reserved_tokens_in, reserved_tokens_out, reserved_images, reserved_usd, started_s, owner, held_tokens, held_usd"
)

_LOST = """
INSERT INTO calls (
    {call}, attempt, outcome, error, raw, tokens_in, tokens_out, n_images, price_usd, latency_s, estimated,
    started_s, finished_s
)
SELECT {call}, 1 + (SELECT count(*) FROM calls c WHERE c.key = l.key), 'lost', 'the process ended during the call', '',
    reserved_tokens_in, reserved_tokens_out, reserved_images, reserved_usd, 0.0, 1, started_s, started_s
FROM leases l WHERE owner = ? ORDER BY id
""".format(call=", ".join(CALL_COLUMNS))


class Ledger:
    """A core.calls.CallLedger on disk. A context manager. Reading is safe from any thread."""

    def __init__(
        self,
        path: Path,
        reader: sqlite3.Connection,
        *,
        writer: GroupWriter | None = None,
        owner: "Owner | None" = None,
        n_maybe_lost: int = 0,
    ) -> None:
        self.path = path
        self.n_maybe_lost = n_maybe_lost  # calls in flight when the process before this one died
        self._reader = reader
        self._writer = writer
        self._owner = owner

    @classmethod
    def open(cls, path: Path) -> Self:
        """Create or open for writing, beside others. Raises StoreError if the file is damaged, foreign, or of a newer
        version."""
        connection = open_for_writing(path, MIGRATIONS)
        try:
            owner = Owner(path)
            try:
                with explaining(path):
                    n_maybe_lost = _settle_lost_leases(connection, owner)
                reader = open_for_reading(path, MIGRATIONS)
            except BaseException:
                owner.leave()
                raise
        except BaseException:
            connection.close()
            raise
        return cls(path, reader, writer=GroupWriter(path, connection), owner=owner, n_maybe_lost=n_maybe_lost)

    @classmethod
    def view(cls, path: Path) -> Self:
        """Open for reading only, also while another process writes. Raises StoreError."""
        return cls(path, open_for_reading(path, MIGRATIONS))

    # ------------------------------------------------------------------------------------------ answers

    def get(self, key: str) -> Answer | None:
        """The answer of a finished call; None if there is none."""
        try:  # not by `_rows`: a resumed run asks for every one of its calls
            rows = self._reader.execute(_ANSWER, (key,)).fetchall()
        except sqlite3.Error as error:
            raise explain(self.path, error) from error
        return Answer(*rows[0]) if rows else None

    # ------------------------------------------------------------------------------------------ writing

    def lease(
        self, call: Call, *, declared: Usage, held: Usage | None = None, caps: Caps = NO_CAPS, started_s: float
    ) -> "Future[Grant]":
        """Note that `call` is about to be sent, if it fits under `caps` beside everything that any process has spent
        or holds. What it may use is `held` (default: `declared`); `declared` is charged if it is lost.

        No lease is given for a call that another process has made meanwhile, or is making.
        """
        held = held or declared
        owner = "" if self._owner is None else self._owner.name
        values = (
            *call_values(call),
            declared.tokens_in,
            declared.tokens_out,
            declared.n_images,
            declared.price_usd,
            started_s,
            owner,
            held.tokens_in + held.tokens_out,
            held.price_usd or 0.0,
        )

        def write(connection: sqlite3.Connection) -> Grant:
            if _has_answer(connection, call.key):
                return Grant(answered=True)
            if self._is_made_elsewhere(connection, call.key):
                return Grant(elsewhere=True)
            if caps != NO_CAPS:
                spent, in_flight = _totals(connection), _held(connection)
                broken = caps.broken_by(held, spent=spent, held=in_flight)
                if broken is not None:
                    return Grant(broken=broken, alone=in_flight.n_calls == 0, spent=spent)
            marks = ",".join("?" * len(values))
            columns = f"{', '.join(CALL_COLUMNS)}, {_LEASE_COLUMNS}"
            return Grant(connection.execute(f"INSERT INTO leases ({columns}) VALUES ({marks})", values).lastrowid)

        # Not fsynced: a lease has to survive this process, not the machine.
        return self._submit(write, durable=False)

    def withdraw(self, lease: int) -> "Future[None]":
        """The leased call was not taken (a 429), so nothing was asked: end the lease without a trace."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM leases WHERE id = ?", (lease,))

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
        with explaining(self.path):
            if self._writer is None and not _has_totals(self._reader):  # made by an older version, opened to look at
                return _summed(self._reader)
            return _totals(self._reader)

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

    def usage_by_failure(self) -> list[FailureUsage]:
        """Counts and costs by the failure that calls were made for, and task, in that order."""
        return [
            FailureUsage(*row)
            for row in self._rows(
                "SELECT failure_id, task, count(*), sum(tokens_in + tokens_out), sum(n_images), total(price_usd), "
                "sum(price_usd IS NULL) FROM calls GROUP BY failure_id, task ORDER BY failure_id, task"
            )
        ]

    def n_leased(self) -> int:
        """How many calls are in flight now, by any process (or were, if the process that made them has died)."""
        return int(self._rows("SELECT count(*) FROM leases")[0][0])

    def has_answered(self, task: str) -> bool:
        """Whether any call of the task has ever been answered."""
        return bool(self._rows("SELECT 1 FROM calls WHERE task = ? AND outcome = 'done' LIMIT 1", (task,)))

    def n_ended(self, key: str, outcome: CallOutcome) -> int:
        """How often the call ended as `outcome`, which is not done."""
        query = "SELECT count(*) FROM calls WHERE key = ? AND outcome <> 'done' AND outcome = ?"  # by a partial index
        return int(self._rows(query, (key, outcome))[0][0])

    def failed_items(self) -> frozenset[str]:
        """The failures for which a call was made that has no answer: it failed or was lost."""
        rows = self._rows(
            "SELECT DISTINCT failure_id FROM calls AS tried WHERE outcome <> 'done' AND NOT EXISTS "
            "(SELECT 1 FROM calls AS answered WHERE answered.key = tried.key AND answered.outcome = 'done')"
        )
        return frozenset(failure_id for (failure_id,) in rows)

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
        if self._owner is not None:
            self._owner.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with explaining(self.path):
            return self._reader.execute(query, values).fetchall()

    def _is_made_elsewhere(self, connection: sqlite3.Connection, key: str) -> bool:
        """Whether a living process is making this call; leases of dead ones are settled on the way."""
        assert self._owner is not None
        found = connection.execute("SELECT owner FROM leases WHERE key = ?", (key,)).fetchall()
        for owner in {owner for (owner,) in found} - {self._owner.name}:
            if self._owner.is_alive(owner):
                return True
            _settle_leases_of(connection, owner)
        return False

    def _submit(self, write: Any, *, durable: bool) -> "Future[Any]":
        if self._writer is None:
            raise StoreError(f"{self.path} was opened for reading only")
        return self._writer.submit(write, durable=durable)


def _settle_lost_leases(connection: sqlite3.Connection, owner: "Owner") -> int:
    """Leases of processes that are no more become lost rows. Returns how many there were."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        owners = [name for (name,) in connection.execute("SELECT DISTINCT owner FROM leases")]
        n_lost = sum(_settle_leases_of(connection, name) for name in owners if not owner.is_alive(name))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return n_lost


def _settle_leases_of(connection: sqlite3.Connection, owner: str) -> int:
    connection.execute(_LOST, (owner,))
    return connection.execute("DELETE FROM leases WHERE owner = ?", (owner,)).rowcount


def _totals(connection: sqlite3.Connection) -> Spent:
    n_calls, tokens, price_usd, n_unpriced = connection.execute(
        "SELECT n_calls, tokens, price_usd, n_unpriced FROM totals"
    ).fetchone()
    return Spent(n_calls=n_calls, tokens=tokens, price_usd=round(price_usd, 9), n_unpriced=n_unpriced)


def _has_totals(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'totals'").fetchone() is not None


def _summed(connection: sqlite3.Connection) -> Spent:
    n_calls, tokens, price_usd, n_unpriced = connection.execute(
        "SELECT count(*), coalesce(sum(tokens_in + tokens_out), 0), total(price_usd), "
        "coalesce(sum(price_usd IS NULL), 0) FROM calls"
    ).fetchone()
    return Spent(n_calls=n_calls, tokens=tokens, price_usd=price_usd, n_unpriced=n_unpriced)


def _held(connection: sqlite3.Connection) -> Spent:
    """What the calls in flight hold back, whoever makes them."""
    n_calls, tokens, price_usd = connection.execute(
        "SELECT count(*), coalesce(sum(held_tokens), 0), total(held_usd) FROM leases"
    ).fetchone()
    return Spent(n_calls=n_calls, tokens=tokens, price_usd=price_usd)


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
