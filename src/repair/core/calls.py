"""One model call as it is recorded, and the two ports the call engine writes through.

The engine (calls/) and the ledger (store/) are strangers to each other; these are the words they share.
"""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from repair.core.errors import ConfigError
from repair.core.records import Usage


class CallOutcome(StrEnum):
    """How one attempt ended. Only `done` answers a request; every other row is kept for its cost and its reason."""

    DONE = "done"
    REFUSED = "refused"
    BAD_REPLY = "bad_reply"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"  # the backend failed in a way that is none of these
    LOST = "lost"  # the process ended while it was in flight; the server may have billed it
    SUPERSEDED = "superseded"  # was done, but the bytes it named are gone, so the call was made again


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What is recorded of a request beside its key: for the reader, not for identity (the fingerprint has that)."""

    prompt_id: str = ""
    prompt_version: str = ""
    model_id: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request about to be sent. `key` is `core.identity.request_key`."""

    key: str
    task: str
    backend: str  # fingerprint
    failure_id: str
    seed: int | None
    facts: CallFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a call, finished. `value` is JSON text, `blob` the content hash of bytes stored beside it.

    `estimated`: the server did not say what the attempt cost, `usage` is what was declared for it. Times are seconds
    since the epoch.
    """

    call: Call
    outcome: CallOutcome
    usage: Usage
    estimated: bool
    raw: str
    value: str | None
    blob: str | None
    error: str | None
    started_s: float
    finished_s: float


class Answer(NamedTuple):
    """A finished call's stored answer: JSON text and, for bytes, their content hash."""

    value: str | None
    blob: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What has been used, failed and lost attempts included. `price_usd` sums the known prices only."""

    n_calls: int = 0
    tokens: int = 0
    price_usd: float = 0.0
    n_unpriced: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The most that all runs on one ledger may use together; None is no cap. Raises ConfigError for a negative cap."""

    max_usd: float | None = None
    max_tokens: int | None = None
    max_calls: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_usd", "max_tokens", "max_calls"):
            cap = getattr(self, name)
            if cap is not None and not cap >= 0:
                raise ConfigError(f"calls.{name} must be 0 or more, not {cap}")

    def broken_by(self, usage: Usage, *, spent: Spent, held: Spent) -> str | None:
        """The name of the cap that one more call would break, beside what is spent and what calls in flight hold."""
        tokens = spent.tokens + held.tokens + usage.tokens_in + usage.tokens_out
        price_usd = spent.price_usd + held.price_usd + (usage.price_usd or 0.0)
        if self.max_calls is not None and spent.n_calls + held.n_calls + 1 > self.max_calls:
            return "max_calls"
        # A call that is expected to use nothing is not sent either once a cap has been reached.
        if self.max_tokens is not None and (tokens > self.max_tokens or spent.tokens >= self.max_tokens):
            return "max_tokens"
        if self.max_usd is not None and price_usd > self.max_usd + _ROUNDING_USD:
            return "max_usd"
        return None


NO_CAPS = Caps()
_ROUNDING_USD = 1e-9  # sums of prices are floats; a cap is not missed by a rounding error


class Grant(NamedTuple):
    """What became of asking the ledger for a lease: `lease` names it, else exactly one of the rest says why not."""

    lease: int | None = None
    answered: bool = False  # another process has answered the request meanwhile
    elsewhere: bool = False  # another process is making this very call
    broken: str | None = None  # the cap it would break now
    alone: bool = False  # with `broken`: no other call is in flight anywhere, so waiting would not help
    spent: Spent = Spent()  # with `broken`: by all processes so far


class CallLedger(Protocol):
    """Where the engine keeps calls; several processes may write to one. Futures resolve once the write is safe from the
    death of this process."""

    def has_answered(self, task: str) -> bool:
        """Whether any call of the task has ever been answered."""
        ...

    def n_ended(self, key: str, outcome: CallOutcome) -> int:
        """How often the call ended as `outcome`, which is not done."""
        ...

    def get(self, key: str) -> Answer | None:
        """The answer of a finished call; None if there is none."""
        ...

    def lease(self, call: Call, *, declared: Usage, held: Usage, caps: Caps, started_s: float) -> "Future[Grant]":
        """Note that `call` is about to be sent, if what it may use fits under `caps` beside everything spent and held
        by any process, in one transaction. `held` is reserved; `declared` is charged if the call is lost."""
        ...

    def withdraw(self, lease: int) -> "Future[None]":
        """The leased call was not taken (a 429): end the lease without a trace."""
        ...

    def record(self, attempt: Attempt, *, lease: int) -> "Future[None]":
        """Keep a finished attempt and end its lease, in one transaction. A done answer is never overwritten."""
        ...

    def supersede(self, key: str) -> "Future[None]":
        """The done answer of `key` cannot be used any more (its bytes are gone): keep the row, but not as an answer."""
        ...

    def spent(self) -> Spent: ...


class BlobBox(Protocol):
    """Where the engine keeps bytes, by content hash."""

    def get(self, digest: str) -> bytes | None:
        """None if there are no such bytes, or they are not what they were."""
        ...

    def put(self, data: bytes) -> "Future[str]":
        """Keep `data`; the result is its content hash, once written."""
        ...
