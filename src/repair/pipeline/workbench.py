"""Everything a run works with, made from its config on first use: data, encoder, caches, backends, call engine."""

from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Self, cast

import numpy as np

from repair import __version__
from repair.calls.budget import Budget
from repair.calls.engine import CallEngine
from repair.calls.prices import Seat, parse_prices, seat_of
from repair.config import Config
from repair.core.calls import Caps
from repair.core.errors import ConfigError
from repair.core.ports import Case, ImageEditor, Instructor, PairSource, Planner, TextEditor, TrainableEncoder, Verifier
from repair.core.progress import Progress
from repair.core.records import Direction, Failure, ScoredCandidate
from repair.methods.method import Method
from repair.pipeline import registries
from repair.pipeline.asking import Asker
from repair.pipeline.catalogue import Catalogue, build_catalogue
from repair.pipeline.sources import open_source
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger
from repair.store.run_folder import RunFolder

Backend = Verifier | Instructor | TextEditor | ImageEditor | Planner


class Workbench:
    """A context manager: closing it closes ledger, blobs and run folder, in this order.

    `command` is what the user types to go on with the run.
    """

    def __init__(self, config: Config, folder: RunFolder, progress: Progress, *, command: str = "") -> None:
        self.config = config
        self.folder = folder
        self.progress = progress
        self.command = command or f"repair run {folder.config_path}"
        self._catalogues: dict[str, Catalogue] = {}

    @classmethod
    def open(cls, config: Config, *, progress: Progress, reuse: bool = False, command: str = "") -> Self:
        """Create or reopen the run folder of `config`, locked. Raises ConfigError for a backend that cannot be made
        (nothing is written then), and what RunFolder.open raises."""
        registries.require_choices(config)
        folder = RunFolder.open(
            config.run_path(),
            config_toml=config.to_toml(),
            fingerprint=config.fingerprint(),
            settings=config.flat(),
            versions=_versions(),
            reuse=reuse,
        )
        bench = cls(config, folder, progress, command=command)
        try:
            bench.make_backends()
        except BaseException:
            bench.__exit__()
            raise
        return bench

    @classmethod
    def without_folder(cls, config: Config, *, progress: Progress) -> Self:
        """For looking ahead: data, encoder and backends as the run would have them, but no folder, and no calls."""
        registries.require_choices(config)
        return cls(config, cast(RunFolder, None), progress, command="repair run")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("ledger", "blobs"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self.folder.close()

    # ------------------------------------------------------------------------------------------ data

    @cached_property
    def source(self) -> PairSource:
        return open_source(self.config)

    @cached_property
    def train(self) -> Catalogue:
        return self.catalogue(self.config.data.train_split)

    def catalogue(self, split: str) -> Catalogue:
        """The index of a split, made once."""
        if split not in self._catalogues:
            self._catalogues[split] = build_catalogue(self.source, split)
        return self._catalogues[split]

    def evaluated_splits(self) -> tuple[str, ...]:
        """val, then test, if they differ."""
        return tuple(dict.fromkeys((self.config.data.val_split, self.config.data.test_split)))

    # ------------------------------------------------------------------------------------------ encoder

    def new_encoder(self) -> TrainableEncoder:
        """The encoder as the config names it, before any fitting or training by this run."""
        section = self.config.encoder
        encoder: TrainableEncoder = registries.ENCODERS.build(
            section.name, options=section.options, seed=self.config.run.seed
        )
        return encoder

    @cached_property
    def plain_encoder(self) -> TrainableEncoder:
        """For what never trains (preparing) and for the fingerprint of where everything starts."""
        return self.new_encoder()

    @property
    def fits_base(self) -> bool:
        """Whether the encoder has heads to be fitted before it can retrieve anything."""
        return bool(getattr(self.plain_encoder, "needs_fit", False))

    def weights_folder(self, round: int | None) -> Path | None:
        """Where the weights after `round` are (None: before any round); None if they are the encoder's own."""
        if round is not None:
            return self.folder.folder(round) / "weights"
        return self.folder.path / "base" if self.fits_base else None

    def encoder_after(self, round: int | None) -> TrainableEncoder:
        """A fresh encoder with the weights as they stood after `round` (None: before any round)."""
        encoder = self.new_encoder()
        weights = self.weights_folder(round)
        if weights is not None:
            encoder.load_weights(str(weights))
        return encoder

    # ------------------------------------------------------------------------------------------ backends

    @cached_property
    def verifier(self) -> Verifier:
        section = self.config.verification
        verifier: Verifier = registries.VERIFIERS.build(section.verifier, options=section.options)
        return verifier

    @cached_property
    def instructor(self) -> Instructor:
        section = self.config.instruction
        instructor: Instructor = registries.INSTRUCTORS.build(section.instructor, options=section.options)
        return instructor

    @cached_property
    def text_editor(self) -> TextEditor | None:
        section = self.config.editing
        if section.text_editor == registries.NONE:
            return None
        editor: TextEditor = registries.TEXT_EDITORS.build(section.text_editor, options=section.text_options)
        return editor

    @cached_property
    def image_editor(self) -> ImageEditor | None:
        section = self.config.editing
        if section.image_editor == registries.NONE:
            return None
        editor: ImageEditor = registries.IMAGE_EDITORS.build(section.image_editor, options=section.image_options)
        return editor

    @cached_property
    def planner(self) -> Planner:
        section = self.config.calls
        planner: Planner = registries.PLANNERS.build(section.planner, options=section.planner_options)
        return planner

    @cached_property
    def method(self) -> Method:
        """What the run compares or is: RePair, unless the config names another."""
        section = self.config.method
        method: Method = registries.METHODS.build(section.name, options=section.options)
        return method

    def make_backends(self) -> None:
        """Make every backend this run will ask, so that a wrong option or price, or a cap of money without a price, is
        refused before hours of work."""
        _ = self._seats
        budget = Budget(Caps(max_usd=self.config.calls.max_usd))
        edited = {"text_editor": Direction.IMAGE_TO_TEXT, "image_editor": Direction.TEXT_TO_IMAGE}
        for role in self.roles():
            backend, direction = getattr(self, role), edited.get(role)
            if backend is None or (direction is not None and direction not in self.config.mining.directions):
                continue
            seat = self.seat(backend)
            if seat.price is None:
                budget.require_price(role, None, name=seat.name)

    def roles(self) -> list[str]:
        """The backends this run will ask, as this class names them."""
        config = self.config
        if not self.method.is_repair:  # its own tools are `pipeline.tools.Toolbox`
            asks = self.method.failures and config.verification.enabled
            return ["verifier"] if asks and config.calls.plan == "staged" else ["planner"] if asks else []
        fused = config.calls.plan == "fused"
        names = ["planner"] if fused else ["instructor", "text_editor"]
        asked = (config.verification.enabled and not fused) or config.grids.verify_cells
        if asked or config.selection.verify_candidates:
            names.append("verifier")
        return [*names, "image_editor"]

    def backend_facts(self, *names: str) -> dict[str, str]:
        """Fingerprints of the named backends, for stage keys; an absent editor is "none"."""
        found = {name: getattr(self, name) for name in names}
        return {name: registries.NONE if backend is None else backend.fingerprint for name, backend in found.items()}

    # ------------------------------------------------------------------------------------------ calls

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger.open(self._calls_folder() / "ledger.sqlite")

    @cached_property
    def blobs(self) -> BlobStore:
        return BlobStore.open(self._calls_folder() / "blobs.sqlite")

    def _calls_folder(self) -> Path:
        if not self.config.run.calls:
            return self.folder.path
        folder = self.config.calls_path()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run.calls: the folder {folder} cannot be made: {error.strerror}") from error
        return folder

    @cached_property
    def failed_before(self) -> frozenset[str]:
        """Failures of which a call failed in an earlier session and has not been answered since."""
        return self.ledger.failed_items()

    def failed_earlier(self, record: Failure | ScoredCandidate | Case) -> bool:
        """Whether a call about its failure failed in an earlier session: what may be mended is asked before what is
        new."""
        return record.failure_id in self.failed_before

    @cached_property
    def engine(self) -> CallEngine:
        """The call engine on this run's ledger, one for the session: a call that failed is not made again in it. Its
        caps count what the ledger already holds."""
        calls = self.config.calls
        caps = Caps(max_usd=calls.max_usd, max_tokens=calls.max_tokens, max_calls=calls.max_calls)
        return CallEngine(
            self.ledger,
            self.blobs,
            concurrency=calls.concurrency,
            deadline_s=calls.timeout_s,
            budget=Budget(caps, spent=self.ledger.spent()),
            max_failed_rate=calls.max_failed_rate,
        )

    def asker(self) -> Asker:
        """Asks backends through the session's engine."""
        _ = self.failed_before  # before this session's own failures are on record
        return Asker(self.engine, self.config.run.seed, self.config.calls.concurrency, self.seat, self.command)

    def seat(self, backend: Backend) -> Seat:
        """Where calls to a backend of this run go, and what they cost there."""
        known = self._seats.get(id(backend))
        if known is not None:
            return known
        return seat_of(backend, name=type(backend).__name__, prices=parse_prices(self.config.calls.prices))

    def seat_of_role(self, role: str) -> Seat:
        """The same by the backend's name in this class, e.g. "image_editor"."""
        return self.seat(getattr(self, role))

    @property
    def n_places(self) -> int:
        """How many places (server and model) this run calls."""
        return len({seat.place for seat in self._seats.values()})

    @cached_property
    def _seats(self) -> dict[int, Seat]:
        config, prices = self.config, parse_prices(self.config.calls.prices)
        names = {
            "verifier": config.verification.verifier,
            "instructor": config.instruction.instructor,
            "text_editor": config.editing.text_editor,
            "image_editor": config.editing.image_editor,
            "planner": config.calls.planner,
        }
        backends = {role: getattr(self, role) for role in self.roles()}
        return {
            id(backend): seat_of(backend, name=names[role], prices=prices)
            for role, backend in backends.items()
            if backend is not None
        }


def _versions() -> dict[str, str]:
    return {"repair-clip": __version__, "numpy": np.__version__, "torch": metadata.version("torch")}
