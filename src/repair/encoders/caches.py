"""Prepared inputs and embeddings, computed once and kept on disk by content.

Prepared rows are kept under the encoder's `preparation`, embeddings under its `fingerprint()`, each by content hash:
so another order, another split, or a few new edits recompute nothing that is there, and runs share the cache.
What a killed process had finished, up to the last shard, is there for the next one.
"""

import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from PIL import Image

from repair.core.identity import hash_bytes, hash_value, short
from repair.core.ports import Array, DualEncoder, FloatArray, ImageItem
from repair.encoders.rows import RowStore
from repair.store.files import storing

Progress = Callable[[int, int], None]  # rows computed so far, rows to compute

_IMAGE_BATCH = 64  # pictures decoded ahead at a time
_TEXT_BATCH = 1024
_EMBED_BATCH = 256

Kind = Literal["images", "texts"]
_IMAGE_SHARD = 512  # rows lost at most when the process is killed
_TEXT_SHARD = 8192


class Decode(Protocol):
    """Encoded bytes to an RGB picture; called from several threads. `core.images.decode` is one."""

    def __call__(self, data: bytes, *, where: str) -> Image.Image: ...


class PreparedCache:
    """Prepared inputs below `folder`. Results do not depend on `n_workers`, the threads that decode pictures."""

    def __init__(self, folder: Path, *, n_workers: int = 2) -> None:
        self._folder = folder / "prepared"
        self._n_workers = max(1, n_workers)

    def images(
        self,
        encoder: DualEncoder,
        items: Sequence[ImageItem],
        *,
        decode: Decode,
        progress: Progress | None = None,
    ) -> Array:
        """`encoder.prepare_images` of `items`, in order, read-only; only what is not there yet is read and decoded.

        Raises DataError naming the image if one cannot be read or decoded, StoreError if the cache cannot be written.
        """
        if not items:
            return encoder.prepare_images([])
        store = RowStore(self._place("images", encoder), origin=encoder.preparation)
        keys = [item.content_hash for item in items]
        missing = store.missing(keys)
        pictures = _decoded([items[i] for i in missing], decode=decode, n_workers=self._n_workers)
        rows = (encoder.prepare_images(batch) for batch in _batches(pictures, size=_IMAGE_BATCH))
        return _filled(store, keys, missing, rows, shard_rows=_IMAGE_SHARD, progress=progress)

    def texts(self, encoder: DualEncoder, texts: Sequence[str], *, progress: Progress | None = None) -> Array:
        """`encoder.prepare_texts` of `texts`, in order, read-only. Raises StoreError if the cache cannot be written."""
        if not texts:
            return encoder.prepare_texts([])
        store = RowStore(self._place("texts", encoder), origin=encoder.preparation)
        keys = [text_key(text) for text in texts]
        missing = store.missing(keys)
        rows = (
            encoder.prepare_texts([texts[i] for i in missing[start : start + _TEXT_BATCH]])
            for start in range(0, len(missing), _TEXT_BATCH)
        )
        return _filled(store, keys, missing, rows, shard_rows=_TEXT_SHARD, progress=progress)

    def _place(self, kind: str, encoder: DualEncoder) -> Path:
        return self._folder / f"{kind}-{encoder.name}-{short(hash_value(encoder.preparation))}"


class EmbeddingCache:
    """Embeddings below `folder`, of the `max_models` encoders used last; those of older ones are removed."""

    def __init__(self, folder: Path, *, max_models: int = 8) -> None:
        self._folder = folder / "embeddings"
        self._max_models = max(1, max_models)

    def images(self, encoder: DualEncoder, keys: Sequence[str], prepared: Array, *, alone: bool = False) -> FloatArray:
        """`encoder.embed_images(prepared)`, read-only; `keys` are the content hashes of the images, row by row.

        `alone`: one by one, so that the last bits of a row do not depend on which others were missing with it.
        """
        return self._embedded("images", encoder, keys, prepared, encoder.embed_images, alone=alone)

    def texts(self, encoder: DualEncoder, keys: Sequence[str], prepared: Array, *, alone: bool = False) -> FloatArray:
        """`encoder.embed_texts(prepared)`, read-only; `keys` are `text_key` of the texts, row by row; `alone` as in
        `images`."""
        return self._embedded("texts", encoder, keys, prepared, encoder.embed_texts, alone=alone)

    def rows(self, kind: Kind, encoder: DualEncoder) -> RowStore:
        """The rows kept of this encoder, for those who embed items one by one and keep them together.

        Raises StoreError if the cache cannot be written.
        """
        fingerprint = encoder.fingerprint()
        place = self._folder / short(hash_value(fingerprint))
        store = RowStore(place / kind, origin=fingerprint)
        with storing(place):
            place.mkdir(parents=True, exist_ok=True)
            now = time.time_ns()  # the file system's own clock steps too coarsely to tell two uses apart
            os.utime(place, ns=(now, now))
        self._forget_old()
        return store

    def _embedded(
        self,
        kind: Kind,
        encoder: DualEncoder,
        keys: Sequence[str],
        prepared: Array,
        embed: Callable[..., FloatArray],
        *,
        alone: bool,
    ) -> FloatArray:
        if not keys:
            return embed(prepared)
        store = self.rows(kind, encoder)
        missing = store.missing(keys)
        size = 1 if alone else _EMBED_BATCH
        rows = (
            embed(prepared[missing[start : start + size]], batch_size=size) for start in range(0, len(missing), size)
        )
        return _filled(store, keys, missing, rows, shard_rows=_TEXT_SHARD, progress=None)

    def _forget_old(self) -> None:
        places = sorted((path for path in self._folder.iterdir() if path.is_dir()), key=lambda p: p.stat().st_mtime_ns)
        for place in places[: -self._max_models]:
            shutil.rmtree(place, ignore_errors=True)


def text_key(text: str) -> str:
    """The content hash a text is kept under; the same as the key of an edited caption."""
    return hash_bytes(text.encode())


def _filled(
    store: RowStore,
    keys: Sequence[str],
    missing: Sequence[int],
    batches: Iterator[Array],
    *,
    shard_rows: int,
    progress: Progress | None,
) -> Array:
    """Rows of all `keys` after computing those at `missing`, which `batches` yields in order."""
    waiting: list[Array] = []
    n_done = n_kept = 0
    for rows in batches:
        waiting.append(rows)
        n_done += len(rows)
        if n_done - n_kept >= shard_rows or n_done == len(missing):
            store.append([keys[i] for i in missing[n_kept:n_done]], np.concatenate(waiting))
            waiting, n_kept = [], n_done
        if progress is not None:
            progress(n_done, len(missing))
    if 2 * len(missing) >= len(keys):  # else writing all of them again costs more than it saves
        store.merge(keys)
    return store.take(keys)


def _decoded(items: Sequence[ImageItem], *, decode: Decode, n_workers: int) -> Iterator[Image.Image]:
    """The pictures of `items` in order, decoded ahead by `n_workers` threads. Bytes are read in the caller's thread."""
    ahead: deque[Future[Image.Image]] = deque()
    with ThreadPoolExecutor(max_workers=n_workers) as pool:
        for item in items:
            ahead.append(pool.submit(decode, item.read(), where=item.key))
            if len(ahead) > 2 * _IMAGE_BATCH:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _batches(pictures: Iterator[Image.Image], *, size: int) -> Iterator[list[Image.Image]]:
    batch: list[Image.Image] = []
    for picture in pictures:
        batch.append(picture)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
