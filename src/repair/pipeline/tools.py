"""What builders of samples work with: a caption writer and an image maker through the call engine, rules for free."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair.calls.codecs import BYTES, JsonCodec
from repair.calls.prices import parse_prices, seat_of
from repair.config import Config
from repair.core.errors import BackendError, ConfigError, DataError, suggest
from repair.core.identity import derive_seed, hash_bytes, hash_value
from repair.core.ports import Reply
from repair.core.synthesis import CaptionWriter, Change, ImageMaker, MakingTask, WritingTask
from repair.methods.method import Method
from repair.pipeline import registries
from repair.pipeline.asking import Asker
from repair.pipeline.workbench import Workbench
from repair.store.files import content_hash

WRITE_TASK, MAKE_TASK = "write", "make"

_TEXTS: JsonCodec[tuple[str, ...]] = JsonCodec(
    encode=lambda texts: [str(text) for text in texts], decode=lambda value: tuple(str(text) for text in value)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolbox:
    """The backends of one run's method; None where none is named, or the method asks none."""

    writer: CaptionWriter | None
    rules: CaptionWriter | None
    maker: ImageMaker | None

    @classmethod
    def of(cls, config: Config, method: Method) -> "Toolbox":
        """Those that the method will ask. Raises ConfigError where one is missing or cannot do what is asked of it."""
        settings = config.method
        written = {change for builder in method.builders for change in builder.written}
        ruled = {change for builder in method.builders for change in builder.ruled}
        makes = any(builder.makes for builder in method.builders)
        return cls(
            writer=_writer("method.writer", settings.writer, settings.writer_options, written, method),
            rules=_writer("method.rules", settings.rules, settings.rules_options, ruled, method),
            maker=_maker(config, method) if makes else None,
        )

    def fingerprints(self) -> dict[str, str]:
        found = {"writer": self.writer, "rules": self.rules, "maker": self.maker}
        return {name: registries.NONE if tool is None else tool.fingerprint for name, tool in found.items()}


def _writer(
    setting: str, name: str, options: dict[str, Any], changes: set[Change], method: Method
) -> CaptionWriter | None:
    if not changes:
        return None
    if name == registries.NONE:
        raise ConfigError(f"{setting}: {method.title} writes captions, so it needs a caption writer, not none")
    writer: CaptionWriter = registries.WRITERS.build(name, options=options)
    for change in sorted(changes):
        if change not in writer.changes:
            choices = suggest(change, [str(known) for known in writer.changes])
            raise ConfigError(f'{setting}: {method.title} asks for "{change}", which "{name}" cannot do; {choices}')
    return writer


def _maker(config: Config, method: Method) -> ImageMaker:
    settings, editing = config.method, config.editing
    if settings.maker == registries.NONE:
        raise ConfigError(f"method.maker: {method.title} makes images, so it needs an image maker, not none")
    maker: ImageMaker = registries.MAKERS.build(
        settings.maker,
        options=settings.maker_options,
        editor=lambda: (
            None
            if editing.image_editor == registries.NONE
            else registries.IMAGE_EDITORS.build(editing.image_editor, options=editing.image_options)
        ),
    )
    return maker


def file_identity(path: Path) -> str:
    """Content hash of a file; of a folder, of the names, sizes and times of its files. Raises DataError."""
    try:
        if path.is_dir():
            files = [(file.name, file.stat()) for file in sorted(path.iterdir())]
            return hash_value([[name, facts.st_size, facts.st_mtime_ns] for name, facts in files])
        return content_hash(path)
    except OSError as error:
        raise DataError(f"method.released: {path} cannot be read: {error.strerror}") from error


@dataclass(slots=True, kw_only=True)
class AnchorTools:
    """`methods.method.Tools` of one anchor. `owner` is for whom the calls are, `n_calls` how many were asked for."""

    bench: Workbench
    asker: Asker
    box: Toolbox
    owner: str
    seed: int
    n_calls: int = 0
    n_failed: int = field(default=0)

    async def write(self, task: WritingTask, index: int = 0) -> tuple[str, ...] | None:
        writer = self.box.writer
        assert writer is not None
        seed = derive_seed(self.seed, WRITE_TASK, index)

        async def run() -> Reply[tuple[str, ...]]:
            return await writer.write(task, seed=seed)

        texts: tuple[str, ...] | None = await self._call(
            WRITE_TASK, writer, self.bench.config.method.writer, seed, task.payload(), run, _TEXTS
        )
        return texts

    async def rule(self, task: WritingTask, index: int = 0) -> tuple[str, ...] | None:
        assert self.box.rules is not None
        try:
            return (await self.box.rules.write(task, seed=derive_seed(self.seed, "rule", index))).value
        except BackendError:
            return None

    async def make(self, task: MakingTask, index: int = 0) -> str | None:
        maker = self.box.maker
        assert maker is not None
        seed = derive_seed(self.seed, MAKE_TASK, index)

        async def run() -> Reply[bytes]:
            return await maker.make(task, seed=seed)

        data: bytes | None = await self._call(
            MAKE_TASK, maker, self.bench.config.method.maker, seed, task.payload(), run, BYTES
        )
        return None if data is None else hash_bytes(data)

    async def keep(self, picture: bytes) -> str:
        return await asyncio.wrap_future(self.bench.blobs.put(picture))

    async def _call(
        self, task: str, backend: Any, name: str, seed: int, payload: dict[str, Any], run: Any, codec: Any
    ) -> Any:
        self.n_calls += 1
        outcome = await self.asker.engine.call(
            task=task,
            backend_fingerprint=backend.fingerprint,
            seat=seat_of(backend, name=name, prices=parse_prices(self.bench.config.calls.prices)),
            facts=getattr(backend, "facts", None),
            failure_id=self.owner,
            seed=seed,
            payload=payload,
            run=run,
            codec=codec,
        )
        self.n_failed += outcome.value is None
        return outcome.value
