import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repair.core.identity import canonical_json, derive_rng, derive_seed, hash_value, request_key

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON))
def test_key_order_does_not_matter(value: dict[str, object]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


@given(JSON, JSON)
def test_equal_hashes_mean_equal_values(a: object, b: object) -> None:
    assert (hash_value(a) == hash_value(b)) == (canonical_json(a) == canonical_json(b))


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError):
        canonical_json(float("nan"))


def test_streams_depend_on_names_only() -> None:
    assert derive_seed(0, "a", 1) == derive_seed(0, "a", 1)
    assert (
        len({derive_seed(s, *names) for s in (0, 1) for names in (("a",), ("b",), ("a", "b"), ("ab",), ("a", 1))}) == 10
    )
    assert derive_rng(3, "x").random() == derive_rng(3, "x").random()


def test_seeds_are_the_same_in_another_process() -> None:
    code = "from repair.core.identity import derive_seed; print(derive_seed(7, 'stage', 'record', 3))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(shown) == derive_seed(7, "stage", "record", 3)


def test_request_key_covers_what_changes_the_answer() -> None:
    base = {"task": "verify", "backend": "b2:1", "seed": 1, "payload": {"a": 1, "b": [2]}}
    keys = {request_key(**base)}  # type: ignore[arg-type]
    for change in ({"task": "edit"}, {"backend": "b2:2"}, {"seed": None}, {"payload": {"a": 1, "b": [3]}}):
        keys.add(request_key(**{**base, **change}))  # type: ignore[arg-type]
    assert len(keys) == 5
    assert request_key(**{**base, "payload": {"b": [2], "a": 1}}) in keys  # type: ignore[arg-type]
