"""The stages that call backends: verify, instruct and edit, item by item through the call engine.

Both call plans live here. `staged` makes one call for each question. `fused` asks the planner once; verdict,
instruction and caption edits are parts of one answer, which the ledger gives again to the later stages for nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from repair import editing, instruction, verification
from repair.calls.codecs import BYTES, TEXT, JsonCodec
from repair.calls.engine import CallEngine, Outcome
from repair.calls.flow import map_ordered
from repair.calls.interrupt import run_interruptible
from repair.calls.prices import Seat
from repair.core.errors import BadReply
from repair.core.identity import derive_seed, hash_bytes
from repair.core.ports import Case, ImageEditor, Instructor, Plan, Planner, Reply, TextEditor, Verifier
from repair.core.progress import Progress
from repair.core.records import Candidate, Direction, Instruction, Verdict

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 4096  # items begun before an earlier one has ended, where order does not matter
_NO_ID = ""  # answers are kept without the failure's id, so that equal cases share them


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks backends about cases through the engine. `seed` is the run's; each record derives its own. `seat` tells
    where calls to a backend go."""

    engine: CallEngine
    seed: int
    concurrency: int  # items under way at once
    seat: Callable[[Any], Seat]
    command: str = ""  # how the user goes on after an interruption

    async def verdict(self, case: Case, verifier: Verifier, *, task: str = verification.TASK) -> Verdict:
        outcome = await self.engine.call(
            task=task,
            backend_fingerprint=verifier.fingerprint,
            seat=self.seat(verifier),
            facts=getattr(verifier, "facts", None),
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
            seat=self.seat(instructor),
            facts=getattr(instructor, "facts", None),
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
            seat=self.seat(planner),
            facts=getattr(planner, "facts", None),
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
            seat=self.seat(editor),
            facts=getattr(editor, "facts", None),
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
    first: Callable[[Item], bool] | None = None,
    concurrency: int | None = None,
    ordered: bool = True,
    filtered: Callable[[Result], bool] | None = None,
) -> list[Result]:
    """`function` of every item, results in order, `concurrency` (default: the asker's) under way at once.

    Ctrl-C drains. Items of which `first` is true are asked before the others. With `ordered` false no item waits for
    one before it. Results of which `filtered` is true are counted as such while it goes on.
    """
    order = sorted(range(len(items)), key=lambda row: not first(items[row])) if first else list(range(len(items)))
    concurrency = concurrency or asker.concurrency
    window = None if ordered else max(_AHEAD, concurrency)
    n_filtered = 0

    async def work() -> list[Result]:
        nonlocal n_filtered
        results: list[Result] = []
        taken = (items[row] for row in order)
        stream = map_ordered(function, taken, concurrency=concurrency, window=window)
        async with aclosing(stream) as stream:  # type: ignore[type-var]
            async for result in stream:
                results.append(result)
                n_filtered += filtered is not None and filtered(result)
                advance(1, standing(asker.engine, n_filtered))
        return results

    with progress.task(label, len(items)) as advance:
        draining = f"{label}: finishing the calls in flight; Ctrl-C again aborts them"
        answers = run_interruptible(
            asker.engine,
            work(),
            on_drain=lambda n: progress.say(f"{draining} ({n})"),
            command=asker.command,
        )
    return [answer for _, answer in sorted(zip(order, answers, strict=True), key=lambda pair: pair[0])]


def standing(engine: CallEngine, n_filtered: int) -> str:
    """Where the calls of this session stand, for the live panel: one line a task, then what is common to all."""
    lines = [
        f"{task}: {tally.n_done} done, {tally.n_cached} cached, {tally.n_failed} failed"
        for task, tally in engine.tallies.items()
    ]
    spent = engine.budget.spent
    money = "price unknown" if spent.n_unpriced else f"{spent.price_usd:.4f} USD"
    places = [f"{limit.n_in_flight}/{limit.size}" for limit in engine.limits]
    common = [f"{n_filtered} filtered"] if n_filtered else []
    common += [f"{spent.tokens} tokens", money]
    common += [f"in flight {' + '.join(places)}"] if places else []
    limited = sum(limit.n_limited for limit in engine.limits)
    common += [f"{limited} x 429"] if limited else []
    return "\n".join([*lines, ", ".join(common)])


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
