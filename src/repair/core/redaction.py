"""Keys stay secret: what is shown, logged or kept of an error or a reply goes through `redacted` first."""

import os
import re
from functools import lru_cache

HIDDEN = "[redacted]"

_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$")
_SHORTEST = 8  # a shorter value is no key, and hiding it would hide ordinary words
_SHAPES = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',;]{8,}"),
    re.compile(
        r"(?i)(\b(?:x-)?(?:api[-_ ]?key|access[-_ ]?token|authorization|password|secret)\b[\"']?\s*[:=]\s*[\"']?)"
        r"(?!bearer\b)[^\s\"',;&]{4,}"
    ),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+(?=@)"),  # user and password in an address
    re.compile(r"()\b(?:sk|pk|rk|hf|gsk|xai|nvapi|ghp|AIza)[-_]?[A-Za-z0-9_-]{16,}"),
)
_known: set[str] = set()


def keep_secret(value: str) -> None:
    """Hide `value` wherever it turns up from now on: for keys that are in no environment variable."""
    if len(value) >= _SHORTEST:
        _known.add(value)
        _pattern.cache_clear()


def redacted(text: str) -> str:
    """`text` without keys: known ones, values of environment variables named like keys, and what looks like a key.

    Example:
        >>> redacted("401 for Authorization: Bearer abcdefgh123")
        '401 for Authorization: Bearer [redacted]'
    """
    secrets = {value for name, value in os.environ.items() if _NAMES.search(name.upper()) and len(value) >= _SHORTEST}
    pattern = _pattern(frozenset(secrets | _known))
    if pattern is not None:
        text = pattern.sub(HIDDEN, text)
    for shape in _SHAPES:
        text = shape.sub(lambda match: f"{match.group(1)}{HIDDEN}", text)
    return text


@lru_cache(maxsize=8)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    ordered = sorted(secrets, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None
