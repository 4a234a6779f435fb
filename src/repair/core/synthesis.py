"""Synthetic training items of any method, and what methods ask of models: a caption written, an image made.

RePair's own edits travel as repairs, links and grids (`core.records`); every other method's travel as samples.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from repair.core.ports import ImageItem, Reply


class SampleKind(StrEnum):
    """What a sample is to its anchor, an image with one of its captions."""

    POSITIVE_CAPTION = "positive_caption"  # T⁺: says the same
    NEGATIVE_CAPTION = "negative_caption"  # T⁻: false of the image
    POSITIVE_IMAGE = "positive_image"  # I⁺: fits the caption
    NEGATIVE_IMAGE = "negative_image"  # I⁻: does not fit the caption
    PAIR = "counterfactual_pair"  # T⁻ and I⁻ that fit each other
    UNIT = "unit"  # T⁺ and T⁻: a part of the caption, and its foil
    NEIGHBOUR = "neighbour_image"  # an original image close to the anchor's; nothing synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One synthetic item of an anchor. Text and image are given by key, as everywhere: a content hash for what was
    made, an id for an original. `foil` belongs to units only. `rejected` says why quality control dropped it; such rows
    stay on record and are never trained on. Calls made for it are in the ledger under `sample_id`'s part before "/".
    """

    sample_id: str  # "BUILDER:CAPTION_ID/INDEX"
    builder: str
    kind: SampleKind
    image_id: str
    caption_id: str
    index: int  # among the anchor's candidates
    how: str  # the change that was asked for
    text_key: str | None = None
    text: str | None = None
    image_key: str | None = None
    foil_key: str | None = None
    foil: str | None = None
    rejected: str | None = None


class Change(StrEnum):
    """What a caption writer can be asked for."""

    REWRITE = "rewrite"  # the same in other words
    CONTRAST = "contrast"  # close to the caption, but about another image
    REPLACE_OBJECT = "replace_object"
    REPLACE_ATTRIBUTE = "replace_attribute"
    REPLACE_RELATION = "replace_relation"  # relations and actions
    SWAP_OBJECT = "swap_object"
    SWAP_ATTRIBUTE = "swap_attribute"
    ADD_OBJECT = "add_object"
    ADD_ATTRIBUTE = "add_attribute"
    SWAP = "swap"  # two spans of one category change places
    UNITS = "units"  # the caption's entities and relations, each as a phrase
    FOIL = "foil"  # each of `parts` with one thing wrong
    DOMAINS = "domains"  # settings in which the things of `parts` could be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WritingTask:
    """One request to a caption writer. `image` is what the caption is about; language models do not see it."""

    change: Change
    text: str
    image: ImageItem | None = None
    parts: tuple[str, ...] = ()

    def payload(self) -> dict[str, Any]:
        """The content of the request for `core.identity.request_key`."""
        image = None if self.image is None else self.image.content_hash
        return {"change": str(self.change), "text": self.text, "image": image, "parts": list(self.parts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingTask:
    """One request to an image maker: a picture of `text`, out of `source` (None: out of nothing)."""

    text: str
    source: ImageItem | None = None
    source_text: str = ""  # a caption of the source

    def payload(self) -> dict[str, Any]:
        """The content of the request for `core.identity.request_key`."""
        source = None if self.source is None else self.source.content_hash
        return {"text": self.text, "source": source, "source_text": self.source_text}


class CaptionWriter(Protocol):
    """Writes captions. The reply holds the texts asked for: one for most changes; the parts for UNITS and DOMAINS; for
    FOIL one for each part, "" where there is none. An empty reply: the caption offers nothing to change so.
    """

    fingerprint: str
    changes: Collection[Change]  # what it can do

    async def write(self, task: WritingTask, *, seed: int) -> Reply[tuple[str, ...]]: ...


class ImageMaker(Protocol):
    """Makes pictures: encoded bytes."""

    fingerprint: str

    async def make(self, task: MakingTask, *, seed: int) -> Reply[bytes]: ...
