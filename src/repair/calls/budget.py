"""Caps on money, tokens and calls over a whole run: reserved before a call is sent, settled when it has ended.

Counting starts from what the ledger already holds, so a run goes on after its cap was raised. Failed attempts count.
As long as no call costs more than was reserved for it, no cap is ever exceeded, at any concurrency; else by at most
what the calls in flight cost beyond their reservations.
"""

import asyncio
from dataclasses import dataclass, replace

from repair.core.calls import Spent
from repair.core.errors import BudgetExceeded, ConfigError
from repair.core.records import Usage

_ROUNDING_USD = 1e-9  # sums of prices are floats; a cap is not missed by a rounding error


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most a run may use; None is no cap. Raises ConfigError for a negative cap."""

    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_usd", "max_tokens", "max_calls"):
            cap = getattr(self, name)
            if cap is not None and not cap >= 0:
                raise ConfigError(f"calls.{name} must be 0 or more, not {cap}")


class Reservation:
    """What is held back for one call in flight. Ended once: by `Budget.settle` or `Budget.release`.

    `held` may be a guess from earlier calls; `declared` is what the caller said the call may use. Only that is charged
    to a call that does not say its cost: what is recorded must not depend on which calls ended before.
    """

    __slots__ = ("declared", "ended", "held", "task")

    def __init__(self, task: str, *, declared: Usage | None, held: Usage) -> None:
        self.task = task
        self.declared = declared or Usage()
        self.held = held
        self.ended = False


class Budget:
    """Used from one event loop at a time. `spent` is what the run has used before, from the ledger.

    Raises ConfigError if money is capped and earlier calls have no known price.
    """

    def __init__(self, caps: Caps | None = None, *, spent: Spent | None = None) -> None:
        self._caps = caps or Caps()
        self._spent = spent or Spent()
        self._open: set[Reservation] = set()
        self._largest: dict[str, Usage] = {}
        self._waiters: list[asyncio.Future[None]] = []
        if self._caps.max_usd is not None and self._spent.n_unpriced:
            raise ConfigError(
                f"calls.max_usd cannot be kept: the price of {self._spent.n_unpriced} earlier calls is unknown; "
                "cap calls.max_tokens or calls.max_calls instead, or start another run"
            )

    @property
    def spent(self) -> Spent:
        """What has been used, earlier sessions included; calls in flight are not."""
        return self._spent

    def require_price(self, task: str, estimate: Usage | None) -> None:
        """Raises ConfigError if money is capped and the price of `task` is unknown: ask before the first call."""
        if self._caps.max_usd is not None and (estimate is None or estimate.price_usd is None):
            raise ConfigError(
                f'calls.max_usd is set, but the price of "{task}" calls is unknown: '
                "give the backend its price, or cap calls.max_tokens or calls.max_calls instead"
            )

    async def reserve(self, task: str, estimate: Usage | None) -> Reservation:
        """Hold back what a call may cost, waiting for calls in flight to settle if only they stand in the way.

        `estimate` is the most the call should use; without one, the most that a call of this task has used so far.
        Raises BudgetExceeded if the call does not fit even when nothing else is in flight, ConfigError as
        `require_price` does.
        """
        self.require_price(task, estimate)
        while True:
            held = estimate or self._largest.get(task, Usage())
            if self._broken_cap(held, with_open=True) is None:
                reservation = Reservation(task, declared=estimate, held=held)
                self._open.add(reservation)
                return reservation
            broken = self._broken_cap(held, with_open=False)
            if broken is not None:
                raise BudgetExceeded(broken)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """The call has ended and used `usage`. An unknown price counts as the declared one."""
        if reservation.ended:
            return
        price_usd = reservation.declared.price_usd if usage.price_usd is None else usage.price_usd
        self._spent = Spent(
            n_calls=self._spent.n_calls + 1,
            tokens=self._spent.tokens + usage.tokens_in + usage.tokens_out,
            price_usd=self._spent.price_usd + (price_usd or 0.0),
            n_unpriced=self._spent.n_unpriced + (price_usd is None),
        )
        largest = self._largest.get(reservation.task, Usage())
        self._largest[reservation.task] = replace(
            largest,
            tokens_in=max(largest.tokens_in, usage.tokens_in),
            tokens_out=max(largest.tokens_out, usage.tokens_out),
        )
        self.release(reservation)

    def release(self, reservation: Reservation) -> None:
        """The call was never sent, or has been settled: give its reservation back. A second time does nothing."""
        if reservation.ended:
            return
        reservation.ended = True
        self._open.discard(reservation)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _broken_cap(self, usage: Usage, *, with_open: bool) -> str | None:
        """Which cap the next call would break, in one line; None if it fits."""
        held = [reservation.held for reservation in self._open] if with_open else []
        n_calls = self._spent.n_calls + len(held) + 1
        tokens = self._spent.tokens + sum(each.tokens_in + each.tokens_out for each in (*held, usage))
        price_usd = self._spent.price_usd + sum(each.price_usd or 0.0 for each in (*held, usage))
        caps = self._caps
        if caps.max_calls is not None and n_calls > caps.max_calls:
            return self._line("max_calls", f"{caps.max_calls}", f"{self._spent.n_calls} calls made")
        # A call that is expected to use nothing is not sent either once a cap has been reached.
        if caps.max_tokens is not None and (tokens > caps.max_tokens or self._spent.tokens >= caps.max_tokens):
            return self._line("max_tokens", f"{caps.max_tokens}", f"{self._spent.tokens} tokens used")
        if caps.max_usd is not None and price_usd > caps.max_usd + _ROUNDING_USD:
            return self._line("max_usd", f"{caps.max_usd:g}", f"{self._spent.price_usd:.4f} USD spent")
        return None

    def _line(self, name: str, cap: str, used: str) -> str:
        return (
            f"the next call would break calls.{name} = {cap} ({used}): everything finished is kept; "
            f"raise calls.{name} and run the same command again to go on"
        )
