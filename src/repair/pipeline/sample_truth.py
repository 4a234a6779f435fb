"""How good another method's samples really are, by a source that knows. Nothing of it is used by any stage."""

from collections import defaultdict
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.core.ports import TruthSource
from repair.core.synthesis import Sample, SampleKind
from repair.pipeline.features import edited_bytes
from repair.pipeline.stages_repair import table
from repair.pipeline.workbench import Workbench

_N_LOOKED_UP = 5000


def truth_of_samples(bench: Workbench, round: int) -> dict[str, Any]:
    """{"samples": {kind: {"n", "n_known", "right_rate"}}}: of up to 5,000 accepted samples a draw.

    A T⁻ is right if it is false of the anchor's image, a T⁺ if it is true, an I⁺ if the caption is true of it and an I⁻
    if not, a pair if it fits itself and its text does not fit the anchor's image, a unit if it is true and its foil is
    not. What the source cannot read (a text outside the world) is not known.
    """
    samples = [
        sample
        for sample in table(bench, round, "samples", Sample)
        if sample.rejected is None and sample.kind is not SampleKind.NEIGHBOUR
    ]
    order = derive_rng(bench.config.run.seed, "truth", "samples").permutation(len(samples))[:_N_LOOKED_UP]
    found: dict[SampleKind, list[bool | None]] = defaultdict(list)
    for place in order:
        sample = samples[int(place)]
        found[sample.kind].append(_is_right(bench, sample))
    return {"samples": {str(kind): _facts(found[kind]) for kind in SampleKind if kind in found}}


def _facts(right: list[bool | None]) -> dict[str, Any]:
    known = [value for value in right if value is not None]
    return {"n": len(right), "n_known": len(known), "right_rate": sum(known) / len(known) if known else None}


def _is_right(bench: Workbench, sample: Sample) -> bool | None:
    train = bench.train
    caption = train.texts[train.caption_row[sample.caption_id]]
    try:
        match sample.kind:
            case SampleKind.POSITIVE_CAPTION:
                return _holds(bench, sample.image_id, sample.text)
            case SampleKind.NEGATIVE_CAPTION:
                return not _holds(bench, sample.image_id, sample.text)
            case SampleKind.POSITIVE_IMAGE:
                return _holds(bench, sample.image_key, caption)
            case SampleKind.NEGATIVE_IMAGE:
                return not _holds(bench, sample.image_key, caption)
            case SampleKind.PAIR:
                fits = _holds(bench, sample.image_key, sample.text)
                return fits and not _holds(bench, sample.image_id, sample.text)
            case _:
                return _holds(bench, sample.image_id, sample.text) and not _holds(bench, sample.image_id, sample.foil)
    except DataError:
        return None


def _holds(bench: Workbench, image: str | None, text: str | None) -> bool:
    source = bench.source
    assert isinstance(source, TruthSource)
    known = image in bench.train.image_row
    data = bench.source.read_image(str(image)) if known else edited_bytes(bench, str(image))
    return source.holds(data, str(text))
