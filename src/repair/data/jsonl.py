"""One JSON object a line: {"image": "a.jpg", "captions": ["…", "…"], "split": "train"}."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.core.records import SetAside
from repair.data.files import existing, json_lines
from repair.data.rows import Row
from repair.data.rules import Rules
from repair.data.source import FileSource, Reading, load

_IMAGE_FIELDS = ("image", "filename")
_CAPTION_FIELDS = ("captions", "caption")


def jsonl_source(
    *,
    path: Path,
    images: Path | None = None,
    image_field: str | None = None,
    caption_field: str | None = None,
    split_field: str = "split",
    split: str | None = None,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """Images below `images` (the file's own folder unless given), named and captioned by `path`.

    `image_field` is "image" or "filename" unless given; `caption_field` is "captions" (a list; one row an image) or
    "caption" (a string; as many rows an image as it has captions) unless given. `split` puts every image into that
    split, whatever `split_field` says.
    """
    path = existing(path)
    image_fields = (image_field,) if image_field else _IMAGE_FIELDS
    caption_fields = (caption_field,) if caption_field else _CAPTION_FIELDS
    lines = list(json_lines(path))
    rows = _rows(lines, name=path.name, image_fields=image_fields, caption_fields=caption_fields, split=split_field)
    one_caption_a_row = any(
        isinstance(value, Mapping) and isinstance(value.get(field), str)
        for _, value in lines[:1]
        for field in caption_fields
    )
    reading = Reading(
        name=str(path),
        image_root=images.expanduser() if images else path.parent,
        one_row_an_image=not one_caption_a_row,
        fixed_split=split,
        rules=rules or Rules(),
        cache=cache,
        n_workers=n_workers,
    )
    return load(rows, reading)


def _rows(
    lines: Sequence[tuple[int, Any]],
    *,
    name: str,
    image_fields: Sequence[str],
    caption_fields: Sequence[str],
    split: str,
) -> Iterator[Row | SetAside]:
    for number, value in lines:
        where = f"{name} line {number}"
        if isinstance(value, ValueError):
            yield SetAside(item=where, reason=str(value))
            continue
        if not isinstance(value, Mapping):
            yield SetAside(item=where, reason=f"expected a JSON object, found {type(value).__name__}")
            continue
        image = next((field for field in image_fields if field in value), None)
        captions = next((field for field in caption_fields if field in value), None)
        if image is None or captions is None:
            wanted = " or ".join(f'"{field}"' for field in (image_fields if image is None else caption_fields))
            yield SetAside(item=where, reason=f"no field {wanted}; it has: {', '.join(map(str, value))}")
            continue
        given = value[captions]
        yield Row(
            where=where,
            image=value[image],
            captions=given if isinstance(given, list) else [given],
            split=value.get(split),
        )
