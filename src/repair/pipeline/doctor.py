"""`repair doctor`: is everything there that a run needs, and if not, what to do about it."""

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.errors import RepairError
from repair.core.progress import Progress
from repair.pipeline import registries
from repair.pipeline.catalogue import build_catalogue
from repair.pipeline.places import config_at
from repair.pipeline.sources import open_source

_EXTRAS = {"towers": ("timm", "transformers", "tokenizers"), "lexical": ("spacy",)}
_SHOWN = 5
_LOW_DISK_BYTES = 2 << 30

Check = dict[str, str]


def checks(config: Path | None, overrides: Sequence[str], *, progress: Progress) -> list[Check]:
    """Each check as {"status": ok | warn | fail, "name", "finding", "fix"}; the environment, then the config."""
    found = [*_environment()]
    if config is None:
        found.append(_check("ok", "config", "none given: `repair doctor CONFIG` checks its data and backends too"))
        return found
    settings, failure = _try(lambda: config_at(config, overrides=overrides))
    if settings is None:
        return [*found, _check("fail", f"config {config}", failure)]
    found.append(_check("ok", f"config {config}", f"fingerprint {settings.fingerprint()}"))
    found += _disk(settings)
    found += _data(settings, progress)
    found += _parts(settings)
    return found


def check_lines(found: Sequence[Mapping[str, str]]) -> list[str]:
    marks = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}
    lines = []
    for check in found:
        lines.append(f"{marks[check['status']]}  {check['name']}: {check['finding']}")
        if check["fix"]:
            lines.append(f"      fix: {check['fix']}")
    n_failed = sum(check["status"] == "fail" for check in found)
    lines.append(f"{n_failed} of {len(found)} checks failed" if n_failed else f"all {len(found)} checks passed")
    return lines


def _environment() -> Iterator[Check]:
    yield _check("ok", "python", platform.python_version())
    for package in ("torch", "numpy", "pillow", "pyarrow"):
        try:
            yield _check("ok", package, metadata.version(package))
        except metadata.PackageNotFoundError:
            yield _check("fail", package, "not installed", "pip install repair-clip")
    for extra, packages in _EXTRAS.items():
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            fix = f'pip install "repair-clip[{extra}]", if you want to use it'
            yield _check("warn", f"extra [{extra}]", f"not installed: {', '.join(missing)}", fix)
        else:
            yield _check("ok", f"extra [{extra}]", "installed")
    yield _check("ok", "cores", str(os.cpu_count()))
    if importlib.util.find_spec("torch") is not None:
        import torch

        yield _check("ok", "device", torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU")


def _disk(config: Config) -> Iterator[Check]:
    place = Path(config.run.folder).absolute()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        yield _check("fail", "run folder", f"{place} is not writable", "set run.folder to a folder of yours")
        return
    free = shutil.disk_usage(place).free
    status = "warn" if free < _LOW_DISK_BYTES else "ok"
    fix = "free some space, or set run.folder and run.cache elsewhere" if status == "warn" else ""
    yield _check(status, "run folder", f"{config.run_path()}, {free / 2**30:.1f} GiB free", fix)


def _data(config: Config, progress: Progress) -> Iterator[Check]:
    progress.say("doctor: reading the data")
    source, failure = _try(lambda: open_source(config))
    if source is None:
        yield _check("fail", "data", failure)
        return
    for name in ("train_split", "val_split", "test_split"):
        split = getattr(config.data, name)
        catalogue, failure = _try(partial(build_catalogue, source, split))
        if catalogue is None:
            yield _check("fail", f"data.{name}", failure)
            continue
        n_images, n_captions = len(catalogue.image_ids), len(catalogue.texts)
        finding = f"{split}: {n_images} images, {n_captions} captions, {n_captions / n_images:.2f} captions an image"
        yield _check("ok", f"data.{name}", finding)
    aside = source.set_aside
    if aside:
        shown = "; ".join(f"{item.item}: {item.reason}" for item in aside[:_SHOWN])
        yield _check(
            "warn", "data set aside", f"{len(aside)} items, e.g. {shown}", "mend or remove them, or leave them"
        )


def _parts(config: Config) -> Iterator[Check]:
    parts: list[tuple[str, Callable[[], Any]]] = [
        ("encoder", lambda: registries.ENCODERS.build(config.encoder.name, options=config.encoder.options, seed=0)),
        (
            "verifier",
            lambda: registries.VERIFIERS.build(config.verification.verifier, options=config.verification.options),
        ),
    ]
    editing = config.editing
    if config.calls.plan == "fused":
        planner = config.calls
        parts.append(("planner", lambda: registries.PLANNERS.build(planner.planner, options=planner.planner_options)))
    else:
        told = config.instruction
        parts.append(("instructor", lambda: registries.INSTRUCTORS.build(told.instructor, options=told.options)))
    if editing.text_editor != "none":
        parts.append(
            ("text editor", lambda: registries.TEXT_EDITORS.build(editing.text_editor, options=editing.text_options))
        )
    if editing.image_editor != "none":
        parts.append(
            (
                "image editor",
                lambda: registries.IMAGE_EDITORS.build(editing.image_editor, options=editing.image_options),
            )
        )
    else:
        yield _check("ok", "image editor", "none: text-to-image failures become hard-negative links")
    for name, make in parts:
        made, failure = _try(make)
        if made is None:
            yield _check("fail", name, failure)
        else:
            yield _check("ok", name, type(made).__name__)


def _try(make: Callable[[], Any]) -> tuple[Any, str]:
    """The result, or None and the message of what went wrong; only errors raised on purpose are findings."""
    try:
        return make(), ""
    except RepairError as error:
        return None, str(error)


def _check(status: str, name: str, finding: str, fix: str = "") -> Check:
    return {"status": status, "name": name, "finding": finding, "fix": fix}
