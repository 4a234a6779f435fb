import math

import pytest
import torch

from repair.core.errors import DataError
from repair.numerics.losses import clamp_log_scale, contrastive_loss, full_matrix_loss, grid_loss, logit_scale
from tests import reference


def features(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def matches(n, seed=0):
    table = torch.rand(n, n, generator=torch.Generator().manual_seed(seed)) < 0.3
    return table | torch.eye(n, dtype=torch.bool)


def assert_same(fast, slow, inputs):
    assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fast, inputs), torch.autograd.grad(slow, inputs), strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 14.3, 100.0])
def test_contrastive_equals_loops(masked, scale):
    images, texts = features(6, 5), features(6, 5, seed=1)
    alpha = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    table = matches(6) if masked else None
    fast = contrastive_loss(images, texts, alpha, matches=table)
    assert_same(fast, reference.contrastive(images, texts, alpha, table), (images, texts, alpha))


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_grid_loss_equals_loops(scale):
    images, texts = features(4, 3, 5), features(4, 3, 5, seed=1)
    alpha = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    assert_same(grid_loss(images, texts, alpha), reference.grids(images, texts, alpha), (images, texts, alpha))


def test_full_matrix_equals_loops_over_one_softmax():
    images, texts, table = features(3, 3, 5), features(3, 3, 5, seed=1), matches(9)
    fast = full_matrix_loss(images, texts, 7.0, matches=table)
    assert_same(fast, reference.contrastive(images.flatten(0, 1), texts.flatten(0, 1), 7.0, table), (images, texts))


def test_gradients_are_right():
    alpha = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    pairs = features(4, 3), features(4, 3, seed=1), alpha
    grids = features(2, 3, 4), features(2, 3, 4, seed=1), alpha
    assert torch.autograd.gradcheck(lambda i, t, a: contrastive_loss(i, t, a, matches=matches(4)), pairs)
    assert torch.autograd.gradcheck(grid_loss, grids)
    assert torch.autograd.gradcheck(full_matrix_loss, grids)


def test_losses_differ_where_they_should():
    """Negative control: local softmax, one softmax, and masking are not the same thing."""
    images, texts = features(4, 3, 5), features(4, 3, 5, seed=1)
    local, full = grid_loss(images, texts, 5.0), full_matrix_loss(images, texts, 5.0)
    masked = full_matrix_loss(images, texts, 5.0, matches=matches(12))
    assert local < full - 0.1
    assert masked < full - 0.1
    assert not torch.allclose(grid_loss(images, texts[:, [1, 0, 2]], 5.0), local)


def test_both_directions_count_alike():
    """Two equal images: each caption is at a loss between them, and both images choose the same caption."""
    images = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    by_row = (math.log(1 + math.exp(-5.0)) + math.log(1 + math.exp(5.0))) / 2
    by_column = math.log(2.0)
    assert float(contrastive_loss(images, texts, 5.0)) == pytest.approx((by_row + by_column) / 2)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_size_of_features_does_not_matter(factor):
    images, texts = features(5, 3, 6), features(5, 3, 6, seed=1)
    assert torch.allclose(grid_loss(images * factor, texts / factor, 20.0), grid_loss(images, texts, 20.0))


def test_thousandfold_scale_stays_finite():
    images, texts = features(6, 5), features(6, 5, seed=1)
    loss = contrastive_loss(images.float(), texts.float(), 1000.0, matches=matches(6))
    gradient = torch.autograd.grad(loss, (images, texts))
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in gradient)
    slow = reference.contrastive(images, texts, 1000.0, matches(6))
    assert loss.item() == pytest.approx(slow.item(), rel=1e-5)


def test_masked_pairs_neither_pull_nor_push():
    images, texts = features(2, 4), features(2, 4, seed=1)
    loss = contrastive_loss(images, texts, 10.0, matches=torch.ones(2, 2, dtype=torch.bool))
    assert all(not gradient.any() for gradient in torch.autograd.grad(loss, (images, texts)))


def test_zero_features_do_not_break():
    images = torch.zeros(3, 4, requires_grad=True)
    loss = contrastive_loss(images, torch.eye(3, 4), 100.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(images.grad).all()


def test_half_precision_is_raised():
    images, texts = features(4, 3, 8).detach(), features(4, 3, 8, seed=1).detach()
    halves = images.bfloat16(), texts.bfloat16()
    loss = grid_loss(*halves, 100.0)
    assert loss.dtype == torch.float32
    assert torch.allclose(loss, grid_loss(halves[0].float(), halves[1].float(), 100.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = grid_loss(images.float(), texts.float(), 100.0)
    assert torch.equal(inside, grid_loss(images.float(), texts.float(), 100.0))


def test_logit_scale_and_its_parameter_are_clamped():
    drifted = torch.nn.Parameter(torch.tensor(7.0))
    assert logit_scale(drifted).item() == pytest.approx(100.0)
    clamp_log_scale(drifted)
    assert drifted.item() == pytest.approx(math.log(100.0))
    low = torch.nn.Parameter(torch.tensor(-0.1))
    clamp_log_scale(low)
    assert low.item() == 0.0
    inside = torch.nn.Parameter(torch.tensor(2.0))
    logit_scale(inside).backward()
    assert float(inside.grad) == pytest.approx(math.exp(2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contrastive_loss(torch.ones(2, 3), torch.ones(3, 3), 1.0), "must have one shape of 2 axes"),
        (lambda: contrastive_loss(torch.ones(0, 3), torch.ones(0, 3), 1.0), "none empty"),
        (lambda: contrastive_loss(torch.ones(2, 3), torch.ones(2, 3), 1.0, matches=torch.ones(2, 2)), "must be bool"),
        (lambda: grid_loss(torch.ones(2, 4, 3), torch.ones(2, 4, 3), 1.0), r"\(n_grids, 3, dim\)"),
        (lambda: grid_loss(torch.ones(0, 3, 3), torch.ones(0, 3, 3), 1.0), "none empty"),
        (lambda: full_matrix_loss(torch.ones(6, 3), torch.ones(6, 3), 1.0), "3 axes"),
    ],
)
def test_shapes_that_do_not_fit(call, message):
    with pytest.raises(DataError, match=message):
        call()
