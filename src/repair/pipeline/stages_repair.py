"""The stages between mining and training, as the run folder sees them: read tables, ask or compute, write tables."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from repair import editing, instruction, selection, verification
from repair.calls.engine import Outcome
from repair.core.ports import Case, ImageItem, Plan
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Instruction,
    Repair,
    ScoredCandidate,
    Verdict,
)
from repair.pipeline import asking, registries
from repair.pipeline.asking import Asker, ask_all
from repair.pipeline.catalogue import build_case
from repair.pipeline.features import Features, edited_bytes
from repair.pipeline.graph import Work
from repair.pipeline.workbench import Workbench
from repair.store.tables import read_table, write_table

Record = TypeVar("Record")

SELECTED_TASK = "verify_candidate"


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
                return asking.plan_verdict(case, await _plan(bench, asker, case))
            return await asker.verdict(case, bench.verifier)

        verdicts = ask_all(asker, one, failures, label="verify", progress=bench.progress)
    work = write(bench, round, "verdicts", verdicts, Verdict)
    summary = {
        str(direction): verification.summarise(
            v for v, f in zip(verdicts, failures, strict=True) if f.direction is direction
        )
        for direction in Direction
    }
    return Work(work.outputs, summary)


def instruct(bench: Workbench, round: int) -> Work:
    kept = _kept(bench, round)
    editable = [failure for failure in kept if _has_editor(bench, failure.direction)]
    asker = bench.asker()

    async def one(failure: Failure) -> Instruction:
        case = build_case(failure, bench.train, bench.source)
        if bench.config.calls.plan == "fused":
            return asking.plan_instruction(case, await _plan(bench, asker, case))
        return await asker.instruction(case, bench.instructor)

    instructions = ask_all(asker, one, editable, label="instruct", progress=bench.progress)
    work = write(bench, round, "instructions", instructions, Instruction)
    directions = {failure.failure_id: failure.direction for failure in editable}
    summary: dict[str, object] = {
        str(direction): instruction.summarise(i for i in instructions if directions[i.failure_id] is direction)
        for direction in Direction
    }
    summary["without_editor"] = len(kept) - len(editable)
    return Work(work.outputs, summary)


def edit(bench: Workbench, round: int) -> Work:
    told = _told(bench, round)
    failures = [failure for failure in _kept(bench, round) if failure.failure_id in told]
    asker = bench.asker()
    fused = bench.config.calls.plan == "fused"
    lazy = [f for f in failures if fused and f.direction is Direction.TEXT_TO_IMAGE]
    eager = [f for f in failures if not (fused and f.direction is Direction.TEXT_TO_IMAGE)]

    async def all_of(failure: Failure) -> list[Candidate]:
        case = build_case(failure, bench.train, bench.source)
        if fused:
            outcome = await _plan(bench, asker, case)
            return asking.plan_candidates(case, outcome, n_edits=bench.config.editing.n_candidates)
        return [
            await _candidate(bench, asker, case, told[failure.failure_id], index)
            for index in range(bench.config.editing.n_candidates)
        ]

    found = ask_all(asker, all_of, eager, label="edit", progress=bench.progress)
    candidates = [candidate for group in found for candidate in group]
    candidates += _lazy_candidates(bench, round, asker, lazy, told)
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
    return Work(work.outputs, summary)


def _lazy_candidates(
    bench: Workbench, round: int, asker: Asker, failures: list[Failure], told: Mapping[str, Instruction]
) -> list[Candidate]:
    """Image candidates in waves: the next one is drawn only for failures whose earlier ones were not accepted."""
    drawn: list[Candidate] = []
    pending = failures
    for index in range(bench.config.editing.n_candidates):
        if not pending:
            break

        async def one(failure: Failure, index: int = index) -> Candidate:
            case = build_case(failure, bench.train, bench.source)
            return await _candidate(bench, asker, case, told[failure.failure_id], index)

        wave = ask_all(asker, one, pending, label=f"edit {index + 1}", progress=bench.progress)
        drawn += wave
        chosen = _select(bench, round, pending, [c for c in drawn if c.failure_id in {f.failure_id for f in pending}])
        unrepaired = {repair.failure_id for repair in chosen.repairs if repair.key is None}
        pending = [failure for failure in pending if failure.failure_id in unrepaired]
    return drawn


def select(bench: Workbench, round: int) -> Work:
    failures = _kept(bench, round)
    candidates = table(bench, round, "candidates", Candidate)
    chosen = _select(bench, round, failures, candidates)
    if bench.config.selection.verify_candidates:
        chosen = _select_verified(bench, round, failures, candidates, chosen)
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
    return Work((*scored.outputs, *repairs.outputs), summary)


def _select(
    bench: Workbench,
    round: int,
    failures: list[Failure],
    candidates: list[Candidate],
    accepted: Mapping[tuple[str, int], bool] | None = None,
) -> selection.Selection:
    settings = bench.config.selection
    directions = {failure.failure_id: failure.direction for failure in failures}
    lacking = [d for d in Direction if not _has_editor(bench, d)]
    measures = Features(bench, mined_with(round)).measure(failures, candidates)
    errors = {
        i.failure_id: f"instruction failed: {i.error}"
        for i in table(bench, round, "instructions", Instruction)
        if i.error is not None and i.failure_id in directions
    }
    return selection.select(
        failures,
        candidates,
        measures,
        contents=_contents(bench, failures),
        rule=settings.rule,
        min_gain=settings.min_gain,
        noop_cosine=settings.noop_cosine,
        accepted=accepted,
        without_editor=lacking,
        errors=errors,
    )


def _select_verified(
    bench: Workbench, round: int, failures: list[Failure], candidates: list[Candidate], chosen: selection.Selection
) -> selection.Selection:
    """Ask the verifier about selected candidates; select again without those it refuses, until all were asked."""
    asker = bench.asker()
    by_id = {failure.failure_id: failure for failure in failures}
    accepted: dict[tuple[str, int], bool] = {}

    async def one(repair: Repair) -> Verdict:
        case = build_case(by_id[repair.failure_id], bench.train, bench.source)
        key = str(repair.key)
        image = None
        if repair.text is None:
            image = ImageItem(key=key, content_hash=key, captions=(), read=lambda: edited_bytes(bench, key))
        judged = verification.candidate_case(case, text=repair.text, image=image)
        return await asker.verdict(judged, bench.verifier, task=SELECTED_TASK)

    while True:
        unasked = [
            r
            for r in chosen.repairs
            if r.candidate_index is not None and (r.failure_id, r.candidate_index) not in accepted
        ]
        if not unasked:
            return chosen
        verdicts = ask_all(asker, one, unasked, label="verify edits", progress=bench.progress)
        for repair, verdict in zip(unasked, verdicts, strict=True):
            assert repair.candidate_index is not None
            # Judged like a failure, an edit that matches the query is a benign mismatch: that is what it should be.
            matches = verdict.error is None and not verdict.keep
            accepted[repair.failure_id, repair.candidate_index] = matches
        chosen = _select(bench, round, failures, candidates, accepted)


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


async def _plan(bench: Workbench, asker: Asker, case: Case) -> Outcome[Plan]:
    return await asker.plan(case, bench.planner, n_edits=bench.config.editing.n_candidates)


async def _candidate(bench: Workbench, asker: Asker, case: Case, told: Instruction, index: int) -> Candidate:
    return await asker.candidate(case, told, index, text_editor=bench.text_editor, image_editor=bench.image_editor)


def _has_editor(bench: Workbench, direction: Direction) -> bool:
    settings = bench.config.editing
    name = settings.text_editor if direction is Direction.IMAGE_TO_TEXT else settings.image_editor
    return name != registries.NONE


def _kept(bench: Workbench, round: int) -> list[Failure]:
    kept = {v.failure_id for v in table(bench, round, "verdicts", Verdict) if v.keep}
    return [failure for failure in table(bench, round, "failures", Failure) if failure.failure_id in kept]


def _told(bench: Workbench, round: int) -> dict[str, Instruction]:
    return {i.failure_id: i for i in table(bench, round, "instructions", Instruction) if i.error is None}
