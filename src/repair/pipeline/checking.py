"""Selection with the verifier's word on the edits, where it is asked (`selection.verify_candidates`)."""

from collections.abc import Mapping, Sequence, Set

from repair import selection, verification
from repair.core.ports import ImageItem
from repair.core.records import Candidate, Direction, Failure, ScoredCandidate, Verdict
from repair.pipeline.asking import Asker, ask_all
from repair.pipeline.catalogue import build_case
from repair.pipeline.features import edited_bytes
from repair.pipeline.questions import SELECTED_TASK
from repair.pipeline.selecting import Selecting
from repair.pipeline.workbench import Workbench


class Checking:
    """Selects, asking the verifier about candidates where `selection.verify_candidates` says so.

    It is asked about the candidates that `unchecked` names; what it refuses is left out and another one selected, until
    all were asked. A candidate that it could not be asked about is not taken either; its failure counts as failed if no
    other one is.
    """

    def __init__(self, bench: Workbench, selecting: Selecting) -> None:
        self.verdicts: list[Verdict] = []
        self._bench = bench
        self._selecting = selecting
        self._accepted: dict[tuple[str, int], bool] = {}
        self._errors: dict[str, str] = {}

    def select(
        self, failures: Sequence[Failure], candidates: Sequence[Candidate], *, errors: Mapping[str, str] | None = None
    ) -> selection.Selection:
        """As Selecting.of_all; what was asked before is not asked again."""
        by_id = {failure.failure_id: failure for failure in failures}
        asker = self._bench.asker()

        async def one(candidate: ScoredCandidate) -> Verdict:
            return await check_candidate(self._bench, asker, by_id[candidate.failure_id], candidate)

        measures = self._selecting.measure(failures, candidates)
        while True:
            chosen = self._selecting.of_all(
                failures, candidates, measures, accepted=self._accepted, errors={**(errors or {}), **self._errors}
            )
            unasked = unchecked(self._bench, failures, chosen, self._accepted)
            if not unasked:
                return chosen
            verdicts = ask_all(
                asker,
                one,
                unasked,
                label="verify edits",
                progress=self._bench.progress,
                first=self._bench.failed_earlier,
            )
            self.verdicts += verdicts
            for candidate, verdict in zip(unasked, verdicts, strict=True):
                self._accepted[candidate.failure_id, candidate.index] = passes(verdict)
                if verdict.error is not None:
                    self._errors[candidate.failure_id] = (
                        f"the check of candidate {candidate.index} failed: {verdict.error}"
                    )

    @property
    def unanswered(self) -> Set[str]:
        """The failures (ids) with a candidate that the verifier could not be asked about."""
        return self._errors.keys()


def draws_lazily(bench: Workbench, direction: Direction) -> bool:
    """Whether a failure's next candidate is made only if those before were not accepted."""
    return bench.config.calls.plan == "fused" and direction is Direction.TEXT_TO_IMAGE


def unchecked(
    bench: Workbench,
    failures: Sequence[Failure],
    chosen: selection.Selection,
    accepted: Mapping[tuple[str, int], bool],
) -> list[ScoredCandidate]:
    """The candidates that the verifier must be asked about next: the selected ones. Of a lazy plan all valid ones: each
    was asked about when it was drawn, to know whether another one must be."""
    if not bench.config.selection.verify_candidates:
        return []
    selected = {(r.failure_id, r.candidate_index) for r in chosen.repairs}
    lazy = {failure.failure_id for failure in failures if draws_lazily(bench, failure.direction)}
    return [
        one
        for one in chosen.scored
        if one.rejected is None
        and (one.failure_id, one.index) not in accepted
        and (one.failure_id in lazy or (one.failure_id, one.index) in selected)
    ]


async def check_candidate(bench: Workbench, asker: Asker, failure: Failure, candidate: ScoredCandidate) -> Verdict:
    """The verifier's word on a candidate, put in the place of the false positive."""
    key = str(candidate.key)
    image = None
    if candidate.text is None:
        image = ImageItem(key=key, content_hash=key, captions=(), read=lambda: edited_bytes(bench, key))
    case = build_case(failure, bench.train, bench.source)
    judged = verification.candidate_case(case, text=candidate.text, image=image)
    return await asker.verdict(judged, bench.verifier, task=SELECTED_TASK)


def passes(verdict: Verdict) -> bool:
    """Judged like a failure, an edit that matches the query is a benign mismatch: that is what it should be."""
    return verdict.error is None and not verdict.keep
