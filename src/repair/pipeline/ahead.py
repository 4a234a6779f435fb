"""Ask ahead: each failure goes from verify to its last edit by itself, without waiting for the others.

What is asked is what the stages will ask. When they run, every answer is in the ledger, and they write their tables
from there in their own order: so the tables are the same as without this, a stage can still be run alone, and an
interrupted run goes on exactly. What is decided on the way (is another image drawn? which candidate is checked?) is
decided failure by failure, as the stages decide it.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from repair import selection, verification
from repair.core.ports import Case
from repair.core.records import Candidate, Direction, Failure, Instruction, Verdict
from repair.pipeline import asking
from repair.pipeline.asking import ask_all
from repair.pipeline.catalogue import build_case
from repair.pipeline.checking import check_candidate, draws_lazily, passes, unchecked
from repair.pipeline.selecting import Selecting, draw_another, has_editor
from repair.pipeline.stages_repair import ask_candidate, ask_plan, mined_with, table
from repair.pipeline.workbench import Workbench

Result = TypeVar("Result")

STAGES = ("verify", "instruct", "edit", "select")  # those whose calls are made ahead


def ask_ahead(bench: Workbench, round: int, *, start: str, last: str) -> None:
    """Ask everything that the stages `start` to `last` (of STAGES) of a round will ask. Those before `start` have run:
    what their tables say holds, failed calls included."""
    if start == "select" and not bench.config.selection.verify_candidates:
        return
    failures = _mixed(table(bench, round, "failures", Failure))
    with _Journeys(bench, round, start=start, last=last) as journeys:
        ask_all(
            journeys.asker,
            journeys.make,
            failures,
            label=f"{start} to {last}" if start != last else start,
            progress=bench.progress,
            first=bench.failed_earlier,
            concurrency=journeys.n_under_way,
            ordered=False,
            filtered=lambda kept: not kept,
        )


class _Journeys:
    """A context manager. Selecting is done in a thread of its own, so that calls go on meanwhile."""

    def __init__(self, bench: Workbench, round: int, *, start: str, last: str) -> None:
        self.asker = bench.asker()
        # Enough under way that the slowest place always has some waiting, whatever the others are doing.
        self.n_under_way = bench.config.calls.concurrency * (1 + bench.n_places)
        self._bench = bench
        self._fused = bench.config.calls.plan == "fused"
        self._n_candidates = bench.config.editing.n_candidates
        self._edits, self._checks = last in ("edit", "select"), last == "select"
        self._instructs = last != "verify"
        begun = STAGES.index(start)
        self._verdicts = {v.failure_id: v for v in (table(bench, round, "verdicts", Verdict) if begun > 0 else ())}
        told = table(bench, round, "instructions", Instruction) if begun > 1 else ()
        self._told = {told.failure_id: told for told in told}
        self._candidates: dict[str, list[Candidate]] = {}
        for candidate in table(bench, round, "candidates", Candidate) if begun > 2 else ():
            self._candidates.setdefault(candidate.failure_id, []).append(candidate)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="select")
        self._selecting = Selecting(bench, after=mined_with(round))
        draws = self._fused and self._edits and bench.image_editor is not None
        if draws or (self._checks and bench.config.selection.verify_candidates):
            self._selecting.prepare()

    def __enter__(self) -> "_Journeys":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._selecting.keep()  # or the stage that selects for all embeds every edit again

    async def make(self, failure: Failure) -> bool:
        """One failure's whole way. Returns False if the verifier dropped it."""
        bench = self._bench
        case = build_case(failure, bench.train, bench.source)
        verdict = await self._verdict(failure, case)
        if not verdict.keep:
            return verdict.error is not None
        if not self._instructs or not has_editor(bench, failure.direction):
            return True
        told = await self._instruction(failure, case)
        if told.error is None and self._edits:
            accepted: dict[tuple[str, int], bool] = {}
            candidates = self._candidates.get(failure.failure_id)
            if candidates is None:
                candidates = await self._edit(failure, case, told, accepted)
            if self._checks and bench.config.selection.verify_candidates:
                await self._checked(failure, candidates, accepted)
        return True

    async def _verdict(self, failure: Failure, case: Case) -> Verdict:
        known = self._verdicts.get(failure.failure_id)
        if known is not None:
            return known
        if not self._bench.config.verification.enabled:
            return verification.unasked(failure)
        if self._fused:
            return asking.plan_verdict(case, await ask_plan(self._bench, self.asker, case))
        return await self.asker.verdict(case, self._bench.verifier)

    async def _instruction(self, failure: Failure, case: Case) -> Instruction:
        known = self._told.get(failure.failure_id)
        if known is not None:
            return known
        if self._fused:
            return asking.plan_instruction(case, await ask_plan(self._bench, self.asker, case))
        return await self.asker.instruction(case, self._bench.instructor)

    async def _edit(
        self, failure: Failure, case: Case, told: Instruction, accepted: dict[tuple[str, int], bool]
    ) -> list[Candidate]:
        bench, n = self._bench, self._n_candidates
        if self._fused and not draws_lazily(bench, failure.direction):
            return asking.plan_candidates(case, await ask_plan(bench, self.asker, case), n_edits=n)
        if not self._fused:
            return await _together(ask_candidate(bench, self.asker, case, told, index) for index in range(n))
        drawn: list[Candidate] = []
        for index in range(n):
            drawn.append(await ask_candidate(bench, self.asker, case, told, index))
            chosen, unanswered = await self._checked(failure, drawn, accepted)
            if not draw_another(chosen, max_misses=bench.config.editing.max_misses, unanswered=unanswered):
                break
        return drawn

    async def _checked(
        self, failure: Failure, candidates: Sequence[Candidate], accepted: dict[tuple[str, int], bool]
    ) -> tuple[selection.Selection, set[str]]:
        """The selection once the verifier has been asked about all it must be; its answers are put into `accepted`. And
        the failure's id, if it could not be asked."""
        unanswered: set[str] = set()
        while True:
            chosen = await self._select(failure, candidates, accepted)
            unasked = unchecked(self._bench, [failure], chosen, accepted)
            if not unasked:
                return chosen, unanswered
            for candidate in unasked:
                verdict = await check_candidate(self._bench, self.asker, failure, candidate)
                accepted[candidate.failure_id, candidate.index] = passes(verdict)
                if verdict.error is not None:
                    unanswered.add(failure.failure_id)

    async def _select(
        self,
        failure: Failure,
        candidates: Sequence[Candidate],
        accepted: dict[tuple[str, int], bool],
    ) -> selection.Selection:
        select = partial(self._selecting.of_one, failure, tuple(candidates), accepted=dict(accepted))
        return await asyncio.get_running_loop().run_in_executor(self._thread, select)


def _mixed(failures: Sequence[Failure]) -> list[Failure]:
    """Both directions side by side, each in its order: their edits are made in different places, and both stay busy."""
    n_of = {direction: sum(f.direction is direction for f in failures) for direction in Direction}
    seen = dict.fromkeys(Direction, 0)
    placed = []
    for row, failure in enumerate(failures):
        placed.append((seen[failure.direction] / n_of[failure.direction], row))
        seen[failure.direction] += 1
    return [failures[row] for _, row in sorted(placed)]


async def _together(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """The results of all, in order; if one raises, the others are waited for first: what is paid for is kept."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]
