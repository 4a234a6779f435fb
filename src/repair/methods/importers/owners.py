"""To whom a released row belongs: the caption of the split with its image and text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePosixPath

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.core.records import Pair
from repair.core.synthesis import Sample, SampleKind
from repair.core.texts import folded
from repair.methods.method import sample_id

_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True, slots=True)
class Imported:
    """`images`: bytes of the pictures the samples name, by key, read when asked for. `n_rows`: rows of the file;
    `n_foreign`: those that belong to no caption of the split."""

    samples: tuple[Sample, ...]
    n_rows: int
    n_foreign: int
    images: dict[str, Callable[[], bytes]] = field(default_factory=dict)


class Owners:
    """Finds pairs by image name and text, or by text alone where only one caption reads so.

    Released rows seldom name an image as the split does, so names are compared without folder and ending. Where that
    fits several images, the longer path decides, then the text; where neither does, the row is refused.
    """

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._by_both = {(pair.image_id, folded(pair.text)): pair for pair in pairs}
        self._by_text: dict[str, Pair | None] = {}
        self._first = {pair.image_id: pair for pair in reversed(pairs)}
        self._images: dict[str, list[str]] = {}
        for image_id in dict.fromkeys(pair.image_id for pair in pairs):
            self._images.setdefault(_name(image_id), []).append(image_id)
        for pair in pairs:
            text = folded(pair.text)
            self._by_text[text] = None if text in self._by_text else pair

    def of(self, image: str, text: str, *, where: str) -> Pair | None:
        """None if the row belongs to no caption, or to one of several. Raises DataError if several images of its name
        have its text."""
        found = self._with_text(self._named(image), text)
        return self._by_both[_only(found, image, where), folded(text)] if found else self._by_text.get(folded(text))

    def image(self, image: str, text: str, *, where: str) -> Pair | None:
        """A pair of the image with that name. Raises DataError if it may be several, and `text` does not tell."""
        named = self._named(image)
        found = self._with_text(named, text) or named
        return self._first[_only(found, image, where)] if found else None

    def _with_text(self, image_ids: Sequence[str], text: str) -> list[str]:
        return [image_id for image_id in image_ids if (image_id, folded(text)) in self._by_both]

    def _named(self, image: str) -> list[str]:
        """The images of that name; of several, those whose path is closest."""
        named = self._images.get(_name(image), [])
        if len(named) < 2:
            return named
        best = max(_closeness(image, image_id) for image_id in named)
        return [image_id for image_id in named if _closeness(image, image_id) == best]


def _only(found: Sequence[str], image: str, where: str) -> str:
    if len(found) > 1:
        raise DataError(
            f'{where}: image "{image}" may be {found[0]} or {found[1]} of the split; its name or path must tell which'
        )
    return found[0]


def _name(image: str) -> str:
    """An image's name without folder and ending; of COCO's file names the number, as its ids have it."""
    stem = _stem(_parts(image)[-1])
    number = _NUMBER.search(stem)
    if number and (stem == number[1] or stem.startswith("COCO_")):
        return number[1].lstrip("0") or "0"
    return stem


def _closeness(image: str, other: str) -> tuple[bool, int, bool, bool]:
    """How alike two paths of equal name are: all of it, folders in common from the end, the file name, its stem."""
    (*folders, file), (*other_folders, other_file) = _parts(image), _parts(other)
    same_stem = _stem(file) == _stem(other_file)
    pairs = zip(reversed(folders), reversed(other_folders), strict=False)
    n_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return folders == other_folders and same_stem, n_common, file == other_file, same_stem


def _parts(image: str) -> tuple[str, ...]:
    return PurePosixPath(image.replace("\\", "/")).parts or ("",)


def _stem(file: str) -> str:
    return file.rsplit(".", 1)[0]


class Rows:
    """Samples as they are found, numbered within their caption."""

    def __init__(self, builder: str) -> None:
        self._builder = builder
        self._n: dict[str, int] = {}
        self.samples: list[Sample] = []
        self.images: dict[str, Callable[[], bytes]] = {}
        self.n_rows = 0
        self.n_foreign = 0

    def add(
        self,
        pair: Pair,
        kind: SampleKind,
        *,
        how: str,
        text: str | None = None,
        foil: str | None = None,
        image_key: str | None = None,
    ) -> None:
        """An empty text or foil makes no sample."""
        if text == "" or foil == "":
            return
        index = self._n.get(pair.caption_id, 0)
        self._n[pair.caption_id] = index + 1
        self.samples.append(
            Sample(
                sample_id=sample_id(self._builder, pair.caption_id, index),
                builder=self._builder,
                kind=kind,
                image_id=pair.image_id,
                caption_id=pair.caption_id,
                index=index,
                how=how,
                text_key=None if text is None else hash_bytes(text.encode()),
                text=text,
                foil_key=None if foil is None else hash_bytes(foil.encode()),
                foil=foil,
                image_key=image_key,
            )
        )

    def picture(self, read: Callable[[], bytes]) -> str:
        """Key of a picture; its bytes are read now and, when wanted, again."""
        key = hash_bytes(read())
        self.images[key] = read
        return key

    def done(self) -> Imported:
        return Imported(tuple(self.samples), self.n_rows, self.n_foreign, self.images)


def text_of(path: Path) -> str:
    """The file's text, ends of lines as they stand. Raises DataError naming it."""
    try:
        return path.read_bytes().decode()  # read_text would make line feeds of carriage returns within a caption
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def lines_of(path: Path) -> list[str]:
    """The file's lines, cut at line feeds only: a caption may hold other characters that end a line for Unicode. Raises
    DataError naming the file."""
    lines = [line.removesuffix("\r") for line in text_of(path).split("\n")]
    return lines if lines[-1] else lines[:-1]


def bytes_of(path: Path) -> bytes:
    """The file's bytes. Raises DataError naming it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: the image cannot be read: {error.strerror}") from error
