"""What a run made for training, gathered for export: its grids, their pairs, and what is false beside each."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from repair.config import Config
from repair.core.errors import ConfigError, DataError
from repair.core.records import Grid, Repair
from repair.pipeline.places import BLOBS, calls_file, config_of, no_calls_file
from repair.pipeline.sources import open_source
from repair.store.blobs import BlobStore
from repair.store.run_folder import RunFolder
from repair.store.tables import read_table


@dataclass(frozen=True, slots=True)
class TruePair:
    """An image and a caption that fits it, by key; `false_captions` and `false_pairs` are wrong for them in some grid:
    captions of the image, and pairs (by position) whose image is wrong for the caption."""

    image: str
    caption: str
    text: str
    false_captions: tuple[str, ...]  # keys
    false_pairs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Material:
    """`grids` without repeats and the `pairs` on their diagonals, in the order of the steps; `texts` by caption key;
    `read` gives an image's encoded bytes."""

    config: Config
    folder: RunFolder
    round: int
    grids: tuple[Grid, ...]
    pairs: tuple[TruePair, ...]
    texts: dict[str, str]
    read: Callable[[str], bytes]


def last_round(folder: RunFolder, stage: str) -> int:
    """The last round in which `stage` has finished. Raises ConfigError if there is none."""
    done = [state.round for state in folder.states() if state.stage == stage and state.round is not None]
    if not done:
        raise ConfigError(f"{folder.path}: stage {stage} has not finished in any round: `repair {stage}` runs up to it")
    return max(done)


def gather(run: Path, round: int | None) -> Material:
    """The grids of a round (None: the last) with their contents.

    Raises ConfigError if the run has none, DataError or StoreError if something cannot be read.
    """
    folder = RunFolder.view(run)
    config = config_of(folder)
    number = last_round(folder, "grids") if round is None else round
    place = folder.folder(number) / "grids.parquet"
    drawn = read_table(place, Grid) if place.exists() else []
    if not drawn:
        raise ConfigError(f"{run}: round {number} has no grids to export (training.loss=vanilla makes none)")
    grids = tuple({(grid.images, grid.texts): grid for grid in reversed(drawn)}.values())[::-1]
    source = open_source(config)
    texts = {pair.caption_id: pair.text for pair in source.pairs(config.data.train_split)}
    originals = {pair.image_id for pair in source.pairs(config.data.train_split)}
    for earlier in range(number + 1):
        for repair in read_table(folder.folder(earlier) / "repairs.parquet", Repair):
            if repair.key is not None and repair.text is not None:
                texts[repair.key] = repair.text
    blobs = calls_file(folder, config, BLOBS)

    def read(key: str) -> bytes:
        if key in originals:
            return source.read_image(key)
        if blobs is None:
            raise DataError(f"edited image {key}: {no_calls_file(folder, config, BLOBS)}")
        with closing(BlobStore.view(blobs)) as store:
            data = store.get(key)
        if data is None:
            raise DataError(f"edited image {key} is not in {blobs}: run `repair edit` again")
        return data

    return Material(config, folder, number, grids, true_pairs(grids, texts), texts, read)


def true_pairs(grids: tuple[Grid, ...], texts: dict[str, str]) -> tuple[TruePair, ...]:
    """The distinct pairs on the grids' diagonals, each with what stands off the diagonal beside it."""
    places: dict[tuple[str, str], int] = {}
    for grid in grids:
        for pair in zip(grid.images, grid.texts, strict=True):
            places.setdefault(pair, len(places))
    false_captions: list[dict[str, None]] = [{} for _ in places]
    false_pairs: list[dict[int, None]] = [{} for _ in places]
    for grid in grids:
        diagonal = [places[pair] for pair in zip(grid.images, grid.texts, strict=True)]
        for own in range(3):
            for other in range(3):
                if own != other:
                    false_captions[diagonal[own]][grid.texts[other]] = None
                    false_pairs[diagonal[own]][diagonal[other]] = None
    return tuple(
        TruePair(image, caption, texts[caption], tuple(false_captions[place]), tuple(false_pairs[place]))
        for (image, caption), place in places.items()
    )
