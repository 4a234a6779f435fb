"""A function over many items in worker processes: the same results, in the same order, for any number of workers."""

import itertools
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from repair.core.errors import RepairError

Item = TypeVar("Item")
Result = TypeVar("Result")

_CHUNKS_PER_WORKER = 3
_ITEM_SHOWN_CHARACTERS = 200

_ChunkResult = tuple[list[Result], Exception | None]


def map_processes(
    function: Callable[[Item], Result], items: Iterable[Item], *, n_workers: int, chunk_size: int = 32
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    With `n_workers` <= 1 everything runs in this process. Else `function` and the items travel to freshly spawned
    processes: `function` must be importable (defined at the top of a module, or a functools.partial of one). Only a few
    chunks are ahead of the consumer.

    An exception of `function` is raised after the results before it, the same with any number of workers, with a note
    that names the item; RepairErrors, which name it themselves, come as they are. Raises RepairError if a worker dies.
    """
    if chunk_size < 1:
        raise ValueError("chunk_size must be 1 or more")
    chunks = _chunks(items, chunk_size)
    results = (
        (_run_chunk(function, [item]) for chunk in chunks for item in chunk)
        if n_workers <= 1
        else _run_chunks(function, chunks, n_workers)
    )
    for values, error in results:
        yield from values
        if error is not None:
            raise error


def _run_chunks(
    function: Callable[[Item], Result], chunks: Iterator[list[Item]], n_workers: int
) -> Iterator[_ChunkResult[Result]]:
    pool = ProcessPoolExecutor(
        n_workers, mp_context=multiprocessing.get_context("spawn"), initializer=_leave_interrupts_to_parent
    )
    running: deque[Future[_ChunkResult[Result]]] = deque()
    try:
        for chunk in chunks:
            running.append(pool.submit(_run_chunk, function, chunk))
            if len(running) >= n_workers * _CHUNKS_PER_WORKER:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    except BrokenProcessPool as error:
        raise RepairError(
            f"a worker process died (out of memory?): try fewer workers than {n_workers} (run.n_workers)"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _run_chunk(function: Callable[[Item], Result], chunk: list[Item]) -> _ChunkResult[Result]:
    results: list[Result] = []
    for item in chunk:
        try:
            results.append(function(item))
        except RepairError as error:
            return results, error
        except Exception as error:  # noqa: BLE001 - raised by the consumer, in the order of the items
            error.add_note(f"while working on {repr(item)[:_ITEM_SHOWN_CHARACTERS]}")
            return results, error
    return results, None


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
