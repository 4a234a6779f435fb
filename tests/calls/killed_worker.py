"""Makes calls until it is killed: `python -m tests.calls.killed_worker FOLDER N_ITEMS CONCURRENCY`.

Prints "lost N" first, then "run I" when the backend is asked and "done I" once the engine has answered, each written to
the pipe at once: what the backend and the caller saw, whatever becomes of this process. The backend takes one byte from
standard input for each call and waits for it.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from repair.calls.codecs import BYTES, TEXT
from repair.calls.engine import CallEngine
from repair.calls.flow import map_ordered
from repair.core.errors import BadReply
from repair.core.ports import Reply
from repair.core.records import Usage
from tests.calls.support import ask, stores


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def is_image(index: int) -> bool:
    return index % 3 == 0


def fails(index: int) -> bool:
    return index % 13 == 5


def answer(index: int) -> Any:
    return b"image %d " % index * 400 if is_image(index) else f"answer {index}"


async def backend(index: int) -> Reply[Any]:
    os.read(0, 1)
    say(f"run {index}")
    for _ in range(index % 7):
        await asyncio.sleep(0)
    if fails(index):
        raise BadReply("not JSON")
    return Reply(answer(index), Usage(tokens_in=10, tokens_out=1, price_usd=0.01), f"raw {index}")


async def work(engine: CallEngine, n_items: int, concurrency: int) -> None:
    async def one(index: int) -> None:
        outcome = await ask(engine, index, lambda: backend(index), codec=BYTES if is_image(index) else TEXT)
        assert outcome.value == (None if fails(index) else answer(index))
        if outcome.value is not None:
            say(f"done {index}")

    async for _ in map_ordered(one, range(n_items), concurrency=concurrency):
        pass


def main() -> None:
    folder, n_items, concurrency = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with stores(folder) as (ledger, blobs):
        say(f"lost {ledger.n_maybe_lost}")
        asyncio.run(work(CallEngine(ledger, blobs, concurrency=concurrency), n_items, concurrency))


if __name__ == "__main__":
    main()
