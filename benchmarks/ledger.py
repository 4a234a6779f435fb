"""How fast the ledger is: durable rows a second, 355,000 finished calls looked up again, calls a second of the engine.

    python benchmarks/ledger.py [--rows 355000]

Its files lie in a temporary folder: TMPDIR says where, if another disk is to be measured.

The file system decides most of it: use a folder on the disk that runs will be on.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from repair.calls.codecs import TEXT
from repair.calls.engine import CallEngine
from repair.calls.flow import map_ordered
from repair.core.calls import Attempt, Call, CallFacts, CallOutcome
from repair.core.identity import request_key
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger

FACTS = CallFacts(prompt_id="verify", prompt_version="1", model_id="model", parameters={"temperature": 0.0})
USAGE = Usage(tokens_in=900, tokens_out=120, price_usd=0.0004, latency_s=0.5)


def attempt(index: int) -> Attempt:
    """A finished call of about 700 bytes."""
    key = request_key(task="verify", backend="b2:backend", seed=index, payload={"text": f"caption {index}"})
    call = Call(key=key, task="verify", backend="b2:backend", failure_id=f"f{index}", seed=index, facts=FACTS)
    return Attempt(
        call=call,
        outcome=CallOutcome.DONE,
        usage=USAGE,
        estimated=False,
        raw='{"keep": true, "reason": "' + "the colour differs " * 12 + '"}',
        value='{"keep":true,"reason":"the colour of the dog differs"}',
        blob=None,
        error=None,
        started_s=1.0,
        finished_s=2.0,
    )


def fsyncs_per_s(folder: Path) -> float:
    """What the disk allows: 700-byte appends, each made durable."""
    began, n = time.perf_counter(), 0
    with (folder / "probe").open("wb") as stream:
        while time.perf_counter() - began < 1.0:
            stream.write(b"x" * 700)
            stream.flush()
            os.fsync(stream.fileno())
            n += 1
    return n / (time.perf_counter() - began)


def measure_rows(folder: Path, n_rows: int) -> None:
    path = folder / "ledger.sqlite"
    with Ledger.open(path) as ledger:
        began = time.perf_counter()
        for index in range(200):
            ledger.record(attempt(index), lease=0).result()
        print(f"one row a commit, durable: {200 / (time.perf_counter() - began):,.0f} rows/s")
        began = time.perf_counter()
        pending = [ledger.record(attempt(index), lease=0) for index in range(200, n_rows)]
        for future in pending:
            future.result()
        print(f"{n_rows - 200:,} rows in groups, durable: {(n_rows - 200) / (time.perf_counter() - began):,.0f} rows/s")
    print(f"file: {path.stat().st_size / 1e6:.0f} MB")


def measure_lookups(folder: Path, n_rows: int) -> None:
    path = folder / "ledger.sqlite"
    keys = [attempt(index).call.key for index in range(n_rows)]
    began, cpu = time.perf_counter(), time.process_time()
    with Ledger.open(path) as ledger:
        n_found = sum(ledger.get(key) is not None for key in keys)
        took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
        print(f"reopen and look up {n_found:,} keys, one by one: {took_s:.2f} s, {cpu_s:.2f} CPU-s")
        began = time.perf_counter()
        ledger.usage()
        print(f"cost by task, backend and outcome: {time.perf_counter() - began:.2f} s")


async def _answer() -> Reply[str]:
    return Reply("answer", USAGE, "answer")


async def _calls(engine: CallEngine, n_calls: int, concurrency: int) -> float:
    async def one(index: int) -> None:
        await engine.call(
            task="verify",
            backend_fingerprint="b2:instant",
            failure_id=f"f{index}",
            seed=index,
            payload={"text": "caption"},
            run=_answer,
            codec=TEXT,
        )

    began = time.perf_counter()
    async for _ in map_ordered(one, range(n_calls), concurrency=concurrency):
        pass
    return n_calls / (time.perf_counter() - began)


def measure_engine(folder: Path) -> None:
    for concurrency in (1, 8, 64):
        where = folder / f"engine-{concurrency}"
        n_calls = 1000 if concurrency == 1 else 5000
        for state in ("new", "in the ledger"):
            with Ledger.open(where / "ledger.sqlite") as ledger, BlobStore.open(where / "blobs.sqlite") as blobs:
                engine = CallEngine(ledger, blobs, concurrency=concurrency)
                rate = asyncio.run(_calls(engine, n_calls, concurrency))
            print(f"engine, {concurrency} in flight, an instant backend, {state}: {rate:,.0f} calls/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=355_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"disk: {fsyncs_per_s(folder):,.0f} fsyncs/s")
        measure_rows(folder, options.rows)
        measure_lookups(folder, options.rows)
        measure_engine(folder)


if __name__ == "__main__":
    main()
