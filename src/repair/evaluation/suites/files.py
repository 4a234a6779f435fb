"""Reading the published files of suites: JSON, with errors that name file and item, and content hashes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import hash_bytes


def read(path: Path) -> tuple[Any, str]:
    """The JSON value in `path` and the content hash of the file. Raises DataError if it is missing or no JSON."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"suite file {path}: {error.strerror}: give the folder or file with --data") from error
    try:
        return json.loads(data), hash_bytes(data)
    except (ValueError, RecursionError) as error:
        raise DataError(f"suite file {path}: not valid JSON: {error}") from error


def entries(value: Any, path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """(id, entry) of a list of objects (ids are positions) or an object of objects. Raises DataError otherwise."""
    pairs: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping):
        pairs = ((str(key), entry) for key, entry in value.items())
    elif isinstance(value, list):
        pairs = ((str(number), entry) for number, entry in enumerate(value))
    else:
        raise DataError(f"suite file {path}: holds {type(value).__name__}, not a list or object of items")
    found = list(pairs)
    for key, entry in found:
        if not isinstance(entry, Mapping):
            raise DataError(f"suite file {path}, item {key}: not an object")
    return found


def text(entry: Mapping[str, Any], key: str, where: str) -> str:
    """A text that must be there and not be empty. Raises DataError."""
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f'{where}: "{key}" must be text, not {value!r}')
    return value


def located(path: Path, names: Iterable[str]) -> Path:
    """`path` itself if it is a file, else the first of `names` in it. Raises DataError if none is there."""
    if path.is_file():
        return path
    for name in names:
        if (path / name).is_file():
            return path / name
    raise DataError(f"{path}: holds none of {', '.join(names)}: give the file with --data")
