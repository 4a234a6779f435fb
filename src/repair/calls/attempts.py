"""One attempt at a call, put into the words of the ledger: its stored value, its outcome, its cost."""

import json
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from repair.calls.codecs import BytesCodec, JsonCodec
from repair.calls.prices import Price
from repair.core.calls import Attempt, Call, CallOutcome
from repair.core.errors import (
    BackendError,
    BadReply,
    DataError,
    Refused,
    RepairError,
    ServerRejected,
    StoreError,
    Unavailable,
)
from repair.core.identity import canonical_json, hash_bytes
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.core.redaction import redacted

Value = TypeVar("Value")

_OUTCOMES: tuple[tuple[type[RepairError], CallOutcome], ...] = (
    (Refused, CallOutcome.REFUSED),
    (BadReply, CallOutcome.BAD_REPLY),
    (Unavailable, CallOutcome.UNAVAILABLE),
)


def outcome_of(error: Exception) -> CallOutcome:
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), CallOutcome.FAILED)


class Settled(NamedTuple):
    """A request's fate in stored form, shared by all that ask it: JSON text, or bytes, or an error."""

    value: str | None = None
    data: bytes | None = None
    error: str | None = None
    again: bool = False  # refused or answered with something of no use, as it was in an earlier session


def encoded(reply: Reply[Any], codec: JsonCodec[Any] | BytesCodec) -> Settled:
    """The stored form of a reply. Raises BadReply if it has none."""
    try:
        if isinstance(codec, BytesCodec):
            return Settled(data=bytes(reply.value))
        text = canonical_json(codec.encode(reply.value))
        text.encode()
    except (TypeError, ValueError) as error:
        raise BadReply(f"the reply cannot be kept: {error}", usage=reply.usage, raw=reply.raw) from error
    return Settled(value=text)


def decoded(settled: Settled, codec: JsonCodec[Value] | BytesCodec, *, key: str) -> Any:
    if settled.error is not None:
        return None
    if isinstance(codec, BytesCodec):
        return settled.data
    try:
        return codec.decode(json.loads(settled.value or "null"))
    except (TypeError, ValueError, KeyError) as error:
        raise StoreError(f"the answer kept under {key} cannot be read by this version: {error!r}") from error


def done_attempt(
    call: Call,
    reply: Reply[Any],
    settled: Settled,
    *,
    declared: Usage,
    price: Price | None,
    latency_s: float,
    started_s: float,
    finished_s: float,
) -> Attempt:
    usage, estimated = _charge(reply.usage, declared, price, latency_s)
    return Attempt(
        call=call,
        outcome=CallOutcome.DONE,
        usage=usage,
        estimated=estimated,
        raw=reply.raw,
        value=settled.value,
        blob=None if settled.data is None else hash_bytes(settled.data),
        error=None,
        started_s=started_s,
        finished_s=finished_s,
    )


def failed_attempt(
    call: Call,
    error: Exception,
    *,
    declared: Usage,
    price: Price | None,
    latency_s: float,
    started_s: float,
    finished_s: float,
) -> Attempt:
    """An attempt whose cost the server did not say is charged what was declared for it."""
    if isinstance(error, BackendError) and error.usage is not None:
        usage, estimated = _charge(error.usage, declared, price, latency_s)
    elif isinstance(error, DataError | ServerRejected):  # nothing was sent, or it was turned away unread
        usage, estimated = Usage(price_usd=0.0, latency_s=latency_s), False
    else:
        usage, estimated = replace(declared, latency_s=latency_s), True
    return Attempt(
        call=call,
        outcome=outcome_of(error),
        usage=usage,
        estimated=estimated,
        raw=redacted(error.raw) if isinstance(error, BackendError) else "",
        value=None,
        blob=None,
        error=reason(error),
        started_s=started_s,
        finished_s=finished_s,
    )


def reason(error: Exception) -> str:
    """One line for the record, without keys."""
    kind = type(error).__name__
    if isinstance(error, RepairError):
        return redacted(str(error)) or kind
    return redacted(f"{kind}: {error}")


def _charge(usage: Usage, declared: Usage, price: Price | None, latency_s: float) -> tuple[Usage, bool]:
    """What a call is recorded to have used, and whether any of it is an estimate."""
    usage = usage if usage.latency_s > 0 else replace(usage, latency_s=latency_s)
    if price is not None:
        return price.applied(usage), False
    if usage.price_usd is None and declared.price_usd is not None:
        return replace(usage, price_usd=declared.price_usd), True
    return usage, False
