"""`repair eval --model`: any encoders on any suites, without the rest of the pipeline."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from string import ascii_uppercase
from typing import Any, cast

import numpy as np

from repair import __version__
from repair.core.errors import ConfigError
from repair.core.ports import DualEncoder, PairSource, TrainableEncoder
from repair.core.progress import Progress
from repair.evaluation.beside import Column, Table, beside, beside_lines, write_beside
from repair.evaluation.document import RESULTS, Document, Outcome, SuiteResult, write_results
from repair.evaluation.drift import drift_scores
from repair.evaluation.embedding import Uncertainty
from repair.evaluation.exports import clip_benchmark_rows, write_clip_benchmark
from repair.evaluation.tables import document_lines
from repair.numerics.statistics import N_RESAMPLES
from repair.pipeline.embedder import CachedEmbedder, made_of, open_model
from repair.pipeline.fitting import Fit, fitted_heads
from repair.pipeline.opening import chosen_split, open_data
from repair.pipeline.registries import SUITES
from repair.pipeline.suites import Runnable, open_suite

DRIFT = "drift"
_SEPARATOR = re.compile(r",(?![^(]*\))")  # a comma outside of brackets


@dataclass(frozen=True, slots=True)
class Judged:
    """What one or several models got: a document for each seed of each, and the table if there are several.

    `files` are those written.
    """

    columns: tuple[Column, ...]
    table: Table | None
    files: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The content of results.json, or of table.json if there are several models or seeds; and "files"."""
        content = self.table or self.columns[0].documents[0]
        return {**content.model_dump(by_alias=True), "files": list(self.files)}

    def lines(self) -> list[str]:
        if self.table is None:
            found = document_lines(self.columns[0].documents[0])
        else:
            found = beside_lines(self.table, self.columns)
        return [*found, *(f"wrote {path}" for path in self.files)]


def judge(
    *,
    models: Sequence[str],
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
) -> Judged:
    """Run `suites` on each of `models`, all on the same items.

    A model is a spec of `embedder.open_model`, or several seeds of one joined by commas. `data` is one for all suites
    or one for each (a suite that needs none does not count). `fit` is a data set on whose train split an encoder's
    heads are fitted first, for encoders that need it. `reference` is a model from which drift is measured on `data`.
    Every suite and every model is opened before any runs, so that a wrong path costs no hour.

    With one model `out` gets its results; with several it gets a table, and a folder of results for each (A, B, …;
    A-1, A-2, … for seeds).

    Raises ConfigError for options that do not fit together, and what suites and encoders raise.
    """
    specs = _columns(models)
    _check(suites, out=out, export=export, reference=reference)
    session = open_session(
        suites=suites,
        data=data,
        images=images,
        split=split,
        allow_missing=allow_missing,
        fit=fit,
        reference=reference,
        cache=cache,
        uncertainty=Uncertainty(confidence=confidence, n_resamples=n_bootstrap, seed=seed),
        n_workers=n_workers,
        progress=progress,
    )
    alone = len(specs) == 1 and len(specs["A"]) == 1
    if not alone:
        for spec in (spec for seeds in specs.values() for spec in seeds):
            _checked_model(spec, fit=fit)  # and let go again: one model is in memory at a time
    columns, files = [], []
    for name, seeds in specs.items():
        documents, outcomes = [], []
        for number, spec in enumerate(seeds, start=1):
            document, rows = session.results(spec)
            documents.append(document)
            outcomes.append(tuple(rows))
            if out is not None:
                folder = out if alone else out / (name if len(seeds) == 1 else f"{name}-{number}")
                files += session.write(document, rows, out=folder, export=export)
        columns.append(Column(name, ",".join(seeds), tuple(documents), tuple(outcomes)))
    table = None
    if not alone:
        table = beside(columns, confidence=confidence, n_bootstrap=n_bootstrap, seed=seed)
        if out is not None:
            files += [str(path) for path in write_beside(out, table)]
    return Judged(tuple(columns), table, tuple(files))


def _columns(models: Sequence[str]) -> dict[str, list[str]]:
    """Letter to the specs of its seeds."""
    if not models:
        raise ConfigError("eval: name at least one model with --model")
    if len(models) > len(ascii_uppercase):
        raise ConfigError(f"eval: {len(models)} times --model, at most {len(ascii_uppercase)} stand in one table")
    found = {
        name: [spec.strip() for spec in _SEPARATOR.split(model) if spec.strip()]
        for name, model in zip(ascii_uppercase, models, strict=False)
    }
    every = [spec for seeds in found.values() for spec in seeds]
    empty = [model for model, seeds in zip(models, found.values(), strict=True) if not seeds]
    if empty:
        raise ConfigError(f'--model "{empty[0]}": names no model')
    twice = [spec for spec in every if every.count(spec) > 1]
    if twice:
        raise ConfigError(f'--model: "{twice[0]}" is named twice: name each model (and each seed) once')
    return found


def _check(suites: Sequence[str], *, out: Path | None, export: str | None, reference: str | None) -> None:
    """Raises ConfigError for options that do not fit together."""
    if not suites:
        raise ConfigError(f"eval --model: name at least one suite with --suite: {', '.join((*SUITES.entries, DRIFT))}")
    if export is not None and export != "clip-benchmark":
        raise ConfigError(f'--export "{export}": the one there is is clip-benchmark')
    if export is not None and out is None:
        raise ConfigError("--export needs --out: the folder to write into")
    if out is not None:
        there = next(place for place in (out, *out.absolute().parents) if place.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            why = "is no folder" if not there.is_dir() else "cannot be written to"
            raise ConfigError(f"--out {out}: {there} {why}; name a folder, which is made if it is not there")
    if (reference is not None) != (DRIFT in suites):
        raise ConfigError(f"--reference MODEL and --suite {DRIFT} go together: drift is measured from a reference")


def _distinct(opened: Mapping[str, Runnable]) -> None:
    """Raises ConfigError if two suites have one name: their scores and files would be mixed."""
    seen: dict[str, str] = {}
    for spec, suite in opened.items():
        if suite.name in seen:
            raise ConfigError(
                f'--suite: {seen[suite.name]} and {spec} are both called "{suite.name}" in the results: give one '
                f'another name, e.g. retrieval(name="my_photos"), or run them one by one'
            )
        seen[suite.name] = spec


def open_session(
    *,
    suites: Sequence[str],
    data: Sequence[str],
    images: Path | None = None,
    split: str | None = None,
    allow_missing: bool = False,
    fit: str | None = None,
    reference: str | None = None,
    cache: Path,
    uncertainty: Uncertainty,
    n_workers: int,
    progress: Progress,
) -> "Session":
    """Open `suites` once, for any number of models; arguments as of `judge`. Raises as `judge`."""
    places = _places(suites, data)
    shared: dict[str, Any] = {
        "images": images, "split": split, "cache": cache, "n_workers": n_workers,
    }  # fmt: skip
    opened = {spec: open_suite(spec, data=place, **shared) for spec, place in places.items() if spec != DRIFT}
    _distinct(opened)
    for suite in opened.values():
        suite.require(allow_missing=allow_missing)
    return Session(
        places=places,
        opened=opened,
        fit=fit,
        reference=reference,
        allow_missing=allow_missing,
        shared=shared,
        uncertainty=uncertainty,
        progress=progress,
    )


@dataclass(frozen=True, slots=True)
class Session:
    """Suites that are open, and how they are run: every model on the same items."""

    places: Mapping[str, str | None]
    opened: Mapping[str, Runnable]
    fit: str | None
    reference: str | None
    allow_missing: bool
    shared: dict[str, Any]
    uncertainty: Uncertainty
    progress: Progress

    def results(self, model: str) -> tuple[Document, list[Outcome]]:
        """All suites on one model."""
        embedder, fitted = self._embedder(model)
        results: list[SuiteResult] = []
        outcomes: list[Outcome] = []
        for spec, place in self.places.items():
            if spec == DRIFT:
                results.append(self._drift(embedder, place))
                continue
            suite = self.opened[spec]
            found, rows = suite.run(embedder, uncertainty=self.uncertainty, allow_missing=self.allow_missing)
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
                "fitted_on": self.fit if fitted else None,
            },
            settings={
                "confidence": self.uncertainty["confidence"],
                "n_bootstrap": self.uncertainty["n_resamples"],
                "seed": self.uncertainty["seed"],
            },
            versions={"repair-clip": __version__, "numpy": np.__version__, "torch": metadata.version("torch")},
            suites=results,
        )
        return document, outcomes

    def write(
        self, document: Document, outcomes: Sequence[Outcome], *, out: Path, export: str | None = None
    ) -> list[str]:
        """One model's results into the folder `out`; the files a person looks at."""
        texts = {suite.name: suite.texts() for suite in self.opened.values() if suite.texts()}
        written = [str(out / RESULTS)]
        if export is not None:
            rows, _ = clip_benchmark_rows(document)
            written += [str(path) for path in write_clip_benchmark(out, rows)]
        write_results(out, document, outcomes, texts)
        return written

    def _embedder(self, spec: str) -> tuple[CachedEmbedder, bool]:
        """A model, and whether its heads were fitted here."""
        encoder = _checked_model(spec, fit=self.fit)
        cache, n_workers = self.shared["cache"], self.shared["n_workers"]
        embedder = CachedEmbedder(encoder, cache=cache, n_workers=n_workers, progress=self.progress)
        if not getattr(encoder, "needs_fit", False):
            return embedder, False
        source, _ = open_data(
            str(self.fit), images=self.shared["images"], any_bad=False, cache=cache, n_workers=n_workers
        )
        train = chosen_split(source, None, usual=_train_split(source))
        fit = Fit(made_of=made_of(spec), data=(source.fingerprint, train), seed=self.uncertainty["seed"])
        embedder.encoder, _ = fitted_heads(
            fit,
            lambda: cast(TrainableEncoder, open_model(spec)),
            lambda: embedder.prepared(source, train),
            cache=cache,
            progress=self.progress,
        )
        return embedder, True

    def _drift(self, embedder: CachedEmbedder, data: str | None) -> SuiteResult:
        other, _ = self._embedder(str(self.reference))
        return _drift(
            embedder,
            other,
            reference=str(self.reference),
            data=data,
            allow_missing=self.allow_missing,
            shared=self.shared,
            uncertainty=self.uncertainty,
        )


def _places(suites: Sequence[str], data: Sequence[str]) -> dict[str, str | None]:
    """Which data each suite gets."""
    if len(set(suites)) != len(suites):
        raise ConfigError(f"a suite is named twice: {', '.join(suites)}")
    if len(data) > 1 and len(data) != len(suites):
        raise ConfigError(f"{len(data)} times --data for {len(suites)} suites: give one for all, or one for each")
    if len(data) <= 1:
        return dict.fromkeys(suites, data[0] if data else None)
    return dict(zip(suites, data, strict=True))


def _checked_model(spec: str, *, fit: str | None) -> DualEncoder:
    """The encoder of a spec. Raises ConfigError for one that has to be fitted and is not to be."""
    encoder = open_model(spec)
    if getattr(encoder, "needs_fit", False) and fit is None:
        raise ConfigError(
            f"encoder {spec} has no trained heads yet: give a checkpoint ({encoder.name}:FOLDER), a run's folder, "
            "or --fit DATA to fit them on the train split of a data set"
        )
    return encoder


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
    allow_missing: bool,
    shared: dict[str, Any],
    uncertainty: Uncertainty,
) -> SuiteResult:
    """Drift on the pictures and captions of a retrieval data set."""
    runnable = open_suite("retrieval(allow_mixed=True)", data=data, **shared)
    suite, pictures = runnable.suite, runnable.pictures  # type: ignore[attr-defined]
    gallery, missing = suite.gallery(pictures, allow_missing=allow_missing)
    names, texts = gallery.images, list(dict.fromkeys(gallery.texts))
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
        partial=bool(missing.n_images or missing.problems),
        n_items=len(suite.captions),
        n_run=len(gallery.texts),
        missing=missing,
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
