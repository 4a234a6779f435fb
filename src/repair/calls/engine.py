"""The call engine: every request to a backend goes through it, and none is paid for twice.

One call: look in the ledger; else wait for a slot at its place, reserve budget, lease, run, keep the bytes, then record
the attempt and settle. An attempt is recorded before its value is handed on, and its slot is held until then, but for a
few answers (one in sixteen slots) that are being written while the next calls are on their way: if the process dies, at
most the calls in flight and those few are made again. A failed call is an outcome, not an exception; exceptions are for
what stops the run.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from repair.calls.attempts import Settled, decoded, done_attempt, encoded, failed_attempt, outcome_of, reason
from repair.calls.budget import Budget, Reservation
from repair.calls.codecs import BytesCodec, JsonCodec
from repair.calls.gate import Gate, Slot
from repair.calls.limit import Limit
from repair.calls.prices import Seat, assumed
from repair.calls.retry import Retry
from repair.calls.tally import Progress, ProgressCallback, TaskTally
from repair.core.calls import Attempt, BlobBox, Call, CallFacts, CallLedger, CallOutcome
from repair.core.errors import (
    BackendError,
    BudgetExceeded,
    DataError,
    RateLimited,
    RepairError,
    StoreError,
    Unavailable,
)
from repair.core.identity import request_key
from repair.core.ports import Reply
from repair.core.records import Usage

Value = TypeVar("Value")
Written = TypeVar("Written")

_MIN_ITEMS = 20
_IN_VAIN = (CallOutcome.REFUSED, CallOutcome.BAD_REPLY)  # the model has answered
_SLOTS_PER_WRITING = 16
_POLL_S = 0.25  # between looks at what another process on the same ledger is doing


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Value]):
    """What became of one request: `error` is None exactly if it has a `value`.

    `cached`: no call was made for it, the ledger or an equal request of this session answered.
    """

    key: str
    value: Value | None
    error: str | None
    cached: bool


class _Request(NamedTuple):
    call: Call
    run: Callable[[], Awaitable[Reply[Any]]]
    codec: JsonCodec[Any] | BytesCodec
    estimate: Usage | None
    seat: Seat


class _Known(NamedTuple):
    """What is known of a request without making a call."""

    settled: Settled | None
    torn: bool = False  # an answer is on record, but its bytes are gone


class _Wait:
    """Nothing can be done about a request until other calls have ended, perhaps in another process."""


class CallEngine:
    """Used from one event loop at a time, for one run.

    `concurrency` calls are in flight at most at one place, fewer where the server answers 429 (calls/limit.py). An
    Unavailable call is tried again as `retry` says; `deadline_s` is the most one attempt may take, counted from when it
    is sent. When more than `max_failed_rate` of at least `min_items` settled items of a task have failed, the engine
    stops; items that are refused, or answered with something of no use, as in an earlier session do not count, if the
    task has ever been answered. `sleep` and `clock` are there for tests.
    """

    def __init__(
        self,
        ledger: CallLedger,
        blobs: BlobBox,
        *,
        concurrency: int,
        budget: Budget | None = None,
        max_failed_rate: float = 1.0,
        min_items: int = _MIN_ITEMS,
        retry: Retry | None = None,
        deadline_s: float | None = None,
        progress: ProgressCallback | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.budget = budget or Budget(spent=ledger.spent())
        self.n_in_flight = 0
        self._n_writing = 0  # answers that are being written and hold no slot
        self._gate = Gate(concurrency, sleep=sleep)
        self._ledger = ledger
        self._blobs = blobs
        self._max_failed_rate = max_failed_rate
        self._min_items = min_items
        self._retry = retry or Retry()
        self._deadline_s = deadline_s
        self._progress = progress
        self._clock = clock
        self._flights: dict[str, asyncio.Future[Settled]] = {}
        self._failures: dict[str, Settled] = {}
        self._tallies: defaultdict[str, TaskTally] = defaultdict(TaskTally)

    @property
    def tallies(self) -> Mapping[str, TaskTally]:
        """What has become of the items of this session, by task."""
        return self._tallies

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Where calls were made so far, and how many may be in flight there."""
        return self._gate.limits

    @property
    def stopped(self) -> RepairError | None:
        """Why no further call is made; None while calls are made."""
        return self._gate.stopped

    def stop(self, error: RepairError) -> None:
        """Make no further call: each `call` from now on raises `error`. Calls in flight go on to their end."""
        self._gate.stop(error)

    async def call(
        self,
        *,
        task: str,
        backend_fingerprint: str,
        failure_id: str,
        seed: int | None,
        payload: Mapping[str, Any],
        run: Callable[[], Awaitable[Reply[Value]]],
        codec: JsonCodec[Value] | BytesCodec,
        facts: CallFacts | None = None,
        estimate: Usage | None = None,
        seat: Seat | None = None,
    ) -> Outcome[Value]:
        """Answer one request, from the ledger if it can, else by `await run()`.

        `task`, `backend_fingerprint`, `seed` and `payload` make its key (`core.identity.request_key`); `failure_id`
        says for whom the call was made. `estimate` is the most the call may use (`Budget.reserve`). `seat` is where it
        is made: the limit it falls under, and its price.

        A call that failed (Refused, BadReply, Unavailable to the last attempt, DataError) gives an Outcome with the
        error, is kept in the ledger for its cost, and is made again only in a later session. A 429 is neither: the call
        waits for its turn. Equal requests are one call. Raises what stops the engine: BudgetExceeded, ConfigError
        (money capped, price unknown), BackendError (one that `stops`, or too many failures), Interrupted, StoreError.
        """
        key = request_key(task=task, backend=backend_fingerprint, seed=seed, payload=payload)
        call = Call(
            key=key,
            task=task,
            backend=backend_fingerprint,
            failure_id=failure_id,
            seed=seed,
            facts=facts or CallFacts(),
        )
        seat = seat or Seat(backend_fingerprint, "")
        settled, cached = await self._settle(_Request(call, run, codec, estimate, seat))
        return Outcome(key=key, value=decoded(settled, codec, key=key), error=settled.error, cached=cached)

    async def _settle(self, request: _Request) -> tuple[Settled, bool]:
        key, task = request.call.key, request.call.task
        while (other := self._flights.get(key)) is not None:
            try:
                return self._count_cached(task, await asyncio.shield(other)), True
            except asyncio.CancelledError:
                if not other.cancelled() or _being_cancelled():
                    raise
        self._gate.check()
        known = self._known(key)
        if known.settled is not None:
            return self._count_cached(task, known.settled), True
        flight: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            if known.torn:
                await self._written(self._ledger.supersede(key))
            settled = await self._run(request)
            flight.set_result(settled)
        except asyncio.CancelledError:
            flight.cancel()
            raise
        except BaseException as error:
            flight.set_exception(error)
            flight.exception()  # seen: it is raised here, whoever else waits
            raise
        finally:
            del self._flights[key]
        return settled, False

    def _known(self, key: str) -> _Known:
        """A failure stands for the session, else what an equal request gets would depend on which came first."""
        failure = self._failures.get(key)
        if failure is not None:
            return _Known(failure)
        answer = self._ledger.get(key)
        if answer is None:
            return _Known(None)
        if answer.blob is None:
            return _Known(Settled(value=answer.value))
        data = self._blobs.get(answer.blob)
        return _Known(None, torn=True) if data is None else _Known(Settled(data=data))

    async def _run(self, request: _Request) -> Settled:
        """Attempts until one is answered or there is no point in another."""
        key, task = request.call.key, request.call.task
        for number in range(1, self._retry.n_attempts + 1):
            result = await self._attempt(request)
            if isinstance(result, Settled):
                self._tallies[task].n_done += 1
                self._report(task)
                return result
            failure = result
            if isinstance(result, BackendError) and result.stops:
                self._gate.halt(result)
            if not isinstance(result, Unavailable) or number == self._retry.n_attempts:
                break
            await self._gate.pause(self._retry.delay_s(key, number, retry_after_s=result.retry_after_s))
        why = reason(failure)
        outcome = outcome_of(failure)
        again = outcome in _IN_VAIN and self._ledger.n_ended(key, outcome) > 1
        self._failures[key] = Settled(error=why, again=again)
        self._tallies[task].fail(why, again=again)
        self._report(task)
        self._stop_if_too_many_failed(task)
        return self._failures[key]

    async def _attempt(self, request: _Request) -> Settled | RepairError:
        """One attempt that a model has seen, recorded. Returns the failure of a call that failed, raises what is no
        call's failure."""
        again = False
        while True:
            async with self._gate.slot(request.seat.place, again=again) as slot:
                result = await self._attempt_now(request, slot)
            if not isinstance(result, RateLimited | _Wait):
                return result
            again = isinstance(result, RateLimited)
            if not again:
                await self._gate.pause(_POLL_S)

    async def _attempt_now(self, request: _Request, slot: Slot) -> "Settled | RepairError | _Wait":
        task, seat = request.call.task, request.seat
        estimate = request.estimate
        if estimate is None and seat.price is not None:
            estimate = assumed(task)
        if estimate is not None and seat.price is not None:
            estimate = seat.price.applied(estimate)
        try:
            reservation = await self.budget.reserve(task, estimate, name=seat.name)
        except RepairError as error:
            self._gate.halt(error)
        self.n_in_flight += 1
        try:
            self._gate.check()  # it may have been stopped while this call waited for the budget
            lease = await self._lease(request, reservation)
            if not isinstance(lease, int):
                return lease
            return await self._attempt_leased(request, reservation, lease, slot)
        finally:
            self.n_in_flight -= 1
            self.budget.release(reservation)

    async def _lease(self, request: _Request, reservation: Reservation) -> "int | Settled | _Wait":
        """A lease; else the answer another process has given, or a wait for one that it is about to."""
        grant = await self._written(
            self._ledger.lease(
                request.call,
                declared=reservation.declared,
                held=reservation.held,
                caps=self.budget.caps,
                started_s=self._clock(),
            )
        )
        if grant.lease is not None:
            return grant.lease
        if grant.answered:
            known = self._known(request.call.key)
            if known.torn:
                await self._written(self._ledger.supersede(request.call.key))
            return known.settled or _Wait()
        if grant.broken is not None:
            self.budget.learn(grant.spent)
            if grant.alone:
                self._gate.halt(BudgetExceeded(self.budget.line(grant.broken)))
        return _Wait()

    async def _attempt_leased(
        self, request: _Request, reservation: Reservation, lease: int, slot: Slot
    ) -> Settled | RepairError:
        started_s, declared = self._clock(), reservation.declared
        began_s = time.monotonic()
        failure: Exception | None = None
        try:
            reply = await self._within_deadline(request.run)
            settled = encoded(reply, request.codec)
        except RateLimited as error:
            await self._written(self._ledger.withdraw(lease))
            try:
                slot.limited(error)
            except BackendError as senseless:
                self._gate.halt(senseless)
            return error
        except Exception as error:  # noqa: BLE001 - recorded, then raised unless it is the call's own failure
            failure = error
        took_s = time.monotonic() - began_s
        charges = {"declared": declared, "price": request.seat.price}
        times = {"latency_s": took_s, "started_s": started_s, "finished_s": self._clock()}
        if failure is None:
            with self._giving_way(slot):
                if settled.data is not None:
                    await self._written(self._blobs.put(settled.data))
                attempt = done_attempt(request.call, reply, settled, **charges, **times)  # type: ignore[arg-type]
                await self._record(attempt, reservation, lease)
            return settled
        attempt = failed_attempt(request.call, failure, **charges, **times)  # type: ignore[arg-type]
        await self._record(attempt, reservation, lease)
        if not isinstance(failure, Unavailable):
            slot.answered()
        if isinstance(failure, (BackendError, DataError)):
            return failure
        raise failure

    async def _record(self, attempt: Attempt, reservation: Reservation, lease: int) -> None:
        self.budget.settle(reservation, attempt.usage)
        await self._written(self._ledger.record(attempt, lease=lease))

    @contextmanager
    def _giving_way(self, slot: Slot) -> Iterator[None]:
        """While an answer is written its slot serves the next call, unless several are being written already."""
        if self._n_writing >= self._gate.concurrency // _SLOTS_PER_WRITING:
            yield
            slot.answered()
            return
        slot.answered()
        slot.leave()
        self._n_writing += 1
        try:
            yield
        finally:
            self._n_writing -= 1

    async def _within_deadline(self, run: Callable[[], Awaitable[Reply[Any]]]) -> Reply[Any]:
        deadline = asyncio.timeout(self._deadline_s)
        try:
            async with deadline:
                return await run()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise Unavailable(f"no answer within {self._deadline_s:g} s") from error

    async def _written(self, write: "Future[Written]") -> Written:
        """Wait until the store has written. What it cannot write stops the engine."""
        try:
            return await asyncio.wrap_future(write)
        except StoreError as error:
            self._gate.halt(error)

    def _count_cached(self, task: str, settled: Settled) -> Settled:
        if settled.error is None:
            self._tallies[task].n_cached += 1
        else:
            self._tallies[task].fail(settled.error, again=settled.again)
        self._report(task)
        return settled

    def _report(self, task: str) -> None:
        if self._progress is not None:
            tally, spent = self._tallies[task], self.budget.spent
            self._progress(
                Progress(
                    task=task,
                    n_done=tally.n_done,
                    n_cached=tally.n_cached,
                    n_failed=tally.n_failed,
                    n_in_flight=self.n_in_flight,
                    spent=spent,
                )
            )

    def _stop_if_too_many_failed(self, task: str) -> None:
        tally = self._tallies[task]
        answers = bool(tally.n_done or tally.n_cached) or self._ledger.has_answered(task)
        why = tally.too_many_failed(max_failed_rate=self._max_failed_rate, min_items=self._min_items, answers=answers)
        if why is not None:
            self._gate.halt(
                BackendError(
                    f'"{task}": {why}; that is more than calls.max_failed_rate = {self._max_failed_rate:g}: '
                    "mend the backend and run the same command again (failed items are retried), or raise the rate"
                )
            )


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
