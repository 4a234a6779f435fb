"""Where a run and its calls are: a run may have been moved, alone or with the ledger it shares, since it was made."""

import os
from collections.abc import Sequence
from pathlib import Path

from repair.config import Config, load_config, toml_literal
from repair.store.run_folder import RunFolder, is_run_folder

LEDGER, BLOBS = "ledger.sqlite", "blobs.sqlite"


def config_at(path: Path, *, overrides: Sequence[str] = ()) -> Config:
    """The settings of a config file, with overrides. Those of a run's own config.toml are for the run where it is now,
    and for the ledger that `calls_file` finds: it goes on there, also if it was moved. Raises ConfigError."""
    place = path.parent.absolute()
    if path.name == "config.toml" and is_run_folder(place):
        folder = RunFolder.view(place)
        written = config_of(folder)
        if os.path.normpath(written.run_path().absolute()) != os.path.normpath(place):
            moved = {"run.folder": str(place.parent), "run.name": place.name}
            ledger = calls_file(folder, written, LEDGER)
            if written.run.calls and ledger is not None:
                moved["run.calls"] = str(ledger.parent)
            overrides = [*(f"{name}={toml_literal(value)}" for name, value in moved.items()), *overrides]
    return load_config(path, overrides=overrides)


def config_of(folder: RunFolder) -> Config:
    """The resolved config a run was made with."""
    return load_config(folder.config_path, environment={})


def calls_places(folder: RunFolder, config: Config) -> tuple[Path, ...]:
    """The folders in which a run's ledger and edited images are looked for, in this order.

    Its own folder; with a shared ledger (`run.calls`): where that stands as seen from the run, so that what moved
    together is found, and a copy finds its own; where the config says; beside the run, under its name.
    """
    if not config.run.calls:
        return (folder.path,)
    named, made_at = Path(config.run.calls), config.run_path()
    places = [named, folder.path.parent / named.name]
    if named.is_absolute() == made_at.is_absolute():  # else what lies between the two depends on a working directory
        places.insert(0, Path(os.path.normpath(folder.path / os.path.relpath(named, made_at))))
    distinct: dict[str, Path] = {}
    for place in places:
        distinct.setdefault(os.path.normpath(place.absolute()), place)
    return tuple(distinct.values())


def calls_file(folder: RunFolder, config: Config, name: str) -> Path | None:
    """`name`, LEDGER or BLOBS, in the first place that has it; None where none has."""
    return next((place / name for place in calls_places(folder, config) if (place / name).exists()), None)


def no_calls_file(folder: RunFolder, config: Config, name: str) -> str:
    """Says where `calls_file` has looked for `name`."""
    return f"there is no {name} in {' or '.join(str(place) for place in calls_places(folder, config))}"
