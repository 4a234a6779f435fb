"""COCO's captions_*.json: {"images": [{"id", "file_name"}], "annotations": [{"id", "image_id", "caption"}]}."""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from repair.core.errors import DataError
from repair.core.records import SetAside
from repair.data.files import existing, read_json_object
from repair.data.rows import Row
from repair.data.rules import Rules
from repair.data.source import FileSource, Reading, load


def coco_source(
    *,
    file: Path | dict[str, Path],
    image_root: Path | None = None,
    folder: str | dict[str, str] = "",
    split: str | None = None,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """Images below `image_root` (the first file's own folder unless given), captions from `file`.

    `file` is one annotation file (all its images go to `split`, or are split by `rules.split_rates`), or one for each
    split: {train = "captions_train2017.json", test = "captions_val2017.json"}. `folder` is where the images lie below
    `image_root`, again one for all or one for each split. An image's captions are in order of annotation id.
    """
    files = dict(file) if isinstance(file, Mapping) else {split: file}
    if not files:
        raise DataError("coco: the option file names no annotation file")
    paths = {name: existing(path) for name, path in files.items()}
    first = next(iter(paths.values()))
    rows = (
        row
        for name, path in paths.items()
        for row in _rows(path, split=name, folder=folder if isinstance(folder, str) else folder.get(str(name), ""))
    )
    reading = Reading(
        name=" + ".join(map(str, paths.values())),
        image_root=image_root.expanduser() if image_root else first.parent,
        one_row_an_image=True,
        fixed_split=split,
        rules=rules or Rules(),
        cache=cache,
        n_workers=n_workers,
    )
    return load(rows, reading)


def _rows(file: Path, *, split: str | None, folder: str) -> Iterator[Row | SetAside]:
    content = read_json_object(file, key="images")
    annotations = content.get("annotations")
    if not isinstance(annotations, list):
        raise DataError(f'data file {file}: no list "annotations"; is it a captions_*.json file?')
    captions: dict[Any, list[tuple[int, Any]]] = {}
    for number, annotation in enumerate(annotations):
        if not isinstance(annotation, Mapping) or not isinstance(annotation.get("image_id"), int | str):
            yield SetAside(item=f"{file.name} annotations[{number}]", reason='expected "image_id" and "caption"')
            continue
        order = annotation.get("id")
        key = order if isinstance(order, int) else number
        captions.setdefault(annotation["image_id"], []).append((key, annotation.get("caption")))
    for number, image in enumerate(content["images"]):
        where = f"{file.name} images[{number}]"
        if not isinstance(image, Mapping) or not isinstance(image.get("file_name"), str) or "id" not in image:
            yield SetAside(item=where, reason='expected an object with "id" and "file_name"')
            continue
        own = sorted(captions.pop(image["id"], []), key=lambda pair: pair[0])
        path = str(PurePosixPath(folder) / image["file_name"])
        yield Row(where=where, image=path, captions=[text for _, text in own], split=split)
    for image_id in captions:
        yield SetAside(item=f"{file.name} image_id {image_id}", reason="captions of an image that is not listed")
