"""The data source a config names, opened."""

from repair.config import Config
from repair.core.identity import canonical_json
from repair.core.ports import PairSource
from repair.pipeline import registries

_PURE = "world"  # what it holds follows from its options alone, so it never goes stale
_kept: dict[str, PairSource] = {}  # the one opened last, by its options


def open_source(config: Config) -> PairSource:
    """The source of `config`. Raises ConfigError or DataError if it cannot be opened.

    Drawing the embedded world takes the better part of a minute, so a process that opens the same one again (a run and
    its report, the runs of a bench) gets the one it has. Sources that read files are always read anew.
    """
    section = config.data
    key = canonical_json([section.source, section.options])
    if key in _kept:
        return _kept[key]
    source: PairSource = registries.SOURCES.build(
        section.source, options=section.options, cache=config.cache_path(), n_workers=config.run.n_workers
    )
    if section.source == _PURE:
        _kept.clear()
        _kept[key] = source
    return source
