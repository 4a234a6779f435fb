"""What the tests of the call engine share: a ledger in a folder, a backend that counts, a clock that does not wait."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repair.calls.codecs import TEXT, BytesCodec, JsonCodec
from repair.calls.engine import CallEngine, Outcome
from repair.calls.prices import Price, Seat
from repair.core.calls import Attempt
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger

USAGE = Usage(tokens_in=7, tokens_out=3, price_usd=0.01)


class Delays:
    """In the place of asyncio.sleep: notes how long it should have been and comes back at once."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    async def __call__(self, delay_s: float) -> None:
        self.seen.append(delay_s)
        await asyncio.sleep(0)


class Backend:
    """Answers `script(index, n_th_time)`: a value, or an exception to raise. Counts, and knows its peak in flight."""

    def __init__(self, script: Callable[[int, int], Any], *, usage: Usage = USAGE, n_turns: int = 2) -> None:
        self.script = script
        self.usage = usage
        self.n_turns = n_turns
        self.runs: Counter[int] = Counter()
        self.n_now = 0
        self.peak = 0

    async def answer(self, index: int) -> Reply[Any]:
        self.runs[index] += 1
        self.n_now += 1
        self.peak = max(self.peak, self.n_now)
        try:
            for _ in range(1 + (index * 7 + self.runs[index]) % self.n_turns):  # so that answers overtake each other
                await asyncio.sleep(0)
            value = self.script(index, self.runs[index])
            if isinstance(value, BaseException):
                raise value
            return Reply(value, self.usage, f"raw {value!r}")
        finally:
            self.n_now -= 1


@contextmanager
def stores(folder: Path) -> Iterator[tuple[Ledger, BlobStore]]:
    with Ledger.open(folder / "ledger.sqlite") as ledger, BlobStore.open(folder / "blobs.sqlite") as blobs:
        yield ledger, blobs


async def ask(
    engine: CallEngine,
    index: int,
    run: Callable[[], Awaitable[Reply[Any]]],
    *,
    task: str = "verify",
    codec: JsonCodec[Any] | BytesCodec = TEXT,
    estimate: Usage | None = None,
    place: str = "",
    price: Price | None = None,
) -> Outcome[Any]:
    return await engine.call(
        task=task,
        backend_fingerprint="b2:backend",
        failure_id=f"f{index}",
        seed=index,
        payload={"text": f"caption {index}"},
        run=run,
        codec=codec,
        estimate=estimate,
        seat=Seat(place or "b2:backend", "model", price),
    )


async def ask_backend(engine: CallEngine, index: int, backend: Backend, **more: Any) -> Outcome[Any]:
    return await ask(engine, index, lambda: backend.answer(index), **more)


def without_times(attempt: Attempt) -> tuple[Any, ...]:
    usage = attempt.usage
    return (
        attempt.call.key,
        attempt.call.failure_id,
        attempt.outcome,
        (usage.tokens_in, usage.tokens_out, usage.n_images, usage.price_usd),
        attempt.estimated,
        attempt.raw,
        attempt.value,
        attempt.blob,
        attempt.error,
    )


def content(ledger: Ledger) -> list[tuple[Any, ...]]:
    """All rows, in an order that does not depend on when they were written; times left out."""
    return sorted(((logged.number, *without_times(logged.attempt)) for logged in ledger.attempts()), key=repr)
