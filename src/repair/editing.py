"""Edit (Minimality): apply an instruction to the false positive, M candidates, one seed and one key each."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from repair.core.errors import BadReply
from repair.core.identity import hash_bytes
from repair.core.ports import Case, ImageEditor, Reply, TextEditor
from repair.core.records import Candidate, Instruction

TEXT_TASK = "edit_text"
IMAGE_TASK = "edit_image"


async def edit_text(case: Case, instruction: Instruction, *, editor: TextEditor, seed: int) -> Reply[str]:
    """The edited caption, stripped, on one line. Raises BadReply if it is empty."""
    reply = await editor.edit_text(case, instruction, seed=seed)
    text = " ".join(reply.value.split())
    if not text:
        raise BadReply("the edited caption is empty", usage=reply.usage, raw=reply.raw)
    return reply._replace(value=text)


async def edit_image(case: Case, instruction: Instruction, *, editor: ImageEditor, seed: int) -> Reply[bytes]:
    """The edited image, encoded. Raises BadReply if it is empty; whether it decodes is checked on preparing it."""
    reply = await editor.edit_image(case, instruction, seed=seed)
    if not reply.value:
        raise BadReply("the edited image is empty", usage=reply.usage, raw=reply.raw)
    return reply


def text_candidate(failure_id: str, index: int, text: str) -> Candidate:
    """Keyed by the text's content hash, so that equal edits are one item in training."""
    return Candidate(failure_id=failure_id, index=index, key=hash_bytes(text.encode()), text=text)


def image_candidate(failure_id: str, index: int, key: str) -> Candidate:
    """`key` is the content hash of the encoded bytes."""
    return Candidate(failure_id=failure_id, index=index, key=key, text=None)


def failed(failure_id: str, index: int, error: str) -> Candidate:
    return Candidate(failure_id=failure_id, index=index, key=None, text=None, error=error)


def request_payload(case: Case, instruction: Instruction) -> dict[str, Any]:
    """What an edit depends on: the case and what the instruction says."""
    return {
        "case": case.payload(),
        "instruction": instruction.instruction,
        "residual": instruction.residual,
        "scaffold": instruction.scaffold,
        "error_types": [str(kind) for kind in instruction.error_types],
    }


def summarise(candidates: Iterable[Candidate]) -> dict[str, int]:
    """Counts: candidates that exist, distinct ones, failed calls."""
    counts: Counter[str] = Counter(candidates=0, distinct=0, failed=0)
    seen: set[tuple[str, str]] = set()
    for candidate in candidates:
        if candidate.key is None:
            counts["failed"] += 1
            continue
        counts["candidates"] += 1
        seen.add((candidate.failure_id, candidate.key))
    counts["distinct"] = len(seen)
    return dict(counts)
