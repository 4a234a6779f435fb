"""The ledger's schema, as a history of migrations. A new one goes at the end; the old ones stay as they are."""

import sqlite3

from repair.store.database import Migration


def _create_calls(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE calls (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL,
            task TEXT NOT NULL,
            backend TEXT NOT NULL,
            failure_id TEXT NOT NULL,
            seed INTEGER,
            prompt_id TEXT NOT NULL,
            prompt_version TEXT NOT NULL,
            model_id TEXT NOT NULL,
            parameters TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            outcome TEXT NOT NULL,
            error TEXT,
            raw TEXT NOT NULL,
            value TEXT,
            blob TEXT,
            tokens_in INTEGER NOT NULL,
            tokens_out INTEGER NOT NULL,
            n_images INTEGER NOT NULL,
            price_usd REAL,
            latency_s REAL NOT NULL,
            estimated INTEGER NOT NULL,
            started_s REAL NOT NULL,
            finished_s REAL NOT NULL
        )
        """
    )
    # Two partial indexes share the rows: a done answer is unique, the rest is only counted.
    connection.execute("CREATE UNIQUE INDEX calls_done ON calls (key) WHERE outcome = 'done'")
    connection.execute("CREATE INDEX calls_not_done ON calls (key) WHERE outcome <> 'done'")


def _create_leases(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE leases (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL,
            task TEXT NOT NULL,
            backend TEXT NOT NULL,
            failure_id TEXT NOT NULL,
            seed INTEGER,
            prompt_id TEXT NOT NULL,
            prompt_version TEXT NOT NULL,
            model_id TEXT NOT NULL,
            parameters TEXT NOT NULL,
            reserved_tokens_in INTEGER NOT NULL,
            reserved_tokens_out INTEGER NOT NULL,
            reserved_images INTEGER NOT NULL,
            reserved_usd REAL,
            started_s REAL NOT NULL
        )
        """
    )


def _create_marks(connection: sqlite3.Connection) -> None:
    connection.execute(
        """
        CREATE TABLE marks (
            failure_id TEXT NOT NULL,
            question TEXT NOT NULL,
            rater TEXT NOT NULL,
            answer TEXT NOT NULL,
            at_s REAL NOT NULL,
            PRIMARY KEY (failure_id, question, rater)
        )
        """
    )


MIGRATIONS = (
    Migration("create calls", _create_calls),
    Migration("create leases", _create_leases),
    Migration("create marks", _create_marks),
)
