import itertools
import math

import pytest
import torch
from torch import nn

from repair.training.optimizer import build_optimizer, learning_rate
from tests.training.tiny import TinyModule


def test_only_matrices_decay():
    module = TinyModule()
    module.image[0].weight.requires_grad_(False)
    optimizer = build_optimizer(module, weight_decay=0.1, betas=(0.9, 0.98), eps=1e-6)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    decay = {names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {name for name, value in decay.items() if value} == {"image.3.weight", "text.0.weight", "text.3.weight"}
    assert "log_scale" in decay
    assert "image.1.weight" in decay  # a layer norm
    assert "image.0.weight" not in decay  # frozen


def test_an_empty_group_is_left_out():
    optimizer = build_optimizer(nn.Linear(2, 2, bias=False), weight_decay=0.1, betas=(0.9, 0.98), eps=1e-6)
    assert len(optimizer.param_groups) == 1
    assert torch.optim.AdamW is type(optimizer)


def test_the_rate_rises_then_follows_half_a_cosine():
    rates = [learning_rate(step, n_steps=100, lr=2.0, warmup_rate=0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (n + 1) for n in range(10)])
    assert rates[10] == 2.0 == max(rates)
    assert rates[55] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(1 + math.cos(math.pi * 89 / 90))
    assert all(later < earlier for earlier, later in itertools.pairwise(rates[10:]))


@pytest.mark.parametrize("warmup_rate", [0.0, 1.0])
def test_extremes_of_warm_up(warmup_rate):
    rates = [learning_rate(step, n_steps=4, lr=1.0, warmup_rate=warmup_rate) for step in range(4)]
    assert rates == ([0.25, 0.5, 0.75, 1.0] if warmup_rate else pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-5))
