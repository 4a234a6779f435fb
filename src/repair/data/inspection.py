"""What is known of image files: content hash, size, whether they open. Remembered by (path, size, times).

Loading 100,000 images must not read 100,000 files again and again. A file whose size, modification time or change
time differs is inspected anew. So is one that changed just before it was inspected, since a second change within
the clock's step would go unseen.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import PIL

from repair.core.errors import DataError
from repair.core.identity import hash_bytes, hash_value, short
from repair.core.images import Header, check_size, decode, looks_whole, read_header
from repair.store.files import write_text

SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """`problem` is a reason not to use the image, or None. `decoded`: the whole of it was looked at."""

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    digest: str
    width: int
    height: int
    decoded: bool
    problem: str | None


def inspect_images(
    image_ids: Sequence[str], *, root: Path, full: bool, max_pixels: int, cache: Path | None, n_workers: int
) -> list[ImageFacts]:
    """Facts of each image, in order; what cannot be read or is too large has `problem` set, nothing is raised for it.

    The findings are kept below the folder `cache` (None: nowhere). Results do not depend on `n_workers` (threads).
    Raises StoreError if the cache cannot be written.
    """
    memory = _Memory.open(cache, root=root)
    stats = [_stat(root / image_id) for image_id in image_ids]
    found = [
        _enough(memory.facts.get(image_id), stat, full=full, max_pixels=max_pixels)
        for image_id, stat in zip(image_ids, stats, strict=True)
    ]
    open_rows = [row for row, facts in enumerate(found) if facts is None]

    def inspect(row: int) -> ImageFacts:
        return _inspect(image_ids[row], root / image_ids[row], stats[row], full=full, max_pixels=max_pixels)

    with ThreadPoolExecutor(max_workers=max(1, n_workers)) as pool:
        for row, facts in zip(open_rows, pool.map(inspect, open_rows), strict=True):
            found[row] = facts
    done = [facts for facts in found if facts is not None]
    memory.keep(zip(image_ids, done, strict=True))
    return [_with_size_checked(facts, where, max_pixels) for where, facts in zip(image_ids, done, strict=True)]


def _stat(path: Path) -> tuple[int, int, int]:
    """Size, modification and change time; zeros if there is no such file, which no real file has."""
    try:
        stat = path.stat()
    except OSError:
        return (0, 0, 0)
    return (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _enough(known: ImageFacts | None, stat: tuple[int, int, int], *, full: bool, max_pixels: int) -> ImageFacts | None:
    if known is None or (known.size_bytes, known.mtime_ns, known.ctime_ns) != stat:
        return None
    answered = known.decoded or known.problem or not full or known.width * known.height > max_pixels
    return known if answered else None


def _inspect(where: str, path: Path, stat: tuple[int, int, int], *, full: bool, max_pixels: int) -> ImageFacts:
    """`where` names the image in problems. The pixel limit is not part of the finding, so that it can change."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return _unread("no such file")
    except OSError as error:
        return _unread(f"cannot be read: {error.strerror}")
    digest = hash_bytes(data)
    header = Header(0, 0)
    decoded = False
    try:
        header = read_header(data, where=where)
        if header.width * header.height <= max_pixels and (full or not looks_whole(data)):
            decode(data, where=where, max_pixels=max_pixels)
            decoded = True
    except DataError as error:
        problem = str(error).removeprefix(f"image {where}: ")
        return ImageFacts(*stat, digest, *header, decoded=True, problem=problem)
    return ImageFacts(*stat, digest, *header, decoded=decoded, problem=None)


def _with_size_checked(facts: ImageFacts, where: str, max_pixels: int) -> ImageFacts:
    if facts.problem is None:
        try:
            check_size(Header(facts.width, facts.height), where=where, max_pixels=max_pixels)
        except DataError as error:
            return replace(facts, problem=str(error).removeprefix(f"image {where}: "))
    return facts


def _unread(problem: str) -> ImageFacts:
    return ImageFacts(0, 0, 0, "", 0, 0, decoded=False, problem=problem)


class _Memory:
    """The findings of one image folder in one JSON file; a damaged file or one of another version counts as none."""

    def __init__(self, path: Path | None, facts: Mapping[str, ImageFacts]) -> None:
        self.path = path
        self.facts = dict(facts)

    @classmethod
    def open(cls, folder: Path | None, *, root: Path) -> "_Memory":
        if folder is None:
            return cls(None, {})
        path = folder / "images" / f"{short(hash_value(str(root.resolve())))}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["version"] != _version():
                return cls(path, {})
            facts = {image_id: ImageFacts(*values) for image_id, values in content["images"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls(path, {})
        return cls(path, facts)

    def keep(self, found: Iterable[tuple[str, ImageFacts]]) -> None:
        settled_ns = time.time_ns() - int(SETTLE_S * 1e9)
        new = {
            image_id: facts
            for image_id, facts in found
            if facts.digest and max(facts.mtime_ns, facts.ctime_ns) < settled_ns and self.facts.get(image_id) != facts
        }
        if self.path is None or not new:
            return
        self.facts.update(new)
        content = {"version": _version(), "images": {key: _values(self.facts[key]) for key in sorted(self.facts)}}
        write_text(self.path, json.dumps(content, separators=(",", ":")))


def _values(facts: ImageFacts) -> list[Any]:
    return [getattr(facts, name) for name in ImageFacts.__slots__]


def _version() -> list[Any]:
    return [1, PIL.__version__]  # another Pillow may open what this one could not
