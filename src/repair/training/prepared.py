"""Prepared inputs by key: originals and edits side by side, read row by row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repair.core.errors import DataError
from repair.core.ports import Array


@dataclass(frozen=True, slots=True)
class _InFile:
    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]


class Prepared:
    """Rows of one or more arrays (memory maps stay on disk), found by key; what was added first wins.

    Each part is (keys, array) with one row a key. All parts have one dtype and one shape of row. `what` names the
    items in messages. Raises DataError if parts do not fit together or a key is missing.
    """

    def __init__(self, *parts: tuple[Sequence[str], Array], what: str) -> None:
        self.what = what
        self._arrays = [array for _, array in parts]
        self._place: dict[str, tuple[int, int]] = {}
        for number, (keys, array) in enumerate(parts):
            if len(keys) != len(array):
                raise DataError(f"prepared {what}s: {len(keys)} keys for {len(array)} rows")
            if (array.dtype, array.shape[1:]) != (self._arrays[0].dtype, self._arrays[0].shape[1:]):
                raise DataError(
                    f"prepared {what}s: rows of {array.dtype} {array.shape[1:]} beside rows of "
                    f"{self._arrays[0].dtype} {self._arrays[0].shape[1:]}"
                )
            for row, key in enumerate(keys):
                self._place.setdefault(key, (number, row))

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: rows mapped from a file are named, not sent."""
        return {"what": self.what, "place": self._place, "arrays": [_named(array) for array in self._arrays]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.what, self._place = state["what"], state["place"]
        self._arrays = [_opened(array) if isinstance(array, _InFile) else array for array in state["arrays"]]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Those of `keys` without a row, sorted."""
        return sorted({key for key in keys if key not in self._place})

    def take(self, keys: Sequence[str]) -> torch.Tensor:
        """The rows of `keys`, in order, as a fresh tensor (n, …) of the arrays' dtype. Reads only these rows."""
        try:
            places = np.array([self._place[key] for key in keys], dtype=np.int64).reshape(len(keys), 2)
        except KeyError as error:
            raise DataError(f"{self.what} {error.args[0]} was not prepared") from None
        out = np.empty((len(keys), *self._arrays[0].shape[1:]), dtype=self._arrays[0].dtype)
        for number, array in enumerate(self._arrays):
            here = places[:, 0] == number
            out[here] = array[places[here, 1]]
        return torch.from_numpy(out)


def _named(array: Array) -> Array | _InFile:
    """Where on disk the rows are, if they are one piece of a mapped file; else the rows."""
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or base.filename is None or not array.flags.c_contiguous:
        return array
    first = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return _InFile(str(Path(base.filename).resolve()), int(base.offset) + first, array.dtype.str, array.shape)


def _opened(place: _InFile) -> Array:
    try:
        return np.memmap(
            place.path, mode="r", dtype=np.dtype(place.dtype), shape=place.shape, offset=place.offset
        ).view(np.ndarray)
    except OSError as error:
        raise DataError(
            f"prepared rows in {place.path} cannot be read here: all processes need the same run.cache"
        ) from error
