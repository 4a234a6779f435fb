"""To whom a released row belongs: the caption of the split with its image and text."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    """Finds pairs by image name and text, or by text alone where only one caption reads so."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._by_both = {(_name(pair.image_id), folded(pair.text)): pair for pair in pairs}
        self._by_text: dict[str, Pair | None] = {}
        self._images = {_name(pair.image_id): pair for pair in reversed(pairs)}
        for pair in pairs:
            text = folded(pair.text)
            self._by_text[text] = None if text in self._by_text else pair

    def of(self, image: str, text: str) -> Pair | None:
        """None if the row belongs to no caption, or to one of several."""
        found = self._by_both.get((_name(image), folded(text)))
        return found if found is not None else self._by_text.get(folded(text))

    def image(self, image: str) -> Pair | None:
        """A pair of the image with that name."""
        return self._images.get(_name(image))


def _name(image: str) -> str:
    """An image's name without folder and ending; of COCO's file names the number, as its ids have it."""
    stem = PurePosixPath(image.replace("\\", "/")).name.rsplit(".", 1)[0]
    number = _NUMBER.search(stem)
    if number and (stem == number[1] or stem.startswith("COCO_")):
        return str(int(number[1]))
    return stem


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
    """The file's text. Raises DataError naming it."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error


def lines_of(path: Path) -> list[str]:
    """The file's lines, cut at line feeds only: a caption may hold other characters that end a line for Unicode. Raises
    DataError naming the file."""
    lines = text_of(path).split("\n")
    return lines if lines[-1] else lines[:-1]


def bytes_of(path: Path) -> bytes:
    """The file's bytes. Raises DataError naming it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: the image cannot be read: {error.strerror}") from error
