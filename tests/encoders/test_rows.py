"""Rows kept by content: what is whole comes back in order, what is not is missing again."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repair.core.errors import StoreError
from repair.encoders.rows import RowStore


def rows_of(keys: list[str]) -> np.ndarray:
    """A row that says whose it is."""
    return np.array([[int(key), 2 * int(key)] for key in keys], dtype=np.float16).reshape(-1, 2)


def filled(folder: Path, *shards: list[str], origin: str = "a") -> RowStore:
    store = RowStore(folder, origin=origin)
    for keys in shards:
        store.append(keys, rows_of(keys))
    return store


@pytest.mark.parametrize("reopened", [False, True])
def test_rows_come_back_in_the_order_asked_for(tmp_path: Path, reopened: bool) -> None:
    store = filled(tmp_path, ["3", "1"], ["2"])
    if reopened:
        store = RowStore(tmp_path, origin="a")
    assert store.missing(["1", "4", "2", "5", "4"]) == [1, 3]
    taken = store.take(["2", "1", "3", "1"])
    assert taken.dtype == np.float16
    np.testing.assert_array_equal(taken, rows_of(["2", "1", "3", "1"]))
    with pytest.raises(ValueError, match="read-only"):
        taken[0] = 0
    with pytest.raises(KeyError):
        store.take(["4"])


def test_rows_that_lie_in_order_are_mapped_not_copied(tmp_path: Path) -> None:
    store = filled(tmp_path, ["1", "2", "3"], ["4"])
    assert isinstance(store.take(["2", "3"]).base.base, np.memmap)  # a view of a view of the file
    np.testing.assert_array_equal(store.take(["2", "3"]), rows_of(["2", "3"]))
    assert store.take(["3", "2"]).base is None
    assert store.take(["3", "4"]).base is None


def test_merging_puts_rows_in_order_and_drops_what_it_covers(tmp_path: Path) -> None:
    store = filled(tmp_path, ["1", "2"], ["3"], ["9", "4"])
    store.merge(["3", "1", "2", "4"])
    for opened in (store, RowStore(tmp_path, origin="a")):
        merged = opened.take(["3", "1", "2", "4"])
        np.testing.assert_array_equal(merged, rows_of(["3", "1", "2", "4"]))
        np.testing.assert_array_equal(opened.take(["9"]), rows_of(["9"]))
        assert not merged.flags.writeable
    assert len(list(tmp_path.glob("*.npy"))) == len(list(tmp_path.glob("*.json"))) == 2
    store.merge(["4", "4"])
    store.merge([])
    assert len(list(tmp_path.iterdir())) == 4


@given(
    shards=st.lists(st.lists(st.integers(0, 12).map(str), min_size=1, max_size=5, unique=True), max_size=5),
    asked=st.lists(st.integers(0, 12).map(str), max_size=12),
    merged=st.booleans(),
)
def test_any_history_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, shards: list[list[str]], asked: list[str], merged: bool
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    store = filled(folder, *shards)
    here = [key for key in asked if key in {key for keys in shards for key in keys}]
    assert store.missing(here) == []
    if merged:
        store.merge(here)
    for opened in (store, RowStore(folder, origin="a")):
        np.testing.assert_array_equal(opened.take(here).reshape(-1, 2), rows_of(here))


def test_rows_of_another_origin_are_not_seen(tmp_path: Path) -> None:
    filled(tmp_path, ["1"], origin="a")
    assert RowStore(tmp_path, origin="b").missing(["1"]) == [0]


def break_nothing(npy: Path, listing: Path) -> None:
    """The control: untouched, the shard counts."""


def touch(npy: Path, listing: Path) -> None:
    os.utime(npy, (1, 1))


def cut_rows(npy: Path, listing: Path) -> None:
    npy.write_bytes(npy.read_bytes()[:-3])


def flip_a_bit(npy: Path, listing: Path) -> None:
    data = bytearray(npy.read_bytes())
    data[-1] ^= 1
    npy.write_bytes(data)
    os.utime(npy, (1, 1))


def other_shape(npy: Path, listing: Path) -> None:
    np.save(npy, np.zeros((3, 2), dtype=np.float16))


def no_rows(npy: Path, listing: Path) -> None:
    npy.unlink()


def no_list(npy: Path, listing: Path) -> None:
    listing.unlink()


def cut_list(npy: Path, listing: Path) -> None:
    listing.write_text(listing.read_text()[:-20])


def foreign_list(npy: Path, listing: Path) -> None:
    listing.write_text("[1, 2]")


def fewer_keys(npy: Path, listing: Path) -> None:
    facts = json.loads(listing.read_text())
    listing.write_text(json.dumps({**facts, "keys": facts["keys"][:1]}))


@pytest.mark.parametrize(
    ("damage", "lost"),
    [(break_nothing, False), (touch, False)]
    + [
        (damage, True)
        for damage in (cut_rows, flip_a_bit, other_shape, no_rows, no_list, cut_list, foreign_list, fewer_keys)
    ],
)
def test_damaged_shards_are_missing_and_can_be_written_again(tmp_path: Path, damage: object, lost: bool) -> None:
    filled(tmp_path, ["1", "2"], ["3"])
    listing = next(path for path in tmp_path.glob("*.json") if json.loads(path.read_text())["keys"] == ["1", "2"])
    damage(listing.with_suffix(".npy"), listing)  # type: ignore[operator]
    store = RowStore(tmp_path, origin="a")
    assert store.missing(["1", "2", "3"]) == ([0, 1] if lost else [])
    if lost:
        store.append(["1", "2"], rows_of(["1", "2"]))
    for opened in (store, RowStore(tmp_path, origin="a")):
        np.testing.assert_array_equal(opened.take(["3", "2", "1"]), rows_of(["3", "2", "1"]))


def test_a_copied_cache_is_checked_and_counts(tmp_path: Path) -> None:
    filled(tmp_path / "here", ["1", "2"])
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    assert RowStore(tmp_path / "there", origin="a").missing(["1", "2"]) == []


def test_rows_of_another_kind_are_refused(tmp_path: Path) -> None:
    store = filled(tmp_path, ["1"])
    for rows in (np.zeros((1, 3), np.float16), np.zeros((1, 2), np.float32), np.zeros((2, 2), np.float16)):
        with pytest.raises(ValueError, match="of another kind"):
            store.append(["7"], rows)


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        filled(tmp_path / "file" / "rows", ["1"])


def test_what_a_killed_writer_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".a.npy.1.tmp", tmp_path / ".b.npy.2.tmp"
    for part in (old, new):
        part.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    RowStore(tmp_path, origin="a")
    assert not old.exists()
    assert new.exists()
