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
    path: Path | dict[str, Path],
    images: Path | None = None,
    folders: dict[str, str] | None = None,
    split: str | None = None,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """Images below `images` (the first file's own folder unless given), captions from `path`.

    `path` is one annotation file (all its images go to `split`, or are split by `rules.split_rates`), or one for each
    split: { train = "captions_train2017.json", test = "captions_val2017.json" }. `folders` says where below `images`
    the images of each split lie. An image's captions are in order of annotation id.
    """
    if isinstance(path, Mapping) and not path:
        raise DataError("coco: the option path names no annotation file")
    files = {name: existing(file) for name, file in (path if isinstance(path, Mapping) else {split: path}).items()}
    rows = (
        row
        for name, file in files.items()
        for row in _rows(file, split=name, folder=(folders or {}).get(str(name), ""))
    )
    reading = Reading(
        name=" + ".join(map(str, files.values())),
        image_root=images.expanduser() if images else next(iter(files.values())).parent,
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
