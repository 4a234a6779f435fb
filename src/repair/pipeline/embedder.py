"""A model by name, and its embeddings through the caches: what `repair eval --model` works with."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repair.core.errors import ConfigError, DataError
from repair.core.images import decode
from repair.core.ports import Array, DualEncoder, FloatArray, ImageItem, PairSource, TrainableEncoder
from repair.core.progress import Progress
from repair.encoders.caches import EmbeddingCache, PreparedCache, text_key
from repair.pipeline import registries
from repair.pipeline.catalogue import build_catalogue, image_item
from repair.pipeline.places import config_of
from repair.store.run_folder import RunFolder, is_run_folder


class CachedEmbedder:
    """An `evaluation.embedding.Embedder` over a DualEncoder; prepared inputs and embeddings are kept below `cache`."""

    def __init__(self, encoder: DualEncoder, *, cache: Path, n_workers: int, progress: Progress) -> None:
        self.encoder = encoder
        self._prepared = PreparedCache(cache, n_workers=n_workers)
        self._embedded = EmbeddingCache(cache)
        self._progress = progress

    def images(self, items: Sequence[ImageItem], *, label: str) -> FloatArray:
        """(n, dim) unit rows. Raises DataError naming the image if one cannot be decoded."""
        with self._progress.task(label, len(items)) as advance:
            prepared = self._prepared.images(self.encoder, items, decode=decode, progress=_steps(advance))
        rows = self._embedded.images(self.encoder, [item.content_hash for item in items], prepared)
        return self._checked(rows, [item.key for item in items], what="image")

    def texts(self, texts: Sequence[str], *, label: str) -> FloatArray:
        """(n, dim) unit rows."""
        with self._progress.task(label, len(texts)) as advance:
            prepared = self._prepared.texts(self.encoder, texts, progress=_steps(advance))
        return self._checked(
            self._embedded.texts(self.encoder, [text_key(text) for text in texts], prepared), texts, what="text"
        )

    def prepared(self, source: PairSource, split: str) -> tuple[Array, Array, Array]:
        """What heads are fitted on: (n_images, …), (n_captions, …) and the image row of each caption."""
        catalogue = build_catalogue(source, split)
        items = [image_item(catalogue, source, row) for row in range(len(catalogue.image_ids))]
        with self._progress.task(f"fit on {split}", len(items)) as advance:
            images = self._prepared.images(self.encoder, items, decode=decode, progress=_steps(advance))
        return images, self._prepared.texts(self.encoder, catalogue.texts), np.asarray(catalogue.owner)

    def _checked(self, rows: FloatArray, names: Sequence[str], *, what: str) -> FloatArray:
        """Raises DataError naming the item whose vector is not finite, or the dimension that is not the model's."""
        name, dim = self.encoder.name, self.encoder.dim
        if rows.ndim != 2 or rows.shape[1] != dim:
            raise DataError(f"encoder {name}: {what} vectors of shape {rows.shape}, must have {dim} columns")
        finite = np.isfinite(rows).all(axis=1)
        if not finite.all():
            worst = names[int(finite.argmin())]
            raise DataError(
                f"encoder {name}: {int((~finite).sum())} of {len(rows)} {what} vectors hold NaN or infinity, the "
                f'first that of {what} "{worst}": its weights are broken, or overflow in half precision'
            )
        return rows

    def n_cut(self, texts: Sequence[str]) -> int:
        return self.encoder.n_cut(texts)


def open_model(spec: str) -> DualEncoder:
    """The encoder of a spec: a registered name with its options, or the folder of a run.

    "small", "towers:CHECKPOINT", "open_clip:MODEL", "towers(checkpoint=…)"; "runs/demo" is the run's encoder with the
    weights it ended with, "runs/demo@base" with those it began with, "runs/demo@round-0" after that round.
    Raises ConfigError for a spec that cannot be read, StoreError for weights that are not there.
    """
    path, _, when = spec.partition("@")
    if is_run_folder(Path(path)):
        return _of_run(Path(path), when)
    if not {"(", ":"} & set(path) and ("/" in path or when):
        raise ConfigError(
            f'no run at "{path}": a model is an encoder ({", ".join(registries.ENCODERS.entries)}, as NAME:WHAT or '
            "NAME(option=…)) or the folder of a run, which holds run.json"
        )
    encoder: DualEncoder = registries.ENCODERS.build(spec)
    return encoder


def made_of(spec: str) -> tuple[str, Mapping[str, Any]]:
    """Name and options of the encoder that `open_model(spec)` builds."""
    path = Path(spec.partition("@")[0])
    if is_run_folder(path):
        section = config_of(RunFolder.view(path)).encoder
        return section.name, section.options
    return registries.ENCODERS.parse(spec)


def _of_run(path: Path, when: str) -> TrainableEncoder:
    folder = RunFolder.view(path)
    config = config_of(folder)
    encoder: TrainableEncoder = registries.ENCODERS.build(
        config.encoder.name, options=config.encoder.options, seed=config.run.seed
    )
    rounds = sorted(path.glob("round-*/weights"), key=lambda p: int(p.parent.name.removeprefix("round-")))
    places = {"base": path / "base", **{place.parent.name: place for place in rounds}}
    chosen = when or (rounds[-1].parent.name if rounds else "base")
    if chosen == "base" and not places["base"].is_dir():
        return encoder  # its own weights are where the run began
    if chosen not in places or not places[chosen].is_dir():
        raise ConfigError(f'run {path} has no weights "{chosen}": it has {", ".join(places)}')
    encoder.load_weights(str(places[chosen]))
    return encoder


def _steps(advance: Callable[..., None]) -> Callable[[int, int], None]:
    """From "so many rows computed so far" to "so many more"."""
    seen = 0

    def progress(n_done: int, n_all: int) -> None:  # noqa: ARG001
        nonlocal seen
        advance(n_done - seen)
        seen = n_done

    return progress
