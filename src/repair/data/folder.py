"""A folder of images, each with a text file of the same name beside it: dog.jpg and dog.txt, one caption a line."""

from collections.abc import Iterator
from pathlib import Path

from repair.core.errors import DataError
from repair.core.records import SetAside
from repair.data.files import read_text
from repair.data.rows import Row
from repair.data.rules import Rules
from repair.data.source import FileSource, Reading, load

_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"})


def folder_source(
    *,
    path: Path,
    split_by_folder: bool = False,
    split: str | None = None,
    rules: Rules | None = None,
    cache: Path | None = None,
    n_workers: int = 2,
) -> FileSource:
    """All images in the folder `path` and below, in order of their paths.

    `split_by_folder` takes the first folder on an image's path as its split (train/dog.jpg is in train). `split` puts
    every image into that split. An image without a text file and a text file without an image are set aside.
    """
    folder = path.expanduser()
    if not folder.is_dir():
        raise DataError(f"data folder {folder} does not exist")
    reading = Reading(
        name=str(folder),
        image_root=folder,
        one_row_an_image=True,
        fixed_split=split,
        rules=rules or Rules(),
        cache=cache,
        n_workers=n_workers,
    )
    return load(_rows(folder, split_by_folder=split_by_folder), reading)


def _rows(folder: Path, *, split_by_folder: bool) -> Iterator[Row | SetAside]:
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.as_posix())
    images = [path for path in files if path.suffix.lower() in _SUFFIXES]
    owners: dict[Path, Path] = {}
    for image in images:
        name = image.relative_to(folder).as_posix()
        captions = image.with_suffix(".txt")
        first = owners.setdefault(captions, image)
        if first != image:
            yield SetAside(item=name, reason=f"shares {captions.name} with {first.name}: give each its own name")
            continue
        if not captions.is_file():
            yield SetAside(item=name, reason=f"no caption file {captions.name} beside it")
            continue
        try:
            lines = [line for line in read_text(captions).splitlines() if line.strip()]
        except DataError as error:
            yield SetAside(item=name, reason=str(error))
            continue
        parts = Path(name).parts
        split = parts[0] if split_by_folder and len(parts) > 1 else None
        yield Row(where=name, image=name, captions=lines, split=split)
    for path in files:
        if path.suffix.lower() == ".txt" and path not in owners:
            yield SetAside(item=path.relative_to(folder).as_posix(), reason="captions without an image beside them")
