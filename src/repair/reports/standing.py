"""Where the items of a few failures rank in the train split, before and after training, counted as in mining.

Embedding a whole split only for a report can take longer than the training did, so a big one is ranked by a draw of its
images with all their captions; the failures' own items are always in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from repair.core.errors import RepairError
from repair.core.identity import derive_rng
from repair.core.images import decode
from repair.core.ports import FloatArray
from repair.core.records import Direction, Failure
from repair.encoders.caches import EmbeddingCache, PreparedCache, text_key
from repair.numerics.cosines import IntArray, Matches
from repair.numerics.similarity import NO_ITEM, search_both
from repair.pipeline.catalogue import Catalogue, image_item
from repair.pipeline.matches import labelled_matching
from repair.pipeline.stages_repair import mined_with
from repair.reports.view import RunView

N_DRAWN_IMAGES = 500


@dataclass(frozen=True, slots=True)
class Ranks:
    """Of the false positive and of the best ground truth; 1 is first. Items that match the query do not count."""

    false_positive: int
    ground_truth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """Ranks by failure id among `n_images` images and `n_captions` captions; empty where there is no such model."""

    n_images: int = 0
    n_captions: int = 0
    whole: bool = True  # of the train split
    before: Mapping[str, Ranks] = field(default_factory=dict)
    after: Mapping[str, Ranks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Gallery:
    """Rows of the catalogue that are ranked, ascending, and which of them match."""

    train: Catalogue
    images: IntArray
    captions: IntArray
    matches: Matches


def standings(view: RunView, round: int, failures: Sequence[Failure]) -> Standings:
    """With the weights that mined in `round`, and with those its training ended with. Empty if the data or the encoder
    cannot be had."""
    if view.source is None or not failures:
        return Standings()
    try:
        gallery = _gallery(view, round, failures)
        before = _ranks(gallery, failures, *_embedded(view, gallery, mined_with(round)))
        trained = (round, "train") in view.states
        after = _ranks(gallery, failures, *_embedded(view, gallery, round)) if trained else {}
    except RepairError:
        return Standings()
    return Standings(
        n_images=len(gallery.images),
        n_captions=len(gallery.captions),
        whole=len(gallery.images) == len(gallery.train.image_ids),
        before=before,
        after=after,
    )


def _gallery(view: RunView, round: int, failures: Sequence[Failure]) -> _Gallery:
    train = view.bench.train
    drawn = derive_rng(view.config.run.seed, "report", "ranked").permutation(len(train.image_ids))[:N_DRAWN_IMAGES]
    needed = {
        train.image_row[item] if item in train.image_row else int(train.owner[train.caption_row[item]])
        for f in failures
        for item in (f.query_id, f.false_positive_id, f.ground_truth_id)
    }
    images = np.unique([*drawn.tolist(), *needed])
    captions = np.flatnonzero(np.isin(train.owner, images))
    twins = np.array(view.twins(round), dtype=np.int64).reshape(-1, 2)
    matching = labelled_matching(view.bench, train, twins).pairs
    return _Gallery(train, images, captions, matching[images][:, captions])


def _embedded(view: RunView, gallery: _Gallery, after: int | None) -> tuple[FloatArray, FloatArray]:
    bench, train = view.bench, gallery.train
    prepared = PreparedCache(view.config.cache_path(), n_workers=view.config.run.n_workers)
    embedded = EmbeddingCache(view.config.cache_path())
    encoder = bench.encoder_after(after)
    items = [image_item(train, bench.source, row) for row in gallery.images.tolist()]
    texts = [train.texts[row] for row in gallery.captions.tolist()]
    image_rows = prepared.images(bench.plain_encoder, items, decode=decode)
    text_rows = prepared.texts(bench.plain_encoder, texts)
    return (
        embedded.images(encoder, [item.content_hash for item in items], image_rows),
        embedded.texts(encoder, [text_key(text) for text in texts], text_rows),
    )


def _ranks(gallery: _Gallery, failures: Sequence[Failure], images: FloatArray, texts: FloatArray) -> dict[str, Ranks]:
    train, found = gallery.train, dict[str, Ranks]()
    for direction in Direction:
        own = [failure for failure in failures if failure.direction is direction]
        if not own:
            continue
        asks_image = direction is Direction.IMAGE_TO_TEXT
        query_row, item_row = train.image_row, train.caption_row
        queries, items, matches = images, texts, gallery.matches
        places, item_places = gallery.images, gallery.captions
        if not asks_image:
            query_row, item_row = item_row, query_row
            queries, items, matches = items, queries, matches.T.tocsr()
            places, item_places = item_places, places
        rows = [query_row[failure.query_id] for failure in own]
        truths = [train.captions_of[row] if asks_image else (int(train.owner[row]),) for row in rows]
        probes = _probes([item_row[f.false_positive_id] for f in own], truths, item_places)
        asked = np.searchsorted(places, rows)
        ranks = search_both(queries[asked], items, k=0, matches=matches[asked], row_probes=probes).rows.probe_ranks
        for failure, line, truth in zip(own, ranks, truths, strict=True):
            found[failure.failure_id] = Ranks(int(line[0]), int(line[1 : 1 + len(truth)].min()))
    return found


def _probes(
    false_positives: Sequence[int], truths: Sequence[tuple[int, ...]], item_places: IntArray
) -> npt.NDArray[np.int64]:
    """A row a failure: its false positive, then its own items, as places in the gallery; filled up with "none"."""
    probes = np.full((len(truths), 1 + max(map(len, truths))), NO_ITEM, dtype=np.int64)
    for row, (false_positive, truth) in enumerate(zip(false_positives, truths, strict=True)):
        probes[row, : 1 + len(truth)] = np.searchsorted(item_places, [false_positive, *truth])
    return probes
