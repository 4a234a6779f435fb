"""How a backend's value becomes what the ledger keeps, and comes back. What a caller gets is always the decoded form,
so that an answer just made and one found in the ledger cannot differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class JsonCodec(Generic[Value]):
    """`encode` gives a JSON-able value; `decode` takes what JSON makes of it (lists for tuples, text for enums)."""

    encode: Callable[[Value], Any]
    decode: Callable[[Any], Value]


@dataclass(frozen=True, slots=True)
class BytesCodec:
    """The value is bytes, kept as a blob under their content hash."""


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, not {type(value).__name__}")
    return value


TEXT: JsonCodec[str] = JsonCodec(encode=_as_text, decode=_as_text)
BYTES = BytesCodec()
