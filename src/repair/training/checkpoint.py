"""All state of a training run in one file, replaced in one rename: safetensors, with the rest as JSON in its header.

Nothing else is needed to resume exactly: batches, random numbers and the learning rate are functions of the step.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from repair.core.errors import StoreError
from repair.core.identity import canonical_json
from repair.store.files import replacing

FILE_NAME = "training.safetensors"
_HEADER = "repair"  # one key only: safetensors does not promise an order of several


@dataclass(slots=True, kw_only=True)
class TrainingState:
    """Where a run stands. `step` counts finished steps; `key` names what is being trained (see `loop.Training`)."""

    key: str
    step: int = 0
    finished: bool = False
    best_step: int | None = None
    best_score: float | None = None
    n_worse: int = 0  # evaluations since the best one


def read_state(folder: Path) -> TrainingState | None:
    """The state kept in `folder`, without its tensors; None if there is none. Raises StoreError if unreadable."""
    path = folder / FILE_NAME
    if not path.exists():
        return None
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            return TrainingState(**json.loads((file.metadata() or {})[_HEADER]))
    except (safetensors.SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"cannot read the checkpoint {path}: {error}; delete it to train from the start") from error


def save(
    folder: Path,
    state: TrainingState,
    *,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor] | None,
) -> None:
    """Write the whole state or, if that fails, leave the former whole. Raises StoreError."""
    tensors = {f"model.{name}": value for name, value in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for slot, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{slot}.{name}"] = value
    tensors.update({f"best.{name}": value for name, value in (best or {}).items()})
    # Cloned: safetensors refuses tensors that share storage.
    flat = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(folder / FILE_NAME) as temporary:
        safetensors.torch.save_file(flat, str(temporary), metadata={_HEADER: canonical_json(asdict(state))})


def load(folder: Path, *, module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor] | None:
    """Put the kept weights and optimiser state in place; returns the best weights if there are some.

    Raises StoreError if the file does not fit the module.
    """
    path = folder / FILE_NAME
    try:
        tensors = safetensors.torch.load_file(str(path))
        module.load_state_dict(_below("model.", tensors))
        slots = _below("optimizer.", tensors)
        for name, parameter in module.named_parameters():
            kept = {
                slot: slots[f"{slot}.{name}"] for slot in ("step", "exp_avg", "exp_avg_sq") if f"{slot}.{name}" in slots
            }
            # Copied into the parameter's own memory layout; the step counter stays where AdamW keeps it, on the CPU.
            optimizer.state[parameter] = {
                slot: value if slot == "step" else torch.empty_like(parameter.detach()).copy_(value)
                for slot, value in kept.items()
            }
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        raise StoreError(f"cannot resume from {path}: {error}; delete it to train from the start") from error
    return _below("best.", tensors) or None


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
