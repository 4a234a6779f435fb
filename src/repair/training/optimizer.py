"""AdamW without decay where it does harm, and the learning rate as a function of the step alone."""

import itertools
import math
import re

import torch
from torch import nn

from repair.core.errors import TrainingError

_BLOCK = re.compile(r"^(?P<tower>.*?)\b(?:resblocks|layers|layer|blocks|mix_blocks|conv_blocks|h)\.(?P<number>\d+)\.")
_FIRST = re.compile(r"embed|conv1|stem|patch|position|cls_token|class_token")


def build_optimizer(
    module: nn.Module, *, weight_decay: float, betas: tuple[float, float], eps: float, layer_decay: float = 1.0
) -> torch.optim.AdamW:
    """AdamW over the parameters that train, the learning rate still 0 (`set_lr`).

    Decayed: matrices and larger. Not decayed: vectors and scalars (biases, norms, the logit scale) and anything named
    "bias". The order of the parameters is that of `module.named_parameters()`. With a `layer_decay` below 1 there are
    groups for every distance from the output (`layers_above`), each with its factor on the learning rate.
    """
    above = layers_above(module) if layer_decay < 1 else {}
    groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            plain = parameter.ndim < 2 or name.endswith("bias")
            groups.setdefault((above.get(name, 0), plain), []).append(parameter)
    if not groups:
        raise TrainingError("nothing to train: every parameter of the encoder is frozen")
    made = [
        {"params": found, "weight_decay": 0.0 if plain else weight_decay, "lr_factor": layer_decay**distance}
        for (distance, plain), found in sorted(groups.items(), key=lambda item: item[0])
    ]
    return torch.optim.AdamW(made, lr=0.0, betas=betas, eps=eps)


def layers_above(module: nn.Module) -> dict[str, int]:
    """How many layers lie above each parameter in its tower: 0 for heads, final norms and the logit scale, 1 for the
    last block, and one more than the tower has blocks for its embeddings.

    Blocks are recognised by the names that CLIP, SigLIP, ViT, BERT and timm models give them.
    """
    blocks = {name: match for name, _ in module.named_parameters() if (match := _BLOCK.match(name))}
    depths: dict[str, int] = {}
    for match in blocks.values():
        depths[match["tower"]] = max(depths.get(match["tower"], 0), int(match["number"]) + 1)
    above: dict[str, int] = {}
    for name, _ in module.named_parameters():
        found = blocks.get(name)
        if found is not None:
            above[name] = depths[found["tower"]] - int(found["number"])
        elif _FIRST.search(name) and depths:
            above[name] = 1 + depths[min(depths, key=lambda tower: (-_shared(tower, name), len(tower)))]
        else:
            above[name] = 0
    return above


def _shared(left: str, right: str) -> int:
    """How many parts of two dotted names agree, from the left."""
    parts = zip(left.split("."), right.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))


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
    """Give every group its learning rate: `lr` times its factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
