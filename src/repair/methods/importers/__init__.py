"""Samples that other projects released, brought to the captions and images of a split.

    FORMAT        file                                                     gives
    negclip       TSV with title, filepath, neg_caption, neg_image         negative captions, neighbours
    sugarcrepe    JSON {id: {filename, caption, negative_caption}}         negative captions
    coco_cf       JSONL of id, caption_0/1, image_0/1, or CSV of pairs     counterfactual pairs
    cs_clip       JSON of entities, relations and their negatives          units, a negative caption of a foil
    laclip        .txt, a rewrite a line, beside a headerless .csv         positive captions
    tripletclip   WebDataset .tar files, or a folder of them               counterfactual pairs

A released row belongs to the caption of the split with its image and text; where its image is named otherwise, to the
only caption with its text. Rows that belong to none are counted, never guessed; one that may mean two images of equal
name is refused.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from repair.core.errors import ConfigError, suggest
from repair.core.records import Pair
from repair.methods.importers.captions import read_csclip, read_laclip, read_negclip, read_sugarcrepe
from repair.methods.importers.owners import Imported, Owners
from repair.methods.importers.pairs import read_cococf, read_tripletclip

FORMATS: dict[str, Callable[[Path, Owners], Imported]] = {
    "negclip": read_negclip,
    "sugarcrepe": read_sugarcrepe,
    "coco_cf": read_cococf,
    "cs_clip": read_csclip,
    "laclip": read_laclip,
    "tripletclip": read_tripletclip,
}


def import_released(format: str, path: Path, pairs: Sequence[Pair]) -> Imported:
    """Samples from a released file. Raises ConfigError for an unknown format and DataError, naming file and place, for
    one that cannot be read."""
    if format not in FORMATS:
        raise ConfigError(f'unknown format of released samples "{format}": {suggest(format, FORMATS)}')
    return FORMATS[format](path, Owners(pairs))


__all__ = ["FORMATS", "Imported", "import_released"]
