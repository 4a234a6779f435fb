"""The model's similarities of a few chosen items, with the weights before and after a round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from repair.core.errors import RepairError
from repair.core.identity import derive_rng
from repair.core.images import decode
from repair.core.ports import FloatArray, ImageItem
from repair.core.records import Grid
from repair.encoders.caches import PreparedCache
from repair.pipeline.stages_repair import mined_with
from repair.reports.pictures import Pictures
from repair.reports.view import EDIT, RunView

_MAX_RANKED_ITEMS = 60_000  # images and captions of a train split that a report embeds to say where items rank now
_N_JUDGED_GRIDS = 200


@dataclass(frozen=True, slots=True)
class Vectors:
    """Unit vectors of some items by key, in the space of one model."""

    images: Mapping[str, FloatArray]
    texts: Mapping[str, FloatArray]

    def score(self, image: str, text: str) -> float | None:
        """Their cosine; None if one of them could not be embedded."""
        if image not in self.images or text not in self.texts:
            return None
        return float(np.dot(self.images[image].astype(np.float64), self.texts[text].astype(np.float64)))


def vectors(view: RunView, after: int | None, *, images: Iterable[str], texts: Mapping[str, str]) -> Vectors:
    """Embeddings of images (ids or content hashes) and texts (by key) with the weights after a round (None: before
    any). Images that cannot be read are left out. Raises RepairError if the encoder cannot be had."""
    bench, pictures = view.bench, Pictures(view)
    encoder = bench.encoder_after(after)
    prepared = PreparedCache(view.config.cache_path(), n_workers=view.config.run.n_workers)
    items = []
    for key in sorted(set(images)):
        data = pictures.data(key)
        if data is not None:
            digest = key if key.startswith(EDIT) else bench.source.image_hash(key)
            items.append(ImageItem(key=key, content_hash=digest, captions=(), read=partial(bytes, data)))
    keys = sorted(texts)
    image_rows = encoder.embed_images(prepared.images(bench.plain_encoder, items, decode=decode))
    text_rows = encoder.embed_texts(prepared.texts(bench.plain_encoder, [texts[key] for key in keys]))
    return Vectors(
        images=dict(zip([item.key for item in items], image_rows, strict=True)),
        texts=dict(zip(keys, text_rows, strict=True)),
    )


def before_and_after(
    view: RunView, round: int, *, images: Sequence[str], texts: Mapping[str, str]
) -> tuple[Vectors | None, Vectors | None]:
    """With the weights that mined in `round`, and with those its training ended with; None where there are none."""
    if view.source is None:
        return None, None
    try:
        before = vectors(view, mined_with(round), images=images, texts=texts)
        after = vectors(view, round, images=images, texts=texts) if (round, "train") in view.states else None
    except RepairError:
        return None, None
    return before, after


# ---------------------------------------------------------------------------------------------- grids


def judged_grids(view: RunView, round: int) -> list[Grid]:
    """The grids whose rows and columns are judged: a seeded draw."""
    grids = view.table(round, Grid)
    order = derive_rng(view.config.run.seed, "report", "judged grids", round).permutation(len(grids))
    return [grids[i] for i in sorted(order[:_N_JUDGED_GRIDS].tolist())]


def grid_accuracy(grids: Sequence[Grid], known: Vectors) -> dict[str, Any] | None:
    """Of these grids' rows (images) and columns (captions), the share whose true cell scores strictly highest."""
    rows = columns = n = 0
    for grid in grids:
        cells = grid_scores(grid, known)
        if cells is None:
            continue
        n += 1
        for i in range(3):
            others = [j for j in range(3) if j != i]
            rows += all(cells[i][i] > cells[i][j] for j in others)
            columns += all(cells[i][i] > cells[j][i] for j in others)
    return {"n_grids": n, "rows": rows / (3 * n), "columns": columns / (3 * n)} if n else None


def grid_scores(grid: Grid, known: Vectors) -> list[list[float]] | None:
    """The nine cosines, a row for each image; None if an item is missing."""
    cells = [[known.score(image, text) for text in grid.texts] for image in grid.images]
    if any(cell is None for row in cells for cell in row):
        return None
    return [[float(cell) for cell in row if cell is not None] for row in cells]
