"""Instruct: for a kept failure, its error types, the residual to change, the scaffold to keep, and one sentence."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from repair.core.errors import BadReply
from repair.core.ports import Case, Instructor, Reply
from repair.core.records import ErrorType, Instruction

TASK = "instruct"


async def instruct(case: Case, *, instructor: Instructor, seed: int) -> Reply[Instruction]:
    """The instructor's reply, checked: at least one error type and a sentence. Raises BadReply otherwise."""
    reply = await instructor.instruct(case, seed=seed)
    if not reply.value.error_types:
        raise BadReply(f"no error type named; choices: {', '.join(ErrorType)}", usage=reply.usage, raw=reply.raw)
    if not reply.value.instruction.strip():
        raise BadReply("the instruction is empty", usage=reply.usage, raw=reply.raw)
    return reply


def failed(failure_id: str, error: str) -> Instruction:
    return Instruction(failure_id=failure_id, error_types=(), residual="", scaffold="", instruction="", error=error)


def to_json(instruction: Instruction) -> dict[str, Any]:
    """What the ledger keeps: the answer without the id, so that equal cases share it."""
    return {
        "error_types": [str(kind) for kind in instruction.error_types],
        "residual": instruction.residual,
        "scaffold": instruction.scaffold,
        "instruction": instruction.instruction,
    }


def from_json(value: Mapping[str, Any], *, failure_id: str) -> Instruction:
    return Instruction(
        failure_id=failure_id,
        error_types=tuple(ErrorType(kind) for kind in value["error_types"]),
        residual=value["residual"],
        scaffold=value["scaffold"],
        instruction=value["instruction"],
    )


def summarise(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Counts: instructed, failed, and one per error type (multi-label, so they may sum to more)."""
    counts: Counter[str] = Counter(instructed=0, failed=0, **{str(kind): 0 for kind in ErrorType})
    for instruction in instructions:
        counts["failed" if instruction.error is not None else "instructed"] += 1
        counts.update(str(kind) for kind in instruction.error_types)
    return dict(counts)
