"""Several engines on one ledger: no call is made twice, and one budget holds for all of them."""

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from repair.calls.budget import Budget
from repair.calls.engine import CallEngine
from repair.core.calls import Caps
from repair.core.errors import BudgetExceeded
from tests.calls.support import USAGE, Backend, Delays, ask_backend, stores


async def all_of(engine: CallEngine, backend: Backend, order: Iterable[int]) -> list[Any]:
    calls = (ask_backend(engine, index, backend, estimate=USAGE) for index in order)
    return await asyncio.gather(*calls, return_exceptions=True)


def test_the_same_requests_are_shared_out(tmp_path: Path) -> None:
    async def work() -> list[list[Any]]:
        return await asyncio.gather(all_of(one, backend, range(60)), all_of(two, backend, reversed(range(60))))

    backend = Backend(lambda index, _: f"answer {index}", n_turns=5)
    with ExitStack() as stack:
        engines = []
        for _ in range(2):
            ledger, blobs = stack.enter_context(stores(tmp_path))
            engines.append(CallEngine(ledger, blobs, concurrency=8, sleep=Delays()))
        one, two = engines
        results = asyncio.run(work())
        assert [o.value for o in results[0]] == [f"answer {index}" for index in range(60)]
        assert [o.value for o in results[1]] == [f"answer {index}" for index in reversed(range(60))]
        assert set(backend.runs.values()) == {1}
        assert ledger.spent().n_calls == 60


@pytest.mark.parametrize("caps", [Caps(max_calls=25), Caps(max_tokens=250), Caps(max_usd=0.25)])
def test_one_budget_for_all_processes(caps: Caps, tmp_path: Path) -> None:
    async def work() -> list[Any]:
        first, second = await asyncio.gather(all_of(one, backend, range(100)), all_of(two, backend, range(100, 200)))
        return first + second

    backend = Backend(lambda index, _: f"answer {index}", n_turns=5)
    with ExitStack() as stack:
        engines = []
        for _ in range(2):
            ledger, blobs = stack.enter_context(stores(tmp_path))
            budget = Budget(caps, spent=ledger.spent())
            engines.append(CallEngine(ledger, blobs, concurrency=8, budget=budget, sleep=Delays()))
        one, two = engines
        assert sum(isinstance(result, BudgetExceeded) for result in asyncio.run(work())) == 200 - 25
        assert ledger.spent().n_calls == 25  # each is 10 tokens and one cent
        assert sum(backend.runs.values()) == 25
        assert ledger.n_leased() == 0
