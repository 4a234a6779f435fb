"""The losses of other methods against loops, gradients included."""

import math

import pytest
import torch

from repair.core.errors import DataError
from repair.numerics.losses import contrastive_loss
from repair.numerics.method_losses import (
    asymmetric_loss,
    focal_negatives_loss,
    intra_modal_loss,
    nt_xent,
    own_foil_loss,
    ranking_loss,
    triplet_loss,
)
from tests.reference import cross_entropy


def features(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def alpha(value=7.0):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def flags(*shape, seed=0, rate=0.3):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < rate


def cosine(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


def assert_same(fast, slow, inputs, *, rtol=1e-9):
    assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-12)
    for a, b in zip(torch.autograd.grad(fast, inputs), torch.autograd.grad(slow, inputs), strict=True):
        assert torch.allclose(a, b, rtol=rtol, atol=1e-12)


def one_way(queries, items, more, scale, matches, more_matches):
    """Mean cross-entropy of each query over items and further items, the label its own item."""
    total = 0.0
    for i in range(len(queries)):
        row = [scale * cosine(queries[i], items[j]) for j in range(len(items))]
        row += [scale * cosine(queries[i], more[j]) for j in range(len(more))]
        masked = {j for j in range(len(items)) if j != i and matches[i][j]}
        masked |= {len(items) + j for j in range(len(more)) if more_matches[i][j]}
        total = total + cross_entropy(row, i, masked)
    return total / len(queries)


@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize(("n_texts", "n_images"), [(0, 0), (5, 0), (0, 3), (7, 2)])
def test_asymmetric_equals_loops(scale, n_texts, n_images):
    images, texts, a = features(4, 5), features(4, 5, seed=1), alpha(scale)
    more_texts, more_images = features(n_texts, 5, seed=2), features(n_images, 5, seed=3)
    matches, with_texts, with_images = flags(4, 4), flags(4, n_texts, seed=1), flags(4, n_images, seed=2)
    fast = asymmetric_loss(
        images,
        texts,
        a,
        matches=matches,
        more_texts=more_texts,
        more_text_matches=with_texts,
        more_images=more_images,
        more_image_matches=with_images,
    )
    slow = one_way(images, texts, more_texts, a, matches, with_texts)
    slow = (slow + one_way(texts, images, more_images, a, matches.T, with_images)) / 2
    used = [images, texts, a, *([more_texts] if n_texts else []), *([more_images] if n_images else [])]
    assert_same(fast, slow, used)


def test_without_further_items_it_is_the_contrastive_loss():
    images, texts = features(4, 5), features(4, 5, seed=1)
    table = flags(4, 4) | torch.eye(4, dtype=torch.bool)
    expected = contrastive_loss(images, texts, 9.0, matches=table)
    assert torch.equal(asymmetric_loss(images, texts, 9.0, matches=table), expected)


def test_negclip_shape_is_2b_by_4b():
    """Negative captions are columns of the images' softmax and never ask."""
    images, texts, negatives = features(4, 5), features(4, 5, seed=1), features(4, 5, seed=2)
    loss = asymmetric_loss(images, texts, 5.0, more_texts=negatives)
    none = torch.zeros(4, 8, dtype=torch.bool)
    by_image = one_way(images, texts, negatives, 5.0, none, none)
    by_text = one_way(texts, images, negatives[:0], 5.0, none, none)
    assert torch.allclose(loss, (by_image + by_text) / 2)


def test_triplet_equals_loops():
    images, texts, a = features(4, 5), features(4, 5, seed=1), alpha()
    negative_images, negative_texts = features(3, 5, seed=2), features(3, 5, seed=3)
    matches, own = flags(4, 4), flags(3, 3, seed=4)
    cross, back = flags(4, 3, seed=5), flags(3, 4, seed=6)
    fast = triplet_loss(
        images,
        texts,
        negative_images,
        negative_texts,
        a,
        matches=matches,
        negative_matches=own,
        cross_matches=cross,
        crossed_back=back,
    )
    none = texts[:0]
    slow = one_way(images, texts, negative_texts, a, matches, cross) + one_way(texts, images, none, a, matches.T, back)
    slow = slow + one_way(negative_images, negative_texts, texts, a, own, back)
    slow = (slow + one_way(negative_texts, negative_images, none, a, own.T, cross)) / 2
    assert_same(fast, slow, (images, texts, negative_images, negative_texts, a))
    alone = triplet_loss(images, texts, negative_images[:0], negative_texts[:0], a, matches=matches)
    assert torch.equal(alone, contrastive_loss(images, texts, a, matches=matches | torch.eye(4, dtype=torch.bool)))


def test_focal_equals_loops():
    images, texts, negatives, a = features(4, 5), features(4, 5, seed=1), features(4, 3, 5, seed=2), alpha()
    valid = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=torch.bool)
    fast = focal_negatives_loss(images, texts, negatives, valid, a, gamma=2.0, smoothing=0.02)
    terms = []
    for i in range(4):
        here = [k for k in range(3) if valid[i, k]]
        if not here:
            continue
        logits = [a * cosine(images[i], texts[i])] + [a * cosine(images[i], negatives[i, k]) for k in here]
        logs = [-cross_entropy(logits, j) for j in range(len(logits))]
        entropy = -0.98 * logs[0] - 0.02 / len(here) * sum(logs[1:])
        terms.append((1 - logs[0].exp()) ** 2 * entropy)
    assert_same(fast, sum(terms) / len(terms), (images, texts, negatives, a), rtol=1e-6)  # 1 - p of p near 1


def test_ranking_equals_loops():
    images, texts, negatives, a = features(5, 4), features(5, 4, seed=1), features(5, 2, 4, seed=2), alpha()
    valid = torch.tensor([[1, 1], [0, 1], [1, 0], [1, 1], [1, 1]], dtype=torch.bool)
    fast = ranking_loss(images, texts, negatives, valid, a)
    gaps = {
        (i, k): a * cosine(images[i], texts[i]) - a * cosine(images[i], negatives[i, k])
        for i in range(5)
        for k in range(2)
        if valid[i, k]
    }
    total = 0.0
    for k in range(2):
        own = [float(gap.detach()) for (_, type), gap in gaps.items() if type == k]
        margin = min(max(sum(own) / len(own), 0.0), 10.0)
        total = total + sum(torch.relu(margin - gap) for (_, type), gap in gaps.items() if type == k)
    assert_same(fast, total / len(gaps), (images, texts, negatives, a))


def test_intra_modal_equals_loops():
    texts, negatives, a = features(3, 4), features(3, 2, 4, seed=1), alpha()
    valid = torch.tensor([[0, 1], [1, 1], [0, 0]], dtype=torch.bool)
    columns = [negatives[0, 1], negatives[1, 0], negatives[1, 1]]
    slow = sum(cross_entropy([a * cosine(text, column) for column in columns], 0) for text in texts) / 3
    assert_same(intra_modal_loss(texts, negatives, valid, a), slow, (texts, negatives, a))


def test_own_foil_equals_loops():
    images, units, foils, a = features(4, 5), features(4, 5, seed=1), features(4, 5, seed=2), alpha()
    valid, matches = torch.tensor([True, False, True, True]), flags(4, 4)
    fast = own_foil_loss(images, units, foils, valid, a, matches=matches)
    total = 0.0
    for i in range(4):
        row = [a * cosine(images[i], units[j]) for j in range(4)]
        row += [a * cosine(images[i], foils[i])] if valid[i] else []
        total = total + cross_entropy(row, i, {j for j in range(4) if j != i and matches[i, j]})
    by_text = one_way(units, images, units[:0], a, matches.T, matches)
    assert_same(fast, (total / 4 + by_text) / 2, (images, units, foils, a))


def test_nt_xent_equals_loops():
    first, second = features(4, 5), features(4, 5, seed=1)
    total = 0.0
    for mine, other in ((first, second), (second, first)):
        for i in range(4):
            row = [10 * cosine(mine[i], other[j]) for j in range(4)]
            row += [10 * cosine(mine[i], mine[j]) for j in range(4) if j != i]
            total = total + cross_entropy(row, i) / 4
    assert_same(nt_xent(first, second, temperature=0.1), total / 2, (first, second))


def test_gradients_are_right():
    pair = features(3, 4), features(3, 4, seed=1), alpha(3.0)
    negatives, valid = features(3, 2, 4, seed=2), torch.tensor([[1, 0], [1, 1], [0, 0]], dtype=torch.bool)
    check = torch.autograd.gradcheck
    assert check(lambda i, t, a, n: focal_negatives_loss(i, t, n, valid, a), (*pair, negatives))
    assert check(lambda i, t, a, n: asymmetric_loss(i, t, a, more_texts=n[:, 0]), (*pair, negatives))
    assert check(lambda i, t, a, n: own_foil_loss(i, t, n[:, 0], valid[:, 0], a), (*pair, negatives))
    assert check(lambda t, a, n: intra_modal_loss(t, n, valid, a), (pair[1], pair[2], negatives))
    assert check(lambda i, t: nt_xent(i, t), pair[:2])


def test_no_valid_negative_is_no_loss_and_no_gradient():
    images, texts, negatives = features(3, 4), features(3, 4, seed=1), features(3, 2, 4, seed=2)
    nothing = torch.zeros(3, 2, dtype=torch.bool)
    for loss in (
        focal_negatives_loss(images, texts, negatives, nothing, 5.0),
        ranking_loss(images, texts, negatives, nothing, 5.0),
        intra_modal_loss(texts, negatives, nothing, 5.0),
    ):
        assert loss.item() == 0.0
        grads = torch.autograd.grad(loss, (images, texts, negatives), allow_unused=True)
        assert all(grad is None or (torch.isfinite(grad).all() and not grad.any()) for grad in grads)


def test_a_harder_negative_costs_more():
    images = torch.eye(3, dtype=torch.float64)
    far, near = -images[:, None], images[:, None] * 0.5 + 0.1
    valid = torch.ones(3, 1, dtype=torch.bool)
    for loss in (
        lambda n: focal_negatives_loss(images, images, n, valid, 5.0),
        lambda n: asymmetric_loss(images, images, 5.0, more_texts=n[:, 0]),
        lambda n: own_foil_loss(images, images, n[:, 0], valid[:, 0], 5.0),
    ):
        assert loss(far) < loss(near)
    assert math.isfinite(float(ranking_loss(images, images, far, valid, 100.0)))


def test_shapes_are_checked():
    with pytest.raises(DataError, match="one shape"):
        asymmetric_loss(features(3, 4), features(2, 4), 1.0)
    with pytest.raises(DataError, match="must be bool of shape"):
        asymmetric_loss(features(3, 4), features(3, 4), 1.0, matches=torch.zeros(3, 3))
    with pytest.raises(DataError, match="negatives"):
        focal_negatives_loss(features(3, 4), features(3, 4), features(3, 4), torch.ones(3, 4, dtype=torch.bool), 1.0)
