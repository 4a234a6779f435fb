"""torch.compile: whether a backend is there, and what to say when it fails."""

import torch

from repair.core.errors import TrainingError, suggest


def require_backend(name: str) -> None:
    """Raises TrainingError if torch.compile has no backend of that name."""
    known = torch.compiler.list_backends(exclude_tags=())
    if name not in known:
        raise TrainingError(f'training.compile: unknown backend "{name}": {suggest(name, known)}')


def not_compiled(error: BaseException, backend: str) -> TrainingError | None:
    """What to raise instead of `error` if compiling failed (no C++ compiler, say); None if it says another."""
    if not backend:
        return None
    from torch._dynamo.exc import TorchDynamoException

    if not isinstance(error, TorchDynamoException):
        return None
    said = " ".join(str(error).split())[:300]
    return TrainingError(f'torch.compile with training.compile="{backend}" failed: {said}: set training.compile=""')
