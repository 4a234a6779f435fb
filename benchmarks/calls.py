"""The call engine: throughput, saturation, a hidden capacity, a budget, and the CPU of a request. For an idle machine.

    python benchmarks/calls.py [--calls 12800] [--requests 3000]

Its files lie in a temporary folder: TMPDIR says where, if another disk is to be measured.

Where nothing else is said the servers are coroutines in this process, so what is measured is the engine and its ledger,
not HTTP. The CPU of a request is measured over HTTP, against a server in another process: a bare aiohttp client that
posts the same body and reads the answer, the `chat` backend, and the same through the engine with its durable row.
"""

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from repair import verification
from repair.backends.chat.schemas import VerdictAnswer, strict_schema
from repair.backends.chat.server import ChatServer
from repair.backends.chat.tasks import ChatVerifier
from repair.calls.budget import Budget
from repair.calls.codecs import TEXT, JsonCodec
from repair.calls.engine import CallEngine
from repair.calls.flow import map_ordered
from repair.calls.prices import Seat
from repair.core.calls import Caps
from repair.core.errors import BudgetExceeded, RateLimited
from repair.core.identity import canonical_json
from repair.core.ports import Case, ImageItem, Reply, TextItem
from repair.core.records import Direction, Usage
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.backends.loopback import completion

IN_FLIGHT = 64
USAGE = Usage(tokens_in=900, tokens_out=100)


class Server:
    """Answers after `latency_s`; with a `capacity` it refuses whatever comes beyond."""

    def __init__(self, latency_s: float, *, capacity: int | None = None) -> None:
        self.latency_s, self.capacity = latency_s, capacity
        self.n_now = self.n_refused = 0
        self._area = 0.0  # calls in flight, integrated over time
        self._began_s = self._since_s = time.perf_counter()

    async def answer(self) -> Reply[str]:
        if self.capacity is not None and self.n_now >= self.capacity:
            self.n_refused += 1
            raise RateLimited("429")
        self._count(1)
        try:
            await asyncio.sleep(self.latency_s)
        finally:
            self._count(-1)
        return Reply("answer", USAGE, '{"keep": true}')

    def mean_in_flight(self) -> float:
        """Over the time since this was last asked."""
        self._count(0)
        mean, self._area = self._area / max(1e-9, self._since_s - self._began_s), 0.0
        self._began_s = self._since_s
        return mean

    def _count(self, change: int) -> None:
        now_s = time.perf_counter()
        self._area += self.n_now * (now_s - self._since_s)
        self.n_now, self._since_s = self.n_now + change, now_s


@contextmanager
def engine(folder: Path, concurrency: int, *, caps: Caps | None = None) -> Iterator[CallEngine]:
    name = f"{time.monotonic_ns()}"
    with Ledger.open(folder / f"{name}.sqlite") as ledger, BlobStore.open(folder / f"{name}-blobs.sqlite") as blobs:
        yield CallEngine(ledger, blobs, concurrency=concurrency, budget=Budget(caps, spent=ledger.spent()))


async def make(calls: CallEngine, server: Server, n: int, *, watch: Callable[[int], None] | None = None) -> None:
    """`n` calls; `watch` is told after each how many have ended."""
    n_ended = 0

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
        nonlocal n_ended
        n_ended += 1
        if watch is not None:
            watch(n_ended)

    async for _ in map_ordered(one, range(n), concurrency=512, window=n):
        pass


def throughput(folder: Path, n: int) -> None:
    """Over all calls, and over the middle ones: when the search for the capacity is over and calls have not run out."""
    for latency_s, concurrency in ((0.5, 128), (0.0, 128)):
        first, last = n // 5, n - 4 * concurrency
        times: dict[int, float] = {}
        with engine(folder, concurrency) as calls:
            began, cpu = time.perf_counter(), time.process_time()
            asyncio.run(make(calls, Server(latency_s), n, watch=partial(_note_time, (first, last), times)))
            took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        line = f"{concurrency} in flight, {latency_s * 1e3:.0f} ms: {n / took_s:.0f} calls/s, "
        line += f"{1e3 * cpu_s / n:.2f} CPU-ms each"
        if latency_s:
            ideal = concurrency / latency_s
            steady = (last - first) / (times[last] - times[first])
            line += f"; {steady / ideal:.1%} of the ideal once the limit is found, {n / took_s / ideal:.1%} with the"
            line += " search for it and the end"
        print(line)


def _note_time(of: tuple[int, ...], times: dict[int, float], n_ended: int) -> None:
    if n_ended in of:
        times[n_ended] = time.perf_counter()


def hidden_capacity(folder: Path, n: int) -> None:
    for capacity in (12, 40, 100):
        server, n_calls = Server(0.2, capacity=capacity), min(n, 100 * capacity)
        means: list[float] = []
        ends = (n_calls // 2, n_calls - 2 * capacity)  # of the first half, and before calls run out
        watch = partial(_mean_at, ends, server, means)
        with engine(folder, 128) as calls:
            asyncio.run(make(calls, server, n_calls, watch=watch))
        print(
            f"capacity {capacity}: {means[1]:.1f} in flight in the second half ({means[1] / capacity:.0%}), "
            f"{server.n_refused / n_calls:.1%} of the calls refused once"
        )


def _mean_at(ends: tuple[int, int], server: Server, means: list[float], n_ended: int) -> None:
    if n_ended in ends:
        means.append(server.mean_in_flight())


def budget(folder: Path) -> None:
    for concurrency in (1, 16, 128):
        cap = 1_000_000
        with engine(folder, concurrency, caps=Caps(max_tokens=cap)) as calls:
            try:
                asyncio.run(make(calls, Server(0.01), 3000))
            except BudgetExceeded:
                spent = calls.budget.spent.tokens
                print(f"cap of {cap} tokens, {concurrency} in flight: {spent} spent")
                if spent > cap:
                    raise SystemExit("FAILED: more was spent than the cap allows") from None


def client_cpu(folder: Path, n: int) -> None:
    """CPU of this process for one request, without the server's."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        url = here.recv()
        verifier = ChatVerifier(model="m", base_url=url, image_as="captions")
        case = _case()
        messages = asyncio.run(verifier.messages(case))
        schema = strict_schema(VerdictAnswer)
        assert isinstance(verifier.chat, ChatServer)
        body = canonical_json(verifier.chat.body(messages, schema=schema, seed=0)).encode()
        bare_s = _cpu_of(lambda: _bare(url, body, n), n)
        chat_s = _cpu_of(lambda: _asked(lambda i: verifier.verify(case, seed=i), n), n)
        with engine(folder, IN_FLIGHT) as calls:
            whole_s = _cpu_of(lambda: _through(calls, verifier, case, n), n)
    finally:
        process.kill()
        process.join()
    print(f"CPU of a request of {len(body)} bytes, {IN_FLIGHT} in flight: bare aiohttp {1e3 * bare_s:.2f} ms", end="")
    print(f", chat backend {1e3 * chat_s:.2f} ms, with engine and ledger {1e3 * whole_s:.2f} ms", end="")
    print(f"; so one core makes up to {1 / whole_s:.0f} calls a second")


def _serve(address: Any) -> None:
    from aiohttp import web

    said = completion({"reason": "why", "query_matches_ground_truth": True, "candidate_matches_query": False})

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response(said)

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.send(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        await asyncio.Event().wait()

    asyncio.run(run())


def _case() -> Case:
    captions = tuple(f"a brown dog runs over the wet grass of a park, seen in way {i}" for i in range(5))
    return Case(
        failure_id="i2t-1",
        direction=Direction.IMAGE_TO_TEXT,
        query=ImageItem(key="a", content_hash="b2:a", captions=captions, read=bytes),
        false_positive=TextItem(key="b", text="a black dog runs over the wet grass of a park"),
        ground_truths=(TextItem(key="c", text=captions[0]),),
    )


def _cpu_of(work: Callable[[], Coroutine[Any, Any, None]], n: int) -> float:
    asyncio.run(work())  # connections, caches
    began = time.process_time()
    asyncio.run(work())
    return (time.process_time() - began) / n


async def _asked(ask: Callable[[int], Awaitable[Any]], n: int) -> None:
    async for _ in map_ordered(ask, range(n), concurrency=IN_FLIGHT):
        pass


async def _bare(url: str, body: bytes, n: int) -> None:
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def one(_: int) -> None:
            headers = {"content-type": "application/json"}
            async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                await response.json()

        await _asked(one, n)


async def _through(calls: CallEngine, verifier: ChatVerifier, case: Case, n: int) -> None:
    session = time.monotonic_ns()

    async def one(index: int) -> None:
        await calls.call(
            task="verify",
            backend_fingerprint=verifier.fingerprint,
            failure_id=f"f{index}",
            seed=index,
            payload={"session": session},
            run=lambda: verifier.verify(case, seed=index),
            codec=JsonCodec(verification.to_json, lambda value: verification.from_json(value, failure_id="")),
            facts=verifier.facts,
            seat=Seat(verifier.place, "m"),
        )

    await _asked(one, n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=12800)
    parser.add_argument("--requests", type=int, default=3000)
    args = parser.parse_args()
    if args.calls < 4000:
        parser.error(f"--calls must be 4000 or more, else the search for the limit is all there is; not {args.calls}")
    with tempfile.TemporaryDirectory() as folder:
        throughput(Path(folder), args.calls)
        hidden_capacity(Path(folder), args.calls)
        budget(Path(folder))
        client_cpu(Path(folder), args.requests)


if __name__ == "__main__":
    main()
