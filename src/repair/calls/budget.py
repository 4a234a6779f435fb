"""Caps on money, tokens and calls: reserved before a call is sent, settled when it has ended.

Counting starts from what the ledger already holds, so a run goes on after its cap was raised. Failed attempts count.
As long as no call costs more than was reserved for it, no cap is ever exceeded, at any concurrency; else by at most
what the calls in flight cost beyond their reservations. Other processes on the same ledger count too: here one's own
calls are admitted, then the ledger checks them against everybody's in the transaction that leases the call.
"""

import asyncio
from dataclasses import replace

from repair.core.calls import NO_CAPS, Caps, Spent
from repair.core.errors import BudgetExceeded, ConfigError
from repair.core.records import Usage


class Reservation:
    """What is held back for one call in flight. Ended once: by `Budget.settle` or `Budget.release`.

    `held` may be a guess from earlier calls; `declared` is what the caller said the call may use, or what such calls
    are assumed to use where a price is known. Only that is charged to a call that does not say its cost: what is
    recorded must not depend on which calls ended before.
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
        self.caps = self._caps = caps or Caps()
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

    def learn(self, spent: Spent) -> None:
        """The ledger has seen more than this process knows of: other processes spend too."""
        if spent.n_calls > self._spent.n_calls:
            self._spent = spent

    def require_price(self, task: str, estimate: Usage | None, *, name: str = "") -> None:
        """Raises ConfigError if money is capped and the price of `task` is unknown: ask before the first call.

        `name` is what the user would call the model in `calls.prices`."""
        if self._caps.max_usd is not None and (estimate is None or estimate.price_usd is None):
            setting = f'calls.prices."{name}"' if name else "calls.prices"
            raise ConfigError(
                f'calls.max_usd is set, but the price of "{task}" calls is unknown: set {setting} '
                "= { input = …, output = … } (US dollars per million tokens; image, call: each), "
                "or cap calls.max_tokens or calls.max_calls instead"
            )

    async def reserve(self, task: str, estimate: Usage | None, *, name: str = "") -> Reservation:
        """Hold back what a call may cost, waiting for calls in flight to settle if only they stand in the way.

        `estimate` is what the call may use; what is held back is that or the most that a call of this task has used so
        far, part by part, whichever is more.
        Raises BudgetExceeded if the call does not fit even when nothing else is in flight, ConfigError as
        `require_price` does.
        """
        self.require_price(task, estimate, name=name)
        while True:
            held = _larger(estimate or Usage(), self._largest.get(task, Usage()))
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
            price_usd=largest.price_usd if price_usd is None else max(largest.price_usd or 0.0, price_usd),
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
        if self._caps == NO_CAPS:
            return None
        held = [reservation.held for reservation in self._open] if with_open else []
        in_flight = Spent(
            n_calls=len(held),
            tokens=sum(each.tokens_in + each.tokens_out for each in held),
            price_usd=sum(each.price_usd or 0.0 for each in held),
        )
        broken = self._caps.broken_by(usage, spent=self._spent, held=in_flight)
        return None if broken is None else self.line(broken)

    def line(self, broken: str) -> str:
        """What stands in the way of the next call, and how to go on."""
        used = {
            "max_calls": f"{self._spent.n_calls} calls made",
            "max_tokens": f"{self._spent.tokens} tokens used",
            "max_usd": f"{self._spent.price_usd:.4f} USD spent",
        }[broken]
        cap = getattr(self._caps, broken)
        return (
            f"the next call would break calls.{broken} = {cap:.15g} ({used}): everything finished is kept; "
            f"raise calls.{broken} and run the same command again to go on"
        )


def _larger(usage: Usage, other: Usage) -> Usage:
    prices = [each.price_usd for each in (usage, other) if each.price_usd is not None]
    return Usage(
        tokens_in=max(usage.tokens_in, other.tokens_in),
        tokens_out=max(usage.tokens_out, other.tokens_out),
        price_usd=max(prices, default=None),
    )
