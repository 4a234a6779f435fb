import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.calls.budget import Budget
from repair.core.calls import Caps, Spent
from repair.core.errors import BudgetExceeded, ConfigError
from repair.core.records import Usage

CALLS = st.lists(
    st.tuples(
        st.integers(0, 40),  # tokens reserved
        st.integers(0, 40),  # cents reserved
        st.floats(0, 2),  # what is used of both, as a share
        st.integers(0, 4),  # turns of the loop it takes
    ),
    max_size=25,
)


def spend(budget: Budget, calls: list[tuple[int, int, float, int]], concurrency: int) -> tuple[int, float, bool]:
    """Make the calls, `concurrency` at once: what they used beyond their reservations, and whether a cap stopped it."""

    async def work() -> tuple[int, float, bool]:
        slots = asyncio.Semaphore(concurrency)
        over_tokens, over_usd, stopped = 0, 0.0, False

        async def one(call: tuple[int, int, float, int]) -> None:
            nonlocal over_tokens, over_usd, stopped
            tokens, cents, share, n_turns = call
            async with slots:
                if stopped:
                    return
                try:
                    reservation = await budget.reserve("t", Usage(tokens_in=tokens, price_usd=cents / 100))
                except BudgetExceeded:
                    stopped = True
                    return
                for _ in range(n_turns):
                    await asyncio.sleep(0)
                used = Usage(tokens_in=int(tokens * share), price_usd=cents / 100 * share)
                over_tokens += max(0, used.tokens_in - tokens)
                over_usd += max(0.0, (used.price_usd or 0.0) - cents / 100)
                budget.settle(reservation, used)

        await asyncio.gather(*map(one, calls))
        return over_tokens, over_usd, stopped

    return asyncio.run(work())


@settings(max_examples=150, deadline=None)
@given(
    calls=CALLS,
    concurrency=st.integers(1, 12),
    max_tokens=st.none() | st.integers(0, 300),
    max_cents=st.none() | st.integers(0, 300),
    max_calls=st.none() | st.integers(0, 20),
    before=st.integers(0, 50),
)
def test_no_cap_is_exceeded_beyond_what_calls_used_over_their_reservations(
    calls: Any, concurrency: int, max_tokens: int | None, max_cents: int | None, max_calls: int | None, before: int
) -> None:
    max_usd = None if max_cents is None else max_cents / 100
    start = Spent(n_calls=before // 10, tokens=before, price_usd=before / 100)
    budget = Budget(Caps(max_usd=max_usd, max_tokens=max_tokens, max_calls=max_calls), spent=start)
    over_tokens, over_usd, stopped = spend(budget, calls, concurrency)
    spent = budget.spent
    if max_calls is not None:
        assert spent.n_calls <= max(max_calls, start.n_calls)
    if max_tokens is not None:
        assert spent.tokens <= max(max_tokens, start.tokens) + over_tokens
    if max_usd is not None:
        assert spent.price_usd <= max(max_usd, start.price_usd) + over_usd + 1e-6
    if not stopped:
        assert spent.n_calls == start.n_calls + len(calls)
        assert spent.tokens == start.tokens + sum(int(tokens * share) for tokens, _, share, _ in calls)


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(1, 20), st.just(0), st.just(1.0), st.integers(0, 4)), max_size=25),
    cap=st.integers(1, 200),
)
def test_calls_that_fit_one_by_one_fit_at_any_concurrency(calls: Any, cap: int) -> None:
    # A call that only calls in flight keep from fitting waits for them instead of ending the run.
    calls = [(3, 0, 0.4, n_turns) for _, _, _, n_turns in calls]
    outcomes = set()
    for concurrency in (1, 4, 25):
        budget = Budget(Caps(max_tokens=cap))
        _, _, stopped = spend(budget, calls, concurrency)
        outcomes.add((budget.spent.n_calls, budget.spent.tokens, stopped))
    assert len(outcomes) == 1


def test_without_an_estimate_the_largest_call_so_far_is_reserved() -> None:
    async def work() -> None:
        budget = Budget(Caps(max_tokens=100))
        for tokens in (30, 10):
            budget.settle(await budget.reserve("edit", None), Usage(tokens_in=tokens, tokens_out=5))
        reservation = await budget.reserve("edit", None)
        assert (reservation.held.tokens_in, reservation.held.tokens_out) == (30, 5)
        assert reservation.declared == Usage()  # a guess is held back, never charged
        assert (await budget.reserve("verify", None)).held == Usage()
        budget.settle(reservation, Usage(tokens_in=30))
        with pytest.raises(BudgetExceeded, match=r"max_tokens = 100 \(80 tokens used\)"):
            await budget.reserve("edit", None)

    asyncio.run(work())


def test_a_cap_that_has_been_reached_admits_nothing_even_what_is_thought_free() -> None:
    async def work() -> None:
        budget = Budget(Caps(max_tokens=10), spent=Spent(n_calls=1, tokens=10))
        with pytest.raises(BudgetExceeded):
            await budget.reserve("verify", None)

    asyncio.run(work())


def test_ending_a_reservation_twice_counts_once() -> None:
    async def work() -> Spent:
        budget = Budget()
        reservation = await budget.reserve("t", None)
        budget.settle(reservation, Usage(tokens_in=5))
        budget.settle(reservation, Usage(tokens_in=5))
        budget.release(reservation)
        return budget.spent

    assert asyncio.run(work()) == Spent(n_calls=1, tokens=5, n_unpriced=1)


def test_money_needs_known_prices_before_and_now() -> None:
    with pytest.raises(ConfigError, match="price of 3 earlier calls is unknown"):
        Budget(Caps(max_usd=1), spent=Spent(n_calls=5, n_unpriced=3))
    Budget(Caps(max_tokens=1), spent=Spent(n_calls=5, n_unpriced=3))
    budget = Budget(Caps(max_usd=1))
    budget.require_price("edit", Usage(price_usd=0.0))
    for estimate in (None, Usage()):
        with pytest.raises(ConfigError, match='"edit" calls is unknown'):
            budget.require_price("edit", estimate)


@pytest.mark.parametrize("name", ["max_usd", "max_tokens", "max_calls"])
def test_a_negative_cap_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"calls\.{name} must be 0 or more"):
        Caps(**{name: -1})
    with pytest.raises(ConfigError):
        Caps(max_usd=float("nan"))
