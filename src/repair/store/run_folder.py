"""The folder of one run (layout: docs/architecture.md): manifest, lock, and what each stage has finished.

A stage is done when its state exists, its key is the current one and its outputs have the recorded hashes. The state is
written last, so an interrupted stage is one that never happened; its calls are in the ledger all the same.
"""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from repair.core.errors import RunMismatch, StoreError
from repair.core.identity import canonical_json
from repair.store.files import content_hash, read_json, storing, tidy, write_json, write_text
from repair.store.lock import Holder, Lock, holder

_FORMAT = 1
_MANIFEST = "run.json"
_LOCK = "lock"
_STATE_SUFFIX = ".json"
_N_DIFFERENCES_SHOWN = 5
_MISSING = "(not set)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageState:
    """What one finished stage left. `outputs` maps paths relative to the run folder to content hashes."""

    round: int | None  # None for what belongs to no round (the evaluation of the base)
    stage: str
    key: str
    outputs: dict[str, str]
    summary: dict[str, Any]


def is_run_folder(path: Path) -> bool:
    return (path / _MANIFEST).exists()


class RunFolder:
    """A run folder, open for writing (`open`) or for looking at (`view`). A context manager; closing unlocks it."""

    def __init__(self, path: Path, manifest: dict[str, Any], lock: Lock | None) -> None:
        self.path = path
        self._manifest = manifest
        self._lock = lock

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        config_toml: str,
        fingerprint: str,
        settings: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
        reuse: bool = False,
    ) -> Self:
        """Create the run folder, or reopen it with the same configuration, and lock it.

        `settings` is the flat, JSON-able mapping that `fingerprint` is of; it is kept to say what differs later.
        `reuse` accepts another configuration: stages whose keys still hold are kept, the others run again.

        Raises RunLocked if another process writes there, RunMismatch naming up to five differing settings, and
        StoreError if the folder holds something else or cannot be written.
        """
        _refuse_foreign(path)
        with storing(path):
            path.mkdir(parents=True, exist_ok=True)
        lock = Lock(path / _LOCK)
        try:
            tidy(path)
            manifest = _manifest(
                path,
                fingerprint=fingerprint,
                settings=json.loads(canonical_json(dict(settings))),  # as it will be read back
                versions=versions,
                reuse=reuse,
            )
            _write_if_changed(path / "config.toml", config_toml)
        except BaseException:
            lock.release()
            raise
        return cls(path, manifest, lock)

    @classmethod
    def view(cls, path: Path) -> Self:
        """Open an existing run folder for reading, locked or not; nothing is written. Raises StoreError."""
        if not is_run_folder(path):
            raise StoreError(f"{path} is not a run folder (it has no {_MANIFEST}): give the folder of a run")
        return cls(path, _read_manifest(path), None)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------ what is where

    @property
    def name(self) -> str:
        return str(self._manifest["name"])

    @property
    def fingerprint(self) -> str:
        return str(self._manifest["fingerprint"])

    @property
    def manifest(self) -> Mapping[str, Any]:
        """name, created (seconds since the epoch), versions, fingerprint, settings, earlier (fingerprints)."""
        return self._manifest

    @property
    def config_path(self) -> Path:
        return self.path / "config.toml"

    @property
    def ledger_path(self) -> Path:
        return self.path / "ledger.sqlite"

    @property
    def blobs_path(self) -> Path:
        return self.path / "blobs.sqlite"

    @property
    def report_path(self) -> Path:
        return self.path / "report.html"

    def folder(self, round: int | None) -> Path:
        """Where a round keeps its outputs; `evaluation/` for None."""
        return self.path / ("evaluation" if round is None else f"round-{round}")

    def holder(self) -> Holder | None:
        """The process that writes here now, as far as can be told; None if there is none."""
        return holder(self.path / _LOCK)

    # ------------------------------------------------------------------------------------------ stages

    def stage_done(self, round: int | None, stage: str, key: str) -> StageState | None:
        """The state of a stage that need not run again; None if it never finished, for another key, or its outputs
        are missing or not what they were."""
        state = self._state(self._state_path(round, stage))
        if state is None or (state.round, state.stage, state.key) != (round, stage, key):
            return None
        return state if self.intact(state) else None

    def finish_stage(
        self, round: int | None, stage: str, key: str, *, outputs: Iterable[Path], summary: Mapping[str, Any]
    ) -> StageState:
        """Record that a stage is done. `outputs` are its files and folders, all written; `summary` is JSON-able.

        Raises StoreError if an output is missing or lies outside the run folder.
        """
        if self._lock is None:
            raise StoreError(f"{self.path} was opened for reading only: stage {stage} cannot be recorded")
        hashes = {self._relative(path): content_hash(path) for path in outputs}
        state = StageState(round=round, stage=stage, key=key, outputs=hashes, summary=dict(summary))
        write_json(
            self._state_path(round, stage),
            {"round": round, "stage": stage, "key": key, "outputs": hashes, "summary": dict(summary)},
        )
        return state

    def intact(self, state: StageState) -> bool:
        """Whether all outputs of `state` are there with the recorded hashes."""
        try:
            return all(content_hash(self.path / name) == digest for name, digest in state.outputs.items())
        except StoreError:
            return False

    def states(self) -> list[StageState]:
        """Every recorded state, base first, then by round; within a round in the order of finishing. Not verified."""
        found: list[tuple[int, float, str, StageState]] = []
        for folder in (self.folder(None), *self.path.glob("round-*")):
            for path in folder.glob(f"*{_STATE_SUFFIX}"):
                state = self._state(path)
                if state is not None:
                    order = -1 if state.round is None else state.round
                    found.append((order, path.stat().st_mtime, state.stage, state))
        return [state for _, _, _, state in sorted(found, key=lambda entry: entry[:3])]

    def finished_s(self, state: StageState) -> float:
        """When the stage finished, in seconds since the epoch."""
        return self._state_path(state.round, state.stage).stat().st_mtime

    def _state_path(self, round: int | None, stage: str) -> Path:
        return self.folder(round) / f"{stage}{_STATE_SUFFIX}"

    def _relative(self, path: Path) -> str:
        try:
            return path.resolve().relative_to(self.path.resolve()).as_posix()
        except ValueError as error:
            raise StoreError(f"{path} is not inside the run folder {self.path}") from error

    def _state(self, path: Path) -> StageState | None:
        try:
            facts = read_json(path)
            return StageState(
                round=facts["round"],
                stage=facts["stage"],
                key=facts["key"],
                outputs=dict(facts["outputs"]),
                summary=dict(facts["summary"]),
            )
        except (StoreError, KeyError, TypeError, ValueError):
            return None  # missing, torn, or another JSON file: the stage runs again


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file, not a run folder: give another --run name")
    if not path.is_dir() or (path / _MANIFEST).exists():
        return
    # A process that died while creating the folder leaves at most these.
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name != _LOCK and not entry.name.endswith(".tmp"))
    if foreign:
        raise StoreError(f"{path} is not a run folder and not empty (it holds {foreign[0]}): give another --run name")


def _manifest(
    path: Path,
    *,
    fingerprint: str,
    settings: Mapping[str, Any],
    versions: Mapping[str, str] | None,
    reuse: bool,
) -> dict[str, Any]:
    """The manifest, created or checked and brought up to date."""
    manifest: dict[str, Any]
    if not (path / _MANIFEST).exists():
        manifest = {"format": _FORMAT, "name": path.resolve().name, "created": round(time.time(), 3), "earlier": []}
    else:
        manifest = _read_manifest(path)
        if manifest["fingerprint"] == fingerprint:
            return manifest
        if not reuse:
            raise RunMismatch(_mismatch(path, manifest["settings"], settings))
        manifest["earlier"] = [*manifest["earlier"], manifest["fingerprint"]]
    manifest |= {"fingerprint": fingerprint, "settings": settings, "versions": dict(versions or {})}
    write_json(path / _MANIFEST, manifest)
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / _MANIFEST
    manifest = read_json(file)
    needed = {"format", "name", "created", "earlier", "fingerprint", "settings", "versions"}
    if not isinstance(manifest, dict) or not needed <= manifest.keys():
        raise StoreError(f"{file} is not the manifest of a run: give another --run name")
    if manifest["format"] != _FORMAT:
        raise StoreError(f"{file} is of format {manifest['format']}, this version reads {_FORMAT}")
    return manifest


def _mismatch(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    names = [name for name in sorted({*old, *new}) if old.get(name, _MISSING) != new.get(name, _MISSING)]
    shown = [f"{name} {old.get(name, _MISSING)} -> {new.get(name, _MISSING)}" for name in names[:_N_DIFFERENCES_SHOWN]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    what = f"{', '.join(shown)}{more}" if shown else "the same settings on other data or another version"
    return (
        f"{path} belongs to another configuration ({what}): give another --run name, "
        "or --reuse to go on here and redo only what the change touches"
    )


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
