"""Karpathy's split files: dataset_flickr8k.json, dataset_flickr30k.json, dataset_coco.json.

Published format: {"images": [{"filepath": "val2014", "filename": "a.jpg", "split": "train",
"sentences": [{"raw": "…"}]}]}; only COCO has `filepath`, and a fourth split, `restval`, that is trained on by custom.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.core.records import SetAside
from repair.data.files import existing, read_json_object
from repair.data.rows import Row
from repair.data.rules import Rules
from repair.data.source import FileSource, Reading, load


def karpathy_source(
    *,
    path: Path,
    images: Path | None = None,
    restval_as: str = "train",
    use_filepath: bool = True,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """Images below `images` (the file's own folder unless given) by split.

    `restval_as` is the split that COCO's `restval` images go to. `use_filepath` false ignores `filepath`, for images
    that all lie in one folder.
    """
    path = existing(path)
    listed = read_json_object(path, key="images")["images"]
    reading = Reading(
        name=str(path),
        image_root=images.expanduser() if images else path.parent,
        one_row_an_image=True,
        fixed_split=None,
        rules=rules or Rules(),
        cache=cache,
        n_workers=n_workers,
    )
    return load(_rows(listed, name=path.name, restval_as=restval_as, use_filepath=use_filepath), reading)


def _rows(images: Sequence[Any], *, name: str, restval_as: str, use_filepath: bool) -> Iterator[Row | SetAside]:
    for number, image in enumerate(images):
        where = f"{name} images[{number}]"
        sentences = image.get("sentences") if isinstance(image, Mapping) else None
        if not isinstance(image, Mapping) or not isinstance(sentences, list) or "filename" not in image:
            yield SetAside(item=where, reason='expected an object with "filename", "split" and a list "sentences"')
            continue
        path = image["filename"]
        if use_filepath and image.get("filepath"):
            path = f"{image['filepath']}/{path}"
        split = image.get("split")
        yield Row(
            where=where,
            image=path,
            captions=[s.get("raw") if isinstance(s, Mapping) else s for s in sentences],
            split=restval_as if split == "restval" else split,
        )
