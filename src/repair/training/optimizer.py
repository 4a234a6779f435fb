"""AdamW without decay where it does harm, and the learning rate as a function of the step alone."""

import math

import torch
from torch import nn


def build_optimizer(
    module: nn.Module, *, weight_decay: float, betas: tuple[float, float], eps: float
) -> torch.optim.AdamW:
    """AdamW over the parameters that train, the learning rate still 0 (`set_lr`).

    Decayed: matrices and larger. Not decayed: vectors and scalars (biases, norms, the logit scale) and anything named
    "bias". The order of the parameters is that of `module.named_parameters()`.
    """
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            (plain if parameter.ndim < 2 or name.endswith("bias") else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=0.0, betas=betas, eps=eps)


def learning_rate(step: int, *, n_steps: int, lr: float, warmup_rate: float) -> float:
    """The rate of step 0 ≤ step < n_steps: rises linearly over the first `warmup_rate` of the steps, reaches `lr`, then
    follows half a cosine towards 0, which it would reach at step n_steps.

    Example:
        >>> [learning_rate(s, n_steps=4, lr=1.0, warmup_rate=0.5) for s in range(4)]
        [0.5, 1.0, 1.0, 0.5]
    """
    n_warmup = round(warmup_rate * n_steps)
    if step < n_warmup:
        return lr * (step + 1) / n_warmup
    return 0.5 * lr * (1.0 + math.cos(math.pi * (step - n_warmup) / (n_steps - n_warmup)))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
