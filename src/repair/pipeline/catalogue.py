"""One split, indexed: ids, texts and who owns what, in the source's order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.ports import Case, ImageItem, Item, PairSource, TextItem
from repair.core.records import Direction, Failure


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Images 0 … n_images-1 and captions 0 … n_captions-1 of one split; `owner[c]` is the image of caption c."""

    split: str
    image_ids: tuple[str, ...]
    caption_ids: tuple[str, ...]
    texts: tuple[str, ...]
    owner: npt.NDArray[np.int64]
    image_row: Mapping[str, int]
    caption_row: Mapping[str, int]
    captions_of: tuple[tuple[int, ...], ...]

    def image_texts(self, row: int) -> tuple[str, ...]:
        return tuple(self.texts[caption] for caption in self.captions_of[row])


def build_catalogue(source: PairSource, split: str) -> Catalogue:
    """The split's index. Raises DataError if it is empty, and ConfigError if there is no such split."""
    pairs = source.pairs(split)
    if not pairs:
        raise DataError(f'split "{split}" has no usable pair; splits: {", ".join(source.splits())}')
    image_row: dict[str, int] = {}
    captions_of: list[list[int]] = []
    for position, pair in enumerate(pairs):
        row = image_row.setdefault(pair.image_id, len(image_row))
        if row == len(captions_of):
            captions_of.append([])
        captions_of[row].append(position)
    return Catalogue(
        split=split,
        image_ids=tuple(image_row),
        caption_ids=tuple(pair.caption_id for pair in pairs),
        texts=tuple(pair.text for pair in pairs),
        owner=np.array([image_row[pair.image_id] for pair in pairs], dtype=np.int64),
        image_row=image_row,
        caption_row={pair.caption_id: position for position, pair in enumerate(pairs)},
        captions_of=tuple(tuple(captions) for captions in captions_of),
    )


def build_case(failure: Failure, catalogue: Catalogue, source: PairSource) -> Case:
    """The failure with its contents, as backends see it."""
    if failure.direction is Direction.IMAGE_TO_TEXT:
        image = catalogue.image_row[failure.query_id]
        best = catalogue.caption_row[failure.ground_truth_id]
        others = [row for row in catalogue.captions_of[image] if row != best]
        query: Item = image_item(catalogue, source, image)
        false_positive: Item = text_item(catalogue, catalogue.caption_row[failure.false_positive_id])
        truths: Sequence[Item] = [text_item(catalogue, row) for row in (best, *others)]
    else:
        query = text_item(catalogue, catalogue.caption_row[failure.query_id])
        false_positive = image_item(catalogue, source, catalogue.image_row[failure.false_positive_id])
        truths = [image_item(catalogue, source, catalogue.image_row[failure.ground_truth_id])]
    return Case(
        failure_id=failure.failure_id,
        direction=failure.direction,
        query=query,
        false_positive=false_positive,
        ground_truths=tuple(truths),
    )


def image_item(catalogue: Catalogue, source: PairSource, row: int) -> ImageItem:
    image_id = catalogue.image_ids[row]
    return ImageItem(
        key=image_id,
        content_hash=source.image_hash(image_id),
        captions=catalogue.image_texts(row),
        read=lambda: source.read_image(image_id),
    )


def text_item(catalogue: Catalogue, row: int) -> TextItem:
    return TextItem(
        key=catalogue.caption_ids[row],
        text=catalogue.texts[row],
        image_captions=catalogue.image_texts(int(catalogue.owner[row])),
    )
