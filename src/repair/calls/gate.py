"""Who may call now: a limit for each place (server and model), and a stop that lets nobody in any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from repair.calls.limit import Limit, Ticket
from repair.core.errors import RateLimited, RepairError


class Slot:
    """A call that may be in flight at its place."""

    def __init__(self, limit: Limit, ticket: Ticket) -> None:
        self._limit = limit
        self._ticket = ticket
        self._left = False

    def answered(self) -> None:
        """Tell the limit that the server took the call. Not after `leave`."""
        self._limit.succeeded()

    def leave(self) -> None:
        """The server is done with the call: another may go. A second time does nothing."""
        if not self._left:
            self._left = True
            self._limit.leave()

    def limited(self, error: RateLimited) -> None:
        """Tell the limit that the server did not. Raises BackendError if there is no sense in waiting."""
        self._limit.limited(self._ticket, retry_after_s=error.retry_after_s)


class Gate:
    """At most `concurrency` calls in flight at a place, fewer where its server says so.

    Used from one event loop at a time; `stop` from its thread.
    """

    def __init__(self, concurrency: int, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be 1 or more")
        self.concurrency = concurrency
        self.stopped: RepairError | None = None
        self._sleep = sleep
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits: dict[str, Limit] = {}
        self._closed = asyncio.Event()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limit of every place called so far, in the order of their first calls."""
        return tuple(self._limits.values())

    def stop(self, error: RepairError) -> None:
        """From now on everyone who would enter meets `error`; those inside go on. The first stop counts."""
        if self.stopped is None:
            self.stopped = error
            self._closed.set()
            for limit in self._limits.values():
                limit.wake(error)

    def halt(self, error: RepairError) -> NoReturn:
        """Stop, and raise what the engine was stopped by."""
        self.stop(error)
        assert self.stopped is not None
        raise self.stopped

    def check(self) -> None:
        """Raise what the engine was stopped by, if it was."""
        if self.stopped is not None:
            raise self.stopped

    @asynccontextmanager
    async def slot(self, place: str, *, again: bool = False) -> AsyncIterator[Slot]:
        """Be in flight at `place`, waiting in order of arrival; `again` (after a 429): before all others."""
        self._enter_loop()
        self.check()
        limit = self._limits.get(place)
        if limit is None:
            limit = self._limits[place] = Limit(place, self.concurrency, sleep=self._sleep)
        slot = Slot(limit, await limit.enter(again=again))
        try:
            self.check()
            yield slot
        finally:
            slot.leave()

    async def pause(self, delay_s: float) -> None:
        """Wait `delay_s`, but not longer than until the stop."""
        self._enter_loop()
        sleeping = asyncio.ensure_future(self._sleep(delay_s))
        stopping = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait({sleeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()

    def _enter_loop(self) -> None:
        """What waits is bound to one event loop; a run may use several, one after the other."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._closed = asyncio.Event()
            for limit in self._limits.values():
                limit.enter_loop()
            if self.stopped is not None:
                self._closed.set()
