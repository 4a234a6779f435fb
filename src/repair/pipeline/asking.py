"""The stages that call backends: verify, instruct and edit, item by item through the call engine.

Both call plans live here. `staged` makes one call for each question. `fused` asks the planner once; verdict,
instruction and caption edits are parts of one answer, which the ledger gives again to the later stages for nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from repair import editing, instruction, verification
from repair.calls.codecs import BYTES, TEXT, JsonCodec
from repair.calls.engine import CallEngine, Outcome
from repair.calls.flow import map_ordered
from repair.calls.interrupt import run_interruptible
from repair.core.errors import BadReply
from repair.core.identity import derive_seed, hash_bytes
from repair.core.ports import Case, ImageEditor, Instructor, Plan, Planner, Reply, TextEditor, Verifier
from repair.core.progress import Advance, Progress
from repair.core.records import Candidate, Direction, Instruction, Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_ID = ""  # answers are kept without the failure's id, so that equal cases share them


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks backends about cases through the engine. `seed` is the run's; each record derives its own."""

    engine: CallEngine
    seed: int
    concurrency: int  # items under way at once

    async def verdict(self, case: Case, verifier: Verifier, *, task: str = verification.TASK) -> Verdict:
        outcome = await self.engine.call(
            task=task,
            backend_fingerprint=verifier.fingerprint,
            failure_id=case.failure_id,
            seed=(seed := derive_seed(self.seed, task, case.failure_id)),
            payload=case.payload(),
            run=lambda: verification.verify(case, verifier=verifier, seed=seed),
            codec=JsonCodec(verification.to_json, lambda value: verification.from_json(value, failure_id=_NO_ID)),
        )
        if outcome.value is None:
            return verification.failed(case.failure_id, str(outcome.error))
        return replace(outcome.value, failure_id=case.failure_id)

    async def instruction(self, case: Case, instructor: Instructor) -> Instruction:
        outcome = await self.engine.call(
            task=instruction.TASK,
            backend_fingerprint=instructor.fingerprint,
            failure_id=case.failure_id,
            seed=(seed := derive_seed(self.seed, instruction.TASK, case.failure_id)),
            payload=case.payload(),
            run=lambda: instruction.instruct(case, instructor=instructor, seed=seed),
            codec=JsonCodec(instruction.to_json, lambda value: instruction.from_json(value, failure_id=_NO_ID)),
        )
        if outcome.value is None:
            return instruction.failed(case.failure_id, str(outcome.error))
        return replace(outcome.value, failure_id=case.failure_id)

    async def plan(self, case: Case, planner: Planner, *, n_edits: int) -> Outcome[Plan]:
        return await self.engine.call(
            task=PLAN_TASK,
            backend_fingerprint=planner.fingerprint,
            failure_id=case.failure_id,
            seed=(seed := derive_seed(self.seed, PLAN_TASK, case.failure_id)),
            payload={"case": case.payload(), "n_edits": n_edits},
            run=lambda: _checked_plan(case, planner, n_edits=n_edits, seed=seed),
            codec=JsonCodec(_plan_to_json, _plan_from_json),
        )

    async def candidate(
        self,
        case: Case,
        told: Instruction,
        index: int,
        *,
        text_editor: TextEditor | None,
        image_editor: ImageEditor | None,
    ) -> Candidate:
        """Candidate `index` of the case, by the editor of its direction."""
        if case.direction is Direction.IMAGE_TO_TEXT:
            assert text_editor is not None
            text = await self._edit(case, told, index, TEXT, editing.TEXT_TASK, editing.edit_text, text_editor)
            if text.value is not None:
                return editing.text_candidate(case.failure_id, index, text.value)
            return editing.failed(case.failure_id, index, str(text.error))
        assert image_editor is not None
        image = await self._edit(case, told, index, BYTES, editing.IMAGE_TASK, editing.edit_image, image_editor)
        if image.value is not None:
            return editing.image_candidate(case.failure_id, index, hash_bytes(image.value))
        return editing.failed(case.failure_id, index, str(image.error))

    async def _edit(
        self,
        case: Case,
        told: Instruction,
        index: int,
        codec: Any,
        task: str,
        apply: Callable[..., Awaitable[Reply[Any]]],
        editor: TextEditor | ImageEditor,
    ) -> Outcome[Any]:
        seed = derive_seed(self.seed, task, case.failure_id) + index  # consecutive: rule editors count alternatives
        return await self.engine.call(
            task=task,
            backend_fingerprint=editor.fingerprint,
            failure_id=case.failure_id,
            seed=seed,
            payload=editing.request_payload(case, told),
            run=lambda: apply(case, told, editor=editor, seed=seed),
            codec=codec,
        )


PLAN_TASK = "plan"


def plan_verdict(case: Case, outcome: Outcome[Plan]) -> Verdict:
    """The verdict part of a fused answer."""
    if outcome.value is None:
        return verification.failed(case.failure_id, str(outcome.error))
    return replace(outcome.value.verdict, failure_id=case.failure_id)


def plan_instruction(case: Case, outcome: Outcome[Plan]) -> Instruction:
    """The instruction part of a fused answer that keeps the failure."""
    if outcome.value is None or outcome.value.instruction is None:
        return instruction.failed(case.failure_id, outcome.error or "the plan holds no instruction")
    return replace(outcome.value.instruction, failure_id=case.failure_id)


def plan_candidates(case: Case, outcome: Outcome[Plan], *, n_edits: int) -> list[Candidate]:
    """The caption edits of a fused answer."""
    if outcome.value is None:
        return [editing.failed(case.failure_id, index, str(outcome.error)) for index in range(n_edits)]
    return [editing.text_candidate(case.failure_id, index, text) for index, text in enumerate(outcome.value.edits)]


def ask_all(
    asker: Asker,
    function: Callable[[Item], Awaitable[Result]],
    items: Sequence[Item],
    *,
    label: str,
    progress: Progress,
) -> list[Result]:
    """`function` of every item, results in order, `asker.concurrency` under way at once; Ctrl-C drains."""
    with progress.task(label, len(items)) as advance:
        draining = f"{label}: finishing the calls in flight; Ctrl-C again aborts them"
        return run_interruptible(
            asker.engine,
            _collect(function, items, advance, concurrency=asker.concurrency),
            on_drain=lambda n: progress.say(f"{draining} ({n})"),
        )


async def _collect(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], advance: Advance, *, concurrency: int
) -> list[Result]:
    results: list[Result] = []
    stream: AsyncIterator[Result] = map_ordered(function, items, concurrency=concurrency)
    async with aclosing(stream) as stream:  # type: ignore[type-var]
        async for result in stream:
            results.append(result)
            advance(1)
    return results


async def _checked_plan(case: Case, planner: Planner, *, n_edits: int, seed: int) -> Reply[Plan]:
    """A plan's parts pass the checks of their stages."""
    reply = await planner.plan(case, n_edits=n_edits, seed=seed)
    plan = reply.value
    if plan.verdict.keep == (plan.verdict.criterion is not None):
        raise BadReply(
            "the verdict must name a criterion exactly when it drops the failure", usage=reply.usage, raw=reply.raw
        )
    if plan.verdict.keep and (plan.instruction is None or not plan.instruction.error_types):
        raise BadReply(
            "a plan that keeps the failure must hold an instruction with an error type",
            usage=reply.usage,
            raw=reply.raw,
        )
    return reply


def _plan_to_json(plan: Plan) -> dict[str, Any]:
    told = plan.instruction
    return {
        "verdict": verification.to_json(plan.verdict),
        "instruction": None if told is None else instruction.to_json(told),
        "edits": [" ".join(edit.split()) for edit in plan.edits],
    }


def _plan_from_json(value: Mapping[str, Any]) -> Plan:
    told = value["instruction"]
    return Plan(
        verdict=verification.from_json(value["verdict"], failure_id=_NO_ID),
        instruction=None if told is None else instruction.from_json(told, failure_id=_NO_ID),
        edits=tuple(value["edits"]),
    )
