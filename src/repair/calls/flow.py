"""Many items through one asynchronous function, a few at a time, results in the order of the items."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_WINDOW_PER_SLOT = 4


class _NotStarted(Exception):
    """Not an error: the item was not started because another one had failed."""


async def map_ordered(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    *,
    concurrency: int,
    window: int | None = None,
) -> AsyncIterator[Result]:
    """Yield `await function(item)` for each item, in order, at most `concurrency` of them running.

    At most `window` items (default: four times `concurrency`) have been taken from `items` and not yet yielded, so
    memory does not grow with their number. When one item raises, no other is started, those running are waited for
    (what they paid for is kept), the results before the first gap are yielded, and then the error of the earliest item
    that failed is raised. When the consumer stops or is cancelled, the running ones are cancelled.
    """
    if concurrency < 1:
        raise ValueError("concurrency must be 1 or more")
    slots = asyncio.Semaphore(concurrency)
    failed = False

    async def one(item: Item) -> Result:
        nonlocal failed
        async with slots:
            if failed:
                raise _NotStarted
            try:
                return await function(item)
            except BaseException:
                failed = True
                raise

    size = max(concurrency, window or _WINDOW_PER_SLOT * concurrency)
    tasks: deque[asyncio.Task[Result]] = deque()
    remaining = iter(items)
    exhausted = False
    try:
        while True:
            while not (exhausted or failed) and len(tasks) < size:
                try:
                    item = next(remaining)
                except StopIteration:
                    exhausted = True
                    break
                tasks.append(asyncio.ensure_future(one(item)))
            if not tasks:
                return
            await asyncio.wait([tasks[0]])
            if tasks[0].exception() is not None:
                break
            yield tasks.popleft().result()
        await asyncio.wait(tasks)
        raise next(error for error in (task.exception() for task in tasks) if _real(error))  # type: ignore[misc]
    finally:
        await _cancel(tasks)


def _real(error: BaseException | None) -> bool:
    return error is not None and not isinstance(error, _NotStarted)


async def _cancel(tasks: Iterable["asyncio.Task[Result]"]) -> None:
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
