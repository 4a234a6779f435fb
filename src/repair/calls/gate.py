"""Who may call now: a number of slots, and a stop that lets nobody in any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NoReturn

from repair.core.errors import RepairError


class Gate:
    """At most `concurrency` holders of a slot at a time. Used from one event loop at a time; `stop` from its thread."""

    def __init__(self, concurrency: int, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be 1 or more")
        self.concurrency = concurrency
        self.stopped: RepairError | None = None
        self._sleep = sleep
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(concurrency)
        self._closed = asyncio.Event()

    def stop(self, error: RepairError) -> None:
        """From now on everyone who would enter meets `error`; those inside go on. The first stop counts."""
        if self.stopped is None:
            self.stopped = error
            self._closed.set()

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
    async def slot(self) -> AsyncIterator[None]:
        """Hold one slot, waiting for it in order of arrival."""
        self._enter_loop()
        async with self._slots:
            self.check()
            yield

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
            self._slots = asyncio.Semaphore(self.concurrency)
            self._closed = asyncio.Event()
            if self.stopped is not None:
                self._closed.set()
