"""Identity is content: canonical JSON, tagged content hashes, and random streams that depend on names, not on order."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

_TAG = "b2"  # BLAKE2b, 16 bytes. Changing the algorithm changes the tag, so old hashes can never be mistaken.


def canonical_json(value: Any) -> str:
    """JSON text that is equal exactly when the values are: sorted keys, no spaces, NaN and infinity refused.

    Example:
        >>> canonical_json({"b": 1, "a": [True, None]})
        '{"a":[true,null],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def hash_bytes(data: bytes) -> str:
    """Content hash of `data`, "b2:" + 32 hex digits."""
    return f"{_TAG}:{hashlib.blake2b(data, digest_size=16).hexdigest()}"


def hash_value(value: Any) -> str:
    """Content hash of a JSON-able value, independent of the order of its keys."""
    return hash_bytes(canonical_json(value).encode())


def short(digest: str) -> str:
    """The first 12 hex digits of a content hash: for file names and for people."""
    return digest.removeprefix(f"{_TAG}:")[:12]


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed that depends on `seed` and on every name, and on nothing else.

    So the random numbers of one record are the same whatever the number of workers or the order of records.
    """
    digest = hashlib.blake2b(canonical_json([seed, *names]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def derive_rng(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator seeded by `derive_seed(seed, *names)`."""
    return np.random.default_rng(derive_seed(seed, *names))


def request_key(*, task: str, backend: str, seed: int | None, payload: Mapping[str, Any]) -> str:
    """The key under which one call's answer is kept: everything that can change the answer, and nothing else.

    `task` is the port's verb ("verify", "edit_text", …), `backend` the fingerprint of model, prompt and parameters,
    `payload` the content of the request (texts and image content hashes, never paths or positions).
    """
    return hash_value({"version": 1, "task": task, "backend": backend, "seed": seed, "payload": dict(payload)})
