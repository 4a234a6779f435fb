import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from repair.core.calls import NO_CAPS, Answer, Attempt, Call, CallFacts, CallOutcome, Caps, Grant, Spent
from repair.core.errors import StoreError
from repair.core.records import Usage
from repair.store.database import Migration, explaining, open_for_writing
from repair.store.ledger import Ledger
from repair.store.ledger_rows import ATTEMPT_COLUMNS, Mark, attempt_values, call_values
from repair.store.ledger_schema import MIGRATIONS

ROOT = Path(__file__).parents[2]
FACTS = CallFacts(prompt_id="verify", prompt_version="2", model_id="m", parameters={"temperature": 0.5, "n": [1]})


def call(key: str, *, task: str = "verify", backend: str = "b2:x") -> Call:
    return Call(key=key, task=task, backend=backend, failure_id=f"f-{key}", seed=2**62, facts=FACTS)


def attempt(key: str, *, outcome: CallOutcome = CallOutcome.DONE, **changes: Any) -> Attempt:
    done = outcome is CallOutcome.DONE
    fields: dict[str, Any] = {
        "call": call(key),
        "outcome": outcome,
        "usage": Usage(tokens_in=10, tokens_out=2, n_images=1, price_usd=0.25, latency_s=1.5),
        "estimated": False,
        "raw": f"raw of {key} ✓\0",
        "value": f'"value of {key}"' if done else None,
        "blob": None,
        "error": None if done else "no",
        "started_s": 100.0,
        "finished_s": 101.5,
    }
    return Attempt(**{**fields, **changes})


def answers(ledger: Ledger, keys: Iterable[str]) -> dict[str, Answer]:
    return {key: answer for key in keys if (answer := ledger.get(key))}


def test_an_attempt_comes_back_as_it_was(tmp_path: Path) -> None:
    rows = [
        attempt("a"),
        attempt("b", outcome=CallOutcome.REFUSED),
        attempt("c", blob="b2:0", value=None, estimated=True),
    ]
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        for row in rows:
            ledger.record(row, lease=0).result()
        assert [logged.attempt for logged in ledger.attempts()] == rows
        assert [logged.attempt for logged in ledger.attempts(failure_id="f-b")] == [rows[1]]
        assert [logged.attempt for logged in ledger.attempts(key="c")] == [rows[2]]
        assert ledger.damage() is None


def test_only_finished_calls_answer(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        ledger.record(attempt("a"), lease=0)
        ledger.record(attempt("b", blob="b2:7", value=None), lease=0)
        for outcome in set(CallOutcome) - {CallOutcome.DONE}:
            ledger.record(attempt(f"no-{outcome}", outcome=outcome), lease=0).result()
        assert ledger.get("a") == Answer('"value of a"', None)
        assert ledger.get("b") == Answer(None, "b2:7")
        assert ledger.get("absent") is None
        keys = ["a", "absent", "b", *(f"no-{outcome}" for outcome in CallOutcome)]
        assert set(answers(ledger, keys)) == {"a", "b"}


def test_how_often_a_call_ended_one_way_is_found_by_an_index(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        for outcome in (CallOutcome.REFUSED, CallOutcome.BAD_REPLY, CallOutcome.BAD_REPLY, CallOutcome.DONE):
            ledger.record(attempt("a", outcome=outcome), lease=0).result()
        asked = [CallOutcome.REFUSED, CallOutcome.BAD_REPLY, CallOutcome.LOST]
        assert [ledger.n_ended("a", outcome) for outcome in asked] == [1, 2, 0]
        queries: list[str] = []
        ledger._reader.set_trace_callback(queries.append)
        ledger.n_ended("a", CallOutcome.REFUSED)
        ledger._reader.set_trace_callback(None)
        (plan,) = ledger._reader.execute(f"EXPLAIN QUERY PLAN {queries[0]}").fetchall()
        assert "USING INDEX" in plan[-1]


def test_attempts_at_one_key_are_numbered_over_sessions(tmp_path: Path) -> None:
    for outcome in (CallOutcome.UNAVAILABLE, CallOutcome.BAD_REPLY, CallOutcome.DONE):
        with Ledger.open(tmp_path / "l") as ledger:
            ledger.record(attempt("a", outcome=outcome), lease=0).result()
            ledger.record(attempt("other", outcome=CallOutcome.REFUSED), lease=0).result()
    with Ledger.view(tmp_path / "l") as view:
        assert [(logged.number, logged.attempt.outcome) for logged in view.attempts(key="a")] == [
            (1, "unavailable"),
            (2, "bad_reply"),
            (3, "done"),
        ]


def test_a_done_answer_is_never_overwritten_and_the_second_is_still_billed(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        ledger.record(attempt("a", value='"first"'), lease=0).result()
        ledger.record(attempt("a", value='"second"'), lease=0).result()
        ledger.record(attempt("a", outcome=CallOutcome.REFUSED), lease=0).result()
        assert ledger.get("a") == Answer('"first"', None)
        assert ledger.spent() == Spent(n_calls=3, tokens=36, price_usd=0.75)


def test_a_superseded_answer_makes_room_and_keeps_its_cost(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        ledger.record(attempt("a", blob="b2:1", value=None), lease=0).result()
        ledger.supersede("a").result()
        assert ledger.get("a") is None
        ledger.record(attempt("a", blob="b2:2", value=None), lease=0).result()
        assert ledger.get("a") == Answer(None, "b2:2")
        assert ledger.spent().n_calls == 2


def test_leases_that_outlive_their_process_are_counted_and_charged(tmp_path: Path) -> None:
    path = tmp_path / "l"
    reserved = Usage(tokens_in=5, tokens_out=6, n_images=1, price_usd=0.5)
    with Ledger.open(path) as ledger:
        ledger.record(attempt("b", outcome=CallOutcome.UNAVAILABLE), lease=0).result()
        leases = [ledger.lease(call(key), declared=reserved, started_s=9.0).result().lease for key in "abc"]
        ledger.record(attempt("a"), lease=leases[0] or 0).result()
        assert ledger.n_leased() == 2
        assert ledger.n_maybe_lost == 0
    with Ledger.view(path) as view:
        assert view.n_leased() == 2  # looking changes nothing
    with Ledger.open(path) as ledger:
        assert (ledger.n_maybe_lost, ledger.n_leased()) == (2, 0)
        lost = [logged for logged in ledger.attempts() if logged.attempt.outcome is CallOutcome.LOST]
        assert [(logged.attempt.call, logged.number) for logged in lost] == [(call("b"), 2), (call("c"), 1)]
        assert all(logged.attempt.usage == reserved and logged.attempt.estimated for logged in lost)
        assert ledger.spent() == Spent(n_calls=4, tokens=2 * 12 + 2 * 11, price_usd=2 * 0.25 + 2 * 0.5)
    with Ledger.open(path) as ledger:
        assert ledger.n_maybe_lost == 0


def test_usage_is_summed_by_task_backend_model_and_outcome(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.spent() == Spent()
        assert ledger.usage() == []
        for index in range(3):
            ledger.record(attempt(f"a{index}"), lease=0)
        ledger.record(attempt("b", outcome=CallOutcome.REFUSED, usage=Usage(tokens_in=1), estimated=True), lease=0)
        ledger.record(attempt("c", call=call("c", task="edit")), lease=0).result()
        assert [tuple(row) for row in ledger.usage()] == [
            ("edit", "b2:x", "m", "done", 1, 10, 2, 1, 0.25, 0, 0, 1.5),
            ("verify", "b2:x", "m", "done", 3, 30, 6, 3, 0.75, 0, 0, 4.5),
            ("verify", "b2:x", "m", "refused", 1, 1, 0, 0, 0.0, 1, 1, 0.0),
        ]
        assert ledger.spent().n_unpriced == 1


def test_marks_are_kept_one_a_rater_and_question(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        for answer in ("no", "yes"):
            ledger.mark(Mark("f1", "is the edit true?", "ann", answer, 5.0)).result()
        ledger.mark(Mark("f1", "is the edit true?", "bob", "no", 6.0)).result()
        assert [(mark.rater, mark.answer) for mark in ledger.marks()] == [("ann", "yes"), ("bob", "no")]


def test_text_that_is_not_unicode_is_kept_in_escapes(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        ledger.record(attempt("a", raw="half \ud83d"), lease=0).result()
        assert next(ledger.attempts()).attempt.raw == "half \\ud83d"


def test_a_write_that_cannot_be_kept_does_not_take_its_neighbours_along(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        pending = [
            ledger.record(attempt(f"k{index}", blob={} if index % 10 == 3 else None), lease=0) for index in range(300)
        ]
        failed = [index for index, future in enumerate(pending) if future.exception() is not None]
        assert failed == list(range(3, 300, 10))
        assert isinstance(pending[3].exception(), StoreError)
        assert len(answers(ledger, [f"k{index}" for index in range(300)])) == 270


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger, Ledger.view(tmp_path / "l") as view:
        for index in range(50):
            ledger.record(attempt(f"k{index}"), lease=0).result()
            assert view.spent().n_calls == index + 1
        with pytest.raises(StoreError, match="for reading only"):
            view.record(attempt("x"), lease=0)
        with pytest.raises(StoreError, match="for reading only"):
            view.lease(call("x"), declared=Usage(), started_s=0.0)


# ---------------------------------------------------------------------------------------------- several writers


def lease(ledger: Ledger, key: str, *, tokens: int = 0, caps: Caps = NO_CAPS) -> Grant:
    usage = Usage(tokens_in=tokens, price_usd=tokens / 100)
    return ledger.lease(call(key), declared=usage, caps=caps, started_s=1.0).result()


def test_several_writers_share_a_ledger_and_a_call_is_made_by_one_of_them(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with Ledger.open(path) as one, Ledger.open(path) as two:
        first = lease(one, "a")
        assert first.lease is not None
        assert lease(two, "a") == Grant(elsewhere=True)
        assert lease(two, "b").lease not in (None, first.lease)
        one.record(attempt("a"), lease=first.lease).result()
        assert lease(two, "a") == Grant(answered=True)
        assert two.get("a") == one.get("a") is not None
        assert one.n_leased() == 1  # opening the second did not take the first for dead
    assert not list(tmp_path.glob("*.lock"))


def test_caps_hold_over_all_writers_and_count_what_they_hold(tmp_path: Path) -> None:
    caps = Caps(max_tokens=100)
    with Ledger.open(tmp_path / "l") as one, Ledger.open(tmp_path / "l") as two:
        held = lease(one, "a", tokens=60, caps=caps)
        assert lease(two, "b", tokens=50, caps=caps) == Grant(broken="max_tokens")  # another is in flight: may wait
        granted = lease(two, "b", tokens=40, caps=caps)
        assert held.lease
        assert granted.lease
        one.withdraw(held.lease).result()
        two.record(attempt("b"), lease=granted.lease).result()
        spent = Spent(n_calls=1, tokens=12, price_usd=0.25)
        assert lease(one, "c", tokens=90, caps=caps) == Grant(broken="max_tokens", alone=True, spent=spent)
        assert lease(one, "c", tokens=88, caps=caps).lease
        assert lease(two, "d", caps=Caps(max_calls=2)).broken == "max_calls"
        assert lease(two, "d", tokens=30, caps=Caps(max_usd=1.40)).broken == "max_usd"
        assert lease(two, "d", tokens=27, caps=Caps(max_usd=1.40)).lease


def test_the_leases_of_a_killed_writer_are_settled_by_whoever_meets_them(tmp_path: Path) -> None:
    path = tmp_path / "l"
    code = "import sys, tests.store.test_ledger as t; t.lease_and_hang(t.Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    with Ledger.open(path) as ledger:
        assert process.stdout.readline() == b"leased\n"
        assert lease(ledger, "a").elsewhere
        process.kill()
        process.communicate()
        assert lease(ledger, "a").lease
        assert [logged.attempt.outcome for logged in ledger.attempts()] == [CallOutcome.LOST] * 2
    with Ledger.open(path) as ledger:  # the lease of this one, closed while the call was in flight
        assert ledger.n_maybe_lost == 1
        assert ledger.n_leased() == 0
    assert not list(tmp_path.glob("*.lock"))


def lease_and_hang(path: Path) -> None:
    with Ledger.open(path) as ledger:
        lease(ledger, "a")
        lease(ledger, "b")
        os.write(1, b"leased\n")
        threading.Event().wait()


def test_a_ledger_of_an_older_version_can_be_looked_at_and_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l"
    old = open_for_writing(path, MIGRATIONS[:3])
    row = attempt("a")
    columns, values = ", ".join(ATTEMPT_COLUMNS), attempt_values(row)
    old.execute(f"INSERT INTO calls (attempt, {columns}) VALUES (1, {','.join('?' * len(values))})", values)
    old.execute(f"INSERT INTO leases VALUES (1, {','.join('?' * 9)}, 5, 6, 1, 0.5, 9.0)", call_values(call("b")))
    old.close()
    with Ledger.view(path) as view:
        assert view.spent() == Spent(n_calls=1, tokens=12, price_usd=0.25)
    with Ledger.open(path) as ledger:
        assert ledger.n_maybe_lost == 1
        assert ledger.spent() == Spent(n_calls=2, tokens=23, price_usd=0.75)
        ledger.record(attempt("c"), lease=0).result()
        assert ledger.spent().n_calls == 3


def test_items_whose_calls_failed_are_known_until_one_is_answered(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l") as ledger:
        ledger.record(attempt("a", outcome=CallOutcome.REFUSED), lease=0)
        ledger.record(attempt("b", outcome=CallOutcome.UNAVAILABLE), lease=0)
        ledger.record(attempt("b"), lease=0)
        ledger.record(attempt("c"), lease=0).result()
        assert ledger.failed_items() == {"f-a"}


def test_damaged_foreign_and_newer_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with pytest.raises(StoreError, match="no such file"):
        Ledger.view(path)
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    for opener in (Ledger.open, Ledger.view):
        with pytest.raises(StoreError, match=r"ledger\.sqlite is damaged or not a database"):
            opener(path)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE photos (name TEXT)")
    other.close()
    for opener in (Ledger.open, Ledger.view):
        with pytest.raises(StoreError, match="not one of this project"):
            opener(path)
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version=99")
    other.close()
    with pytest.raises(StoreError, match="newer version"):
        Ledger.open(path)
    with pytest.raises(StoreError, match=r"absent|cannot"):
        Ledger.open(Path("/dev/null/absent/ledger.sqlite"))


def test_a_cut_file_is_refused_or_gives_whole_answers_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    keys = [f"k{index}" for index in range(400)]
    with Ledger.open(path) as ledger:
        for future in [ledger.record(attempt(key), lease=0) for key in keys]:
            future.result()
    whole = path.read_bytes()
    rng = random.Random(5)
    n_refused = 0
    for length in [10, 4096, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(25))]:
        path.write_bytes(whole[:length])
        try:
            with Ledger.view(path) as view:
                found = answers(view, keys)
                assert view.damage() is None
        except StoreError as error:
            n_refused += 1
            line = str(error)
            assert "ledger.sqlite" in line
            assert "\n" not in line
            continue
        assert found == {key: Answer(f'"value of {key}"', None) for key in keys}
    assert n_refused > 20


def test_a_full_disk_is_one_clear_line_and_loses_nothing_finished(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        ledger.record(attempt("first"), lease=0).result()
        writer: Any = ledger._writer
        pages = writer._connection.execute("PRAGMA page_count").fetchone()[0]
        writer.submit(lambda c: c.execute(f"PRAGMA max_page_count={pages + 2}").fetchall(), durable=True).exception()
        pending = [ledger.record(attempt(f"k{index}", raw="x" * 9000), lease=0) for index in range(30)]
        errors = [future.exception() for future in pending]
        kept = {f"k{index}" for index, error in enumerate(errors) if error is None}
        assert len(kept) < 30
        assert all(isinstance(e, StoreError) and "disk is full" in str(e) for e in errors if e is not None)
    with Ledger.open(path) as ledger:
        assert set(answers(ledger, ["first", *(f"k{index}" for index in range(30))])) == {"first", *kept}
        ledger.record(attempt("later"), lease=0).result()


# ---------------------------------------------------------------------------------------------- migrations


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE calls ADD COLUMN note TEXT")


def half_then_fail(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE half (a)")
    connection.execute("SELECT * FROM nowhere")


def test_migrations_are_applied_once_in_order_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with Ledger.open(path) as ledger:
        ledger.record(attempt("a"), lease=0).result()
    longer = (*MIGRATIONS, Migration("add a note", add_column))
    with pytest.raises(StoreError):
        open_for_writing(path, (*longer, Migration("broken", half_then_fail)))
    connection = open_for_writing(path, longer)
    with explaining(path):
        assert connection.execute("PRAGMA user_version").fetchone() == (len(longer),)
        names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY number")]
        assert names == [migration.name for migration in longer]
        assert connection.execute("SELECT key, note FROM calls").fetchall() == [("a", None)]
        assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").fetchone() == (0,)
    connection.close()
    open_for_writing(path, longer).close()
