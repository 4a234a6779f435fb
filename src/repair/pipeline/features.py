"""Prepared inputs and embeddings of whatever a stage names: a split, or edits; through the caches."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import numpy as np

from repair import selection
from repair.core.errors import DataError
from repair.core.images import decode
from repair.core.ports import Array, FloatArray, ImageItem, TrainableEncoder
from repair.core.progress import Advance, Progress
from repair.core.records import Candidate, Direction, Failure
from repair.encoders.caches import EmbeddingCache, Kind, PreparedCache, text_key
from repair.encoders.rows import RowStore
from repair.pipeline.catalogue import Catalogue, image_item
from repair.pipeline.workbench import Workbench


class Features:
    """What the encoder makes of items, with its weights as they stood after round `after` (None: before any)."""

    def __init__(self, bench: Workbench, after: int | None) -> None:
        self._bench = bench
        self._after = after
        self._prepared = PreparedCache(bench.config.cache_path(), n_workers=bench.config.run.n_workers)
        self._embedded = EmbeddingCache(bench.config.cache_path())
        self._alone: dict[str, FloatArray | None] = {}  # edits embedded one by one; None: unreadable
        self._unkept: dict[Kind, list[str]] = {"images": [], "texts": []}  # those of them that no cache has yet

    @cached_property
    def encoder(self) -> TrainableEncoder:
        return self._bench.encoder_after(self._after)

    @cached_property
    def _train(self) -> tuple[FloatArray, FloatArray]:
        return self.embeddings(self._bench.train)

    def load(self) -> None:
        """Load the encoder and embed the train split now, not on first use."""
        _ = self._train

    # ------------------------------------------------------------------------------------------ a split

    def prepared_images(self, catalogue: Catalogue) -> Array:
        return self._prepare_images(_items(self._bench, catalogue), label=f"images: {catalogue.split}")

    def prepared_texts(self, catalogue: Catalogue) -> Array:
        return self._prepare_texts(catalogue.texts, label=f"captions: {catalogue.split}")

    def embeddings(self, catalogue: Catalogue) -> tuple[FloatArray, FloatArray]:
        """(n_images, dim) and (n_captions, dim), unit rows, in the catalogue's order."""
        image_keys = [item.content_hash for item in _items(self._bench, catalogue)]
        images = self._embedded.images(self.encoder, image_keys, self.prepared_images(catalogue))
        text_keys = [text_key(text) for text in catalogue.texts]
        return images, self._embedded.texts(self.encoder, text_keys, self.prepared_texts(catalogue))

    # ------------------------------------------------------------------------------------------ edits

    # Edits are embedded one by one: which of them come together depends on where a run was interrupted, and the last
    # bits of a batched product on what else is in the batch. (Prepared rows never depend on their neighbours.)

    def prepared_edited_images(self, keys: Sequence[str]) -> Array:
        """Edited images by content hash. Raises DataError if one cannot be decoded."""
        return self._prepare_images([self._edited(key) for key in keys], label="edited images")

    def prepared_edited_texts(self, texts: Sequence[str]) -> Array:
        return self._prepare_texts(texts, label="edited captions")

    def measure(self, failures: Sequence[Failure], candidates: Sequence[Candidate]) -> selection.Measures:
        """What selection needs to know of each candidate; NaN for those that do not exist or cannot be read."""
        texts = {c.key: c.text for c in candidates if c.key is not None and c.text is not None}
        images = {c.key for c in candidates if c.key is not None and c.text is None}
        return self._measures(failures, candidates, self.made_embeddings(texts, images))

    def measure_one(self, failure: Failure, candidates: Sequence[Candidate]) -> selection.Measures:
        """The same for the candidates of one failure, as they come; what is embedded is kept when `keep` is called."""
        found = {}
        for candidate in candidates:
            if candidate.key is None:
                continue
            if candidate.key not in self._alone:
                self._alone[candidate.key] = self._embed_one(candidate.key, candidate.text)
            row = self._alone[candidate.key]
            if row is not None:
                found[candidate.key] = row
        return self._measures([failure], candidates, found)

    def keep(self) -> None:
        """Put what `measure_one` has embedded into the cache, for the next who asks. Raises StoreError."""
        for kind, keys in self._unkept.items():
            rows = [row for row in (self._alone[key] for key in keys) if row is not None]
            if rows:
                self._kept[kind].append(keys, np.stack(rows))
            keys.clear()

    @cached_property
    def _kept(self) -> dict[Kind, RowStore]:
        return {kind: self._embedded.rows(kind, self.encoder) for kind in self._unkept}

    def _embed_one(self, key: str, text: str | None) -> FloatArray | None:
        kind: Kind = "images" if text is None else "texts"
        if not self._kept[kind].missing([key]):
            known: FloatArray = self._kept[kind].take([key])[0]
            return known
        plain = self._bench.plain_encoder
        if text is None:
            try:
                picture = decode(self._edited(key).read(), where=f"edited image {key}")
            except DataError:
                return None
            embedded = self.encoder.embed_images(plain.prepare_images([picture]), batch_size=1)
        else:
            embedded = self.encoder.embed_texts(plain.prepare_texts([text]), batch_size=1)
        self._unkept[kind].append(key)
        row: FloatArray = embedded[0]
        return row

    def _measures(
        self, failures: Sequence[Failure], candidates: Sequence[Candidate], edits: Mapping[str, FloatArray]
    ) -> selection.Measures:
        images, texts = self._train
        by_id = {failure.failure_id: failure for failure in failures}
        query, false_positive, edited = (np.full((len(candidates), images.shape[1]), np.nan, np.float32) for _ in "123")
        for row, candidate in enumerate(candidates):
            failure = by_id[candidate.failure_id]
            if failure.direction is Direction.IMAGE_TO_TEXT:
                query[row] = images[self._bench.train.image_row[failure.query_id]]
                false_positive[row] = texts[self._bench.train.caption_row[failure.false_positive_id]]
            else:
                query[row] = texts[self._bench.train.caption_row[failure.query_id]]
                false_positive[row] = images[self._bench.train.image_row[failure.false_positive_id]]
            if candidate.key is not None and candidate.key in edits:
                edited[row] = edits[candidate.key]
        return selection.measure(query=query, false_positive=false_positive, candidate=edited)

    def made_embeddings(self, texts: Mapping[str, str], image_keys: Iterable[str]) -> dict[str, FloatArray]:
        """Base embeddings, unit length, of captions and images that the run made, by content hash.

        `texts`: the caption of each hash; an image that is gone or does not decode is left out, and that is said.
        """
        images = self.readable(set(image_keys))
        found: dict[str, FloatArray] = {}
        if texts:
            prepared = self.prepared_edited_texts(list(texts.values()))
            embedded = self._embedded.texts(self.encoder, list(texts), prepared, alone=True)
            found.update(zip(texts, embedded, strict=True))
        if images:
            prepared = self.prepared_edited_images(images)
            embedded = self._embedded.images(self.encoder, images, prepared, alone=True)
            found.update(zip(images, embedded, strict=True))
        return found

    def readable(self, keys: set[str]) -> list[str]:
        """Those of the edited images that are there and decode, sorted."""
        good = []
        for key in sorted(keys):
            try:
                decode(self._edited(key).read(), where=f"edited image {key}")
            except DataError as error:
                self._bench.progress.say(f"select: {error}")
                continue
            good.append(key)
        return good

    # ------------------------------------------------------------------------------------------ one by one

    def _edited(self, key: str) -> ImageItem:
        return ImageItem(key=key, content_hash=key, captions=(), read=lambda: edited_bytes(self._bench, key))

    def _prepare_images(self, items: Sequence[ImageItem], *, label: str) -> Array:
        with _counting(self._bench.progress, label) as progress:
            encoder = self._bench.plain_encoder
            return self._prepared.images(encoder, items, decode=decode, progress=progress)

    def _prepare_texts(self, texts: Sequence[str], *, label: str) -> Array:
        with _counting(self._bench.progress, label) as progress:
            return self._prepared.texts(self._bench.plain_encoder, texts, progress=progress)


def edited_bytes(bench: Workbench, key: str) -> bytes:
    """The bytes of an edited image. Raises DataError if they are gone."""
    data = bench.blobs.get(key)
    if data is None:
        raise DataError(f"edited image {key} is not in {bench.blobs.path}: run `repair edit` again")
    return data


def _items(bench: Workbench, catalogue: Catalogue) -> list[ImageItem]:
    return [image_item(catalogue, bench.source, row) for row in range(len(catalogue.image_ids))]


@contextmanager
def _counting(progress: Progress, label: str) -> Iterator[Callable[[int, int], None]]:
    """From "so many rows computed so far, of so many" to a task, shown from the first rows on: what a cache already
    held is in neither number, so rate and ETA are those of the work that is left."""
    with ExitStack() as stack:
        advance: Advance | None = None
        seen = 0

        def count(n_done: int, n_all: int) -> None:
            nonlocal advance, seen
            advance = advance or stack.enter_context(progress.task(label, n_all))
            advance(n_done - seen)
            seen = n_done

        yield count
