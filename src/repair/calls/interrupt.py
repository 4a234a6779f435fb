"""Ctrl-C once: let the calls in flight end, make no more, and say how to go on. Twice: abort at once."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from repair.calls.engine import CallEngine
from repair.core.errors import Interrupted

Result = TypeVar("Result")

_RESUME = "run the same command again to go on from here"


def how_to_go_on(command: str) -> str:
    return f"`{command}` goes on from here" if command else _RESUME


def run_interruptible(
    engine: CallEngine,
    work: Coroutine[Any, Any, Result],
    *,
    on_drain: Callable[[int], None] | None = None,
    command: str = "",
) -> Result:
    """Run `work` in a new event loop and return its result; the main thread's entry to asynchronous code.

    The first Ctrl-C stops the engine (`on_drain` is told how many calls are still in flight) and `work` ends with the
    Interrupted that its next call raises; the second one cancels `work`. Either way Interrupted is raised, even if
    `work` could finish. In other threads than the main one Ctrl-C is not caught. `command` is what the user types to go
    on.
    """
    with asyncio.Runner() as runner:
        return runner.run(_guarded(engine, work, on_drain, how_to_go_on(command)))


async def _guarded(
    engine: CallEngine,
    work: Coroutine[Any, Any, Result],
    on_drain: Callable[[int], None] | None,
    resume: str,
) -> Result:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    n_signals, n_aborted = 0, 0

    def on_signal() -> None:
        nonlocal n_signals, n_aborted
        n_signals += 1
        if n_signals == 1:
            engine.stop(Interrupted(f"interrupted; everything finished is kept: {resume}"))
            if on_drain is not None:
                on_drain(engine.n_in_flight)
        else:
            n_aborted = max(n_aborted, engine.n_in_flight)
            task.cancel()

    caught = _catch(loop, on_signal)
    try:
        result = await task
    except asyncio.CancelledError:
        if n_signals < 2:
            raise
        raise Interrupted(
            f"aborted with {n_aborted} calls in flight, which may be billed without an answer: {resume}"
        ) from None
    finally:
        if caught:
            loop.remove_signal_handler(signal.SIGINT)
    if n_signals and engine.stopped is not None:
        raise engine.stopped
    return result


def _catch(loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> bool:
    try:
        loop.add_signal_handler(signal.SIGINT, on_signal)
    except (RuntimeError, ValueError, NotImplementedError):  # not the main thread
        return False
    return True
