"""The stages of another method than RePair, as the run folder sees them: make its samples, train on them."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from repair.config import Config
from repair.core.identity import derive_rng, derive_seed
from repair.core.records import Failure, Verdict
from repair.core.synthesis import Sample, SampleKind
from repair.grids.pool import sample_order
from repair.methods.failures import from_failures
from repair.methods.importers import import_released
from repair.methods.method import Anchor, Builder, Measure, Method, call_owner, sample_id
from repair.numerics.cosines import IntArray
from repair.pipeline.asking import Asker, ask_all
from repair.pipeline.catalogue import image_item
from repair.pipeline.features import Features
from repair.pipeline.graph import Work
from repair.pipeline.matches import judged_matching, labelled_matching, match_table, near_duplicates
from repair.pipeline.measures import Measuring
from repair.pipeline.stages_repair import mined_with, table, write
from repair.pipeline.stages_train import TWINS, train
from repair.pipeline.tools import AnchorTools, Toolbox
from repair.pipeline.workbench import Workbench
from repair.store.files import write_json
from repair.training.compositions.batches import ComposedBatches
from repair.training.compositions.index import SampleIndex, matching_pairs
from repair.training.loop import TrainingData
from repair.training.prepared import Prepared

SAMPLES = "samples"
_OVER = "over the budget of samples"
_LEAST_RATE = 0.1  # of anchors that give a sample, when guessing how many more to ask about
_SPARE = 1.1
_CHUNK = 512


@dataclass(frozen=True, slots=True)
class _Made:
    """What one builder made: all candidates, and how many anchors and calls they took."""

    samples: list[Sample]
    n_anchors: int
    n_calls: int
    n_failed: int


def make_samples(bench: Workbench, round: int) -> Work:
    """All samples of the method, rejected ones included, and the near-duplicates that no batch may push apart."""
    method = bench.method
    features = Features(bench, mined_with(round))
    images, _ = features.embeddings(bench.train)
    outputs = []
    if not method.failures:
        place = bench.folder.folder(round) / TWINS
        write_json(place, near_duplicates(bench, bench.train, images).tolist())
        outputs.append(place)
    found: list[Sample] = []
    summary: dict[str, object] = {}
    if method.failures:
        found += _within(_of_failures(bench, round), bench.config.method.max_samples)
    released = _released(bench)
    found += released
    if released:
        summary["released"] = _counts(released)
    builders = () if released else method.builders
    asker, box, measuring = bench.asker(), Toolbox.of(bench.config, method), Measuring(bench, features)
    for place_in, builder in enumerate(builders):
        made = _build(bench, asker, box, measuring, builder, share=(place_in, len(builders)))
        found += made.samples
        summary[builder.name] = {
            "anchors": made.n_anchors,
            "calls": made.n_calls,
            "failed_calls": made.n_failed,
            **_counts(made.samples),
        }
    _warn(bench, found)
    summary["samples"] = sum(map(_counts_as_sample, found))
    if method.neighbours and not any(sample.kind is SampleKind.NEIGHBOUR for sample in found):
        found += _neighbours(bench, images, method.neighbours)
    work = write(bench, round, SAMPLES, found, Sample)
    return Work((*work.outputs, *outputs), summary)


def train_on_samples(bench: Workbench, round: int) -> Work:
    """As RePair trains, but on batches composed of samples."""
    return train(bench, round, data=training_data(bench, round))


def training_data(bench: Workbench, round: int) -> TrainingData:
    settings = bench.config.training
    composition = bench.method.composition
    assert composition is not None
    samples = table(bench, round, SAMPLES, Sample)
    index = SampleIndex(samples)
    pairs = bench.source.pairs(bench.config.data.train_split)
    own: dict[str, list[str]] = {}
    for pair in pairs:
        own.setdefault(pair.image_id, []).append(pair.caption_id)
    twins = np.array(json.loads((bench.folder.folder(round) / TWINS).read_text(encoding="utf-8")), dtype=np.int64)
    twins = twins.reshape(-1, 2)
    matches = match_table(
        bench.train,
        labelled_matching(bench, bench.train, twins),
        twins,
        repairs=(),
        judged=[*matching_pairs(index.samples, own), *_judged(bench, round)],
        edited_texts=[(key, text) for key, text in index.texts().items() if key not in bench.train.caption_row],
    )
    features = Features(bench, None)  # preparing never depends on weights
    made = sorted(key for key in index.image_keys() if key not in bench.train.image_row)
    texts = {key: text for key, text in sorted(index.texts().items()) if key not in bench.train.caption_row}
    image_parts = [(bench.train.image_ids, features.prepared_images(bench.train))]
    text_parts = [(bench.train.caption_ids, features.prepared_texts(bench.train))]
    if made:
        image_parts.append((tuple(made), features.prepared_edited_images(made)))
    if texts:
        text_parts.append((tuple(texts), features.prepared_edited_texts(list(texts.values()))))
    n_items = 2 * (settings.batch_pairs + 3 * settings.grids_per_step)
    return TrainingData(
        pairs=pairs,
        grids=(),
        matches=matches,
        images=Prepared(*image_parts, what="image"),
        texts=Prepared(*text_parts, what="caption"),
        batches=ComposedBatches(
            pairs, samples, composition, matches=matches, n_items=n_items, seed=bench.config.run.seed
        ),
    )


# ---------------------------------------------------------------------------------------------- building


def _build(
    bench: Workbench, asker: Asker, box: Toolbox, measuring: Measuring, builder: Builder, *, share: tuple[int, int]
) -> _Made:
    """Ask about anchors in a drawn order, wave by wave, until the builder's share of the budget is used up.

    The order does not depend on the budget, so a smaller budget uses the first of a bigger one's anchors.
    """
    settings, seed = bench.config.method, bench.config.run.seed
    max_samples, max_calls = (_share(total, share) for total in (settings.max_samples, settings.max_calls))
    anchors = _anchors(bench, builder)
    first = _tools(bench, asker, box, builder, "*")
    shared = ask_all(asker, lambda texts: builder.prepare(first, texts), [_few(bench)], label=builder.name,
                     progress=bench.progress)[0]  # fmt: skip
    samples: list[Sample] = []
    measures: dict[str, Measure] = {}
    chosen: list[Sample] = []
    n_asked, n_calls, n_failed = 0, first.n_calls, first.n_failed
    while True:
        n_next = len(anchors) - n_asked
        if max_samples is not None:
            n_kept = sum(sample.rejected is None for sample in chosen)
            rate = max(n_kept / n_asked, _LEAST_RATE) if n_asked else float(builder.n_samples)
            missing = max(max_samples - n_kept, 0)
            n_next = min(n_next, math.ceil(missing / rate * (_SPARE if n_asked else 1.0)))
        if max_calls is not None and builder.n_calls:
            n_next = min(n_next, max(max_calls - n_calls, 0) // builder.n_calls)
        if n_next <= 0:
            break
        wave = anchors[n_asked : n_asked + n_next]

        async def one(anchor: Anchor) -> tuple[list[Sample], int, int]:
            tools = _tools(bench, asker, box, builder, anchor.caption_id)
            made = await builder.build(anchor, tools, shared)
            return made, tools.n_calls, tools.n_failed

        found = ask_all(asker, one, wave, label=builder.name, progress=bench.progress)
        n_asked += len(wave)
        n_calls += sum(calls for _, calls, _ in found)
        n_failed += sum(failed for *_, failed in found)
        new = [sample for made, *_ in found for sample in made]
        measures |= measuring.of(new, with_encoder=builder.measured)
        samples += new
        chosen = builder.choose(_readable(bench, samples), measures, seed=derive_seed(seed, builder.name))
    return _Made(_within(chosen, max_samples), n_asked, n_calls, n_failed)


def _share(total: int | None, share: tuple[int, int]) -> int | None:
    """A builder's part of a budget; the first ones get what does not divide."""
    place, n = share
    return None if total is None else total // n + (place < total % n)


def _within(samples: list[Sample], max_samples: int | None) -> list[Sample]:
    """No more accepted samples than allowed, the first ones. Neighbours are given: they are no one's samples."""
    if max_samples is None:
        return samples
    left, out = max_samples, []
    for sample in samples:
        if _counts_as_sample(sample):
            left -= 1
            if left < 0:
                sample = replace(sample, rejected=_OVER)
        out.append(sample)
    return out


def _counts_as_sample(sample: Sample) -> bool:
    return sample.rejected is None and sample.kind is not SampleKind.NEIGHBOUR


def _anchors(bench: Workbench, builder: Builder) -> list[Anchor]:
    """All captions of the train split, or one of each image, in a drawn order: the same for all builders, so that the
    parts of a combination meet on the same captions."""
    train, rng = bench.train, derive_rng(bench.config.run.seed, "anchors")
    if builder.per_image:
        rows = [own[int(rng.integers(len(own)))] for own in train.captions_of]
    else:
        rows = list(range(len(train.caption_ids)))
    order = [rows[int(place)] for place in rng.permutation(len(rows))]
    return [
        Anchor(
            image=image_item(train, bench.source, int(train.owner[row])),
            caption_id=train.caption_ids[row],
            text=train.texts[row],
        )
        for row in order
    ]


def _few(bench: Workbench) -> list[str]:
    rng = derive_rng(bench.config.run.seed, "few captions")
    texts = bench.train.texts
    return [texts[int(row)] for row in rng.permutation(len(texts))[:20]]


def _tools(bench: Workbench, asker: Asker, box: Toolbox, builder: Builder, caption_id: str) -> AnchorTools:
    owner = call_owner(builder.name, caption_id)
    seed = derive_seed(bench.config.run.seed, "samples", builder.name, caption_id)
    return AnchorTools(bench=bench, asker=asker, box=box, owner=owner, seed=seed)


def _readable(bench: Workbench, samples: list[Sample]) -> list[Sample]:
    made = {s.image_key for s in samples if s.image_key is not None and s.image_key not in bench.train.image_row}
    good = set(Features(bench, None).readable(made))
    return [
        replace(sample, rejected="the image cannot be read") if sample.image_key in made - good else sample
        for sample in samples
    ]


# ---------------------------------------------------------------------------------------------- what is not made


def _of_failures(bench: Workbench, round: int) -> list[Sample]:
    """In the drawn order in which a budget keeps RePair's failures, so that both directions keep their share."""
    train, seed = bench.train, bench.config.run.seed
    failures = table(bench, round, "failures", Failure)
    return from_failures(
        sorted(failures, key=lambda failure: sample_order(failure.failure_id, seed=seed)),
        table(bench, round, "verdicts", Verdict),
        texts=dict(zip(train.caption_ids, train.texts, strict=True)),
        owners={caption: train.image_ids[owner] for caption, owner in zip(train.caption_ids, train.owner, strict=True)},
    )


def _released(bench: Workbench) -> list[Sample]:
    """Samples from files instead of from builders; their pictures are kept with those that were made."""
    found: list[Sample] = []
    pairs = bench.source.pairs(bench.config.data.train_split)
    for format, path in bench.config.method.released.items():
        imported = import_released(format, Path(path), pairs)
        for read in imported.images.values():
            bench.blobs.put(read()).result()
        found += imported.samples
        bench.progress.say(
            f"samples: {path}: {imported.n_rows} rows, {imported.n_foreign} belong to no caption of this split, "
            f"{len(imported.samples)} samples"
        )
    readable = _readable(bench, found)
    order = derive_rng(bench.config.run.seed, "released").permutation(len(readable))  # a file may be sorted by kind
    return _within([readable[int(row)] for row in order], bench.config.method.max_samples)


def _judged(bench: Workbench, round: int) -> list[tuple[str, str]]:
    """What a method that verifies failures knows to match beside the labels, as RePair does."""
    if not bench.method.failures:
        return []
    return judged_matching(table(bench, round, "failures", Failure), table(bench, round, "verdicts", Verdict))


def _neighbours(bench: Workbench, images: np.ndarray, n: int) -> list[Sample]:  # type: ignore[type-arg]
    """The `n` nearest other images of each image."""
    train = bench.train
    found: list[Sample] = []
    for row, near in enumerate(_nearest(images, n)):
        first = train.caption_ids[train.captions_of[row][0]]
        for index, other in enumerate(near):
            found.append(
                Sample(
                    sample_id=sample_id("neighbours", train.image_ids[row], index),
                    builder="neighbours",
                    kind=SampleKind.NEIGHBOUR,
                    image_id=train.image_ids[row],
                    caption_id=first,
                    index=index,
                    how="nearest",
                    image_key=train.image_ids[int(other)],
                )
            )
    return found


def _nearest(images: np.ndarray, n: int) -> IntArray:  # type: ignore[type-arg]
    """Shape (n_images, min(n, n_images - 1)), nearest first; the lower position first of equals."""
    n = min(n, len(images) - 1)
    out = np.zeros((len(images), n), dtype=np.int64)
    for start in range(0, len(images), _CHUNK):
        scores = images[start : start + _CHUNK] @ images.T
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        out[start : start + _CHUNK] = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    return out


# ---------------------------------------------------------------------------------------------- account


def _counts(samples: Sequence[Sample]) -> dict[str, object]:
    reasons = Counter(sample.rejected for sample in samples if sample.rejected is not None)
    return {
        "candidates": len(samples),
        "samples": sum(sample.rejected is None for sample in samples),
        **{f"rejected: {reason}": n for reason, n in reasons.most_common()},
    }


def _warn(bench: Workbench, samples: Sequence[Sample]) -> None:
    """Views that may contradict a caption of their image are named: they teach that left is right, or red is grey."""
    views = [sample for sample in samples if sample.rejected is None and sample.how.startswith("view")]
    n = sum("contradict" in sample.how for sample in views)
    if n:
        bench.progress.say(
            f"{n} of {len(views)} views may contradict a caption of their image (it names a side or a colour): "
            "method.options.careful=true leaves such changes out"
        )


def method_of(name: str, options: dict[str, object]) -> Method:
    """The method a config names. Raises ConfigError."""
    from repair.pipeline.registries import METHODS

    method: Method = METHODS.build(name, options=options)
    return method


def require_tools(config: Config) -> None:
    """Raises ConfigError if the config's method lacks a writer or a maker it will ask, before anything is written."""
    Toolbox.of(config, method_of(config.method.name, config.method.options))
