"""How many calls one server takes for one model, found by trying: additive increase, multiplicative decrease (AIMD).

The limit starts low and doubles each round trip until the first 429. A 429 cuts it to `_DECREASE` of what was in
flight and is remembered as the ceiling; from then on it grows by one for every so many successes, slowly beyond the
ceiling. Later 429s of the same burst (calls sent before the cut) only correct what was in flight. While the server says
Retry-After, and longer each time when nothing gets through, no call is sent. A refused call goes back to the head of
the queue: it is no retry, since no model has seen it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from repair.core.errors import BackendError, RepairError
from repair.core.identity import derive_rng

_START = 16  # most calls in flight before anything is known of the server
_DECREASE = 0.85
_DEEPEST_CUT = 0.25  # of what was in flight when a burst of 429s began
_SUCCESSES_PER_STEP = 25  # at most; with fewer in flight, one round trip
_PROBE = 1.1  # how far beyond the ceiling it tries without a 429 before it takes that for the new ceiling
_PROBE_SLOWNESS = 8
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_LONGEST_RETRY_AFTER_S = 900.0
_MOST_BARREN_BURSTS = 40  # bursts of 429s in a row without one answer: about a quarter of an hour


@dataclass(frozen=True, slots=True)
class Ticket:
    """A call that may be in flight: `epoch` counts the cuts before it was let in."""

    epoch: int


class Limit:
    """One place's limit; at most `most`. Used from one event loop at a time."""

    def __init__(self, place: str, most: int, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.place = place
        self.n_in_flight = 0
        self.n_limited = 0  # 429s so far
        self._most = most
        self._size = min(most, _START)
        self._ceiling: int | None = None
        self._n_successes = 0  # since the last step
        self._epoch = 0
        self._burst_size = 0  # in flight when the last burst of 429s began
        self._n_barren = 0  # bursts since the last success
        self._n_pauses = 0
        self._sleep = sleep
        self._pauses: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Ticket]] = deque()

    @property
    def size(self) -> int:
        """How many calls may be in flight now."""
        return self._size

    async def enter(self, *, again: bool = False) -> Ticket:
        """Wait to be let in; `again`: at the head of the queue. Raises what `wake` was given."""
        if self._has_room() and (again or not self._waiting):
            return self._admit()
        waiter: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if again else self._waiting.append)(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.leave()  # it had been let in
            raise

    def leave(self) -> None:
        """A call that was let in is no longer in flight."""
        self.n_in_flight -= 1
        self._let_in()

    def succeeded(self) -> None:
        """A call in flight was answered; before its `leave`."""
        self._n_barren = 0
        if self._size >= self._most or self.n_in_flight < self._size:
            return  # the limit was not what kept others out
        self._n_successes += 1
        if self._n_successes < self._step():
            return
        self._n_successes = 0
        self._size += 1
        if self._ceiling is not None and self._size > self._ceiling * _PROBE + 1:
            self._ceiling = self._size
        self._let_in()

    def limited(self, ticket: Ticket, *, retry_after_s: float | None) -> None:
        """A call in flight met a 429; before its `leave`. Raises BackendError if waiting makes no sense."""
        self.n_limited += 1
        accepted = self.n_in_flight - 1
        if ticket.epoch == self._epoch:
            self._epoch += 1
            self._n_barren += 1
            self._burst_size = self.n_in_flight
            self._cut(accepted)
            self._check_sense(retry_after_s)
            self._pause(self._pause_s() if retry_after_s is None else retry_after_s)
        elif self._ceiling is not None and accepted < self._ceiling:
            self._cut(max(accepted, int(self._burst_size * _DEEPEST_CUT)))
            if retry_after_s is not None:
                self._check_sense(retry_after_s)

    def wake(self, error: RepairError) -> None:
        """Everyone who waits meets `error`."""
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def enter_loop(self) -> None:
        """Nothing waits any more in the loop before this one."""
        self._waiting.clear()
        self._pauses.clear()
        self._n_pauses = self.n_in_flight = 0

    def _step(self) -> int:
        """Successes before the limit grows by one."""
        if self._ceiling is None:
            return 1
        step = min(_SUCCESSES_PER_STEP, self._size)
        return step if self._size < self._ceiling else step * _PROBE_SLOWNESS

    def _cut(self, accepted: int) -> None:
        self._ceiling = max(1, accepted)
        self._size = max(1, int(self._ceiling * _DECREASE))
        self._n_successes = 0

    def _check_sense(self, retry_after_s: float | None) -> None:
        if retry_after_s is not None and retry_after_s > _LONGEST_RETRY_AFTER_S:
            raise BackendError(
                f"{self.place}: the server asks to wait {retry_after_s:.0f} s (429, Retry-After): "
                "a quota is used up; run the same command again later",
                stops=True,
            )
        if self._n_barren > _MOST_BARREN_BURSTS:
            raise BackendError(
                f"{self.place}: nothing but 429 (too many requests) for {self._n_barren} tries in a row: "
                "lower calls.concurrency, or run the same command again later",
                stops=True,
            )

    def _pause_s(self) -> float:
        """How long to send nothing, where the server does not say: not at all while others get through."""
        if self._n_barren < 2 and self.n_in_flight > 1:
            return 0.0
        longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(self._n_barren - 1, 10))
        return longest * (0.5 + 0.5 * float(derive_rng(0, "pause", self.place, self._n_barren).random()))

    def _pause(self, delay_s: float) -> None:
        if delay_s > 0:
            self._n_pauses += 1
            pause = asyncio.ensure_future(self._sleep_then_go_on(delay_s))
            self._pauses.add(pause)
            pause.add_done_callback(self._pauses.discard)

    async def _sleep_then_go_on(self, delay_s: float) -> None:
        try:
            await self._sleep(delay_s)
        finally:
            self._n_pauses -= 1
        self._let_in()

    def _has_room(self) -> bool:
        return self._n_pauses == 0 and self.n_in_flight < self._size

    def _admit(self) -> Ticket:
        self.n_in_flight += 1
        return Ticket(self._epoch)

    def _let_in(self) -> None:
        while self._waiting and self._has_room():
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(self._admit())
