"""What a released file holds, checked as it is read: a value of the wrong type is a DataError that names its place."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.methods.importers.owners import text_of


def json_of(path: Path) -> Any:
    """The file's JSON."""
    return parsed(text_of(path), str(path))


def parsed(text: str, where: str) -> Any:
    """The JSON of a text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {error}") from error


def cells_of(path: Path) -> list[list[str]]:
    """The rows of a CSV without a header."""
    return [cells for _, cells in _cells(path, ",")]


def table_of(path: Path, wanted: Sequence[str], *, delimiter: str = ",") -> list[tuple[str, dict[str, str]]]:
    """The rows of a table with a header, by column, each with its place. All have the `wanted` columns; of the others a
    short row may lack some."""
    lines = [(number, cells) for number, cells in _cells(path, delimiter) if cells]  # an empty line is no row
    header = lines[0][1] if lines else []
    missing = [name for name in wanted if name not in header]
    if missing:
        raise DataError(f'{path}: has no column "{missing[0]}"; it has {", ".join(header) or "none"}')
    rows = []
    for number, cells in lines[1:]:
        where = f"{path}, line {number}"
        if any(cells[len(header) :]):  # a text with a delimiter that is not in quotes would be cut there
            raise DataError(f"{where}: has {len(cells)} columns, the header {len(header)}")
        row = dict(zip(header, cells, strict=False))
        for name in wanted:
            text_in(row, name, where)
        rows.append((where, row))
    return rows


def text_in(row: Any, key: str, where: str) -> str:
    """The text under `key`, spaces in order."""
    return as_text(_under(row, key, (str,), "a text", where), f'"{key}"', where)


def name_in(row: Any, key: str, where: str) -> str:
    """The name under `key`, as it stands: of an image, or a number."""
    return str(_under(row, key, (str, int), "a name", where))


def as_text(value: Any, what: str, where: str) -> str:
    """`value`, spaces in order, which must be a text."""
    if not isinstance(value, str):
        raise DataError(f"{where}: {what} must be a text, not {kind_of(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON can spell half of a character; it could not be stored
        raise DataError(f"{where}: {what} holds half of a character (a lone surrogate)") from None
    return " ".join(value.split())


def as_list(value: Any, what: str, where: str) -> Sequence[Any]:
    """`value`, which must be a list."""
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{where}: {what} must be a list, not {kind_of(value)}")
    return value


def as_object(value: Any, what: str, where: str) -> Mapping[str, Any]:
    """`value`, which must be an object."""
    if not isinstance(value, Mapping):
        raise DataError(f"{where}: {what} must be an object, not {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """What a value of a file is, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case dict():
            return "an object"
        case _:
            return type(value).__name__


def _under(row: Any, key: str, kinds: tuple[type, ...], wanted: str, where: str) -> Any:
    value = as_object(row, "the row", where).get(key)
    if not isinstance(value, kinds) or isinstance(value, bool):
        found = f", not {kind_of(value)}" if key in row else ""
        raise DataError(f'{where}: needs {wanted} under "{key}"{found}')
    return value


def _cells(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text_of(path)), delimiter=delimiter)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not a table: {error}") from error
