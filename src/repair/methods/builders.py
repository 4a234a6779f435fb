"""How each method makes its samples: whom it asks for what, and what it keeps."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from PIL import Image

from repair.core.identity import derive_rng, hash_bytes
from repair.core.synthesis import Change, MakingTask, Sample, SampleKind, WritingTask
from repair.core.texts import folded
from repair.methods.method import Anchor, Measure, Tools, rejected, sample_id
from repair.methods.quality import confidence_filter, one_each, refine_adversarially, semantic_filter, within
from repair.methods.views import ViewOptions, contradictions, view_of

_MIN_WORDS = 2  # of a rewrite; below, the original is used
_SHOWN_TO_SUMMARISER = 20  # captions

FAMILIES: tuple[tuple[Change, ...], ...] = (
    (Change.REPLACE_OBJECT, Change.REPLACE_ATTRIBUTE, Change.REPLACE_RELATION),
    (Change.SWAP_OBJECT, Change.SWAP_ATTRIBUTE),
    (Change.ADD_OBJECT, Change.ADD_ATTRIBUTE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    name: str
    n_calls: int = 0
    n_samples: int = 1
    per_image: bool = False
    measured: bool = False
    written: tuple[Change, ...] = ()
    ruled: tuple[Change, ...] = ()
    makes: bool = False

    async def prepare(self, tools: Tools, texts: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def choose(self, samples: Sequence[Sample], measures: Mapping[str, Measure], *, seed: int) -> list[Sample]:  # noqa: ARG002
        return list(samples)

    def _text(self, anchor: Anchor, kind: SampleKind, index: int, how: Change | str, text: str) -> Sample:
        return Sample(
            sample_id=sample_id(self.name, anchor.caption_id, index),
            builder=self.name,
            kind=kind,
            image_id=anchor.image.key,
            caption_id=anchor.caption_id,
            index=index,
            how=str(how),
            text_key=hash_bytes(text.encode()),
            text=text,
        )

    def _image(
        self, anchor: Anchor, kind: SampleKind, index: int, how: Change | str, key: str, *, text: str | None = None
    ) -> Sample:
        return Sample(
            sample_id=sample_id(self.name, anchor.caption_id, index),
            builder=self.name,
            kind=kind,
            image_id=anchor.image.key,
            caption_id=anchor.caption_id,
            index=index,
            how=str(how),
            text_key=None if text is None else hash_bytes(text.encode()),
            text=text,
            image_key=key,
        )


def _asked(anchor: Anchor, change: Change, *parts: str, text: str | None = None) -> WritingTask:
    return WritingTask(change=change, text=text or anchor.text, image=anchor.image, parts=parts)


def _clean(texts: tuple[str, ...] | None) -> str | None:
    """The one text of a reply, spaces in order; None for a failed call or an empty answer."""
    text = " ".join(texts[0].split()) if texts else ""
    return text or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(_Base):
    """Negative captions by rules, one for each change; no call (NegCLIP, CE-CLIP).

    No quality control, as published, but that a text which reads like a caption of the image is no negative (ours).
    `shuffle`: also the caption's pairs of words in another order (FSC-CLIP).
    """

    shuffle: bool = False

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        samples = []
        for index, change in enumerate(self.ruled):
            text = _clean(await tools.rule(_asked(anchor, change), index))
            if text is not None:
                samples.append(self._text(anchor, SampleKind.NEGATIVE_CAPTION, index, change, text))
        if self.shuffle:
            text = shuffled_bigrams(anchor.text, seed=tools.seed)
            if text != anchor.text:
                index = len(self.ruled)
                samples.append(self._text(anchor, SampleKind.NEGATIVE_CAPTION, index, "shuffle", text))
        return _unlike_own(samples, anchor)


def shuffled_bigrams(text: str, *, seed: int) -> str:
    """The words of a text, two and two, in another order."""
    words = text.split()
    pairs = [words[place : place + 2] for place in range(0, len(words), 2)]
    order = derive_rng(seed, "shuffle").permutation(len(pairs))
    return " ".join(word for place in order for word in pairs[int(place)])


@dataclass(frozen=True, slots=True, kw_only=True)
class SugarCrepe(_Base):
    """One negative caption out of three, a replacement, a swap and an addition; text alone must not give it away.

    Of the three, the one whose plausibility and grammar are closest to the caption's; then adversarial refinement over
    all that are left.
    """

    n_calls: int = len(FAMILIES)
    written: tuple[Change, ...] = tuple(change for family in FAMILIES for change in family)
    refine: bool = True

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        rng = derive_rng(tools.seed, "family")
        samples = []
        for index, family in enumerate(FAMILIES):
            change = family[int(rng.integers(len(family)))]
            text = _clean(await tools.write(_asked(anchor, change), index))
            if text is not None:
                samples.append(self._text(anchor, SampleKind.NEGATIVE_CAPTION, index, change, text))
        return _unlike_own(samples, anchor)

    def choose(self, samples: Sequence[Sample], measures: Mapping[str, Measure], *, seed: int) -> list[Sample]:
        chosen = one_each(samples, lambda s: sum(abs(gap) for gap in _gaps(measures[s.sample_id])))
        if not self.refine:
            return chosen
        rows = [row for row, sample in enumerate(chosen) if sample.rejected is None]
        kept = refine_adversarially([_gaps(measures[chosen[row].sample_id]) for row in rows], seed=seed) if rows else []
        balanced = {rows[place] for place in kept}
        return [
            sample if row in balanced else rejected(sample, "a text-only model would tell it from the caption")
            for row, sample in enumerate(chosen)
        ]


def _gaps(measure: Measure) -> tuple[float, float]:
    return measure.plausibility_gap or 0.0, measure.grammar_gap or 0.0


def _unlike_own(samples: list[Sample], anchor: Anchor) -> list[Sample]:
    """A negative that reads like one of the image's own captions is none."""
    own = {folded(text) for text in (anchor.text, *anchor.image.captions)}
    return [
        rejected(sample, "reads like a caption of the image") if folded(str(sample.text)) in own else sample
        for sample in samples
    ]


def _unlike_source(samples: list[Sample], anchor: Anchor) -> list[Sample]:
    """An edit that gave back the very file it was to change is none."""
    return [
        rejected(sample, "the image came back unchanged") if sample.image_key == anchor.image.content_hash else sample
        for sample in samples
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites(_Base):
    """LaCLIP: the caption in other words, `n` times; no quality control but that it is more than a word."""

    written: tuple[Change, ...] = (Change.REWRITE,)
    n: int = 1

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        samples = []
        for index in range(self.n):
            text = _clean(await tools.write(_asked(anchor, Change.REWRITE), index))
            if text is not None and len(text.split()) >= _MIN_WORDS:
                samples.append(self._text(anchor, SampleKind.POSITIVE_CAPTION, index, Change.REWRITE, text))
        return samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Views(_Base):
    """SimCLR: two views of an image. `careful`: no flip or colour change where a caption of the image speaks of it."""

    per_image: bool = True
    n_samples: int = 2
    options: ViewOptions = field(default_factory=ViewOptions)
    careful: bool = False

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        said = {what for text in anchor.image.captions for what in contradictions(text, self.options)}
        options = self._tamed(said) if self.careful else self.options
        how = "view" if self.careful or not said else f"view, may contradict: {', '.join(sorted(said))}"
        samples = []
        with Image.open(io.BytesIO(anchor.image.read())) as image:
            for index in range(2):
                data = view_of(image, derive_rng(tools.seed, "view", index), options)
                key = await tools.keep(data)
                samples.append(self._image(anchor, SampleKind.POSITIVE_IMAGE, index, how, key))
        return samples

    def _tamed(self, said: set[str]) -> ViewOptions:
        plain = self.options
        return ViewOptions(
            crop=plain.crop,
            blur_rate=plain.blur_rate,
            flip_rate=0.0 if "flip" in said else plain.flip_rate,
            jitter_rate=0.0 if "colour" in said else plain.jitter_rate,
            grey_rate=0.0 if "colour" in said else plain.grey_rate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Triplets(_Base):
    """TripletCLIP: a caption of another image, and a picture of it; no quality control.

    The picture is made out of nothing; with `from_anchor`, out of the anchor's image (where there is only an editor).
    """

    n_calls: int = 2
    written: tuple[Change, ...] = (Change.CONTRAST,)
    makes: bool = True
    from_anchor: bool = False

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        text = _clean(await tools.write(_asked(anchor, Change.CONTRAST)))
        if text is None:
            return []
        source = anchor.image if self.from_anchor else None
        key = await tools.make(MakingTask(text=text, source=source, source_text=anchor.text if source else ""))
        if key is None:
            return []
        return _unlike_source([self._image(anchor, SampleKind.PAIR, 0, Change.CONTRAST, key, text=text)], anchor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domains(_Base):
    """ALIA: the image in another setting, three candidates, one kept; ported from classification (ours).

    A language model names settings once for the whole data set. Filters: `quality.semantic_filter`, then
    `quality.confidence_filter`. The caption is unchanged, also where it names the setting: catching that is the
    filters' work.
    """

    n_calls: int = 3
    measured: bool = True
    written: tuple[Change, ...] = (Change.DOMAINS,)
    makes: bool = True
    n: int = 3
    top_k: int = 10

    async def prepare(self, tools: Tools, texts: Sequence[str]) -> tuple[str, ...]:
        shown = tuple(texts[:_SHOWN_TO_SUMMARISER])
        found = await tools.write(WritingTask(change=Change.DOMAINS, text=" / ".join(shown), parts=shown))
        return tuple(found or ())

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:
        if not shared:
            return []
        rng = derive_rng(tools.seed, "domain")
        samples = []
        for index in range(self.n):
            domain = shared[int(rng.integers(len(shared)))]
            task = MakingTask(text=f"{anchor.text} | {domain}", source=anchor.image, source_text=anchor.text)
            key = await tools.make(task, index)
            if key is not None:
                samples.append(self._image(anchor, SampleKind.POSITIVE_IMAGE, index, f"domain: {domain}", key))
        return _unlike_source(samples, anchor)

    def choose(self, samples: Sequence[Sample], measures: Mapping[str, Measure], *, seed: int) -> list[Sample]:  # noqa: ARG002
        passed = [semantic_filter(sample, measures[sample.sample_id]) for sample in samples]
        return one_each(
            confidence_filter(passed, measures, top_k=self.top_k), lambda s: -(measures[s.sample_id].fit or 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactuals(_Base):
    """COCO-CF: a noun replaced, and the image changed to match; three candidates, one kept.

    Kept are candidates whose text is close to the caption, `text_band` (low, high], whose image fits it, `min_fit`, is
    close to the anchor's, `min_image`, but not that very file, and changed as the text did, `min_direction`; of those
    the most plausible text.
    The published thresholds, (0.8, 0.91], 0.2, 0.7 and 0.2, are for other encoders than the one that measures here. The
    published pairs are both drawn; here the first of a pair is the anchor itself.
    """

    n_calls: int = 6
    measured: bool = True
    written: tuple[Change, ...] = (Change.REPLACE_OBJECT,)
    makes: bool = True
    n: int = 3
    text_band: tuple[float, float] = (0.8, 0.91)
    min_fit: float = 0.2
    min_image: float = 0.7
    min_direction: float = 0.2

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        samples = []
        for index in range(self.n):
            text = _clean(await tools.write(_asked(anchor, Change.REPLACE_OBJECT), index))
            if text is None:
                continue
            key = await tools.make(MakingTask(text=text, source=anchor.image, source_text=anchor.text), index)
            if key is not None:
                samples.append(self._image(anchor, SampleKind.PAIR, index, Change.REPLACE_OBJECT, key, text=text))
        return _unlike_source(_unlike_own(samples, anchor), anchor)

    def choose(self, samples: Sequence[Sample], measures: Mapping[str, Measure], *, seed: int) -> list[Sample]:  # noqa: ARG002
        checked = [self._checked(sample, measures[sample.sample_id]) for sample in samples]
        return one_each(checked, lambda s: measures[s.sample_id].plausibility_gap or 0.0)

    def _checked(self, sample: Sample, measure: Measure) -> Sample:
        if not within(measure.text_cosine, *self.text_band):
            return rejected(sample, "the text is too close to the caption, or too far")
        if not within(measure.fit, self.min_fit, 1.1):
            return rejected(sample, "the image does not fit its text")
        if not within(measure.image_cosine, self.min_image, 1.1):
            return rejected(sample, "the image is too far from the anchor's")
        if not within(measure.direction, self.min_direction, 1.1):
            return rejected(sample, "text and image did not change alike")
        return sample


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfTruths(_Base):
    """CS-CLIP: the caption's units, each with a foil, and captions in which a unit gives way to its foil.

    One call for the units, one for the foil of each entity, one for those of all relations. As published, a relation is
    between two of the entities: a unit that holds two others. Foils are checked by some of the published rules: no copy
    of another unit, not the same words, not a change of digits only; the lists of synonyms, the stems and the share of
    words in common are left out.
    """

    n_calls: int = 6  # 2 + entities; a caption has about four
    n_samples: int = 5
    written: tuple[Change, ...] = (Change.UNITS, Change.FOIL)

    async def build(self, anchor: Anchor, tools: Tools, shared: tuple[str, ...]) -> list[Sample]:  # noqa: ARG002
        units = await tools.write(_asked(anchor, Change.UNITS)) or ()
        entities = [unit for unit in units if not _is_relation(unit, units)]
        relations = [unit for unit in units if unit not in entities]
        foils: dict[str, str] = {}
        for index, entity in enumerate(entities):
            found = await tools.write(_asked(anchor, Change.FOIL, entity), index)
            foils[entity] = found[0] if found else ""
        if relations:
            found = await tools.write(_asked(anchor, Change.FOIL, *relations), len(entities))
            foils |= dict(zip(relations, found or [""] * len(relations), strict=True))
        samples: list[Sample] = []
        for unit in units:
            foil = " ".join(foils.get(unit, "").split())
            index = len(samples)
            if not _is_foil(unit, foil, units):
                continue
            sample = self._text(anchor, SampleKind.UNIT, index, Change.FOIL, unit)
            samples.append(_with_foil(sample, foil))
        negative = next(
            (anchor.text.replace(str(s.text), str(s.foil)) for s in samples if str(s.text) in anchor.text), None
        )
        if negative is not None:
            samples.append(self._text(anchor, SampleKind.NEGATIVE_CAPTION, len(samples), Change.FOIL, negative))
        return samples


def _is_relation(unit: str, units: Sequence[str]) -> bool:
    """Whether a unit holds two others, or one of them twice, as its subject and its object.

    CS-CLIP's relations name both exactly as the entities are listed. Others that overlap count once, the longest.
    """
    rest, n_inside = folded(unit), 0
    for other in sorted({folded(other) for other in units} - {rest, ""}, key=lambda other: (-len(other), other)):
        n_inside += rest.count(other)
        rest = rest.replace(other, "\n")
    return n_inside >= 2


def _is_foil(unit: str, foil: str, units: Sequence[str]) -> bool:
    if not foil or folded(foil) in {folded(other) for other in units}:
        return False
    strip = str.maketrans("", "", "0123456789")
    return folded(unit).translate(strip) != folded(foil).translate(strip)


def _with_foil(sample: Sample, foil: str) -> Sample:
    return replace(sample, foil=foil, foil_key=hash_bytes(foil.encode()))
