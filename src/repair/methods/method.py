"""A method: how its samples are made, and what its batches are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from repair.core.composition import Composition
from repair.core.ports import ImageItem
from repair.core.synthesis import Change, MakingTask, Sample, SampleKind, WritingTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """What samples are made for: an image with one of its captions."""

    image: ImageItem
    caption_id: str
    text: str


class Tools(Protocol):
    """What a builder works with while it makes the samples of one anchor. None means that the call failed.

    `write` and `make` are calls, paid for and kept in the ledger; `index` tells equal requests apart that shall get
    different answers. `rule` is free. `seed` is the anchor's own.
    """

    @property
    def seed(self) -> int: ...

    async def write(self, task: WritingTask, index: int = 0) -> tuple[str, ...] | None: ...

    async def rule(self, task: WritingTask, index: int = 0) -> tuple[str, ...] | None: ...

    async def make(self, task: MakingTask, index: int = 0) -> str | None:
        """Key of the picture."""
        ...

    async def keep(self, picture: bytes) -> str:
        """Key of a picture made without a call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What quality control knows of a candidate. Gaps are in [-1, 1], caption minus sample: above 0, the sample reads
    worse. Cosines are the base encoder's. None: does not apply.
    """

    plausibility_gap: float | None = None
    grammar_gap: float | None = None
    text_cosine: float | None = None  # of the new text and the anchor's caption
    image_cosine: float | None = None  # of the new image and the anchor's
    fit: float | None = None  # of the new image and the new text (where there is none, the anchor's caption)
    direction: float | None = None  # of what changed in the text and what changed in the image
    generic: float | None = None  # of the new image and the likeliest text about no image in particular
    own_rank: int | None = None  # of the anchor's caption for the new image, among the captions of other images
    margin: float | None = None  # score of the anchor's caption minus that of the best other


class Builder(Protocol):
    """Makes samples of one kind of idea, in three steps: `prepare` once, `build` for each anchor, `choose` for all.

    `n_calls` is how many calls an anchor costs at most, `n_samples` how many samples it gives as a rule. `per_image`:
    an anchor is an image, whichever its caption; `measured`: whether `choose` needs the cosines of `Measure` (the gaps
    are always there). `written`, `ruled` and `makes`: what it asks of the writer, of the rules, and whether it asks
    the maker.
    """

    @property
    def name(self) -> str: ...

    @property
    def n_calls(self) -> int: ...

    @property
    def n_samples(self) -> int: ...

    @property
    def per_image(self) -> bool: ...

    @property
    def measured(self) -> bool: ...

    @property
    def written(self) -> tuple[Change, ...]: ...

    @property
    def ruled(self) -> tuple[Change, ...]: ...

    @property
    def makes(self) -> bool: ...

    async def prepare(self, tools: Tools, texts: Sequence[str]) -> tuple[str, ...]:
        """What all anchors share, from a few captions of the split; () if there is nothing to share."""
        ...

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:
        """All candidates of one anchor."""
        ...

    def choose(self, samples: Sequence[Sample], measures: Mapping[str, Measure], *, seed: int) -> list[Sample]:
        """The same samples in the same order, `rejected` set where quality control drops one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """`composition` None: the pipeline's own batches (RePair, Vanilla).

    `types` are those of the paper's tables: T⁺ T⁻ I⁺ I⁻. `neighbours`: near images kept for each image. `failures`: its
    samples are the verified failures of mining. `notes`: what differs from what was published.
    """

    title: str
    types: tuple[str, ...] = ()
    builders: tuple[Builder, ...] = ()
    composition: Composition | None = None
    neighbours: int = 0
    failures: bool = False
    notes: str = ""

    @property
    def is_repair(self) -> bool:
        return self.title == "RePair"


def sample_id(builder: str, caption_id: str, index: int) -> str:
    return f"{call_owner(builder, caption_id)}/{index}"


def call_owner(builder: str, caption_id: str) -> str:
    """For whom a call was made, as the ledger has it."""
    return f"{builder}:{caption_id}"


def rejected(sample: Sample, why: str) -> Sample:
    """The sample with a reason; a reason it has already stays."""
    return sample if sample.rejected is not None else replace(sample, rejected=why)


def of_kind(samples: Sequence[Sample], kind: SampleKind) -> list[Sample]:
    return [sample for sample in samples if sample.kind is kind and sample.rejected is None]
