import random
import types
import typing
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.core import records
from repair.core.errors import StoreError
from repair.core.records import Direction, ErrorType, Grid, Instruction, Pair, Usage
from repair.store.tables import read_table, table_bytes, write_table

RECORD_TYPES = [
    kind
    for kind in vars(records).values()
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__") and kind.__module__ == records.__name__
]

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is types.UnionType:
        return st.none() | values_of(next(a for a in arguments if a is not type(None)))
    if arguments[-1] is Ellipsis:
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    return st.tuples(*map(values_of, arguments))


def records_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})


def pair(index: int) -> Pair:
    return Pair(image_id=f"i{index // 5}", caption_id=f"c{index}", text=f"a dog number {index}", split="train")


def test_all_record_types_are_covered() -> None:
    assert {kind.__name__ for kind in RECORD_TYPES} >= {
        "Failure",
        "Verdict",
        "Repair",
        "Link",
        "Grid",
        "ScoredCandidate",
    }


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_record_type_comes_back_equal_and_with_its_types(
    kind: Any, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(st.lists(records_of(kind), max_size=6))
    path = tmp_path_factory.getbasetemp() / f"{kind.__name__}.parquet"
    write_table(path, rows, kind)
    found = read_table(path, kind)
    assert found == rows
    for row, back in zip(rows, found, strict=True):
        for field in fields(kind):
            assert type(getattr(back, field.name)) is type(getattr(row, field.name))
    assert path.read_bytes() == table_bytes(list(rows), kind)


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)
def test_an_empty_table_keeps_its_columns(kind: Any, tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", [], kind)
    assert read_table(tmp_path / "t.parquet", kind) == []
    assert pq.read_schema(tmp_path / "t.parquet").names == [field.name for field in fields(kind)]


def test_enums_inside_tuples_and_none_beside_empty(tmp_path: Path) -> None:
    rows = [
        Instruction(failure_id="f", error_types=kinds, residual="", scaffold="", instruction="Do.", error=error)
        for kinds, error in [((), None), ((ErrorType.COUNT, ErrorType.ACTION), "")]
    ]
    write_table(tmp_path / "t.parquet", rows, Instruction)
    found = read_table(tmp_path / "t.parquet", Instruction)
    assert found == rows
    assert found[1].error_types[0] is ErrorType.COUNT
    assert [row.error for row in found] == [None, ""]


def test_many_rows_keep_their_order_over_row_groups(tmp_path: Path) -> None:
    rows = [pair(index) for index in range(70_000)]
    write_table(tmp_path / "t.parquet", rows, Pair)
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 2
    assert read_table(tmp_path / "t.parquet", Pair) == rows


def test_a_torn_table_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "failures.parquet"
    whole = table_bytes([pair(index) for index in range(500)], Pair)
    rng = random.Random(1)
    for length in [0, 3, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(40))]:
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=r"failures\.parquet"):
            read_table(path, Pair)


def test_an_altered_table_is_refused_or_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "failures.parquet"
    rows = [pair(index) for index in range(500)]
    whole = table_bytes(rows, Pair)
    rng = random.Random(2)
    refusals = []
    for _ in range(150):
        altered = bytearray(whole)
        altered[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(altered)
        try:
            found = read_table(path, Pair)
        except StoreError as error:
            refusals.append(str(error))
        else:
            assert found == rows  # a flip in the statistics or in the name of the writer changes no row
    assert len(refusals) > 75
    assert all("failures.parquet" in refusal for refusal in refusals)


def test_foreign_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    write_table(path, [pair(1)], Pair)
    with pytest.raises(StoreError, match="not a table of Usage but of Pair"):
        read_table(path, Usage)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(StoreError, match="something else"):
        read_table(path, Pair)
    path.write_text("image,caption\n")
    with pytest.raises(StoreError, match=r"t\.parquet"):
        read_table(path, Pair)
    with pytest.raises(StoreError, match=r"absent\.parquet"):
        read_table(tmp_path / "absent.parquet", Pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    direction: str
    pair: tuple[str, ...]


def test_a_value_the_type_cannot_hold_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Now:
        direction: Direction
        pair: tuple[str, ...]

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Fixed:
        direction: str
        pair: tuple[str, str, str]

    Now.__name__ = Fixed.__name__ = "Thing"  # another version of the same table
    path = tmp_path / "t.parquet"
    write_table(path, [Thing(direction="sideways", pair=("a", "b"))], Thing)
    with pytest.raises(StoreError, match=r"column direction.*sideways"):
        read_table(path, Now)
    with pytest.raises(StoreError, match=r"column pair.*2 items instead of 3"):
        read_table(path, Fixed)


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class More:
        direction: str
        pair: tuple[str, ...]
        extra: int

    More.__name__ = "Thing"
    write_table(tmp_path / "t.parquet", [Thing(direction="x", pair=())], Thing)
    with pytest.raises(StoreError, match="another version"):
        read_table(tmp_path / "t.parquet", More)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "one"},
        {"step": None},
        {"step": 2**63},
        {"images": ("a", "b")},
        {"images": ("a", "b", None)},
        {"step": 1.5},
    ],
)
def test_a_record_that_breaks_its_own_hints_is_a_bug_and_writes_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    good: dict[str, Any] = {
        "step": 0,
        "index": 0,
        "images": ("a", "b", "c"),
        "texts": ("x", "y", "z"),
        "n_synthetic": 1,
    }
    with pytest.raises(TypeError, match="Grid"):
        write_table(tmp_path / "t.parquet", [Grid(**good), Grid(**{**good, **changes})], Grid)
    with pytest.raises(TypeError, match="Grid"):
        write_table(tmp_path / "t.parquet", [pair(1)], Grid)  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []
