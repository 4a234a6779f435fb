"""Parquet tables of frozen records: the schema comes from the type hints, equal records give equal bytes.

Field types: str, int, float, bool, StrEnum, tuples of these (`tuple[str, ...]` or of fixed length), and each of them
`| None`. No timestamps, one writer setting, one thread, page checksums on: a table that is torn, altered or of another
record type is refused, never half-read.
"""

import io
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq

from repair.core.errors import StoreError
from repair.store.files import write_bytes

Record = TypeVar("Record")

_RECORD_KEY = b"repair.record"
_PRIMITIVES: dict[type, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_ROW_GROUP_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    type: pa.DataType
    optional: bool
    load: Callable[[Any], Any] | None  # from what Parquet gives to the field's type; None where they are the same
    n_items: int | None  # for a tuple of fixed length


def write_table(path: Path, records: Sequence[Record], record_type: type[Record]) -> None:
    """Replace `path` by a table of `records`, in their order; an empty table keeps its columns.

    Raises StoreError if the disk refuses, and TypeError (a bug, not bad input) for a record that is not a
    `record_type` or holds a value that its hints do not allow.
    """
    write_bytes(path, table_bytes(records, record_type))


def table_bytes(records: Sequence[Record], record_type: type[Record]) -> bytes:
    """The bytes `write_table` writes. Equal records, equal bytes (of one pyarrow version)."""
    for record in records:
        if type(record) is not record_type:
            raise TypeError(f"a table of {record_type.__name__} cannot hold a {type(record).__name__}")
    columns, schema = _columns(record_type), _schema(record_type)
    arrays = [_array(column, [getattr(record, column.name) for record in records], record_type) for column in columns]
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        sink,
        version="2.6",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        data_page_version="1.0",
        row_group_size=_ROW_GROUP_ROWS,
        store_schema=True,
        write_page_checksum=True,
    )
    return sink.getvalue()


def read_table(path: Path, record_type: type[Record]) -> list[Record]:
    """The records of a table written by `write_table`, in their order.

    Raises StoreError naming `path` if it is missing, torn, altered, of another record type or of another version of it.
    """
    table = _read(path)
    name = (table.schema.metadata or {}).get(_RECORD_KEY, b"").decode(errors="replace")
    if name != record_type.__name__:
        raise StoreError(f"{path} is not a table of {record_type.__name__} but of {name or 'something else'}")
    if not table.schema.equals(_schema(record_type)):
        raise StoreError(
            f"{path} has other columns than {record_type.__name__} has now (written by another version): "
            "delete it and run the stage again"
        )
    columns = _columns(record_type)
    values = [_values(column, table.column(column.name), path) for column in columns]
    names = [column.name for column in columns]
    return [record_type(**dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]


def _read(path: Path) -> pa.Table:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            table = file.read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise StoreError(f"{path} is torn or no Parquet table: delete it and run the stage again") from error
    return table


def _array(column: _Column, values: list[Any], record_type: type) -> pa.Array:
    where = f"{record_type.__name__}.{column.name}"
    if column.n_items is not None and any(value is not None and len(value) != column.n_items for value in values):
        raise TypeError(f"{where} must have exactly {column.n_items} items")
    leaves = [leaf for value in values for leaf in value or ()] if pa.types.is_list(column.type) else values
    if pa.types.is_int64(_leaf_type(column.type)) and any(isinstance(leaf, float) for leaf in leaves):
        raise TypeError(f"{where} holds a float")  # pyarrow would cut its fraction off
    try:
        array = pa.array(values, column.type, from_pandas=False)
        array.validate(full=True)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError) as error:
        raise TypeError(f"{where} holds a value that is not a {column.type}: {error}") from error
    if array.null_count and not column.optional:
        raise TypeError(f"{where} must not be None")
    if pa.types.is_list(column.type) and array.flatten().null_count:
        raise TypeError(f"{where} must not hold None")
    return array


def _leaf_type(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pa.types.is_list(arrow) else arrow


def _values(column: _Column, data: pa.ChunkedArray, path: Path) -> list[Any]:
    values: list[Any] = data.to_pylist()
    if column.load is None:
        return values
    load = column.load
    try:
        return [None if value is None else load(value) for value in values]
    except (ValueError, KeyError) as error:
        raise StoreError(f"{path}: column {column.name} holds a value it cannot hold: {error}") from error


def _schema(record_type: type) -> pa.Schema:
    columns = [pa.field(column.name, column.type, nullable=column.optional) for column in _columns(record_type)]
    return pa.schema(columns, metadata={_RECORD_KEY: record_type.__name__.encode()})


def _columns(record_type: type) -> tuple[_Column, ...]:
    if not is_dataclass(record_type):
        raise TypeError(f"{record_type!r} is not a dataclass")
    hints = typing.get_type_hints(record_type)
    return tuple(_column(field.name, hints[field.name]) for field in fields(record_type))


def _column(name: str, hint: Any) -> _Column:
    optional = False
    if get_origin(hint) in (types.UnionType, typing.Union):
        inner = [argument for argument in get_args(hint) if argument is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"field {name}: a table cannot hold {hint}")
        hint, optional = inner[0], True
    arrow, load, n_items = _of_hint(name, hint)
    return _Column(name, arrow, optional, load, n_items)


def _of_hint(name: str, hint: Any) -> tuple[pa.DataType, Callable[[Any], Any] | None, int | None]:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint], None, None
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return pa.string(), hint, None
    if get_origin(hint) is tuple:
        return _of_tuple(name, get_args(hint))
    raise TypeError(f"field {name}: a table cannot hold {hint}")


def _of_tuple(name: str, items: tuple[Any, ...]) -> tuple[pa.DataType, Callable[[Any], Any] | None, int | None]:
    n_items = None if items[-1] is Ellipsis else len(items)
    kinds = set(items) - {Ellipsis}
    if len(kinds) != 1:
        raise TypeError(f"field {name}: a table can hold tuples of one type only")
    arrow, load_item, inner_n_items = _of_hint(name, kinds.pop())
    if inner_n_items is not None:
        raise TypeError(f"field {name}: a table cannot hold nested tuples of fixed length")

    def load(values: Sequence[Any]) -> tuple[Any, ...]:
        if n_items is not None and len(values) != n_items:
            raise ValueError(f"{len(values)} items instead of {n_items}")
        return tuple(values) if load_item is None else tuple(map(load_item, values))

    return pa.list_(pa.field("element", arrow, nullable=False)), load, n_items
