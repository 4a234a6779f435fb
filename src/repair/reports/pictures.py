"""Pictures as data URIs, what an edit changed in them, and what it changed in a caption."""

import base64
import difflib
import re
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from repair.core.errors import RepairError
from repair.core.images import decode
from repair.reports.view import EDIT, RunView

_SIDE = 224  # longest side of an embedded photo, in pixels
_KEPT_SIDE = 128  # PNGs up to this side and size are embedded as they are: drawings keep every pixel
_KEPT_BYTES = 20_000
_THRESHOLD = 24  # of 255, in any channel: below it a pixel counts as unchanged (encoding noise)
_MAX_BOXES = 6
_TOKEN = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}%’'")


@dataclass(frozen=True, slots=True)
class Box:
    """A changed region, in percent of the picture's width and height."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Change:
    """What differs between two pictures: the share of pixels, in [0, 1], and boxes around them, largest first."""

    share: float
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a caption: `kind` is "same", "deleted" or "inserted"."""

    kind: str
    text: str


class Pictures:
    """Originals by image id, edits by content hash. What cannot be read is None, and never stops the report."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._uris: dict[str, str | None] = {}

    def data(self, key: str) -> bytes | None:
        """The encoded bytes of a picture; None if they are not to be had here."""
        try:
            if key.startswith(EDIT):
                blobs = self._view.blobs
                return None if blobs is None else blobs.get(key)
            return None if self._view.source is None else self._view.source.read_image(key)
        except RepairError:
            return None

    def uri(self, key: str) -> str | None:
        """The picture as a data URI, at most 224 pixels wide and high."""
        if key not in self._uris:
            data = self.data(key)
            self._uris[key] = None if data is None else data_uri(data)
        return self._uris[key]

    def change(self, before: str, after: str) -> Change | None:
        """What the edit `after` changed in `before`; None if either cannot be read."""
        pictures = [_decoded(data) for data in (self.data(before), self.data(after)) if data is not None]
        first, second = pictures if len(pictures) == 2 else (None, None)
        return None if first is None or second is None else picture_change(first, second)


def data_uri(data: bytes) -> str | None:
    """`data` as an image that a page can hold: small PNGs as they are, others as JPEG thumbnails; None if broken."""
    picture = _decoded(data)
    if picture is None:
        return None
    if data.startswith(b"\x89PNG") and max(picture.size) <= _KEPT_SIDE and len(data) <= _KEPT_BYTES:
        return _uri("png", data)
    picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    sink = BytesIO()
    picture.save(sink, "JPEG", quality=80, optimize=True)
    return _uri("jpeg", sink.getvalue())


def picture_change(before: Image.Image, after: Image.Image) -> Change:
    """The changed share of pixels and up to six boxes around them; `after` is first resized to `before` if it differs.

    Pixels count as changed if a channel differs by more than 24 of 255; changes closer than 3 % of the picture are
    one region, and specks below 0.05 % of it get no box.
    """
    if after.size != before.size:
        after = after.resize(before.size, Image.Resampling.LANCZOS)
    gap = np.abs(np.asarray(before, dtype=np.int16) - np.asarray(after, dtype=np.int16)).max(axis=2)
    changed: npt.NDArray[np.bool_] = gap > _THRESHOLD
    reach = max(1, round(0.03 * max(before.size) / 2))
    near = ndimage.binary_dilation(changed, structure=np.ones((3, 3)), iterations=reach)
    labels, _ = ndimage.label(near, structure=np.ones((3, 3)))
    labels[~changed] = 0
    height, width = changed.shape
    found = []
    for label, place in enumerate(ndimage.find_objects(labels), start=1):
        n_pixels = int((labels[place] == label).sum()) if place is not None else 0
        if n_pixels >= max(2, 0.0005 * changed.size):
            found.append((n_pixels, place))
    found.sort(key=lambda entry: (-entry[0], entry[1][0].start, entry[1][1].start))
    boxes = tuple(
        Box(
            left=100 * x.start / width,
            top=100 * y.start / height,
            width=100 * (x.stop - x.start) / width,
            height=100 * (y.stop - y.start) / height,
        )
        for _, (y, x) in found[:_MAX_BOXES]
    )
    return Change(share=float(changed.mean()), boxes=boxes)


def text_change(before: str, after: str) -> list[Span]:
    """Word by word from `before` to `after`; case and spacing do not count as a change.

    Example:
        >>> [(s.kind, s.text) for s in text_change("a red dog.", "a blue dog.")]
        [('same', 'a'), ('deleted', 'red'), ('inserted', 'blue'), ('same', 'dog.')]
    """
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    matcher = difflib.SequenceMatcher(
        None, [token.casefold() for token in old], [token.casefold() for token in new], autojunk=False
    )
    spans = []
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            spans.append(Span("same", _joined(new[k:m])))
            continue
        if j > i:
            spans.append(Span("deleted", _joined(old[i:j])))
        if m > k:
            spans.append(Span("inserted", _joined(new[k:m])))
    return spans


def _joined(tokens: list[str]) -> str:
    text = ""
    for token in tokens:
        text += token if not text or token in _NO_SPACE_BEFORE else f" {token}"
    return text


def _decoded(data: bytes) -> Image.Image | None:
    try:
        return decode(data, where="of the report")
    except RepairError:
        return None


def _uri(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
