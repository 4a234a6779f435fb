import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from repair.core.errors import StoreError
from repair.core.identity import hash_bytes
from repair.store import files


def entries(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """What a full disk looks like to a writer: the write past `n_bytes` fails half-way."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fail_with(code: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_file_is_written_with_its_folder_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    files.write_text(path, "one")
    files.write_text(path, "zwei ✓")
    assert path.read_text(encoding="utf-8") == "zwei ✓"
    assert entries(tmp_path) == ["a", "a/b.txt"]


@pytest.mark.parametrize("code, words", [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "quota")])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str, step: str
) -> None:
    path = tmp_path / "table.parquet"
    files.write_bytes(path, b"old")
    if step == "fsync":
        monkeypatch.setattr(files.os, "fsync", fail_with(code))
    else:
        monkeypatch.setattr(Path, "replace", fail_with(code))
    with pytest.raises(StoreError, match=words) as caught:
        files.write_bytes(path, b"new")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert entries(tmp_path) == ["table.parquet"]


def test_a_write_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "big"
    with largest_file(10_000), pytest.raises(StoreError, match="too big"):
        files.write_bytes(path, bytes(1_000_000))
    assert entries(tmp_path) == []


def write_half_a_file(path: Path) -> None:
    with files.replacing(path) as temporary:
        temporary.write_bytes(b"half")
        raise ZeroDivisionError


def write_half_a_folder(path: Path) -> None:
    with files.replacing_folder(path) as folder:
        (folder / "part").write_bytes(b"half")
        raise ZeroDivisionError


@pytest.mark.parametrize("write", [write_half_a_file, write_half_a_folder])
def test_an_error_of_the_writer_comes_through_and_leaves_nothing(tmp_path: Path, write: Callable[[Path], None]) -> None:
    with pytest.raises(ZeroDivisionError):
        write(tmp_path / "x")
    assert entries(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file/x"):
        files.write_bytes(tmp_path / "file" / "x", b"")


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    for names in (["a", "b"], ["c"]):
        with files.replacing_folder(path) as folder:
            for name in names:
                (folder / name).write_text(name)
    assert entries(path) == ["c"]
    assert entries(tmp_path) == ["checkpoint", "checkpoint/c"]


def test_a_folder_stays_when_the_second_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    with files.replacing_folder(path) as folder:
        (folder / "old").write_text("old")
    rename = Path.rename

    def fail_once(self: Path, target: Path) -> Path:
        if self.name.endswith(".tmp"):
            raise OSError(errno.ENOSPC, "no space")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_once)
    with pytest.raises(StoreError, match="disk is full"), files.replacing_folder(path) as folder:
        (folder / "new").write_text("new")
    assert entries(tmp_path) == ["checkpoint", "checkpoint/old"]


def test_a_death_between_the_two_renames_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "round-0" / "checkpoint"
    with files.replacing_folder(path) as folder:
        (folder / "old").write_text("old")
    path.rename(path.with_name(".checkpoint.old"))
    (path.parent / ".checkpoint.0123.tmp").mkdir()
    (path.parent / ".x.parquet.0123.tmp").write_text("half")
    files.tidy(tmp_path)
    assert entries(tmp_path) == ["round-0", "round-0/checkpoint", "round-0/checkpoint/old"]
    # … and a death after both leaves the former one to be removed
    (path.parent / ".checkpoint.old").mkdir()
    files.tidy(tmp_path)
    assert entries(tmp_path) == ["round-0", "round-0/checkpoint", "round-0/checkpoint/old"]


def test_json_is_equal_bytes_for_equal_values_and_refuses_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "a", {"x": 1, "a": ["é", None]})
    files.write_json(tmp_path / "b", {"a": ["é", None], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert files.read_json(tmp_path / "a") == {"a": ["é", None], "x": 1}
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a", float("nan"))


def test_json_cut_short_at_any_place_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    files.write_json(path, {"key": "b2:00", "outputs": {"a": "b"}})
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"state\.json"):
            files.read_json(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match=r"state\.json"):
        files.read_json(path)
    with pytest.raises(StoreError, match=r"absent\.json"):
        files.read_json(tmp_path / "absent.json")


def test_content_hashes_see_every_byte_and_every_name(tmp_path: Path) -> None:
    data = bytes(range(256)) * 9000
    files.write_bytes(tmp_path / "f" / "a", data)
    assert files.content_hash(tmp_path / "f" / "a") == hash_bytes(data)
    seen = {files.content_hash(tmp_path / "f")}
    (tmp_path / "f" / "b").write_bytes(b"")
    seen.add(files.content_hash(tmp_path / "f"))
    (tmp_path / "f" / "b").rename(tmp_path / "f" / "c")
    seen.add(files.content_hash(tmp_path / "f"))
    (tmp_path / "f" / "c").write_bytes(b"x")
    seen.add(files.content_hash(tmp_path / "f"))
    assert len(seen) == 4
    with pytest.raises(StoreError, match="absent"):
        files.content_hash(tmp_path / "absent")
