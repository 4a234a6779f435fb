"""What one step trains on: a pure function of the seed and the step, so that resuming needs no sampler state."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from repair.core.errors import TrainingError
from repair.core.identity import derive_rng
from repair.core.records import Grid, Pair
from repair.training.matching import MatchTable

Loss = Literal["local_grids", "full_matrix", "local_and_full", "vanilla"]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Distinct items, each encoded once, and how they are contrasted; indices point into `image_keys`, `text_keys`.

    The P pairs (`pair_images[i]`, `pair_texts[i]`) meet in one softmax; `pair_matches` (P, P) says which image and text
    of them match, the diagonal included. Each of the G grids is a softmax of its own: row r and column c are
    `grid_images[g, r]` and `grid_texts[g, c]`.
    """

    step: int
    image_keys: tuple[str, ...]
    text_keys: tuple[str, ...]
    pair_images: Indices  # (P,)
    pair_texts: Indices  # (P,)
    pair_matches: npt.NDArray[np.bool_]  # (P, P)
    grid_images: Indices  # (G, 3)
    grid_texts: Indices  # (G, 3)
    n_pairs: int  # B + 3 × grids_per_step, whatever the loss: the budget of encoded pairs


class Batches:
    """The batch of any step, 0 ≤ step.

    Global pairs: a drawn order of all images each epoch, cut into batches, what is left over dropped; of each image one
    of its own captions, drawn. So no two captions of one image are in a batch; equal captions and near-duplicate images
    may be, and are masked by `matches`.

    Every mode encodes the same number of pairs, one image and one caption each: B + 3G, with B = `batch_pairs` and
    G = `grids_per_step`:

    - local_grids: B global pairs in one softmax, the step's G grids each in its own;
    - local_and_full: these grids, and the 3G pairs on their diagonals also beside the B pairs in the one softmax (ours:
      a softmax of three never sees an item that is near everything);
    - full_matrix: the same B pairs and the 3G pairs on the grids' diagonals, all in one softmax, no grid of its own
      (ablation Full Matrix);
    - vanilla: B + 3G global pairs, no grids.

    An item that occurs twice in a batch is encoded once. Items of grids repeat and those of vanilla do not, so vanilla
    never encodes fewer. Raises TrainingError if there are too few images for a batch, or too few grids.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        grids: Iterable[Grid],
        *,
        matches: MatchTable,
        loss: Loss,
        n_steps: int,
        batch_pairs: int,
        grids_per_step: int,
        seed: int,
    ) -> None:
        self.loss = loss
        self.n_pairs = batch_pairs + 3 * grids_per_step
        self.n_global = self.n_pairs if loss == "vanilla" else batch_pairs
        self._matches = matches
        self._seed = seed
        self._captions: dict[str, list[str]] = {}
        for pair in pairs:
            self._captions.setdefault(pair.image_id, []).append(pair.caption_id)
        self._images = tuple(self._captions)
        if len(self._images) < self.n_global:
            raise TrainingError(
                f"a batch needs {self.n_global} distinct images, the split has {len(self._images)}: lower "
                "training.batch_pairs or training.grids_per_step"
            )
        self._grids = _by_step(grids, n_steps, grids_per_step) if loss != "vanilla" else {}
        self._epoch: tuple[int, list[tuple[str, str]]] = (-1, [])

    def __call__(self, step: int) -> Batch:
        chosen = self._global_pairs(step)
        grids = self._grids.get(step, [])
        if self.loss in ("full_matrix", "local_and_full"):
            chosen = chosen + [pair for grid in grids for pair in zip(grid.images, grid.texts, strict=True)]
        if self.loss == "full_matrix":
            grids = []
        images, texts = _Numbered(), _Numbered()
        pair_images = [images[image] for image, _ in chosen]
        pair_texts = [texts[text] for _, text in chosen]
        grid_images = [[images[key] for key in grid.images] for grid in grids]
        grid_texts = [[texts[key] for key in grid.texts] for grid in grids]
        matches = self._matches.mask([image for image, _ in chosen], [text for _, text in chosen])
        np.fill_diagonal(matches, True)
        return Batch(
            step=step,
            image_keys=tuple(images),
            text_keys=tuple(texts),
            pair_images=np.array(pair_images, dtype=np.int64),
            pair_texts=np.array(pair_texts, dtype=np.int64),
            pair_matches=matches,
            grid_images=np.array(grid_images, dtype=np.int64).reshape(-1, 3),
            grid_texts=np.array(grid_texts, dtype=np.int64).reshape(-1, 3),
            n_pairs=self.n_pairs,
        )

    def keys(self, n_steps: int) -> tuple[set[str], set[str]]:
        """Every image and text key the first `n_steps` batches can hold."""
        grids = [grid for step in range(n_steps) for grid in self._grids.get(step, [])]
        images = {key for grid in grids for key in grid.images} | set(self._images)
        texts = {key for grid in grids for key in grid.texts}
        return images, texts | {text for own in self._captions.values() for text in own}

    def _global_pairs(self, step: int) -> list[tuple[str, str]]:
        n_batches = len(self._images) // self.n_global
        epoch, place = divmod(step, n_batches)
        if self._epoch[0] != epoch:
            rng = derive_rng(self._seed, "anchors", epoch)
            order = rng.permutation(len(self._images)).tolist()
            draws = rng.random(len(order)).tolist()
            self._epoch = (epoch, [self._pair(row, draws[row]) for row in order])
        return self._epoch[1][place * self.n_global : (place + 1) * self.n_global]

    def _pair(self, row: int, draw: float) -> tuple[str, str]:
        image = self._images[row]
        captions = self._captions[image]
        return image, captions[int(draw * len(captions))]


class _Numbered(dict[str, int]):
    """Keys numbered in the order in which they are first asked for."""

    def __missing__(self, key: str) -> int:
        self[key] = number = len(self)
        return number


def _by_step(grids: Iterable[Grid], n_steps: int, grids_per_step: int) -> Mapping[int, list[Grid]]:
    found: dict[int, list[Grid]] = {}
    for grid in grids:
        found.setdefault(grid.step, []).append(grid)
    for step in range(n_steps if grids_per_step else 0):
        of_step = found.get(step, [])
        if len(of_step) != grids_per_step:
            raise TrainingError(f"step {step} has {len(of_step)} grids, training.grids_per_step is {grids_per_step}")
        of_step.sort(key=lambda grid: grid.index)
    return found if grids_per_step else {}
