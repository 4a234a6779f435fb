import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.calls.flow import map_ordered


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.integers(0, 6), max_size=40), concurrency=st.integers(1, 9), window=st.none() | st.integers(1, 9)
)
def test_results_come_in_order_within_bounds(turns: list[int], concurrency: int, window: int | None) -> None:
    n_now = peak = n_taken = n_given = most_ahead = 0

    def items() -> Iterator[tuple[int, int]]:
        nonlocal n_taken, most_ahead
        for pair in enumerate(turns):
            n_taken += 1
            most_ahead = max(most_ahead, n_taken - n_given)
            yield pair

    async def one(pair: tuple[int, int]) -> int:
        nonlocal n_now, peak
        n_now += 1
        peak = max(peak, n_now)
        for _ in range(pair[1]):
            await asyncio.sleep(0)
        n_now -= 1
        return pair[0]

    async def work() -> list[int]:
        nonlocal n_given
        found = []
        async for index in map_ordered(one, items(), concurrency=concurrency, window=window):
            n_given += 1
            found.append(index)
        return found

    assert asyncio.run(work()) == list(range(len(turns)))
    assert peak <= concurrency
    assert most_ahead <= max(concurrency, window or 4 * concurrency)


def test_an_error_lets_the_running_ones_end_and_starts_no_other() -> None:
    started: list[int] = []
    ended: list[int] = []
    found: list[int] = []

    async def one(index: int) -> int:
        started.append(index)
        for _ in range(12 - index):
            await asyncio.sleep(0)
        if index in (5, 7):
            raise ValueError(str(index))
        ended.append(index)
        return index

    async def work() -> None:
        async for index in map_ordered(one, range(1000), concurrency=4):
            found.append(index)

    with pytest.raises(ValueError, match=r"5|7"):
        asyncio.run(work())
    assert set(started) - set(ended) <= {5, 7}
    assert len(started) < 20
    assert found == list(range(len(found)))
    assert found[-1] >= 3


def test_the_error_of_the_earliest_item_is_raised() -> None:
    async def one(index: int) -> int:
        for _ in range(10 - index):
            await asyncio.sleep(0)
        raise ValueError(str(index))

    async def work() -> None:
        async for _ in map_ordered(one, range(4), concurrency=4):
            pass

    with pytest.raises(ValueError, match="0"):
        asyncio.run(work())


def test_a_consumer_that_stops_cancels_the_running_ones() -> None:
    cancelled: list[int] = []

    async def one(index: int) -> int:
        if index == 0:
            return 0
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(index)
            raise
        return index

    async def work() -> int:
        stream = map_ordered(one, range(10), concurrency=3)
        first = await anext(stream)
        await asyncio.sleep(0)
        await stream.aclose()  # type: ignore[attr-defined]
        return first

    assert asyncio.run(work()) == 0
    assert cancelled == [1, 2, 3] or cancelled == [1, 2]


def test_an_error_while_taking_items_is_raised_and_cancels() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise KeyError("source")

    async def one(index: int) -> int:
        return index

    async def work() -> None:
        async for _ in map_ordered(one, items(), concurrency=2):
            pass

    with pytest.raises(KeyError, match="source"):
        asyncio.run(work())
    with pytest.raises(ValueError, match="concurrency"):
        asyncio.run(anext(map_ordered(one, [1], concurrency=0)))  # type: ignore[arg-type]
