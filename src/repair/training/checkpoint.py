"""All state of a training run in one file, replaced in one rename: safetensors, with the rest as JSON in its header.

Nothing else is needed to resume exactly: batches, random numbers and the learning rate are functions of the step.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from repair.core.errors import StoreError
from repair.core.identity import canonical_json
from repair.store.files import replacing

FILE_NAME = "training.safetensors"
_SLOTS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's
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
    scaler: Mapping[str, Any] | None = None  # of float16 gradients


@dataclass(slots=True, kw_only=True)
class Kept:
    """What `load` found beside weights and optimiser state."""

    best: dict[str, Tensor] | None
    average: dict[str, Tensor]


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
    average: Mapping[str, Tensor] | None = None,
    write: bool = True,
) -> None:
    """Write the whole state or, if that fails, leave the former whole. Raises StoreError.

    Shards are put together for it, which takes all processes; those with `write=False` leave it at that.
    """
    tensors = {f"model.{name}": value for name, value in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for slot, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{slot}.{name}"] = value
    tensors.update({f"best.{name}": value for name, value in (best or {}).items()})
    tensors.update({f"average.{name}": value for name, value in (average or {}).items()})
    tensors = {name: whole(value) for name, value in tensors.items()}
    if not write:
        return
    # Cloned: safetensors refuses tensors that share storage.
    flat = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    facts = asdict(state)
    if state.scaler is None:
        del facts["scaler"]
    with replacing(folder / FILE_NAME) as temporary:
        try:
            safetensors.torch.save_file(flat, str(temporary), metadata={_HEADER: canonical_json(facts)})
        except safetensors.SafetensorError as error:  # how it reports a full disk
            raise StoreError(f"cannot write {folder / FILE_NAME}: {error}; the former one is whole") from error


def load(folder: Path, *, module: nn.Module, optimizer: torch.optim.Optimizer) -> Kept:
    """Put the kept weights and optimiser state in place; returns the rest.

    Raises StoreError if the file does not fit the module.
    """
    path = folder / FILE_NAME
    try:
        tensors = safetensors.torch.load_file(str(path))
        weights = _below("model.", tensors)
        expected = module.state_dict()
        if any(isinstance(value, DTensor) for value in expected.values()):
            weights = {name: like(expected[name], value) for name, value in weights.items()}
        module.load_state_dict(weights)
        slots = _below("optimizer.", tensors)
        for name, parameter in module.named_parameters():
            kept = {slot: slots[f"{slot}.{name}"] for slot in _SLOTS if f"{slot}.{name}" in slots}
            if kept and len(kept) < len(_SLOTS):
                raise RuntimeError(f"the optimiser's state of {name} is not whole")
            # Copied into the parameter's own memory layout; the step counter stays where AdamW keeps it, on the CPU.
            optimizer.state[parameter] = {
                slot: value if slot == "step" else torch.empty_like(parameter.detach()).copy_(like(parameter, value))
                for slot, value in kept.items()
            }
    except (safetensors.SafetensorError, OSError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise StoreError(f"cannot resume from {path}: {said}; delete it to train from the start") from error
    return Kept(best=_below("best.", tensors) or None, average=_below("average.", tensors))


def whole(value: Tensor) -> Tensor:
    """A tensor put together from its shards; any other as it is."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def like(target: Tensor, value: Tensor) -> Tensor:
    """`value` cut into shards as `target` is; as it is if that is in one piece."""
    if not isinstance(target, DTensor):
        return value
    return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
