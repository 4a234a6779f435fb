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


def _share_leases(connection: sqlite3.Connection) -> None:
    """Several processes may write: a lease says whose it is, and what it holds back may be more than what is charged
    if it is lost."""
    connection.execute("ALTER TABLE leases ADD COLUMN owner TEXT NOT NULL DEFAULT ''")
    connection.execute("ALTER TABLE leases ADD COLUMN held_tokens INTEGER NOT NULL DEFAULT 0")
    connection.execute("ALTER TABLE leases ADD COLUMN held_usd REAL NOT NULL DEFAULT 0")
    connection.execute("CREATE INDEX leases_key ON leases (key)")


def _keep_totals(connection: sqlite3.Connection) -> None:
    """What has been used so far, kept by a trigger: a budget is checked before every call, over all rows."""
    connection.execute(
        "CREATE TABLE totals (n_calls INTEGER NOT NULL, tokens INTEGER NOT NULL, price_usd REAL NOT NULL, "
        "n_unpriced INTEGER NOT NULL)"
    )
    connection.execute(
        "INSERT INTO totals SELECT count(*), coalesce(sum(tokens_in + tokens_out), 0), total(price_usd), "
        "coalesce(sum(price_usd IS NULL), 0) FROM calls"
    )
    connection.execute(
        """
        CREATE TRIGGER calls_are_counted AFTER INSERT ON calls BEGIN
            UPDATE totals SET
                n_calls = n_calls + 1,
                tokens = tokens + new.tokens_in + new.tokens_out,
                price_usd = price_usd + coalesce(new.price_usd, 0.0),
                n_unpriced = n_unpriced + (new.price_usd IS NULL);
        END
        """
    )


MIGRATIONS = (
    Migration("create calls", _create_calls),
    Migration("create leases", _create_leases),
    Migration("create marks", _create_marks),
    Migration("share leases", _share_leases),
    Migration("keep totals", _keep_totals),
)
