"""Where a suite's pictures come from: a folder of files or a data source; found by name, cropped on demand."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from repair.core.errors import DataError
from repair.core.identity import hash_bytes, hash_value
from repair.core.images import decode, looks_whole, read_header
from repair.core.ports import ImageItem, PairSource
from repair.evaluation.items import Box

_COCO_2014 = ("COCO_train2014_", "COCO_val2014_")  # the same photos as COCO 2017, which dropped the prefix


class Pictures(Protocol):
    """Pictures by name."""

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those that are not there, sorted, each once."""
        ...

    def item(self, name: str, box: Box | None = None) -> ImageItem:
        """Raises DataError if the picture is not there."""
        ...

    def facts(self) -> dict[str, Any]:
        """How to find the same pictures again."""
        ...


@dataclass(frozen=True)
class FolderPictures:
    """Files below `root`: at the path an item names, else the only file of that name anywhere below.

    COCO's 2014 names also find the 2017 file of the same photo. A file that is no image, or is cut short, is missing.
    """

    root: Path
    _known: dict[str, Path | None] = field(default_factory=dict, repr=False)
    _opens: dict[Path, bool] = field(default_factory=dict, repr=False)

    def missing(self, names: Iterable[str]) -> list[str]:
        return sorted({name for name in names if (path := self._find(name)) is None or not self._can_open(path)})

    def item(self, name: str, box: Box | None = None) -> ImageItem:
        path = self._find(name)
        if path is None:
            raise DataError(f"image {name}: not below {self.root}")
        data = _read(path, name)
        return _item(name, data, box) if box else _whole(name, hash_bytes(data), path)

    def facts(self) -> dict[str, Any]:
        return {"kind": "folder", "root": str(self.root.resolve())}

    def _can_open(self, path: Path) -> bool:
        """By its header and its end; the whole of it only where the end looks wrong."""
        if path not in self._opens:
            try:
                data = _read(path, path.name)
                read_header(data, where=path.name)
                if not looks_whole(data):
                    decode(data, where=path.name)
                self._opens[path] = True
            except DataError:
                self._opens[path] = False
        return self._opens[path]

    def _find(self, name: str) -> Path | None:
        if name not in self._known:
            self._known[name] = self._search(name)
        return self._known[name]

    def _search(self, name: str) -> Path | None:
        if "://" in name:
            name = name.rsplit("/", 1)[-1]
        named = PurePosixPath(name)
        if "\0" in name or not named.name:
            return None
        path = self.root / named
        if not named.is_absolute() and ".." not in named.parts and path.is_file():
            return path
        base = Path(name).name
        for prefix in ("", *_COCO_2014):
            found = self._by_name.get(base.removeprefix(prefix), [])
            if len(found) == 1:
                return found[0]
        return None

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        if not self.root.is_dir():
            raise DataError(f"the image folder {self.root} does not exist: give it with --images")
        found: dict[str, list[Path]] = {}
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                found.setdefault(path.name, []).append(path)
        return found


@dataclass(frozen=True)
class SourcePictures:
    """The images of a data source, by id. `place` says how to open the source again."""

    source: PairSource
    ids: frozenset[str]
    place: dict[str, Any]

    def missing(self, names: Iterable[str]) -> list[str]:
        return sorted({name for name in names if name not in self.ids})

    def item(self, name: str, box: Box | None = None) -> ImageItem:
        if box:
            return _item(name, self.source.read_image(name), box)
        return ImageItem(
            key=name,
            content_hash=self.source.image_hash(name),
            captions=(),
            read=lambda: self.source.read_image(name),
        )

    def facts(self) -> dict[str, Any]:
        return self.place


def _whole(name: str, digest: str, path: Path) -> ImageItem:
    return ImageItem(key=name, content_hash=digest, captions=(), read=lambda: _read(path, name))


def _item(name: str, data: bytes, box: Box) -> ImageItem:
    """A crop, under the hash of the picture and the box."""

    def read() -> bytes:
        x, y, width, height = box
        whole = decode(data, where=name)
        if width < 1 or height < 1 or x >= whole.width or y >= whole.height or x + width <= 0 or y + height <= 0:
            raise DataError(f"image {name}: the box {box} (x, y, width, height) holds nothing of {whole.size} pixels")
        sink = BytesIO()
        whole.crop((x, y, x + width, y + height)).save(sink, "BMP")  # lossless, and fast; black beyond the image
        return sink.getvalue()

    return ImageItem(
        key=f"{name} {box}", content_hash=hash_value([hash_bytes(data), list(box)]), captions=(), read=read
    )


def _read(path: Path, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"image {name}: {path} cannot be read: {error.strerror}") from error
