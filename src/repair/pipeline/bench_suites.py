"""A bench's suites: the final weights of every run, and those that all began with, on the same items.

BENCH/suites/RUN/       what `repair eval --model RUN --suite … --out …` writes, and
              asked.json  written last: of which weights and suites it is; what is there of the same is kept
BENCH/suites/base-…/    the same for each of the seeds' first weights that differ
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repair import __version__
from repair.config import Config
from repair.core.errors import ConfigError, RepairError
from repair.core.identity import short
from repair.core.progress import Progress
from repair.pipeline.registries import SUITES
from repair.store.files import read_json, write_json

if TYPE_CHECKING:
    from repair.evaluation.document import Document
    from repair.pipeline.judging import Session

BASE = "base"  # the row of what every variant starts from
TABLE = "bench.json"  # what a bench found, in its folder
_FOLDER = "suites"
_ASKED = "asked.json"
_SEED = 0  # of the resamples, as `repair eval` has it


@dataclass(frozen=True, slots=True)
class Suites:
    """Suites as `--suite` takes them, and their data as `--data` does."""

    names: tuple[str, ...]
    data: tuple[str, ...]


NO_SUITES = Suites((), ())


def checked_suites(names: Sequence[str], data: Sequence[str], *, where: str) -> Suites:
    """Raises ConfigError for a suite that there is not, listing those that there are."""
    for name in names:
        try:
            SUITES.require(name)
        except ConfigError as error:
            raise ConfigError(f"{where}: bench.suites: {error}") from None
    return Suites(tuple(names), tuple(data))


def open_suites(suites: Suites, config: Config, *, where: str, progress: Progress) -> "Session":
    """All suites, opened once for all runs. Raises ConfigError for a wrong option or data that are not given, DataError
    for data that cannot be read."""
    from repair.pipeline.judging import open_session

    settings = config.evaluation
    try:
        return open_session(
            suites=suites.names,
            data=suites.data,
            cache=config.cache_path(),
            uncertainty={"confidence": settings.confidence, "n_resamples": settings.n_bootstrap, "seed": _SEED},
            n_workers=config.run.n_workers,
            progress=progress,
        )
    except ConfigError as error:
        hint = " (in a bench --data is bench.suite_data)" if "--data" in str(error) else ""
        raise ConfigError(f"{where}: bench.suites: {error}{hint}") from None


def judge_runs(
    session: "Session", runs: Mapping[str, Sequence[Config]], *, folder: Path, progress: Progress
) -> list[dict[str, Any]]:
    """Finished runs, by variant and one a seed, judged unless they have been; what bench.json keeps of it.

    A dict for each suite: its name, its "scores" in order, each "group / metric", the "headline" among them, and
    "seeds": for base and each variant, the values of every score, in the order of the seeds.
    """
    first = next(iter(runs.values()))
    found = {BASE: [_base(session, config, folder=folder, progress=progress) for config in first]}
    for variant, configs in runs.items():
        found[variant] = [_final(session, config, folder=folder, progress=progress) for config in configs]
    return [_facts(place, found) for place in range(len(session.opened))]


def _facts(place: int, found: Mapping[str, Sequence["Document"]]) -> dict[str, Any]:
    results = {variant: [document.suites[place] for document in documents] for variant, documents in found.items()}
    shown = results[BASE][0]
    return {
        "suite": shown.suite,
        "kind": shown.kind,
        "headline": shown.headline,
        "n_items": shown.n_run,
        "scores": [f"{score.group} / {score.metric}" for score in shown.scores],
        "seeds": {
            variant: {
                f"{score.group} / {score.metric}": [one.score(score.group, score.metric).value for one in seeds]
                for score in shown.scores
            }
            for variant, seeds in results.items()
        },
    }


def _base(session: "Session", config: Config, *, folder: Path, progress: Progress) -> "Document":
    weights = _weights(config, "base")
    place = folder / _FOLDER / f"base-{short(weights)}"
    return _judged(session, f"{config.run_path()}@base", weights, place, progress=progress)


def _final(session: "Session", config: Config, *, folder: Path, progress: Progress) -> "Document":
    weights = _weights(config, f"round-{config.pipeline.rounds - 1}")
    place = folder / _FOLDER / config.run.name
    return _judged(session, str(config.run_path()), weights, place, progress=progress)


def _weights(config: Config, evaluation: str) -> str:
    """The fingerprint of the encoder that an evaluation of a run was of."""
    facts = read_json(config.run_path() / "evaluation" / f"{evaluation}.json")
    return str(facts["encoder"])


def _judged(session: "Session", model: str, weights: str, place: Path, *, progress: Progress) -> "Document":
    from repair.evaluation.document import read_results

    asked = {
        "weights": weights,
        "suites": {spec: suite.fingerprint for spec, suite in session.opened.items()},
        "uncertainty": dict(session.uncertainty),
        "version": __version__,
    }
    if _is_there(place, asked):
        return read_results(place)[0]
    progress.say(f"bench: {', '.join(session.opened)} on {model}")
    document, outcomes = session.results(model)
    (place / _ASKED).unlink(missing_ok=True)  # what it told of is about to go
    session.write(document, outcomes, out=place)
    write_json(place / _ASKED, asked)
    return document


def _is_there(place: Path, asked: Mapping[str, Any]) -> bool:
    try:
        return bool(read_json(place / _ASKED) == asked)
    except RepairError:
        return False
