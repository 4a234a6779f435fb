"""Slow, obvious versions of what the numerics do fast: the oracles of the tests."""

import math

import numpy as np


def exact_scores(rows, columns):
    """float32 scores of all pairs: components rounded to multiples of 2^-26, summed with math.fsum (exactly)."""
    left = np.rint(np.asarray(rows, dtype=np.float64) * 2**26) / 2**26
    right = np.rint(np.asarray(columns, dtype=np.float64) * 2**26) / 2**26
    return np.array(
        [[np.float32(math.fsum(float(x) * float(y) for x, y in zip(a, b, strict=True))) for b in right] for a in left],
        dtype=np.float32,
    ).reshape(len(left), len(right))


def order(scores, excluded):
    """Indices of the items not in `excluded`, by (-score, index)."""
    return sorted((j for j in range(len(scores)) if j not in excluded), key=lambda j: (-scores[j], j))


def top_k(scores, excluded, k):
    """(indices, scores) of length min(k, n_items), filled with -1 and -inf."""
    width = min(k, len(scores))
    best = order(scores, excluded)[:width]
    fill = width - len(best)
    return best + [-1] * fill, [float(scores[j]) for j in best] + [-math.inf] * fill


def rank(scores, excluded, probe):
    """1 + the number of items, neither excluded nor the probe, that stand before the probe in (-score, index)."""
    return 1 + sum((-scores[j], j) < (-scores[probe], probe) for j in range(len(scores)) if j not in excluded | {probe})


def ties(scores, excluded, probe):
    """Items, neither excluded nor the probe, of the probe's score."""
    return sum(scores[j] == scores[probe] for j in range(len(scores)) if j not in excluded | {probe})


def cross_entropy(logits, label, masked=()):
    """-log softmax(logits)[label], leaving out the masked positions; plain floats or 0-d tensors."""
    kept = [value for index, value in enumerate(logits) if index not in masked]
    top = max(float(value.detach()) for value in kept)
    total = sum((value - top).exp() for value in kept)
    return total.log() + top - logits[label]


def contrastive(images, texts, scale, matches=None):
    """Mean over both directions of the cross-entropy of each row, masked items left out. Loops; (n, d) tensors."""
    n = len(images)
    images = [image / image.norm() for image in images]
    texts = [text / text.norm() for text in texts]
    total = 0.0
    for i in range(n):
        row = [scale * (images[i] * texts[j]).sum() for j in range(n)]
        column = [scale * (images[j] * texts[i]).sum() for j in range(n)]
        masked_row = {j for j in range(n) if j != i and matches is not None and matches[i][j]}
        masked_column = {j for j in range(n) if j != i and matches is not None and matches[j][i]}
        total = total + cross_entropy(row, i, masked_row) + cross_entropy(column, i, masked_column)
    return total / (2 * n)


def grids(images, texts, scale):
    """Mean over grids of the mean over both directions of three cross-entropies. (g, 3, d) tensors."""
    return sum(contrastive(images[g], texts[g], scale) for g in range(len(images))) / len(images)
