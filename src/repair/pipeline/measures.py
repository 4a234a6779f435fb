"""What quality control needs to know of candidate samples, from the base encoder and from the train captions."""

from collections.abc import Sequence

import numpy as np

from repair.core.identity import hash_bytes
from repair.core.ports import FloatArray
from repair.core.synthesis import Sample
from repair.methods.method import Measure
from repair.methods.plausibility import TextModel
from repair.pipeline.features import Features
from repair.pipeline.workbench import Workbench

# What a picture of nothing in particular could be called.
GENERIC = (
    "a photo of an object",
    "a photo of a scene",
    "a photo of a texture",
    "a black photo",
    "a blurry photo",
    "a corrupted photo",
)
_CHUNK = 512


class Measuring:
    """Measures of one run's samples; the train split is embedded and its captions are counted once."""

    def __init__(self, bench: Workbench, features: Features) -> None:
        self._bench = bench
        self._features = features
        self._texts = TextModel(bench.train.texts)

    def of(self, samples: Sequence[Sample], *, with_encoder: bool) -> dict[str, Measure]:
        """By sample id. Cosines only `with_encoder`."""
        train = self._bench.train
        gaps: list[tuple[float | None, float | None]] = [
            (None, None)
            if sample.text is None
            else self._texts.gaps(train.texts[train.caption_row[sample.caption_id]], sample.text)
            for sample in samples
        ]
        cosines = self._cosines(samples) if with_encoder and samples else [Measure()] * len(samples)
        return {
            sample.sample_id: Measure(
                plausibility_gap=plausibility,
                grammar_gap=grammar,
                text_cosine=measured.text_cosine,
                image_cosine=measured.image_cosine,
                fit=measured.fit,
                direction=measured.direction,
                generic=measured.generic,
                own_rank=measured.own_rank,
                margin=measured.margin,
            )
            for sample, (plausibility, grammar), measured in zip(samples, gaps, cosines, strict=True)
        }

    def _cosines(self, samples: Sequence[Sample]) -> list[Measure]:
        train = self._bench.train
        images, texts = self._features.embeddings(train)
        written = {s.text_key: s.text for s in samples if s.text_key is not None and s.text is not None}
        made = self._features.made_embeddings(
            written | {hash_bytes(text.encode()): text for text in GENERIC},
            [s.image_key for s in samples if s.image_key is not None],
        )
        generic = np.stack([made[hash_bytes(text.encode())] for text in GENERIC])
        out: list[Measure] = []
        for start in range(0, len(samples), _CHUNK):
            part = samples[start : start + _CHUNK]
            rows = [train.caption_row[sample.caption_id] for sample in part]
            new = [made.get(str(s.image_key)) for s in part]
            ranks = self._ranks(new, rows, texts)
            for sample, row, image, (rank, margin) in zip(part, rows, new, ranks, strict=True):
                before_image, before_text = images[train.owner[row]], texts[row]
                text = made.get(str(sample.text_key))
                out.append(
                    Measure(
                        text_cosine=_cosine(text, before_text),
                        image_cosine=_cosine(image, before_image),
                        fit=_cosine(image, before_text if text is None else text),
                        direction=None
                        if text is None or image is None
                        else _cosine(image - before_image, text - before_text),
                        generic=None if image is None else float((generic @ image).max()),
                        own_rank=rank,
                        margin=margin,
                    )
                )
        return out

    def _ranks(
        self, new: Sequence[FloatArray | None], rows: Sequence[int], texts: FloatArray
    ) -> list[tuple[int | None, float | None]]:
        """Of each new image: rank of the anchor's caption among those of other images, and its margin over them."""
        train = self._bench.train
        there = [place for place, image in enumerate(new) if image is not None]
        found: list[tuple[int | None, float | None]] = [(None, None)] * len(new)
        if not there:
            return found
        scores = np.stack([image for image in new if image is not None]) @ texts.T
        for line, place in enumerate(there):
            row = rows[place]
            own = scores[line, row]
            others = np.delete(scores[line], train.captions_of[train.owner[row]])
            margin = float(own - others.max()) if len(others) else None
            found[place] = (1 + int((others > own).sum()), margin)
        return found


def _cosine(a: FloatArray | None, b: FloatArray | None) -> float | None:
    """None where there is no vector; 0 where one is zero, as where nothing changed: it has no direction to share."""
    if a is None or b is None:
        return None
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size else 0.0
