"""Selection as the pipeline does it: for all failures of a round at once, or for one as soon as it has candidates.

Both ways embed every edit by itself (features.py), so they decide alike.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from repair import selection
from repair.core.records import Candidate, Direction, Failure
from repair.pipeline import registries
from repair.pipeline.features import Features
from repair.pipeline.workbench import Workbench


class Selecting:
    """Selects with the weights that the round was mined with, those after round `after` (None: before any)."""

    def __init__(self, bench: Workbench, *, after: int | None) -> None:
        self._bench = bench
        self._features = Features(bench, after)

    def prepare(self) -> None:
        """Load now what selecting needs of the model and the train split, not when the first failure comes."""
        self._features.load()

    def measure(self, failures: Sequence[Failure], candidates: Sequence[Candidate]) -> selection.Measures:
        return self._features.measure(failures, candidates)

    def of_all(
        self,
        failures: Sequence[Failure],
        candidates: Sequence[Candidate],
        measures: selection.Measures,
        *,
        accepted: Mapping[tuple[str, int], bool] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> selection.Selection:
        """One repair a failure. `measures` are those of `measure`; `accepted`: a verifier's answers by (failure id,
        index); `errors`: calls that failed, by failure id."""
        return self._select(failures, candidates, measures, accepted=accepted, errors=errors)

    def of_one(
        self,
        failure: Failure,
        candidates: Sequence[Candidate],
        *,
        accepted: Mapping[tuple[str, int], bool] | None = None,
    ) -> selection.Selection:
        """The same for one failure; `keep` puts what was embedded for it into the cache."""
        measures = self._features.measure_one(failure, candidates)
        return self._select([failure], candidates, measures, accepted=accepted)

    def keep(self) -> None:
        """Keep what was embedded for single failures. Raises StoreError."""
        self._features.keep()

    def _select(
        self,
        failures: Sequence[Failure],
        candidates: Sequence[Candidate],
        measures: selection.Measures,
        *,
        accepted: Mapping[tuple[str, int], bool] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> selection.Selection:
        settings = self._bench.config.selection
        return selection.select(
            failures,
            candidates,
            measures,
            contents=_contents(self._bench, failures),
            rule=settings.rule,
            min_gain=settings.min_gain,
            noop_cosine=settings.noop_cosine,
            accepted=accepted,
            without_editor=[direction for direction in Direction if not has_editor(self._bench, direction)],
            errors=errors,
        )


def draw_another(chosen: selection.Selection, *, max_misses: int, unanswered: Set[str]) -> set[str]:
    """The failures (ids) of a lazy plan that get a further candidate: none is valid yet, and not yet `max_misses` of
    them changed it in vain. Those in `unanswered`, where a check failed, wait until it is asked again."""
    in_vain = (selection.Rejection.LOW_GAIN, selection.Rejection.REFUSED)
    misses = Counter(c.failure_id for c in chosen.scored if c.rejected in in_vain)
    open_ = {r.failure_id for r in chosen.repairs if r.key is None and misses[r.failure_id] < max_misses}
    return open_ - unanswered


def has_editor(bench: Workbench, direction: Direction) -> bool:
    settings = bench.config.editing
    name = settings.text_editor if direction is Direction.IMAGE_TO_TEXT else settings.image_editor
    return name != registries.NONE


def _contents(bench: Workbench, failures: Iterable[Failure]) -> dict[str, selection.Contents]:
    contents = {}
    for failure in failures:
        if failure.direction is Direction.IMAGE_TO_TEXT:
            own = bench.train.image_texts(bench.train.image_row[failure.query_id])
            false = bench.train.texts[bench.train.caption_row[failure.false_positive_id]]
            contents[failure.failure_id] = selection.Contents(false_positive=false, ground_truths=own)
        else:
            contents[failure.failure_id] = selection.Contents(
                false_positive=bench.source.image_hash(failure.false_positive_id),
                ground_truths=(bench.source.image_hash(failure.ground_truth_id),),
            )
    return contents
