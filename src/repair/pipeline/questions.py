"""What a run asked of models, as its tables tell it: each question of a round, whoever answered it.

A ledger that runs share holds what others asked as well, so a run's own calls are counted from its tables. Where a
stage has not finished, whatever it can have asked is told.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from repair import editing, instruction, verification
from repair.config import Config
from repair.core.identity import canonical_json
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Instruction,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Verdict,
)
from repair.pipeline import registries
from repair.pipeline.asking import PLAN_TASK
from repair.selection import Rejection

SELECTED_TASK = "verify_candidate"
CELL_TASK = "verify_cell"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTables:
    """The tables of a round. `done` names the stages that have finished; what any other stage leaves is empty.

    `cells`: verdicts on the cells of grids that were asked about.
    """

    done: Set[str]
    failures: Sequence[Failure]
    instructions: Sequence[Instruction]
    candidates: Sequence[Candidate]
    scored: Sequence[ScoredCandidate]
    repairs: Sequence[Repair]
    cells: Sequence[Verdict] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One request; equal to another one that asks the same, whatever was answered.

    `failure_id` and `task` are those of the ledger, so that of a cell is `cell_id`. `truth_id` is the failure's best
    ground truth, which comes first in a request and may be another one in a later round. `index` counts the edits of a
    failure. `edit` is the content hash of the edit that is checked, None where it may be any. `answer`, where it is
    known: an edited caption in canonical JSON, the content hash of an edited image.
    """

    task: str
    failure_id: str
    truth_id: str = ""
    index: int = 0
    edit: str | None = None
    answer: str | None = field(default=None, compare=False)


def cell_id(image_key: str, text_key: str) -> str:
    """In the place of a failure's id in a call about a cell of a grid."""
    return f"cell-{image_key}-{text_key}"


def questions(tables: RoundTables, config: Config) -> Iterator[Question]:
    """The questions of a round, stage by stage and each stage's in the order of its table, each once.

    Of cells none is told before the grids stage has finished: no table says which they are.

    Raises KeyError (a bug, not bad input) if a table tells of a failure that was not mined in this round.
    """
    mined = {failure.failure_id: failure for failure in tables.failures}
    repairs = registries.METHODS.build(config.method.name, options=config.method.options).is_repair
    if config.calls.plan == "fused":  # one call answers verdict, instruction and caption edits
        yield from (_about(failure, PLAN_TASK) for failure in tables.failures)
    elif config.verification.enabled:
        yield from (_about(failure, verification.TASK) for failure in tables.failures)
    if not repairs:  # its failures are verified, and that is all (FP as HN)
        return
    if config.calls.plan != "fused":
        told = [mined[one.failure_id] for one in tables.instructions] if "instruct" in tables.done else tables.failures
        yield from (_about(failure, instruction.TASK) for failure in told)
    yield from _edits(tables, mined, config)
    if config.selection.verify_candidates:
        yield from _checks(tables, mined)
    if config.grids.verify_cells:
        yield from (Question(task=CELL_TASK, failure_id=verdict.failure_id) for verdict in tables.cells)


def _about(failure: Failure, task: str, *, index: int = 0, answer: str | None = None) -> Question:
    return Question(
        task=task, failure_id=failure.failure_id, truth_id=failure.ground_truth_id, index=index, answer=answer
    )


def _edits(tables: RoundTables, mined: dict[str, Failure], config: Config) -> Iterator[Question]:
    if "edit" not in tables.done:
        for failure in tables.failures:
            for index in range(config.editing.n_candidates):
                yield _about(failure, _edit_task(failure), index=index)
        return
    for made in tables.candidates:
        failure = mined[made.failure_id]
        task = _edit_task(failure)
        if task == editing.IMAGE_TASK or config.calls.plan != "fused":
            answer = made.key if made.text is None else canonical_json(made.text)
            yield _about(failure, task, index=made.index, answer=answer)


def _edit_task(failure: Failure) -> str:
    return editing.TEXT_TASK if failure.direction is Direction.IMAGE_TO_TEXT else editing.IMAGE_TASK


def _checks(tables: RoundTables, mined: dict[str, Failure]) -> Iterator[Question]:
    """The verifier was asked about the candidates that it refused, and about those that are selected."""
    if "select" not in tables.done:
        found: list[tuple[str, str | None]] = [(failure.failure_id, None) for failure in tables.failures]
    else:
        found = [(one.failure_id, one.key) for one in tables.scored if one.rejected == Rejection.REFUSED and one.key]
        found += [(r.failure_id, r.key) for r in tables.repairs if r.status is RepairStatus.REPAIRED and r.key]
    for failure_id, edit in dict.fromkeys(found):
        truth_id = mined[failure_id].ground_truth_id
        yield Question(task=SELECTED_TASK, failure_id=failure_id, truth_id=truth_id, edit=edit)
