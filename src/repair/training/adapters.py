"""Low-rank adapters (LoRA, Hu et al. 2021) by peft, put into a module for training and merged into it at the end."""

import re
from typing import Any

import torch
from torch import nn

from repair.core.errors import MissingDependency, TrainingError


class Adapters:
    """Adapters on those of the `linear_layers` whose whole name `targets` matches (a regular expression; empty: all).

    Only the adapters and the logit scale train. `alpha / rank` scales what an adapter adds, which is nothing at first.
    The first weights are drawn from `seed`; torch's global generator is left as it was. Raises TrainingError if nothing
    matches, MissingDependency without peft.
    """

    def __init__(self, module: nn.Module, *, rank: int, alpha: float, targets: str, seed: int) -> None:
        require_peft()
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel

        self._frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
        wanted = _matching(linear_layers(module), targets)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=wanted, lora_dropout=0.0)  # type: ignore[arg-type]
            self._model: Any = LoraModel(module, config, "repair")
        module.get_parameter("log_scale").requires_grad_(True)

    def merge(self) -> None:
        """Add the adapters to the weights they stand beside and take them out: the module is as it was built."""
        module = self._model.merge_and_unload()
        for parameter in module.parameters():
            parameter.requires_grad_(True)
        for parameter in self._frozen:
            parameter.requires_grad_(False)


def require_peft() -> None:
    """Raises MissingDependency without peft."""
    try:
        import peft  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingDependency('training.lora_rank needs peft: pip install "repair-clip[lora]"') from error


def _matching(layers: list[str], targets: str) -> list[str]:
    try:
        found = [name for name in layers if not targets or re.fullmatch(targets, name)]
    except re.error as error:
        raise TrainingError(f'training.lora_targets="{targets}" is no regular expression: {error}') from error
    if not found:
        raise TrainingError(
            f'training.lora_targets="{targets}" matches no whole name of a linear layer; such names: '
            f"{', '.join(layers[:3])}, …"
        )
    return found


def linear_layers(module: nn.Module) -> list[str]:
    """Names of all linear layers, and of whole attention layers where those keep their weights to themselves."""
    attention = [name for name, part in module.named_modules() if isinstance(part, nn.MultiheadAttention)]
    linear = [
        name
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and not any(name.startswith(f"{whole}.") for whole in attention)
    ]
    return [*attention, *linear]
