"""The limiter against a server of hidden capacity, on a clock that does not wait."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from repair.calls.engine import CallEngine
from repair.calls.limit import Limit
from repair.core.errors import BackendError, Interrupted, RateLimited
from repair.core.ports import Reply
from tests.calls.support import USAGE, Backend, Delays, ask, ask_backend, stores


class Clock:
    """Time that goes on only when everything waits for it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def sleep(self, delay_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now_s + delay_s, next(self._numbers), future))
        await future

    async def run(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(5):
                await asyncio.sleep(0)
            if self._sleepers and not task.done():
                self.now_s, _, future = heapq.heappop(self._sleepers)
                if not future.done():
                    future.set_result(None)
        task.result()


class Server:
    """Answers after 0.5 s, `capacity` calls at a time; refuses others at once."""

    def __init__(self, clock: Clock, capacity: int, *, retry_after_s: float | None = None) -> None:
        self.clock, self.capacity, self.retry_after_s = clock, capacity, retry_after_s
        self.n_now = self.n_done = self.n_refused = 0

    async def call(self, limit: Limit) -> None:
        again = False
        while True:
            ticket = await limit.enter(again=again)
            if self.n_now >= self.capacity:
                self.n_refused += 1
                limit.limited(ticket, retry_after_s=self.retry_after_s)
                limit.leave()
                again = True
                continue
            self.n_now += 1
            await self.clock.sleep(0.5)
            self.n_now -= 1
            self.n_done += 1
            limit.succeeded()
            limit.leave()
            return


def serve(capacity: int, n_calls: int, *, most: int = 128, retry_after_s: float | None = None) -> tuple[Server, Clock]:
    async def work() -> None:
        limit = Limit("server|model", most, sleep=clock.sleep)
        await asyncio.gather(*(server.call(limit) for _ in range(n_calls)))

    clock = Clock()
    server = Server(clock, capacity, retry_after_s=retry_after_s)
    asyncio.run(clock.run(work()))
    assert server.n_done == n_calls
    return server, clock


@pytest.mark.parametrize("capacity", [3, 20, 64, 100])
def test_a_hidden_capacity_is_found_without_a_storm(capacity: int) -> None:
    n_calls = 60 * capacity
    server, clock = serve(capacity, n_calls)
    assert clock.now_s <= 1.25 * 0.5 * n_calls / capacity  # at least 80 % of what the server can do
    assert server.n_refused <= max(8, 0.02 * n_calls)


def test_without_a_429_it_soon_sends_all_that_is_allowed() -> None:
    _, clock = serve(10_000, 128 * 60)
    assert clock.now_s <= 30 / 0.95


def test_while_the_server_says_wait_nothing_is_sent() -> None:
    server, clock = serve(16, 160, retry_after_s=7.0)
    assert server.n_refused <= 12
    assert clock.now_s >= 7.0


def test_a_burst_of_429s_is_one_cut_to_what_got_through() -> None:
    async def work() -> None:
        limit = Limit("p", 16, sleep=Delays())
        tickets = [await limit.enter() for _ in range(16)]
        for ticket in tickets[10:]:
            limit.limited(ticket, retry_after_s=None)
            limit.leave()
        assert limit.n_limited == 6
        assert limit.size == 8  # 0.85 of the ten that got through, not 16 * 0.85 ** 6

    asyncio.run(work())


def test_a_server_that_lets_nothing_through_or_wants_hours_ends_the_run() -> None:
    async def barren() -> None:
        limit = Limit("p", 4, sleep=delays)
        while True:
            limit.limited(await limit.enter(), retry_after_s=None)
            limit.leave()

    async def hours() -> None:
        limit = Limit("p", 4)
        limit.limited(await limit.enter(), retry_after_s=3600.0)

    delays = Delays()
    with pytest.raises(BackendError, match="nothing but 429"):
        asyncio.run(barren())
    assert 600 < sum(delays.seen) < 1800
    with pytest.raises(BackendError, match=r"wait 3600 s .*run the same command again later"):
        asyncio.run(hours())


# ---------------------------------------------------------------------------------------------- in the engine


def limited_twice(_: int, time: int) -> Any:
    return RateLimited("slow down") if time <= 2 else "yes"


def test_a_429_is_no_retry_no_failure_and_no_row(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> list[Any]:
        return await asyncio.gather(*(ask_backend(engine, index, backend) for index in range(30)))

    backend = Backend(limited_twice)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=8, sleep=Delays(), max_failed_rate=0.0, min_items=1)
        assert {outcome.value for outcome in asyncio.run(work(engine))} == {"yes"}
        assert set(backend.runs.values()) == {3}
        assert {logged.number for logged in ledger.attempts()} == {1}
        assert ledger.spent().n_calls == 30
        assert ledger.n_leased() == 0
        assert engine.limits[0].n_limited == 60


def test_places_have_limits_of_their_own(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> None:
        async def run() -> Reply[str]:
            nonlocal n_now
            n_now += 1
            if n_now == 4:
                full.set()
            await full.wait()
            return Reply("x", USAGE, "")

        full = asyncio.Event()
        await asyncio.gather(*(ask(engine, index, run, place=f"s|{index % 2}") for index in range(4)))

    n_now = 0
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=2)
        asyncio.run(work(engine))
        assert [limit.place for limit in engine.limits] == ["s|0", "s|1"]


def test_a_stop_wakes_those_who_wait_for_the_server(tmp_path: Path) -> None:
    async def forever(_: float) -> None:
        asyncio.get_running_loop().call_soon(engine.stop, Interrupted("stop here"))
        await asyncio.Event().wait()

    slept: Callable[[float], Awaitable[None]] = forever
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, sleep=slept)
        with pytest.raises(Interrupted):
            asyncio.run(ask_backend(engine, 1, Backend(lambda *_: RateLimited("no", retry_after_s=600.0))))
        assert ledger.n_leased() == 0
