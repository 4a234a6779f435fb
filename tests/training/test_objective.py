"""The loss of a batch against the loops of tests/reference.py."""

import pytest
import torch

from repair.training.batches import Batches
from repair.training.objective import batch_loss
from tests import reference
from tests.training import tiny

DATA = tiny.data(3, 4)


def batch_of(loss, step=1):
    return Batches(
        DATA.pairs, DATA.grids, matches=DATA.matches, loss=loss, n_steps=3, batch_pairs=6, grids_per_step=4, seed=0
    )(step)


def parts_of(module, batch, *, local_weight=0.7):
    images, texts = DATA.images.take(batch.image_keys), DATA.texts.take(batch.text_keys)
    return batch_loss(module, images, texts, batch, local_weight=local_weight)


@pytest.mark.parametrize("loss", ["local_grids", "local_and_full", "full_matrix", "vanilla"])
def test_equals_the_loops_and_encodes_each_distinct_item_once(loss):
    module, batch = tiny.TinyEncoder().module, batch_of(loss)
    parts = parts_of(module, batch)
    assert module.n_encoded == [len(batch.image_keys), len(batch.text_keys)]
    module.requires_grad_(False)
    images = module.image(DATA.images.take(batch.image_keys))
    texts = module.text(DATA.texts.take(batch.text_keys))
    scale = module.log_scale.exp()
    expected = reference.contrastive(
        images[batch.pair_images], texts[batch.pair_texts], scale, batch.pair_matches.tolist()
    )
    torch.testing.assert_close(parts.global_loss, expected)
    if loss.startswith("local"):
        local = reference.grids(images[batch.grid_images], texts[batch.grid_texts], scale)
        torch.testing.assert_close(parts.local_loss, local)
        expected = expected + 0.7 * local
    else:
        assert parts.local_loss is None
    torch.testing.assert_close(parts.total, expected)


def test_the_local_term_reaches_both_towers_and_the_scale():
    module, batch = tiny.TinyEncoder().module, batch_of("local_grids")
    names = [name for name, _ in module.named_parameters()]
    with_term = torch.autograd.grad(parts_of(module, batch, local_weight=1.0).total, list(module.parameters()))
    without = torch.autograd.grad(parts_of(module, batch, local_weight=0.0).total, list(module.parameters()))
    assert all(not torch.allclose(a, b) for a, b in zip(with_term, without, strict=True)), names


def test_weight_zero_is_the_global_loss_alone():
    module, batch = tiny.TinyEncoder().module, batch_of("local_grids")
    parts = parts_of(module, batch, local_weight=0.0)
    assert parts.total.item() == parts.global_loss.item()
