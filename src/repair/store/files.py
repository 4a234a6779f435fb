"""Files written whole or not at all: temporary neighbour, fsync, rename.

Temporary neighbours are called `.NAME.….tmp`; a folder being replaced waits as `.NAME.old`. Only a process that died
leaves either behind; `tidy` removes the first and puts the second back.
"""

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repair.core.errors import StoreError

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is too big",
}
_CHUNK_BYTES = 1 << 20


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors into one clear StoreError about `path`."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno in _FULL:
        return f"{_FULL[error.errno]}; nothing was half-written: make room and run the same command again"
    return f"{error.strerror or error}; nothing was half-written"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary neighbour of `path` to write to; on success it takes the place of `path`, on failure it goes.

    The folder of `path` is made if need be. Raises StoreError for whatever the operating system refuses.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _neighbour(path)
        try:
            yield temporary
            _fsync(temporary)
            temporary.replace(path)
            _fsync(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new, empty temporary folder; on success it takes the place of the folder `path`, on failure it goes.

    A process that dies between the two renames leaves the former folder as `.NAME.old`, which the next call (or
    `tidy`) puts back: `path` is always one whole folder, old or new.
    """
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _restore(path)
        temporary, former = _neighbour(path), _former(path)
        try:
            temporary.mkdir()
            yield temporary
            for entry in sorted(temporary.rglob("*")):
                _fsync(entry)
            _fsync(temporary)
            if path.exists():
                path.rename(former)
            temporary.rename(path)
            _fsync(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            _restore(path)
            raise
        shutil.rmtree(former, ignore_errors=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data`. Raises StoreError."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` in UTF-8. Raises StoreError."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON for people: sorted keys, indented, NaN refused. Equal values, equal bytes."""
    write_text(path, json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON value in `path`. Raises StoreError naming the file if it is missing, unreadable or cut short."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreError(f"{path} is not valid JSON (torn or edited by hand): {error}") from error


def content_hash(path: Path) -> str:
    """Content hash of a file, or of a folder: its files' relative names and contents. Raises StoreError."""
    try:
        if not path.is_dir():
            return _file_hash(path)
        digest = hashlib.blake2b(digest_size=16)
        for entry in sorted(path.rglob("*"), key=lambda entry: entry.relative_to(path).as_posix()):
            if entry.is_file():
                digest.update(f"{entry.relative_to(path).as_posix()}\0{_file_hash(entry)}\n".encode())
        return f"b2:{digest.hexdigest()}"
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def tidy(folder: Path) -> None:
    """Remove what dead writers left below `folder`. Only for the process that alone may write there."""
    with storing(folder):
        for entry in sorted(folder.rglob(".*.old")):
            _restore(entry.with_name(entry.name.removeprefix(".").removesuffix(".old")))
        for entry in sorted(folder.rglob(".*.tmp")):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)  # equals core.identity.hash_bytes, without holding the file in memory
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return f"b2:{digest.hexdigest()}"


def _neighbour(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def _former(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _restore(path: Path) -> None:
    former = _former(path)
    if not former.exists():
        return
    if path.exists():
        shutil.rmtree(former)
    else:
        former.rename(path)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
