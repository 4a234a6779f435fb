"""What to say when memory runs out: which batch it was, and what to change."""

import torch

from repair.core.errors import TrainingError
from repair.training.inputs import Rows

_SIGNS = ("out of memory", "can't allocate memory", "not enough memory")


def out_of_memory(error: BaseException, rows: Rows, micro_batch: int | None, precision: str) -> TrainingError | None:
    """What to raise instead of `error` if it says that memory ran out: the batch is named; None if it says another."""
    said = str(error).lower()
    if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and not any(sign in said for sign in _SIGNS):
        return None
    n = max(len(rows.images), len(rows.texts))
    smaller = max(1, (micro_batch or n) // 2)
    fixes = [f"set training.micro_batch={smaller} (the same loss, two forward passes)"]
    if precision == "fp32":
        fixes.append("training.precision=bf16")
    fixes.append("lower training.batch_pairs or training.grids_per_step")
    pieces = f", {micro_batch} at a time" if micro_batch else ""
    return TrainingError(
        f"step {rows.batch.step + 1}: out of memory encoding {_shown(rows.images, 'images')} and "
        f"{_shown(rows.texts, 'captions')}{pieces}: {', or '.join(fixes)}"
    )


def _shown(rows: torch.Tensor, what: str) -> str:
    return f"{len(rows)} {what} of {' × '.join(map(str, rows.shape[1:]))}"
