"""The batch of any step for any method: a pure function of the seed and the step, at most so many items to encode."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from repair.core.composition import Composition
from repair.core.errors import TrainingError
from repair.core.identity import derive_rng, hash_value
from repair.core.records import Pair
from repair.core.synthesis import Sample, SampleKind
from repair.training.batches import Batch, Indices
from repair.training.compositions.index import SampleIndex
from repair.training.matching import MatchTable

Mask = npt.NDArray[np.bool_]
_MISSING = -1
_VERSION = 2  # raise it whenever the same samples give other batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The k-th unit of those rows that have one: indices of rows, of texts and of foils, and what matches."""

    rows: Indices  # (n,)
    units: Indices  # (n,)
    foils: Indices  # (n,)
    matches: Mask  # (n, n): image of row i, unit j


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedBatch(Batch):
    """A `Batch` whose pairs are the rows, with what stands beside them. Indices point into the keys; no grids."""

    composition: Composition
    more_texts: Indices  # (M,): further columns of the images' softmax
    more_text_matches: Mask  # (P, M)
    more_images: Indices  # (K,): further columns of the captions' softmax
    more_image_matches: Mask  # (P, K): caption i, further image j
    negatives: Indices  # (P, negatives): own T⁻ of each row, -1 where missing
    triplet_images: Indices  # (Q,)
    triplet_texts: Indices  # (Q,)
    triplet_matches: Mask  # (Q, Q)
    cross_matches: Mask  # (P, Q): image of row i, text of triplet j
    crossed_back: Mask  # (Q, P): image of triplet i, caption of row j
    views: Indices  # (V, 2)
    units: tuple[Units, ...]


@dataclass(slots=True)
class _Row:
    image: str
    text: str
    negatives: list[str | None] = field(default_factory=list)
    negative_images: list[str] = field(default_factory=list)
    triplet: Sample | None = None
    views: tuple[str, str] | None = None
    units: list[Sample] = field(default_factory=list)

    def keys(self) -> tuple[list[str], list[str]]:
        images = [self.image, *self.negative_images, *(self.views or ())]
        texts = [self.text, *(key for key in self.negatives if key is not None)]
        if self.triplet is not None:
            images.append(str(self.triplet.image_key))
            texts.append(str(self.triplet.text_key))
        for unit in self.units:
            texts += [str(unit.text_key), *([unit.foil_key] if unit.foil_key is not None else [])]
        return images, texts


class ComposedBatches:
    """The batch of any step, 0 ≤ step, for a method whose samples are given.

    Every method is dealt the same images at each step as Vanilla, and takes as many rows of them, in order, as encode
    at most `n_items` distinct images and captions: 2 (B + 3G), what RePair's batch of B pairs and G grids encodes. Of
    an image one caption is drawn, as for Vanilla, whether or not it has samples: all captions go on to be trained on.
    Under "pooled" pairs, the pairs are dealt like images. Raises TrainingError if there are too few images.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        samples: Iterable[Sample],
        composition: Composition,
        *,
        matches: MatchTable,
        n_items: int,
        seed: int,
    ) -> None:
        self.composition = composition
        self.index = SampleIndex(samples)
        self.n_pairs = n_items // 2
        self._n_items = n_items
        self._matches = matches
        self._seed = seed
        self._captions: dict[str, list[str]] = {}
        for pair in pairs:
            self._captions.setdefault(pair.image_id, []).append(pair.caption_id)
        self._pool: tuple[str | Sample, ...] = tuple(self._captions)
        if composition.pairs == "pooled":
            self._pool += tuple(self.index.all_of(SampleKind.PAIR))
        if len(self._pool) < self.n_pairs:
            raise TrainingError(
                f"a batch needs {self.n_pairs} distinct images, the split has {len(self._pool)}: lower "
                "training.batch_pairs or training.grids_per_step"
            )
        self._epoch: tuple[int, list[tuple[str | Sample, float]]] = (-1, [])

    @property
    def identity(self) -> str:
        """Content hash of all that decides its batches."""
        rows = [[s.sample_id, s.kind, s.text_key, s.foil_key, s.image_key] for s in self.index.samples]
        return hash_value([_VERSION, self.composition.to_json(), rows, self._n_items, self._seed])

    def keys(self, n_steps: int) -> tuple[set[str], set[str]]:  # noqa: ARG002 - any step may draw any sample
        """Every image and text key a batch can hold."""
        images = set(self._captions) | self.index.image_keys()
        return images, {text for own in self._captions.values() for text in own} | set(self.index.texts())

    def __call__(self, step: int) -> ComposedBatch:
        rng = derive_rng(self._seed, "composition", step)
        rows: list[_Row] = []
        images: dict[str, None] = {}
        texts: dict[str, None] = {}
        for entry, draw in self._dealt(step):
            taken = self._rows_of(entry, draw, rng)
            new_images = dict.fromkeys(key for row in taken for key in row.keys()[0])
            new_texts = dict.fromkeys(key for row in taken for key in row.keys()[1])
            if len(images | new_images) + len(texts | new_texts) > self._n_items:
                break
            images |= new_images
            texts |= new_texts
            rows += taken
        return self._batch(step, rows, images, texts)

    # ------------------------------------------------------------------------------------------ rows

    def _dealt(self, step: int) -> list[tuple[str | Sample, float]]:
        """The images (or pooled pairs) of a step, in order, each with a number in [0, 1) that draws its caption."""
        epoch, place = divmod(step, len(self._pool) // self.n_pairs)
        if self._epoch[0] != epoch:
            rng = derive_rng(self._seed, "anchors", epoch)
            order = rng.permutation(len(self._pool)).tolist()
            draws = rng.random(len(order)).tolist()
            self._epoch = (epoch, [(self._pool[row], draws[row]) for row in order])
        return self._epoch[1][place * self.n_pairs : (place + 1) * self.n_pairs]

    def _rows_of(self, entry: str | Sample, draw: float, rng: np.random.Generator) -> list[_Row]:
        if isinstance(entry, Sample):
            return [_Row(str(entry.image_key), str(entry.text_key))]
        wanted, index = self.composition, self.index
        row = self._row(entry, draw, rng)
        caption = row.text
        rows = [row]
        if wanted.neighbours:
            near = _some(index.of_image(SampleKind.NEIGHBOUR, entry), 1, rng)
            rows += [self._row(str(sample.image_key), float(rng.random()), rng) for sample in near]
        if wanted.pairs in ("together", "triplet"):
            for pair in _some(index.of_caption(SampleKind.PAIR, caption), 1, rng):
                if wanted.pairs == "triplet":
                    row.triplet = pair
                else:
                    rows.append(_Row(str(pair.image_key), str(pair.text_key)))
        hard = _some(index.of_caption(SampleKind.NEGATIVE_IMAGE, caption), wanted.negative_images, rng)
        row.negative_images = [str(sample.image_key) for sample in hard]
        row.units = _some(index.of_caption(SampleKind.UNIT, caption), wanted.units, rng)
        if wanted.views:
            views = [str(sample.image_key) for sample in _some(index.of_image(_SHOWN, entry), 2, rng)]
            if views:
                row.views = (views[0], views[1] if len(views) > 1 else entry)
        if wanted.edited_images:
            row.image = _one_of([entry, *(str(s.image_key) for s in index.of_caption(_SHOWN, caption))], rng)
        if wanted.rewrites:
            rewrites = index.of_caption(SampleKind.POSITIVE_CAPTION, caption)
            row.text = _one_of([caption, *(str(sample.text_key) for sample in rewrites)], rng)
        return rows

    def _row(self, image: str, draw: float, rng: np.random.Generator) -> _Row:
        """An image with one of its captions and that caption's own T⁻."""
        wanted = self.composition
        own = self._captions[image]
        caption = own[int(draw * len(own))]
        found = self.index.of_caption(SampleKind.NEGATIVE_CAPTION, caption)
        negatives: list[str | None] = []
        if wanted.types:
            for kind in wanted.types:
                typed = _some([sample for sample in found if sample.how == kind], 1, rng)
                negatives.append(typed[0].text_key if typed else None)
        else:
            negatives += [sample.text_key for sample in _some(found, wanted.negatives, rng)]
        return _Row(image, caption, negatives=negatives)

    # ------------------------------------------------------------------------------------------ arrays

    def _batch(self, step: int, rows: list[_Row], images: dict[str, None], texts: dict[str, None]) -> ComposedBatch:
        wanted, mask = self.composition, self._matches.mask
        image_at = {key: place for place, key in enumerate(images)}
        text_at = {key: place for place, key in enumerate(texts)}
        own_images, own_texts = [row.image for row in rows], [row.text for row in rows]
        matches = mask(own_images, own_texts)
        np.fill_diagonal(matches, True)
        columns = dict.fromkeys(key for row in rows for key in row.negatives if key) if wanted.columns else {}
        hard = list(dict.fromkeys(key for row in rows for key in row.negative_images))
        triplets = [row.triplet for row in rows if row.triplet is not None]
        triplet_images = [str(sample.image_key) for sample in triplets]
        triplet_texts = [str(sample.text_key) for sample in triplets]
        triplet_matches = mask(triplet_images, triplet_texts)
        np.fill_diagonal(triplet_matches, True)
        padded = [[*row.negatives, *[None] * (wanted.negatives - len(row.negatives))] for row in rows]
        negatives = [[_MISSING if key is None else text_at[key] for key in row] for row in padded]
        # A T⁻ in the words of a caption of the image is no negative of it.
        for place, (row, keys) in enumerate(zip(rows, padded, strict=True)):
            for column, key in enumerate(keys):
                if key is not None and self._matches(row.image, key):
                    negatives[place][column] = _MISSING
        return ComposedBatch(
            step=step,
            image_keys=tuple(images),
            text_keys=tuple(texts),
            pair_images=_indices(image_at[key] for key in own_images),
            pair_texts=_indices(text_at[key] for key in own_texts),
            pair_matches=matches,
            grid_images=np.zeros((0, 3), dtype=np.int64),
            grid_texts=np.zeros((0, 3), dtype=np.int64),
            n_pairs=self.n_pairs,
            composition=wanted,
            more_texts=_indices(text_at[key] for key in columns),
            more_text_matches=mask(own_images, list(columns)),
            more_images=_indices(image_at[key] for key in hard),
            more_image_matches=mask(hard, own_texts).T,
            negatives=np.array(negatives, dtype=np.int64).reshape(len(rows), wanted.negatives),
            triplet_images=_indices(image_at[key] for key in triplet_images),
            triplet_texts=_indices(text_at[key] for key in triplet_texts),
            triplet_matches=triplet_matches,
            cross_matches=mask(own_images, triplet_texts),
            crossed_back=mask(triplet_images, own_texts),
            views=_indices(image_at[key] for row in rows for key in row.views or ()).reshape(-1, 2),
            units=tuple(self._units(k, rows, text_at) for k in range(wanted.units)),
        )

    def _units(self, k: int, rows: list[_Row], text_at: dict[str, int]) -> Units:
        having = [place for place, row in enumerate(rows) if len(row.units) > k]
        units = [rows[place].units[k] for place in having]
        keys = [str(unit.text_key) for unit in units]
        matches = self._matches.mask([rows[place].image for place in having], keys)
        np.fill_diagonal(matches, True)
        return Units(
            rows=_indices(having),
            units=_indices(text_at[key] for key in keys),
            foils=_indices(_MISSING if unit.foil_key is None else text_at[unit.foil_key] for unit in units),
            matches=matches,
        )


_SHOWN = SampleKind.POSITIVE_IMAGE


def _some(samples: Sequence[Sample], n: int, rng: np.random.Generator) -> list[Sample]:
    """Up to `n` of them, drawn without repeats; nothing is drawn where there is no choice."""
    if n == 0 or not samples:
        return []
    if len(samples) <= n:
        return list(samples)
    return [samples[int(place)] for place in rng.permutation(len(samples))[:n]]


def _one_of(keys: Sequence[str], rng: np.random.Generator) -> str:
    return keys[int(rng.random() * len(keys))]


def _indices(values: Iterable[int]) -> Indices:
    return np.array(list(values), dtype=np.int64)
