"""The training losses, as pure functions of features.

Features need not be normalised: every loss normalises them, multiplies cosines by the logit scale α and takes
cross-entropies in both directions. Half-precision features are raised to float32 first. All losses are means, so
their size does not depend on the number of pairs or grids.
"""

import math

import torch
from torch.nn import functional

from repair.core.errors import DataError

MAX_LOG_SCALE = math.log(100.0)


def logit_scale(log_scale: torch.Tensor) -> torch.Tensor:
    """α = exp(ln α), clamped to [1, 100].

    Outside the range the gradient is zero, so a parameter that drifts out would stay there: call
    `clamp_log_scale` after every optimiser step.

    Example:
        >>> [round(float(logit_scale(torch.tensor(value))), 4) for value in (-1.0, 2.0, 9.0)]
        [1.0, 7.3891, 100.0]
    """
    return log_scale.clamp(0.0, MAX_LOG_SCALE).exp()


@torch.no_grad()
def clamp_log_scale(log_scale: torch.Tensor) -> None:
    """Put the parameter ln α back into [0, ln 100], in place."""
    log_scale.clamp_(0.0, MAX_LOG_SCALE)


def contrastive_loss(
    image_features: torch.Tensor,
    text_features: torch.Tensor,
    scale: torch.Tensor | float,
    *,
    matches: torch.Tensor | None = None,
) -> torch.Tensor:
    """The symmetric in-batch contrastive loss of n pairs (CLIP), with duplicates masked; a scalar.

    Args:
        image_features: Shape (n, dim); row i goes with text i.
        text_features: Shape (n, dim).
        scale: The logit scale α.
        matches: Boolean (n, n): image i matches text j. Off the diagonal such a cell is left out of both its row's
            and its column's softmax: it is neither a positive nor a negative.

    Raises:
        DataError: shapes do not fit.

    Example:
        With nothing to tell the pairs apart each softmax is uniform over two items, or, all else masked, over one:

        >>> same = torch.ones(2, 3)
        >>> round(float(contrastive_loss(same, same, 10.0)), 4)
        0.6931
        >>> float(contrastive_loss(same, same, 10.0, matches=torch.ones(2, 2, dtype=torch.bool)))
        0.0
    """
    _check(image_features, text_features, n_dims=2)
    logits = _logits(image_features, text_features, scale)
    n = len(logits)
    if matches is not None:
        if matches.shape != (n, n) or matches.dtype != torch.bool:
            raise DataError(f"matches: must be bool of shape ({n}, {n}), not {matches.dtype} {tuple(matches.shape)}")
        others = ~torch.eye(n, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(matches & others, -torch.inf)
    labels = torch.arange(n, device=logits.device)
    return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2


def contrastive_share(
    own_images: torch.Tensor,
    own_texts: torch.Tensor,
    all_images: torch.Tensor,
    all_texts: torch.Tensor,
    scale: torch.Tensor | float,
    *,
    first: int,
    row_matches: torch.Tensor,
    column_matches: torch.Tensor,
) -> torch.Tensor:
    """The part of `contrastive_loss` of n pairs in which k of them, `first` … `first + k - 1`, ask; a scalar.

    The parts of all pairs, each taken once, add up to the whole loss. So each of several processes takes its own pairs'
    part, a (k, n) matrix of logits rather than an (n, n) one.

    Args:
        own_images: Shape (k, dim), k ≥ 1; with `own_texts`, the pairs that ask.
        own_texts: Shape (k, dim).
        all_images: Shape (n, dim): what is asked among, in the order of the pairs.
        all_texts: Shape (n, dim).
        scale: The logit scale α.
        first: Where the own pairs stand among all.
        row_matches: Boolean (k, n): own image i matches text j.
        column_matches: Boolean (n, k): image i matches own text j.

    Example:
        >>> x = torch.eye(4)
        >>> none = torch.zeros(4, 4, dtype=torch.bool)
        >>> cuts = [slice(0, 3), slice(3, 4)]
        >>> parts = [contrastive_share(x[c], x[c], x, x, 5.0, first=c.start, row_matches=none[c],
        ...          column_matches=none[:, c]) for c in cuts]
        >>> bool(torch.isclose(sum(parts), contrastive_loss(x, x, 5.0)))
        True
    """
    n, k = len(all_images), len(own_images)
    labels = torch.arange(first, first + k, device=own_images.device)
    own = torch.zeros(k, n, dtype=torch.bool, device=own_images.device)
    own[torch.arange(k, device=own.device), labels] = True
    by_image = _logits(own_images, all_texts, scale).masked_fill(row_matches & ~own, -torch.inf)
    by_text = _logits(own_texts, all_images, scale).masked_fill(column_matches.T & ~own, -torch.inf)
    total = functional.cross_entropy(by_image, labels, reduction="sum")
    return (total + functional.cross_entropy(by_text, labels, reduction="sum")) / (2 * n)


def mean_cosine(features: torch.Tensor) -> float:
    """The mean cosine of two different rows of (n, dim) features, n ≥ 2: near 1, the embedding has collapsed.

    Example:
        >>> round(mean_cosine(torch.eye(3)), 4), round(mean_cosine(torch.ones(5, 2)), 4)
        (0.0, 1.0)
    """
    n = len(features)
    total = _unit(features.detach()).sum(dim=0).square().sum()
    return float((total - n) / (n * (n - 1)))


def grid_loss(image_features: torch.Tensor, text_features: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    """The local loss: the mean over grids of L_g = ½ [CE_row(G) + CE_row(Gᵀ)], labels on the diagonal; a scalar.

    G is a grid's 3×3 matrix of logits, image by text. Softmaxes never leave their grid, so a hard pair's signal is not
    diluted by a large batch (the paper's Locality).

    Args:
        image_features: Shape (n_grids, 3, dim), n_grids ≥ 1.
        text_features: Shape (n_grids, 3, dim).
        scale: The logit scale α.

    Raises:
        DataError: shapes do not fit, or there is no grid.

    Example:
        >>> apart = torch.eye(3)[None]
        >>> round(float(grid_loss(apart, apart, 1.0)), 4)  # -log(e / (e + 2))
        0.5514
    """
    _check(image_features, text_features, n_dims=3)
    if image_features.shape[1] != 3:
        raise DataError(f"features of grids: must have shape (n_grids, 3, dim), not {tuple(image_features.shape)}")
    logits = _logits(image_features, text_features, scale)
    labels = torch.arange(3, device=logits.device).repeat(len(logits))
    by_row = functional.cross_entropy(logits.flatten(0, 1), labels)
    by_column = functional.cross_entropy(logits.mT.flatten(0, 1), labels)
    return (by_row + by_column) / 2


def full_matrix_loss(
    image_features: torch.Tensor,
    text_features: torch.Tensor,
    scale: torch.Tensor | float,
    *,
    matches: torch.Tensor | None = None,
) -> torch.Tensor:
    """The ablation "Full Matrix": the same 3·n_grids pairs in one softmax, no local term; a scalar.

    Args:
        image_features: Shape (n_grids, 3, dim), n_grids ≥ 1.
        text_features: Shape (n_grids, 3, dim).
        scale: The logit scale α.
        matches: Boolean (3·n_grids, 3·n_grids), grids in order: known positives and repeated items, to be masked.

    Example:
        >>> apart = torch.eye(3)[None]
        >>> bool(full_matrix_loss(apart, apart, 1.0) == grid_loss(apart, apart, 1.0))  # of one grid they are the same
        True
    """
    _check(image_features, text_features, n_dims=3)
    return contrastive_loss(image_features.flatten(0, 1), text_features.flatten(0, 1), scale, matches=matches)


def _logits(images: torch.Tensor, texts: torch.Tensor, scale: torch.Tensor | float) -> torch.Tensor:
    with torch.autocast(images.device.type, enabled=False):  # a bfloat16 cosine has two digits: too few for hard pairs
        return scale * (_unit(images) @ _unit(texts).mT)


def _unit(features: torch.Tensor) -> torch.Tensor:
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    return functional.normalize(features, dim=-1)


def _check(image_features: torch.Tensor, text_features: torch.Tensor, *, n_dims: int) -> None:
    images, texts = tuple(image_features.shape), tuple(text_features.shape)
    if images != texts or len(images) != n_dims or not images[0]:
        raise DataError(f"features: images {images} and texts {texts} must have one shape of {n_dims} axes, none empty")
