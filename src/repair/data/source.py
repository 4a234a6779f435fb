"""A PairSource over image files: what every adapter for a file format ends in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from repair.core.errors import ConfigError, DataError, suggest
from repair.core.identity import hash_bytes, hash_value
from repair.core.records import Pair, SetAside
from repair.data.inspection import inspect_images
from repair.data.rows import Cleaned, Row, assign_splits, clean_rows, refuse_if_too_bad
from repair.data.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How one file is read; given by the adapter to `load`.

    `name` is the file, for messages. `fixed_split` overrides what rows say. `cache` is where findings about image
    files are kept (None: nowhere); `n_workers` threads look at them.
    """

    name: str
    image_root: Path
    one_row_an_image: bool
    fixed_split: str | None
    rules: Rules
    cache: Path | None
    n_workers: int


@dataclass(frozen=True, slots=True)
class _Photo:
    image_id: str
    split: str
    digest: str
    captions: tuple[tuple[str, str], ...]


class FileSource:
    """A PairSource (see `core.ports`). An image's id is its path below the image folder, a caption's id the image's
    id, "#" and its number among the image's captions, from 0."""

    def __init__(self, photos: Sequence[_Photo], set_aside: Sequence[SetAside], *, name: str, root: Path) -> None:
        self._photos = {photo.image_id: photo for photo in photos}
        self._set_aside = tuple(set_aside)
        self._name = name
        self._root = root

    @cached_property
    def fingerprint(self) -> str:
        """Of ids, splits, texts and image contents, in order; not of where the files lie."""
        return hash_value([[p.image_id, p.split, p.digest, p.captions] for p in self._photos.values()])

    @property
    def set_aside(self) -> Sequence[SetAside]:
        return self._set_aside

    def splits(self) -> Sequence[str]:
        """In order of first appearance."""
        return tuple(dict.fromkeys(photo.split for photo in self._photos.values()))

    def pairs(self, split: str) -> Sequence[Pair]:
        """In the order of the file. Raises ConfigError for a split that does not exist."""
        if split not in self.splits():
            raise ConfigError(f'{self._name} has no split "{split}": {suggest(split, self.splits())}')
        return [
            Pair(image_id=photo.image_id, caption_id=caption_id, text=text, split=split)
            for photo in self._photos.values()
            if photo.split == split
            for caption_id, text in photo.captions
        ]

    def read_image(self, image_id: str) -> bytes:
        """Raises DataError if the image is unknown, cannot be read, or is not the one that was loaded."""
        photo = self._photo(image_id)
        path = self._root / image_id
        try:
            data = path.read_bytes()
        except OSError as error:
            raise DataError(f"image {image_id}: {path} cannot be read: {error.strerror}") from error
        if hash_bytes(data) != photo.digest:
            raise DataError(f"image {image_id}: {path} has changed since the data were loaded: start the run again")
        return data

    def image_hash(self, image_id: str) -> str:
        return self._photo(image_id).digest

    def _photo(self, image_id: str) -> _Photo:
        try:
            return self._photos[image_id]
        except KeyError:
            raise DataError(f'{self._name} has no image "{image_id}"') from None


def load(rows: Iterable[Row | SetAside], reading: Reading) -> FileSource:
    """Check rows, captions and image files, and leave out what cannot be used.

    Raises DataError if the image folder is missing, too much is bad, or nothing is left.
    """
    if not reading.image_root.is_dir():
        raise DataError(f"{reading.name}: the image folder {reading.image_root} does not exist: set the option images")
    cleaned = clean_rows(rows, rules=reading.rules, one_row_an_image=reading.one_row_an_image)
    assign_splits(cleaned, fixed=reading.fixed_split, rules=reading.rules)
    photos = _inspected(cleaned, reading)
    refuse_if_too_bad(cleaned, name=reading.name, max_bad_rate=reading.rules.max_bad_rate)
    set_aside = (*cleaned.bad_images, *cleaned.bad_captions)
    return FileSource(photos, set_aside, name=reading.name, root=reading.image_root)


def _inspected(cleaned: Cleaned, reading: Reading) -> list[_Photo]:
    found = inspect_images(
        [entry.image_id for entry in cleaned.entries],
        root=reading.image_root,
        full=reading.rules.check == "full",
        max_pixels=reading.rules.max_pixels,
        cache=reading.cache,
        n_workers=reading.n_workers,
    )
    photos, kept = [], []
    for entry, facts in zip(cleaned.entries, found, strict=True):
        if facts.problem is not None:
            cleaned.bad_images.append(SetAside(item=entry.image_id, reason=facts.problem, split=entry.split))
            continue
        kept.append(entry)
        photos.append(_Photo(entry.image_id, str(entry.split), facts.digest, tuple(entry.captions)))
    cleaned.entries = kept
    return photos
