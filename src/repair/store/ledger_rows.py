"""Rows of the ledger and the values they stand for."""

import json
from typing import Any, NamedTuple

from repair.core.calls import Attempt, Call, CallFacts, CallOutcome
from repair.core.identity import canonical_json
from repair.core.records import Usage

CALL_COLUMNS = (
    "key", "task", "backend", "failure_id", "seed", "prompt_id", "prompt_version", "model_id", "parameters",
)  # fmt: skip
ATTEMPT_COLUMNS = (
    *CALL_COLUMNS,
    "outcome", "error", "raw", "value", "blob", "tokens_in", "tokens_out", "n_images", "price_usd", "latency_s",
    "estimated", "started_s", "finished_s",
)  # fmt: skip


class LoggedAttempt(NamedTuple):
    """An attempt on record. `number` counts the attempts at one key from 1, over all sessions."""

    number: int
    attempt: Attempt


class FailureUsage(NamedTuple):
    """What the calls of one task about one failure came to; `tokens` are in and out, the rest as in `UsageRow`."""

    failure_id: str
    task: str
    n_calls: int
    tokens: int
    n_images: int
    price_usd: float
    n_unpriced: int


class UsageRow(NamedTuple):
    """What the calls of one task, backend, model and outcome came to.

    `price_usd` sums the known prices; `n_unpriced` attempts have none. Of `n_estimated` attempts the server did not say
    what they cost: their share of the numbers is what was reserved for them.
    """

    task: str
    backend: str
    model_id: str
    outcome: CallOutcome
    n_calls: int
    tokens_in: int
    tokens_out: int
    n_images: int
    price_usd: float
    n_unpriced: int
    n_estimated: int
    latency_s: float


class Mark(NamedTuple):
    """A person's answer to one question about one failure. `at_s` is in seconds since the epoch."""

    failure_id: str
    question: str
    rater: str
    answer: str
    at_s: float


def call_values(call: Call) -> tuple[Any, ...]:
    """The values of CALL_COLUMNS."""
    facts = call.facts
    return (
        call.key,
        call.task,
        call.backend,
        call.failure_id,
        call.seed,
        facts.prompt_id,
        facts.prompt_version,
        facts.model_id,
        canonical_json(dict(facts.parameters)),
    )


def attempt_values(
    attempt: Attempt, *, outcome: CallOutcome | None = None, error: str | None = None
) -> tuple[Any, ...]:
    """The values of ATTEMPT_COLUMNS; `outcome` and `error` replace the attempt's own if given."""
    usage = attempt.usage
    return (
        *call_values(attempt.call),
        str(outcome or attempt.outcome),
        _storable(error or attempt.error),
        _storable(attempt.raw),
        attempt.value,
        attempt.blob,
        usage.tokens_in,
        usage.tokens_out,
        usage.n_images,
        usage.price_usd,
        usage.latency_s,
        int(attempt.estimated),
        attempt.started_s,
        attempt.finished_s,
    )


def _storable(text: str | None) -> str | None:
    """Text from outside may hold half a surrogate pair, which no UTF-8 file can."""
    return text if text is None else text.encode("utf-8", "backslashreplace").decode()


def logged_attempt(row: tuple[Any, ...]) -> LoggedAttempt:
    """The attempt of a row of `attempt` and ATTEMPT_COLUMNS."""
    number, *values = row
    field = dict(zip(ATTEMPT_COLUMNS, values, strict=True))
    facts = CallFacts(
        prompt_id=field["prompt_id"],
        prompt_version=field["prompt_version"],
        model_id=field["model_id"],
        parameters=json.loads(field["parameters"]),
    )
    call = Call(
        key=field["key"],
        task=field["task"],
        backend=field["backend"],
        failure_id=field["failure_id"],
        seed=field["seed"],
        facts=facts,
    )
    usage = Usage(
        tokens_in=field["tokens_in"],
        tokens_out=field["tokens_out"],
        n_images=field["n_images"],
        price_usd=field["price_usd"],
        latency_s=field["latency_s"],
    )
    attempt = Attempt(
        call=call,
        outcome=CallOutcome(field["outcome"]),
        usage=usage,
        estimated=bool(field["estimated"]),
        raw=field["raw"],
        value=field["value"],
        blob=field["blob"],
        error=field["error"],
        started_s=field["started_s"],
        finished_s=field["finished_s"],
    )
    return LoggedAttempt(number, attempt)
