"""Weights mixed: the running average over steps (EMA), and interpolation with where training started (WiSE-FT)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

Weights = dict[str, Tensor]


class Average:
    """The exponential moving average of a module's floating-point state, in float32.

    After step t (from 1) the decay is min(decay, (1 + t) / (10 + t)), so that the start is soon forgotten.
    """

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.weights: Weights = {
            name: value.detach().float().clone()
            for name, value in module.state_dict().items()
            if value.is_floating_point()
        }

    @torch.no_grad()
    def update(self, module: nn.Module, *, step: int) -> None:
        """Take in the module's weights after `step` finished steps."""
        decay = min(self.decay, (1 + step) / (10 + step))
        state = module.state_dict()
        for name, value in self.weights.items():
            value.lerp_(state[name].float(), 1 - decay)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        for name, value in self.weights.items():
            value.copy_(weights[name])

    @contextmanager
    def in_place(self, module: nn.Module) -> Iterator[None]:
        """The module with the average in it, until the context ends."""
        kept = copied(module)
        put(module, self.weights)
        try:
            yield
        finally:
            put(module, kept)


def copied(module: nn.Module) -> Weights:
    """A copy of the module's state."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


@torch.no_grad()
def put(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Write `weights` over the module's, name by name; others stay."""
    state = module.state_dict()
    for name, value in weights.items():
        state[name].copy_(value)


@torch.no_grad()
def mix(module: nn.Module, start: Mapping[str, Tensor], trained: Mapping[str, Tensor], share: float) -> None:
    """Put (1 - share) · start + share · trained in place (WiSE-FT, Wortsman et al. 2022); exact at 0 and at 1."""
    state = module.state_dict()
    for name, value in state.items():
        if share in (0.0, 1.0) or not value.is_floating_point():
            value.copy_(trained[name] if share > 0 else start[name])
        else:
            value.copy_(torch.lerp(start[name].float(), trained[name].float(), share))


def mixing_curve(
    module: nn.Module,
    start: Mapping[str, Tensor],
    trained: Mapping[str, Tensor],
    *,
    shares: Sequence[float],
    score: Callable[[], float],
) -> list[tuple[float, float]]:
    """(share, score) with each mix in place; the module ends with the trained weights."""
    curve = []
    for share in shares:
        mix(module, start, trained, share)
        curve.append((share, score()))
    mix(module, start, trained, 1.0)
    return curve
