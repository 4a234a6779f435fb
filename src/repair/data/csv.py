"""A CSV or TSV table with a header line, one row a caption."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from repair.core.errors import DataError, suggest
from repair.core.records import SetAside
from repair.data.files import existing, read_text
from repair.data.rows import Row
from repair.data.rules import Rules
from repair.data.source import FileSource, Reading, load


def csv_source(
    *,
    path: Path,
    images: Path | None = None,
    image_column: str = "image",
    caption_column: str = "caption",
    split_column: str | None = None,
    split: str | None = None,
    delimiter: str | None = None,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """Images below `images` (the file's own folder unless given), one caption a row of `path`.

    `split_column` is "split" if the table has it, unless given. `split` puts every image into that split, whatever
    the column says. `delimiter` is a tab for .tsv and a comma else, unless given.

    Raises DataError if a column is missing or the table cannot be read as such.
    """
    path = existing(path)
    if delimiter is None:
        delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    rows = _rows(path, image=image_column, caption=caption_column, split=split_column, delimiter=delimiter)
    reading = Reading(
        name=str(path),
        image_root=images.expanduser() if images else path.parent,
        one_row_an_image=False,
        fixed_split=split,
        rules=rules or Rules(),
        cache=cache,
        n_workers=n_workers,
    )
    return load(rows, reading)


def _rows(file: Path, *, image: str, caption: str, split: str | None, delimiter: str) -> Iterator[Row | SetAside]:
    reader = csv.DictReader(io.StringIO(read_text(file), newline=""), delimiter=delimiter, strict=True)
    try:
        columns = list(reader.fieldnames or ())
        for column in (image, caption, *([split] if split else [])):
            if column not in columns:
                raise DataError(f'data file {file}: no column "{column}": {suggest(column, columns)}')
        if split is None and "split" in columns:
            split = "split"
        for values in reader:
            where = f"{file.name} line {reader.line_num}"
            if None in values or None in values.values():
                yield SetAside(item=where, reason=f"not {len(columns)} columns, as the header has")
                continue
            yield Row(
                where=where,
                image=values[image],
                captions=[values[caption]],
                split=values[split] or None if split else None,
            )
    except csv.Error as error:
        raise DataError(f"data file {file} line {reader.reader.line_num}: not a readable table ({error})") from error
