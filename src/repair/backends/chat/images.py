"""Images as a chat server takes them: shrunk, encoded again, as data URLs or as files that the server can read."""

import asyncio
import base64
import io
from collections import OrderedDict
from pathlib import Path
from typing import Any, Literal

from PIL import Image

from repair.core.errors import ConfigError
from repair.core.identity import hash_bytes
from repair.core.images import decode
from repair.core.ports import ImageItem
from repair.store.files import write_bytes

ImageAs = Literal["data_url", "file", "captions"]

QUALITY = 90
_KEPT = 64  # images prepared last: one failure's image is sent in several calls


class ImageSender:
    """Turns an ImageItem into a part of a message. The same image always gives the same bytes.

    `max_side` is the longer side sent, in pixels; smaller images are not enlarged. Encoding again makes the request
    depend on the picture alone and drops what files carry beside it (EXIF places, comments).
    """

    def __init__(self, *, image_as: ImageAs, max_side: int, folder: str) -> None:
        if not 16 <= max_side <= 8192:
            raise ConfigError(f'option "max_side": pixels from 16 to 8192, not {max_side}')
        if (image_as == "file") != bool(folder):
            raise ConfigError(
                'option "image_folder": a folder that the server may read; needed with image_as = "file", and only then'
            )
        self.image_as = image_as
        self._max_side = max_side
        self._folder = folder
        self._prepared: OrderedDict[str, str] = OrderedDict()

    def facts(self) -> dict[str, Any]:
        """What of this can change an answer."""
        if self.image_as == "captions":
            return {"image_as": "captions"}
        return {"format": "jpeg", "quality": QUALITY, "max_side": self._max_side}

    async def part(self, item: ImageItem) -> dict[str, Any]:
        """The part of a message that shows `item`. Raises DataError if it cannot be decoded."""
        url = self._prepared.get(item.content_hash)
        if url is None:
            url = await asyncio.to_thread(self._url, item)
            self._prepared[item.content_hash] = url
            while len(self._prepared) > _KEPT:
                self._prepared.popitem(last=False)
        return {"type": "image_url", "image_url": {"url": url}}

    def _url(self, item: ImageItem) -> str:
        data = shrunk_jpeg(decode(item.read(), where=item.key), max_side=self._max_side)
        if self.image_as == "data_url":
            return f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
        path = (Path(self._folder) / f"{hash_bytes(data).removeprefix('b2:')}.jpg").absolute()
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, data)
        return path.as_uri()


def shrunk_jpeg(image: Image.Image, *, max_side: int) -> bytes:
    """`image` as JPEG, its longer side at most `max_side` pixels."""
    factor = max_side / max(image.size)
    if factor < 1:
        size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()
