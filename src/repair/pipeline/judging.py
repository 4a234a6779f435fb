"""`repair eval --model`: any encoder on any suites, without the rest of the pipeline."""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from repair import __version__
from repair.core.errors import ConfigError
from repair.core.ports import PairSource
from repair.core.progress import Progress
from repair.evaluation.document import Document, Missing, Outcome, SuiteResult, write_results
from repair.evaluation.drift import drift_scores
from repair.evaluation.embedding import Uncertainty
from repair.evaluation.exports import clip_benchmark_rows, write_clip_benchmark
from repair.numerics.statistics import N_RESAMPLES
from repair.pipeline.embedder import CachedEmbedder, fit_if_needed, open_model
from repair.pipeline.opening import chosen_split, open_data
from repair.pipeline.suites import Runnable, open_suite

DRIFT = "drift"


def judge(
    *,
    model: str,
    suites: Sequence[str],
    data: Sequence[str] = (),
    images: Path | None = None,
    split: str | None = None,
    allow_missing: bool = False,
    fit: str | None = None,
    reference: str | None = None,
    out: Path | None = None,
    export: str | None = None,
    cache: Path = Path("runs/.cache"),
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
    n_workers: int = 2,
    progress: Progress,
) -> dict[str, Any]:
    """Run `suites` on `model`; returns results.json's content, with "files" written.

    `data` is one for all suites or one for each (a suite that needs none does not count). `fit` is a data set on whose
    train split an encoder's heads are fitted first, for encoders that need it. `reference` is a second model, from
    which drift is measured on `data`. Every suite is opened before any runs, so that a wrong path costs no hour.

    Raises ConfigError for options that do not fit together, and what suites and encoders raise.
    """
    if not suites:
        raise ConfigError("eval --model: name at least one suite with --suite; `repair eval --help` lists them")
    if export is not None and export != "clip-benchmark":
        raise ConfigError(f'--export "{export}": the one there is is clip-benchmark')
    if export is not None and out is None:
        raise ConfigError("--export needs --out: the folder to write into")
    if (reference is not None) != (DRIFT in suites):
        raise ConfigError(f"--reference MODEL and --suite {DRIFT} go together: drift is measured from a reference")
    uncertainty = Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed)
    places = _places(suites, data)
    shared: dict[str, Any] = {
        "images": images, "split": split, "allow_missing": allow_missing, "cache": cache, "n_workers": n_workers,
    }  # fmt: skip
    opened = {spec: open_suite(spec, data=place, **shared) for spec, place in places.items() if spec != DRIFT}
    embedder = _embedder(model, fit=fit, shared=shared, progress=progress, seed=seed)
    results: list[SuiteResult] = []
    outcomes: list[Outcome] = []
    for spec in places:
        if spec == DRIFT:
            other = _embedder(str(reference), fit=fit, shared=shared, progress=progress, seed=seed)
            results.append(
                _drift(
                    embedder, other, reference=str(reference), data=places[spec], shared=shared, uncertainty=uncertainty
                )
            )
            continue
        found, rows = opened[spec].run(embedder, uncertainty=uncertainty, allow_missing=allow_missing)
        results.append(found)
        outcomes += rows
    encoder = embedder.encoder
    document = Document(
        schema="repair-evaluation/1",
        model={
            "spec": model,
            "name": encoder.name,
            "fingerprint": encoder.fingerprint(),
            "dim": encoder.dim,
            "logit_scale": encoder.logit_scale,
            "fitted_on": fit,
        },
        settings={"confidence": confidence, "n_bootstrap": n_bootstrap, "seed": seed},
        versions={"repair-clip": __version__, "numpy": np.__version__, "torch": metadata.version("torch")},
        suites=results,
    )
    written = _written(document, outcomes, opened, out=out, export=export)
    return {**document.model_dump(by_alias=True), "files": written}


def _places(suites: Sequence[str], data: Sequence[str]) -> dict[str, str | None]:
    """Which data each suite gets."""
    if len(set(suites)) != len(suites):
        raise ConfigError(f"a suite is named twice: {', '.join(suites)}")
    if len(data) > 1 and len(data) != len(suites):
        raise ConfigError(f"{len(data)} times --data for {len(suites)} suites: give one for all, or one for each")
    if len(data) <= 1:
        return dict.fromkeys(suites, data[0] if data else None)
    return dict(zip(suites, data, strict=True))


def _embedder(spec: str, *, fit: str | None, shared: dict[str, Any], progress: Progress, seed: int) -> CachedEmbedder:
    encoder = open_model(spec)
    embedder = CachedEmbedder(encoder, cache=shared["cache"], n_workers=shared["n_workers"], progress=progress)
    if getattr(encoder, "needs_fit", False):
        if fit is None:
            raise ConfigError(
                f"encoder {spec} has no trained heads yet: give a checkpoint ({encoder.name}:FOLDER), a run's folder, "
                "or --fit DATA to fit them on the train split of a data set"
            )
        source, _ = open_data(
            fit, images=shared["images"], allow_missing=False, cache=shared["cache"], n_workers=shared["n_workers"]
        )
        fit_if_needed(encoder, source, chosen_split(source, None, usual=_train_split(source)), embedder, seed=seed)
    return embedder


def _train_split(source: PairSource) -> str:
    """The split called train, or the only one whose name begins so ("train2017")."""
    named = [split for split in source.splits() if split.startswith("train")]
    return named[0] if len(named) == 1 else "train"


def _drift(
    embedder: CachedEmbedder,
    other: CachedEmbedder,
    *,
    reference: str,
    data: str | None,
    shared: dict[str, Any],
    uncertainty: Uncertainty,
) -> SuiteResult:
    """Drift on the pictures and captions of a retrieval data set."""
    runnable = open_suite("retrieval(allow_mixed=True)", data=data, **shared)
    suite, pictures = runnable.suite, runnable.pictures  # type: ignore[attr-defined]
    names = list(dict.fromkeys(caption.image for caption in suite.captions))
    texts = list(dict.fromkeys(caption.text for caption in suite.captions))
    items = [pictures.item(name) for name in names]
    scores = [
        *drift_scores(
            other.images(items, label="drift: images, reference"),
            embedder.images(items, label="drift: images"),
            group="images",
            uncertainty=uncertainty,
        ),
        *drift_scores(
            other.texts(texts, label="drift: texts, reference"),
            embedder.texts(texts, label="drift: texts"),
            group="texts",
            uncertainty=uncertainty,
        ),
    ]
    return SuiteResult(
        suite=DRIFT,
        kind="drift",
        partial=False,
        n_items=len(names) + len(texts),
        n_run=len(names) + len(texts),
        missing=Missing(),
        headline=f"images / {scores[0].metric}",
        facts={
            "reference": reference,
            "reference_fingerprint": other.encoder.fingerprint(),
            "data": data,
            "split": suite.split,
            "n_images": len(names),
            "n_texts": len(texts),
        },
        pictures=pictures.facts(),
        scores=scores,
    )


def _written(
    document: Document,
    outcomes: Sequence[Outcome],
    opened: dict[str, Runnable],
    *,
    out: Path | None,
    export: str | None,
) -> list[str]:
    if out is None:
        return []
    texts = {suite.name: suite.texts() for suite in opened.values() if suite.texts()}
    written = [str(out / "results.json")]
    if export is not None:
        rows, _ = clip_benchmark_rows(document)
        written += [str(path) for path in write_clip_benchmark(out, rows)]
    write_results(out, document, outcomes, texts)
    return written
