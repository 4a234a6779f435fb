"""Reading the files that describe a data set, with errors that name file and line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repair.core.errors import DataError

_BOM = b"\xef\xbb\xbf"


def existing(path: Path) -> Path:
    """`path` with ~ expanded. Raises DataError if it is not a file."""
    path = path.expanduser()
    if not path.is_file():
        problem = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise DataError(f"data file {path} {problem}")
    return path


def read_bytes(path: Path) -> bytes:
    """Content without a byte-order mark. Raises DataError if it cannot be read or is empty."""
    try:
        data = existing(path).read_bytes().removeprefix(_BOM)
    except OSError as error:
        raise DataError(f"data file {path} cannot be read: {error.strerror}") from error
    if not data.strip():
        raise DataError(f"data file {path} is empty")
    return data


def read_text(path: Path) -> str:
    """Raises DataError if the file is not UTF-8, naming the line."""
    data = read_bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"data file {path} line {line}: not UTF-8 text: save it as UTF-8") from error


def read_json_object(path: Path, *, key: str) -> dict[str, Any]:
    """A JSON object that has a list under `key`. Raises DataError with the line of a syntax error."""
    text = read_text(path)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"data file {path} line {error.lineno} column {error.colno}: not JSON ({error.msg})") from error
    except RecursionError as error:
        raise DataError(f"data file {path}: JSON nested too deeply") from error
    if not isinstance(content, dict) or not isinstance(content.get(key), list):
        found = ", ".join(sorted(map(str, content))) if isinstance(content, dict) else type(content).__name__
        raise DataError(f'data file {path}: expected a JSON object with a list "{key}", found {found or "nothing"}')
    return content


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """(line number from 1, value or the ValueError that says why it has none), blank lines left out."""
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line.decode())
        except UnicodeDecodeError:
            yield number, ValueError("not UTF-8 text")
        except json.JSONDecodeError as error:
            yield number, ValueError(f"not JSON: {error.msg} at column {error.colno}")
        except RecursionError:
            yield number, ValueError("JSON nested too deeply")
