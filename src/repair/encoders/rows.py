"""Rows of one array, kept on disk by the content they were computed from.

A store is a folder of shards. A shard is a .npy file, then a .json file that lists the keys of its rows; each is
written aside, synced and renamed, the .json last, so a shard either counts as a whole or not at all. Shards that are
torn, altered, or of another origin are left out, and their rows are missing again.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repair.core.errors import StoreError
from repair.core.identity import hash_value, short
from repair.core.ports import Array
from repair.store.files import content_hash, replacing, write_text

_VERSION = 1
_PART_KEPT_S = 3600.0  # a temporary file older than this was left by a process that was killed


@dataclass(frozen=True, slots=True)
class _Shard:
    stem: str
    keys: tuple[str, ...]
    rows: Array


class RowStore:
    """Rows of one `origin` (everything besides its key that a row depends on, as a string).

    Several processes may use one folder: at worst a row is computed twice.
    """

    def __init__(self, folder: Path, *, origin: str) -> None:
        """Opens the shards in `folder`, which need not exist."""
        self._folder = folder
        self._origin = origin
        self._shards: list[_Shard] = []
        self._places: dict[str, tuple[int, int]] = {}
        _remove_old_parts(folder)
        for path in sorted(folder.glob("*.json")):
            shard = _read_shard(path, origin=origin)
            if shard is not None and self._fits(shard.rows):
                self._add(shard)

    def missing(self, keys: Sequence[str]) -> list[int]:
        """Positions of the keys that have no row, in order; of equal keys only the first."""
        first: dict[str, int] = {}
        for position, key in enumerate(keys):
            if key not in self._places:
                first.setdefault(key, position)
        return list(first.values())

    def append(self, keys: Sequence[str], rows: Array) -> None:
        """Keep `rows`, one for each key. Raises StoreError if they cannot be written."""
        if len(keys) != len(rows) or not self._fits(rows):
            raise ValueError(f"{len(keys)} keys, rows {rows.dtype} {rows.shape} of another kind than those kept")

        def write(file: Path) -> None:
            with file.open("wb") as stream:
                np.lib.format.write_array(stream, np.ascontiguousarray(rows), allow_pickle=False)

        self._write(keys, write)

    def take(self, keys: Sequence[str]) -> Array:
        """The rows of `keys`, in that order, read-only; mapped from disk if they lie there in that order, else copied.

        All keys must have rows.
        """
        stem = self._stem(keys)
        whole = next((shard for shard in self._shards if shard.stem == stem), None)
        if whole is not None:
            return whole.rows
        places = np.array([self._places[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        shards, rows = places[:, 0], places[:, 1]
        if len(keys) and (shards == shards[0]).all() and (np.diff(rows) == 1).all():
            block: Array = self._shards[shards[0]].rows[rows[0] : rows[0] + len(rows)]
            return block
        out = self._empty(len(keys))
        for shard in np.unique(shards):
            here = shards == shard
            out[here] = self._shards[shard].rows[rows[here]]
        out.flags.writeable = False
        return out

    def merge(self, keys: Sequence[str]) -> None:
        """Put the rows of `keys`, in that order, into one shard, so that `take` maps them; drop shards it covers."""
        stem = self._stem(keys)
        if not keys or len(set(keys)) != len(keys) or any(shard.stem == stem for shard in self._shards):
            return
        places = [self._places[key] for key in keys]
        kept = self._shards[0].rows

        def write(file: Path) -> None:
            out = np.lib.format.open_memmap(file, mode="w+", dtype=kept.dtype, shape=(len(keys), *kept.shape[1:]))
            for position, (shard, row) in enumerate(places):
                out[position] = self._shards[shard].rows[row]
            out.flush()

        covered = [shard for shard in self._shards if set(shard.keys) <= set(keys)]
        self._write(keys, write)
        for shard in covered:
            (self._folder / f"{shard.stem}.json").unlink(missing_ok=True)
            (self._folder / f"{shard.stem}.npy").unlink(missing_ok=True)

    def _fits(self, rows: Array) -> bool:
        if not self._shards:
            return True
        kept = self._shards[0].rows
        return kept.dtype == rows.dtype and kept.shape[1:] == rows.shape[1:]

    def _empty(self, n_rows: int) -> Array:
        kept = self._shards[0].rows if self._shards else np.empty((0,), dtype=np.float32)
        return np.empty((n_rows, *kept.shape[1:]), dtype=kept.dtype)

    def _add(self, shard: _Shard) -> None:
        self._shards.append(shard)
        number = len(self._shards) - 1
        self._places.update((key, (number, row)) for row, key in enumerate(shard.keys))

    def _stem(self, keys: Sequence[str]) -> str:
        return short(hash_value([self._origin, list(keys)]))

    def _write(self, keys: Sequence[str], write_rows: Callable[[Path], None]) -> None:
        """Write one shard, named after its keys, and count it."""
        stem = self._stem(keys)
        rows_path = self._folder / f"{stem}.npy"
        with replacing(rows_path) as part:
            write_rows(part)
        stat = rows_path.stat()
        facts = {
            "version": _VERSION,
            "origin": self._origin,
            "digest": content_hash(rows_path),
            "size_bytes": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "keys": list(keys),
        }
        write_text(self._folder / f"{stem}.json", json.dumps(facts))
        shard = _read_shard(self._folder / f"{stem}.json", origin=self._origin)
        if shard is None:
            raise StoreError(f"the cache {rows_path} cannot be read back: check the disk")
        self._add(shard)


def _read_shard(path: Path, *, origin: str) -> _Shard | None:
    """The shard of .json file `path`, or None if it is not a whole shard of `origin`."""
    rows_path = path.with_suffix(".npy")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["version"] != _VERSION or facts["origin"] != origin:
            return None
        stat = rows_path.stat()
        touched = (stat.st_size, stat.st_mtime_ns) != (facts["size_bytes"], facts["mtime_ns"])
        if touched and content_hash(rows_path) != facts["digest"]:
            return None
        rows = np.load(rows_path, mmap_mode="r", allow_pickle=False)
        keys = tuple(map(str, facts["keys"]))
    except (OSError, StoreError, ValueError, KeyError, TypeError, EOFError):
        return None
    return _Shard(path.stem, keys, rows.view(np.ndarray)) if len(rows) == len(keys) else None


def _remove_old_parts(folder: Path) -> None:
    for part in folder.glob(".*.tmp"):
        try:
            if time.time() - part.stat().st_mtime > _PART_KEPT_S:
                part.unlink()
        except OSError:
            continue
