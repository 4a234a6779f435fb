"""The call engine against simulated servers: throughput, saturation, a hidden capacity, a budget. For an idle machine.

    python benchmarks/calls.py [--calls 12800] [--folder FOLDER]

The servers are coroutines in this process, so what is measured is the engine and its ledger, not HTTP.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from repair.calls.budget import Budget
from repair.calls.codecs import TEXT
from repair.calls.engine import CallEngine
from repair.calls.flow import map_ordered
from repair.calls.prices import Seat
from repair.core.calls import Caps
from repair.core.errors import BudgetExceeded, RateLimited
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger

USAGE = Usage(tokens_in=900, tokens_out=100)


class Server:
    """Answers after `latency_s`; with a `capacity` it refuses whatever comes beyond."""

    def __init__(self, latency_s: float, *, capacity: int | None = None) -> None:
        self.latency_s, self.capacity = latency_s, capacity
        self.n_now = self.n_refused = 0

    async def answer(self) -> Reply[str]:
        if self.capacity is not None and self.n_now >= self.capacity:
            self.n_refused += 1
            raise RateLimited("429")
        self.n_now += 1
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self.n_now -= 1
        return Reply("answer", USAGE, '{"keep": true}')


@contextmanager
def engine(folder: Path, concurrency: int, *, caps: Caps | None = None) -> Iterator[CallEngine]:
    name = f"{time.monotonic_ns()}"
    with Ledger.open(folder / f"{name}.sqlite") as ledger, BlobStore.open(folder / f"{name}-blobs.sqlite") as blobs:
        yield CallEngine(ledger, blobs, concurrency=concurrency, budget=Budget(caps, spent=ledger.spent()))


async def make(calls: CallEngine, server: Server, n: int, *, watch: Callable[[int], None] | None = None) -> None:
    async def one(index: int) -> None:
        await calls.call(
            task="verify",
            backend_fingerprint="simulated",
            failure_id=f"f{index}",
            seed=index,
            payload={"text": f"caption {index}"},
            run=server.answer,
            codec=TEXT,
            seat=Seat("simulated|model", "model"),
        )
        if watch is not None:
            watch(server.n_now)

    async for _ in map_ordered(one, range(n), concurrency=512, window=n):
        pass


def throughput(folder: Path, n: int) -> None:
    for latency_s, concurrency in ((0.5, 128), (0.0, 128)):
        with engine(folder, concurrency) as calls:
            began, cpu = time.perf_counter(), time.process_time()
            asyncio.run(make(calls, Server(latency_s), n))
            took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        line = f"{concurrency} in flight, {latency_s * 1e3:.0f} ms: {n / took_s:.0f} calls/s, "
        line += f"{1e3 * cpu_s / n:.2f} CPU-ms each"
        if latency_s:
            line += f"; {n / took_s / (concurrency / latency_s):.1%} of the ideal"
        print(line)


def hidden_capacity(folder: Path, n: int) -> None:
    for capacity in (12, 40, 100):
        seen: list[int] = []
        server = Server(0.2, capacity=capacity)
        with engine(folder, 128) as calls:
            asyncio.run(make(calls, server, min(n, 60 * capacity), watch=seen.append))
        late = seen[len(seen) // 2 :]
        print(
            f"capacity {capacity}: {sum(late) / len(late):.0f} in flight in the second half, "
            f"{server.n_refused / len(seen):.1%} of the calls refused once"
        )


def budget(folder: Path) -> None:
    for concurrency in (1, 16, 128):
        cap = 1_000_000
        with engine(folder, concurrency, caps=Caps(max_tokens=cap)) as calls:
            try:
                asyncio.run(make(calls, Server(0.01), 3000))
            except BudgetExceeded:
                spent = calls.budget.spent.tokens
                print(f"cap of {cap} tokens, {concurrency} in flight: {spent} spent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=12800)
    parser.add_argument("--folder", type=Path, help="default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        throughput(Path(folder), args.calls)
        hidden_capacity(Path(folder), args.calls)
        budget(Path(folder))


if __name__ == "__main__":
    main()
