import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from repair.calls.attempts import reason
from repair.calls.budget import Budget
from repair.calls.codecs import BYTES, JsonCodec
from repair.calls.engine import CallEngine, Outcome
from repair.calls.flow import map_ordered
from repair.calls.retry import Retry
from repair.calls.tally import Progress
from repair.core.calls import CallOutcome, Caps, Spent
from repair.core.errors import (
    BackendError,
    BadReply,
    BudgetExceeded,
    ConfigError,
    DataError,
    Interrupted,
    Refused,
    StoreError,
    Unavailable,
)
from repair.core.identity import hash_bytes
from repair.core.ports import Reply
from repair.core.records import Usage
from tests.calls.support import USAGE, Backend, Delays, ask, ask_backend, content, stores


async def gather(engine: CallEngine, backend: Backend, n_items: int, *, concurrency: int = 4, **more: Any) -> list[Any]:
    async def one(index: int) -> Outcome[Any]:
        return await ask_backend(engine, index, backend, **more)

    return [outcome async for outcome in map_ordered(one, range(n_items), concurrency=concurrency)]


def mixed(index: int, time: int) -> Any:
    """One of each fate, the same at every try of the same number."""
    if index % 11 == 3:
        return Refused("a policy", usage=Usage(tokens_in=1, price_usd=0.001), raw="no")
    if index % 11 == 5:
        return BadReply("not JSON", usage=USAGE, raw="{")
    if index % 11 == 7 and time < 3:
        return Unavailable("busy")
    if index % 11 == 9:
        return Unavailable("down")
    return f"answer {index % 50}"


# ---------------------------------------------------------------------------------------------- answers


def test_an_answer_is_asked_once_and_then_comes_from_the_ledger(tmp_path: Path) -> None:
    backend = Backend(lambda index, _: f"answer {index}")
    for cached in (False, True, True):
        with stores(tmp_path) as (ledger, blobs):
            outcomes = asyncio.run(gather(CallEngine(ledger, blobs, concurrency=4), backend, 20))
            assert [outcome.value for outcome in outcomes] == [f"answer {index}" for index in range(20)]
            assert {outcome.cached for outcome in outcomes} == {cached}
    assert set(backend.runs.values()) == {1}


def test_everything_of_a_call_is_recorded(tmp_path: Path) -> None:
    times = iter([99.0, 100.0, 101.0])  # leased, sent, answered
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, clock=lambda: next(times))
        outcome = asyncio.run(ask_backend(engine, 3, Backend(lambda *_: "yes")))
        (logged,) = ledger.attempts()
        attempt = logged.attempt
        assert (attempt.call.key, attempt.call.task, attempt.call.backend) == (outcome.key, "verify", "b2:backend")
        assert (attempt.call.failure_id, attempt.call.seed) == ("f3", 3)
        assert (attempt.value, attempt.raw, attempt.error) == ('"yes"', "raw 'yes'", None)
        assert (attempt.usage.tokens_in, attempt.usage.price_usd, attempt.estimated) == (7, 0.01, False)
        assert attempt.usage.latency_s > 0
        assert (attempt.started_s, attempt.finished_s) == (100.0, 101.0)
        assert ledger.n_leased() == 0


def test_what_can_change_an_answer_makes_another_call(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> list[bool]:
        async def run() -> Reply[str]:
            return Reply("x", USAGE, "")

        base: dict[str, Any] = {
            "task": "verify", "backend_fingerprint": "b", "failure_id": "f", "seed": 1, "payload": {"a": 1},
        }  # fmt: skip
        changes: list[dict[str, Any]] = [
            {}, {}, {"failure_id": "g"}, {"task": "edit"}, {"backend_fingerprint": "c"}, {"seed": 2}, {"seed": None},
            {"payload": {"a": 2}},
        ]  # fmt: skip
        codec: Any = JsonCodec(str, str)
        return [(await engine.call(**{**base, **change}, run=run, codec=codec)).cached for change in changes]

    with stores(tmp_path) as (ledger, blobs):
        cached = asyncio.run(work(CallEngine(ledger, blobs, concurrency=1)))
    assert cached == [False, True, True, False, False, False, False, False]


def test_a_fresh_answer_has_the_form_of_a_kept_one(tmp_path: Path) -> None:
    codec: JsonCodec[Any] = JsonCodec(encode=lambda value: {"pair": value}, decode=lambda value: tuple(value["pair"]))
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        backend = Backend(lambda *_: ["a", "b"])
        values = [asyncio.run(ask_backend(engine, 1, backend, codec=codec)).value for _ in range(2)]
    assert values == [("a", "b"), ("a", "b")]
    assert backend.runs[1] == 1


@pytest.mark.parametrize("value", [float("nan"), {"a": {1, 2}}, "half \ud83d"])
def test_a_value_that_cannot_be_kept_is_a_bad_reply_that_is_billed(tmp_path: Path, value: Any) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        codec: JsonCodec[Any] = JsonCodec(lambda each: each, lambda each: each)
        outcome = asyncio.run(ask_backend(engine, 1, Backend(lambda *_: value), codec=codec))
        assert "cannot be kept" in str(outcome.error)
        (logged,) = ledger.attempts()
        assert logged.attempt.outcome is CallOutcome.BAD_REPLY
        assert logged.attempt.usage.tokens_in == 7


def test_a_kept_answer_that_cannot_be_read_names_its_key(tmp_path: Path) -> None:
    codec: JsonCodec[Any] = JsonCodec(lambda value: value, lambda value: value["missing"])
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        with pytest.raises(StoreError, match=r"b2:.*cannot be read by this version"):
            asyncio.run(ask_backend(engine, 1, Backend(lambda *_: {}), codec=codec))


# ---------------------------------------------------------------------------------------------- blobs


def test_bytes_are_kept_before_the_row_that_names_them(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        seen: list[bool] = []
        record = ledger.record

        def watch(attempt: Any, *, lease: int) -> Any:
            seen.append(blobs.get(attempt.blob) == b"\x89PNG 1")
            return record(attempt, lease=lease)

        ledger.record = watch  # type: ignore[method-assign]
        engine = CallEngine(ledger, blobs, concurrency=1)
        backend = Backend(lambda index, _: b"\x89PNG %d" % index)
        outcome = asyncio.run(ask_backend(engine, 1, backend, codec=BYTES))
        assert (outcome.value, seen) == (b"\x89PNG 1", [True])
        assert next(ledger.attempts()).attempt.blob == hash_bytes(b"\x89PNG 1")
        assert asyncio.run(ask_backend(engine, 1, backend, codec=BYTES)).cached


def test_a_torn_blob_is_asked_for_again_and_both_calls_are_billed(tmp_path: Path) -> None:
    backend = Backend(lambda _, time: b"image, try %d" % time)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        asyncio.run(ask_backend(engine, 1, backend, codec=BYTES))
        writer: Any = blobs._writer
        writer.submit(lambda c: c.execute("UPDATE blobs SET data = 'torn'").rowcount, durable=True).result()
        outcome = asyncio.run(ask_backend(engine, 1, backend, codec=BYTES))
        assert (outcome.value, outcome.cached) == (b"image, try 2", False)
        assert asyncio.run(ask_backend(engine, 1, backend, codec=BYTES)).cached
        assert [logged.attempt.outcome for logged in ledger.attempts()] == ["superseded", "done"]
        assert ledger.spent().n_calls == 2
    assert backend.runs[1] == 2


# ---------------------------------------------------------------------------------------------- failures


def test_a_failure_is_an_outcome_with_its_reason_its_cost_and_its_raw_reply(tmp_path: Path) -> None:
    errors = [
        Refused("a policy", usage=USAGE, raw="I cannot"),
        BadReply("not JSON", usage=USAGE, raw="{"),
        DataError("photo.jpg is cut short"),
    ]
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        outcomes = asyncio.run(gather(engine, Backend(lambda index, _: errors[index]), 3))
        assert [outcome.error for outcome in outcomes] == ["a policy", "not JSON", "photo.jpg is cut short"]
        assert all(outcome.value is None and not outcome.cached for outcome in outcomes)
        rows = [logged.attempt for logged in ledger.attempts()]
        assert [(row.outcome, row.raw) for row in rows] == [("refused", "I cannot"), ("bad_reply", "{"), ("failed", "")]
        assert ledger.spent() == Spent(n_calls=3, tokens=20, price_usd=0.02)


def test_failed_items_are_tried_again_in_the_next_session_only(tmp_path: Path) -> None:
    backend = Backend(lambda _, time: BadReply("not JSON") if time == 1 else "yes")
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        first = [asyncio.run(ask_backend(engine, 1, backend)) for _ in range(2)]
        assert [(each.error, each.cached) for each in first] == [("not JSON", False), ("not JSON", True)]
    assert backend.runs[1] == 1
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        assert asyncio.run(ask_backend(engine, 1, backend)).value == "yes"
        assert [logged.number for logged in ledger.attempts()] == [1, 2]


def test_only_an_unavailable_backend_is_tried_again_with_growing_jittered_delays(tmp_path: Path) -> None:
    delays = Delays()
    retry = Retry(n_attempts=5, first_delay_s=1.0, max_delay_s=4.0)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=2, retry=retry, sleep=delays)
        backend = Backend(lambda index, time: "yes" if index == 0 and time == 3 else Unavailable("busy"))
        outcomes = asyncio.run(gather(engine, backend, 2, concurrency=1))
        assert [outcome.error for outcome in outcomes] == [None, "busy"]
        assert backend.runs == {0: 3, 1: 5}
        assert [logged.attempt.outcome for logged in ledger.attempts(failure_id="f0")] == ["unavailable"] * 2 + ["done"]
    assert len(delays.seen) == 2 + 4
    for delay, longest in zip(delays.seen, [1, 2, 1, 2, 4, 4], strict=True):
        assert 0 <= delay < longest
    assert len(set(delays.seen)) == 6


def test_the_server_may_ask_for_a_longer_delay(tmp_path: Path) -> None:
    delays = Delays()
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, sleep=delays)
        script = Backend(lambda _, time: "yes" if time == 2 else Unavailable("busy", retry_after_s=77.0))
        asyncio.run(ask_backend(engine, 0, script))
    assert delays.seen == [77.0]


def test_a_call_past_its_deadline_is_unavailable(tmp_path: Path) -> None:
    async def hang() -> Reply[str]:
        await asyncio.Event().wait()
        raise AssertionError

    async def own_timeout() -> Reply[str]:
        raise TimeoutError("inside")

    with stores(tmp_path) as (ledger, blobs):
        retry = Retry(n_attempts=2)
        engine = CallEngine(ledger, blobs, concurrency=1, deadline_s=0.01, retry=retry, sleep=Delays())
        assert asyncio.run(ask(engine, 1, hang)).error == "no answer within 0.01 s"
        assert [logged.attempt.outcome for logged in ledger.attempts()] == ["unavailable", "unavailable"]
        with pytest.raises(TimeoutError, match="inside"):
            asyncio.run(ask(engine, 2, own_timeout))


def test_a_bug_in_a_backend_is_recorded_and_raised(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        with pytest.raises(ZeroDivisionError):
            asyncio.run(ask_backend(engine, 1, Backend(lambda *_: ZeroDivisionError("oops"))))
        (logged,) = ledger.attempts()
        assert (logged.attempt.outcome, logged.attempt.error) == ("failed", "ZeroDivisionError: oops")
        assert ledger.n_leased() == 0
    assert reason(Unavailable()) == "Unavailable"


# ---------------------------------------------------------------------------------------------- concurrency


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_no_more_calls_than_slots_are_in_flight(tmp_path: Path, concurrency: int) -> None:
    async def work(engine: CallEngine) -> None:
        async def run() -> Reply[str]:
            nonlocal n_now, peak
            n_now += 1
            peak = max(peak, n_now)
            if n_now == concurrency:
                full.set()
            await full.wait()
            n_now -= 1
            return Reply("x", USAGE, "")

        full = asyncio.Event()
        await asyncio.gather(*(ask(engine, index, run) for index in range(40)))

    n_now = peak = 0
    with stores(tmp_path) as (ledger, blobs):
        asyncio.run(work(CallEngine(ledger, blobs, concurrency=concurrency)))
    assert peak == concurrency


def run_mixed(folder: Path, concurrency: int, order: list[int]) -> tuple[list[Any], list[Any]]:
    async def work(engine: CallEngine) -> dict[int, Outcome[Any]]:
        async def one(index: int) -> tuple[int, Outcome[Any]]:
            return index, await ask_backend(engine, index % 60, backend)  # every fourth request has an equal

        return dict([pair async for pair in map_ordered(one, order, concurrency=concurrency)])

    backend = Backend(mixed, n_turns=4)
    with stores(folder) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=concurrency, sleep=Delays())
        outcomes = asyncio.run(work(engine))
        rows = content(ledger)
        spent = engine.budget.spent
        assert (spent.n_calls, spent.tokens) == (ledger.spent().n_calls, ledger.spent().tokens)
    assert max(backend.runs.values()) <= 5
    return [(outcomes[index].key, outcomes[index].value, outcomes[index].error) for index in range(80)], rows


def test_outcomes_and_ledger_do_not_depend_on_concurrency(tmp_path: Path) -> None:
    one = run_mixed(tmp_path / "1", 1, list(range(80)))
    assert run_mixed(tmp_path / "8", 8, list(range(80))) == one
    outcomes, rows = run_mixed(tmp_path / "64", 64, list(reversed(range(80))))
    assert outcomes == one[0]
    assert rows == one[1]


def test_equal_requests_in_flight_are_one_call(tmp_path: Path) -> None:
    async def work(engine: CallEngine, index: int) -> list[Outcome[Any]]:
        return await asyncio.gather(*(ask_backend(engine, index, backend) for _ in range(6)))

    backend = Backend(lambda index, _: "x" if index == 1 else BadReply("no"))
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=6)
        good = asyncio.run(work(engine, 1))
        bad = asyncio.run(work(engine, 2))
    assert backend.runs == {1: 1, 2: 1}
    assert [outcome.cached for outcome in good] == [False, *[True] * 5]
    assert {outcome.value for outcome in good} == {"x"}
    assert {outcome.error for outcome in bad} == {"no"}


def test_when_the_one_that_asks_is_cancelled_another_takes_over(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> Outcome[Any]:
        first = asyncio.ensure_future(ask(engine, 1, hang))
        await started.wait()
        second = asyncio.ensure_future(ask_backend(engine, 1, backend))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    async def hang() -> Reply[str]:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    started = asyncio.Event()
    backend = Backend(lambda *_: "x")
    with stores(tmp_path) as (ledger, blobs):
        outcome = asyncio.run(work(CallEngine(ledger, blobs, concurrency=2)))
        assert (outcome.value, outcome.cached) == ("x", False)
        assert ledger.n_leased() == 1  # the cancelled call may have been billed
    with stores(tmp_path) as (ledger, blobs):
        assert ledger.n_maybe_lost == 1


def test_one_engine_serves_several_event_loops_one_after_the_other(tmp_path: Path) -> None:
    backend = Backend(lambda *_: "x", n_turns=5)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=2)
        asyncio.run(gather(engine, backend, 20, concurrency=20))
        asyncio.run(gather(engine, backend, 40, concurrency=20))
        assert ledger.spent().n_calls == 40


# ---------------------------------------------------------------------------------------------- stopping


def test_an_error_that_every_call_would_meet_stops_the_engine(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=4)
        backend = Backend(lambda index, _: Refused("401: wrong key", stops=True) if index == 10 else "x")
        with pytest.raises(Refused, match="wrong key"):
            asyncio.run(gather(engine, backend, 1000))
        assert len(backend.runs) < 30
        assert ledger.n_leased() == 0  # those in flight were waited for and kept
        assert ledger.spent().n_calls == sum(backend.runs.values())
        with pytest.raises(Refused):
            asyncio.run(ask_backend(engine, 5000, backend))


def test_too_many_failures_stop_the_engine_with_the_commonest_reason(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=4, max_failed_rate=0.25, min_items=40)
        backend = Backend(lambda index, _: BadReply("not JSON") if index % 3 == 0 else "x")
        with pytest.raises(
            BackendError, match=r'"verify": \d+ of \d+ items failed.*"not JSON".*max_failed_rate = 0.25'
        ):
            asyncio.run(gather(engine, backend, 1000))
        assert 40 <= len(backend.runs) < 60


def test_as_many_failures_as_allowed_do_not_stop_it_and_answers_on_record_count(tmp_path: Path) -> None:
    def script(index: int, _: int) -> Any:
        return BadReply("no") if index % 4 == 0 and index else "x"

    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.25, min_items=20)
        assert sum(o.error is not None for o in asyncio.run(gather(engine, Backend(script), 200))) == 49
    with stores(tmp_path) as (ledger, blobs):
        # resuming: all that is asked again fails again, but most items are answered
        engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.25, min_items=20)
        assert sum(o.error is not None for o in asyncio.run(gather(engine, Backend(script), 200))) == 49


@pytest.mark.parametrize("kind", [Refused, BadReply])
def test_what_is_answered_in_vain_once_more_does_not_stop_it(kind: type[BackendError], tmp_path: Path) -> None:
    def script(index: int, _: int) -> Any:
        return kind("nothing to change") if index < 30 or index == 400 else "x"

    async def in_turn(engine: CallEngine, indices: Iterable[int]) -> list[Any]:
        return [await ask_backend(engine, index, Backend(script)) for index in indices]

    with stores(tmp_path) as (ledger, blobs):  # a twelfth is refused
        engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.1, min_items=20)
        asyncio.run(in_turn(engine, range(359, -1, -1)))
    with stores(tmp_path) as (ledger, blobs):  # resuming asks them first
        engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.1, min_items=20)
        order = [*range(30), *range(30), 400, *range(30, 360)]  # a stage asks once more what the flow has asked
        assert sum(o.error is not None for o in asyncio.run(in_turn(engine, order))) == 61


def test_a_backend_that_answers_nothing_of_use_is_stopped_in_every_session(tmp_path: Path) -> None:
    for _ in range(3):
        with stores(tmp_path) as (ledger, blobs):
            engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.1, min_items=20)
            backend = Backend(lambda *_: BadReply("not JSON"))
            with pytest.raises(BackendError, match=r'20 of 20 items failed.*"not JSON"'):
                asyncio.run(gather(engine, backend, 35))
            assert len(backend.runs) == 20


def test_tasks_are_judged_apart(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> None:
        for index in range(1000):
            await ask_backend(engine, index, good, task="verify")
            await ask_backend(engine, index, bad, task="edit")

    good, bad = Backend(lambda *_: "x"), Backend(lambda *_: BadReply("no"))
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, max_failed_rate=0.9, min_items=10)
        with pytest.raises(BackendError, match='"edit": 10 of 10'):
            asyncio.run(work(engine))


def test_a_stopped_engine_lets_those_in_flight_end_and_keeps_them(tmp_path: Path) -> None:
    def script(index: int, _: int) -> str:
        if index == 20:
            engine.stop(Interrupted("stop here"))
        return "x"

    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=4)
        backend = Backend(script, n_turns=5)
        with pytest.raises(Interrupted, match="stop here"):
            asyncio.run(gather(engine, backend, 500))
        assert ledger.n_leased() == 0
        assert ledger.spent().n_calls == sum(backend.runs.values()) < 30


def test_a_stop_ends_the_wait_before_another_attempt(tmp_path: Path) -> None:
    async def forever(_: float) -> None:
        asyncio.get_running_loop().call_soon(engine.stop, Interrupted("stop here"))
        await asyncio.Event().wait()

    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, sleep=forever)
        with pytest.raises(Interrupted):
            asyncio.run(ask_backend(engine, 1, Backend(lambda *_: Unavailable("busy"))))


def test_a_store_that_cannot_write_stops_the_engine(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        writer: Any = ledger._writer
        writer.submit(lambda c: c.execute("PRAGMA max_page_count=1").fetchall(), durable=True).exception()
        engine = CallEngine(ledger, blobs, concurrency=4)
        backend = Backend(lambda index, _: str(index) * 3000)
        with pytest.raises(StoreError, match="disk is full"):
            asyncio.run(gather(engine, backend, 500))
        assert isinstance(engine.stopped, StoreError)
        assert len(backend.runs) < 100


# ---------------------------------------------------------------------------------------------- budget


def test_a_cap_stops_admitting_keeps_everything_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    backend = Backend(lambda *_: "x", n_turns=5)
    for cap, n_calls in ((10, 10), (10, 10), (25, 25), (None, 40)):
        with stores(tmp_path) as (ledger, blobs):
            budget = Budget(Caps(max_calls=cap), spent=ledger.spent())
            engine = CallEngine(ledger, blobs, concurrency=8, budget=budget)
            work = gather(engine, backend, 40, concurrency=8)
            if cap is None:
                assert len(asyncio.run(work)) == 40
            else:
                with pytest.raises(BudgetExceeded, match=rf"max_calls = {cap} \({n_calls} calls made\).*raise"):
                    asyncio.run(work)
            assert ledger.spent().n_calls == n_calls
            assert ledger.n_leased() == 0
    assert set(backend.runs.values()) == {1}


def test_failed_attempts_count(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        budget = Budget(Caps(max_tokens=45))
        engine = CallEngine(ledger, blobs, concurrency=1, budget=budget)
        with pytest.raises(BudgetExceeded, match=r"max_tokens = 45 \(40 tokens used\)"):
            asyncio.run(gather(engine, Backend(lambda *_: BadReply("no", usage=USAGE)), 50, estimate=USAGE))


def test_an_attempt_that_does_not_say_its_cost_is_charged_what_was_declared(tmp_path: Path) -> None:
    estimate = Usage(tokens_in=50, tokens_out=50, price_usd=0.1)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, budget=Budget(Caps(max_usd=10)), retry=Retry(n_attempts=1))
        asyncio.run(ask_backend(engine, 1, Backend(lambda *_: Unavailable("cut")), estimate=estimate))
        unpriced = Backend(lambda *_: "x", usage=Usage(tokens_in=3))
        asyncio.run(ask_backend(engine, 2, unpriced, estimate=estimate))
        assert engine.budget.spent == Spent(n_calls=2, tokens=103, price_usd=0.2)
        assert ledger.spent() == engine.budget.spent
        assert all(logged.attempt.estimated for logged in ledger.attempts())


def test_an_unknown_price_refuses_a_cap_on_money_before_the_first_call(tmp_path: Path) -> None:
    backend = Backend(lambda *_: "x")
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=4, budget=Budget(Caps(max_usd=1.0)))
        with pytest.raises(ConfigError, match='price of "verify" calls is unknown'):
            asyncio.run(gather(engine, backend, 5))
        assert not backend.runs
        assert ledger.spent().n_calls == 0


# ---------------------------------------------------------------------------------------------- progress


def test_progress_adds_up(tmp_path: Path) -> None:
    seen: list[Progress] = []
    for _ in range(2):
        seen.clear()
        with stores(tmp_path) as (ledger, blobs):
            engine = CallEngine(ledger, blobs, concurrency=4, progress=seen.append, sleep=Delays())
            asyncio.run(gather(engine, Backend(mixed), 33))
            assert seen[-1].spent == engine.budget.spent
        assert [each.n_done + each.n_cached + each.n_failed for each in seen] == list(range(1, 34))
        assert seen[-1].n_failed == 9
        assert seen[-1].n_in_flight == 0
    assert (seen[-1].n_done, seen[-1].n_cached) == (0, 24)
