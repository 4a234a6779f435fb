"""The stages between mining and training, as the run folder sees them: read tables, ask or compute, write tables."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from repair import editing, instruction, selection, verification
from repair.calls.engine import Outcome
from repair.core.ports import Case, Plan
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Instruction,
    Repair,
    ScoredCandidate,
    Verdict,
)
from repair.pipeline import asking
from repair.pipeline.asking import Asker, ask_all
from repair.pipeline.catalogue import build_case
from repair.pipeline.checking import Checking, draws_lazily
from repair.pipeline.graph import Work
from repair.pipeline.selecting import Selecting, draw_another, has_editor
from repair.pipeline.workbench import Workbench
from repair.store.tables import read_table, write_table

Record = TypeVar("Record")

FAILED_CALLS = "failed_calls"  # in a stage's summary: items kept as failed; `--retry-failed` asks them again


def mined_with(round: int) -> int | None:
    """The round whose weights mine and judge in `round`."""
    return round - 1 if round else None


def table(bench: Workbench, round: int, name: str, record_type: type[Record]) -> list[Record]:
    """A table of a round, by file name without ending."""
    return read_table(bench.folder.folder(round) / f"{name}.parquet", record_type)


def write(bench: Workbench, round: int, name: str, records: Iterable[Record], record_type: type[Record]) -> Work:
    path = bench.folder.folder(round) / f"{name}.parquet"
    write_table(path, list(records), record_type)
    return Work((path,))


def verify(bench: Workbench, round: int) -> Work:
    failures = table(bench, round, "failures", Failure)
    if not bench.config.verification.enabled:
        verdicts = [verification.unasked(failure) for failure in failures]
    else:
        asker = bench.asker()

        async def one(failure: Failure) -> Verdict:
            case = build_case(failure, bench.train, bench.source)
            if bench.config.calls.plan == "fused":
                return asking.plan_verdict(case, await ask_plan(bench, asker, case))
            return await asker.verdict(case, bench.verifier)

        verdicts = ask_all(asker, one, failures, label="verify", progress=bench.progress, first=bench.failed_earlier)
    work = write(bench, round, "verdicts", verdicts, Verdict)
    summary = {
        str(direction): verification.summarise(
            v for v, f in zip(verdicts, failures, strict=True) if f.direction is direction
        )
        for direction in Direction
    }
    return Work(work.outputs, {**summary, **_failed_calls(verdicts)})


def instruct(bench: Workbench, round: int) -> Work:
    kept = _kept(bench, round)
    editable = [failure for failure in kept if has_editor(bench, failure.direction)]
    asker = bench.asker()

    async def one(failure: Failure) -> Instruction:
        case = build_case(failure, bench.train, bench.source)
        if bench.config.calls.plan == "fused":
            return asking.plan_instruction(case, await ask_plan(bench, asker, case))
        return await asker.instruction(case, bench.instructor)

    instructions = ask_all(asker, one, editable, label="instruct", progress=bench.progress, first=bench.failed_earlier)
    work = write(bench, round, "instructions", instructions, Instruction)
    directions = {failure.failure_id: failure.direction for failure in editable}
    summary: dict[str, object] = {
        str(direction): instruction.summarise(i for i in instructions if directions[i.failure_id] is direction)
        for direction in Direction
    }
    summary["without_editor"] = len(kept) - len(editable)
    return Work(work.outputs, {**summary, **_failed_calls(instructions)})


def edit(bench: Workbench, round: int) -> Work:
    told = _told(bench, round)
    failures = [failure for failure in _kept(bench, round) if failure.failure_id in told]
    asker = bench.asker()
    fused = bench.config.calls.plan == "fused"
    lazy = [failure for failure in failures if draws_lazily(bench, failure.direction)]
    eager = [failure for failure in failures if not draws_lazily(bench, failure.direction)]

    async def all_of(failure: Failure) -> list[Candidate]:
        case = build_case(failure, bench.train, bench.source)
        if fused:
            outcome = await ask_plan(bench, asker, case)
            return asking.plan_candidates(case, outcome, n_edits=bench.config.editing.n_candidates)
        return [
            await ask_candidate(bench, asker, case, told[failure.failure_id], index)
            for index in range(bench.config.editing.n_candidates)
        ]

    found = ask_all(asker, all_of, eager, label="edit", progress=bench.progress, first=bench.failed_earlier)
    candidates = [candidate for group in found for candidate in group]
    drawn, checks = _lazy_candidates(bench, round, asker, lazy, told)
    candidates += drawn
    position = {failure.failure_id: row for row, failure in enumerate(failures)}
    candidates.sort(key=lambda c: (position[c.failure_id], c.index))
    work = write(bench, round, "candidates", candidates, Candidate)
    directions = {failure.failure_id: failure.direction for failure in failures}
    summary = {
        str(direction): {
            "failures": sum(f.direction is direction for f in failures),
            **editing.summarise(c for c in candidates if directions[c.failure_id] is direction),
        }
        for direction in Direction
    }
    return Work(work.outputs, {**summary, **_failed_calls([*candidates, *checks])})


def _lazy_candidates(
    bench: Workbench, round: int, asker: Asker, failures: list[Failure], told: Mapping[str, Instruction]
) -> tuple[list[Candidate], list[Verdict]]:
    """Image candidates in waves: the next one is drawn only for failures whose earlier ones were not accepted, by
    selection's rules and, where it is asked, by the verifier. Also returns what the verifier said."""
    drawn: list[Candidate] = []
    pending = failures
    checking = Checking(bench, Selecting(bench, after=mined_with(round)))
    for index in range(bench.config.editing.n_candidates):
        if not pending:
            break

        async def one(failure: Failure, index: int = index) -> Candidate:
            case = build_case(failure, bench.train, bench.source)
            return await ask_candidate(bench, asker, case, told[failure.failure_id], index)

        label = f"edit {index + 1}"
        wave = ask_all(asker, one, pending, label=label, progress=bench.progress, first=bench.failed_earlier)
        drawn += wave
        ids = {failure.failure_id for failure in pending}
        chosen = checking.select(pending, [candidate for candidate in drawn if candidate.failure_id in ids])
        again = draw_another(chosen, max_misses=bench.config.editing.max_misses, unanswered=checking.unanswered)
        pending = [failure for failure in pending if failure.failure_id in again]
    return drawn, checking.verdicts


def select(bench: Workbench, round: int) -> Work:
    failures = _kept(bench, round)
    candidates = table(bench, round, "candidates", Candidate)
    checking = Checking(bench, Selecting(bench, after=mined_with(round)))
    chosen = checking.select(failures, candidates, errors=_instruction_errors(bench, round))
    scored = write(bench, round, "scored", chosen.scored, ScoredCandidate)
    repairs = write(bench, round, "repairs", chosen.repairs, Repair)
    summary = {}
    for direction in Direction:
        ids = {failure.failure_id for failure in failures if failure.direction is direction}
        part = selection.Selection(
            scored=tuple(c for c in chosen.scored if c.failure_id in ids),
            repairs=tuple(r for r in chosen.repairs if r.failure_id in ids),
        )
        summary[str(direction)] = selection.summarise(part)
    return Work((*scored.outputs, *repairs.outputs), {**summary, **_failed_calls(checking.verdicts)})


def _instruction_errors(bench: Workbench, round: int) -> dict[str, str]:
    """What went wrong before any edit, by failure id."""
    return {
        told.failure_id: f"instruction failed: {told.error}"
        for told in table(bench, round, "instructions", Instruction)
        if told.error is not None
    }


async def ask_plan(bench: Workbench, asker: Asker, case: Case) -> Outcome[Plan]:
    return await asker.plan(case, bench.planner, n_edits=bench.config.editing.n_candidates)


async def ask_candidate(bench: Workbench, asker: Asker, case: Case, told: Instruction, index: int) -> Candidate:
    return await asker.candidate(case, told, index, text_editor=bench.text_editor, image_editor=bench.image_editor)


def _failed_calls(answers: Iterable[Verdict | Instruction | Candidate]) -> dict[str, int]:
    """For the summary: how many answers are missing because a call failed; nothing if none is."""
    n_failed = sum(answer.error is not None for answer in answers)
    return {FAILED_CALLS: n_failed} if n_failed else {}


def _kept(bench: Workbench, round: int) -> list[Failure]:
    kept = {v.failure_id for v in table(bench, round, "verdicts", Verdict) if v.keep}
    return [failure for failure in table(bench, round, "failures", Failure) if failure.failure_id in kept]


def _told(bench: Workbench, round: int) -> dict[str, Instruction]:
    return {i.failure_id: i for i in table(bench, round, "instructions", Instruction) if i.error is None}
