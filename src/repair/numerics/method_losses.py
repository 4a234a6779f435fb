"""The losses of other methods than RePair, as pure functions of features.

As in `numerics.losses`, features need not be normalised, cosines are multiplied by the logit scale α, and every loss is
a mean. Definitions are those of the methods' papers; where one is silent or cannot be had here, the docstring says so.
"""

import torch
from torch import Tensor
from torch.nn import functional

from repair.core.errors import DataError


def asymmetric_loss(
    images: Tensor,
    texts: Tensor,
    scale: Tensor | float,
    *,
    matches: Tensor | None = None,
    more_texts: Tensor | None = None,
    more_text_matches: Tensor | None = None,
    more_images: Tensor | None = None,
    more_image_matches: Tensor | None = None,
) -> Tensor:
    """½ [CE of images over texts and further texts + CE of texts over images and further images]; a scalar.

    Further items are columns only: they are never asked, as NegCLIP's negative captions are not. With none it is CLIP's
    loss (`losses.contrastive_loss`).

    Args:
        images: Shape (n, dim); row i goes with text i.
        texts: Shape (n, dim).
        scale: The logit scale α.
        matches: Boolean (n, n); matching cells off the diagonal are left out of both softmaxes.
        more_texts: Shape (m, dim), m ≥ 0.
        more_text_matches: Boolean (n, m): image i matches further text j, which is then left out of its softmax.
        more_images: Shape (k, dim), k ≥ 0.
        more_image_matches: Boolean (n, k): text i matches further image j.

    Raises:
        DataError: shapes do not fit.

    Example:
        >>> same = torch.ones(2, 3)
        >>> round(float(asymmetric_loss(same, same, 5.0, more_texts=torch.ones(2, 3))), 4)  # (log 4 + log 2) / 2
        1.0397
    """
    _same_shape(images, texts)
    logits = logits_of(images, texts, scale)
    n = len(logits)
    if matches is not None:
        others = ~torch.eye(n, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(_mask(matches, (n, n)) & others, -torch.inf)
    labels = torch.arange(n, device=logits.device)
    by_image = _widened(logits, images, more_texts, more_text_matches, scale)
    by_text = _widened(logits.T, texts, more_images, more_image_matches, scale)
    return (functional.cross_entropy(by_image, labels) + functional.cross_entropy(by_text, labels)) / 2


def triplet_loss(
    images: Tensor,
    texts: Tensor,
    negative_images: Tensor,
    negative_texts: Tensor,
    scale: Tensor | float,
    *,
    matches: Tensor | None = None,
    negative_matches: Tensor | None = None,
    cross_matches: Tensor | None = None,
    crossed_back: Tensor | None = None,
) -> Tensor:
    """TripletCLIP: F(I; T, T⁻) + F(I⁻; T⁻, T), where F(I; T, N) is `asymmetric_loss` with further texts N; a scalar.

    So texts never see the other set's images. Of n pairs q have a negative pair; with q = 0 the second term is 0.

    Args:
        images: Shape (n, dim).
        texts: Shape (n, dim).
        negative_images: Shape (q, dim); row j goes with negative text j.
        negative_texts: Shape (q, dim).
        scale: The logit scale α.
        matches: Boolean (n, n), of images and texts.
        negative_matches: Boolean (q, q), of negative images and negative texts.
        cross_matches: Boolean (n, q): image i matches negative text j.
        crossed_back: Boolean (q, n): negative image j matches text i.
    """
    first = asymmetric_loss(
        images, texts, scale, matches=matches, more_texts=negative_texts, more_text_matches=cross_matches
    )
    if not len(negative_images):
        return first
    return first + asymmetric_loss(
        negative_images,
        negative_texts,
        scale,
        matches=negative_matches,
        more_texts=texts,
        more_text_matches=crossed_back,
    )


def focal_negatives_loss(
    images: Tensor,
    texts: Tensor,
    negatives: Tensor,
    valid: Tensor,
    scale: Tensor | float,
    *,
    gamma: float = 2.0,
    smoothing: float = 0.02,
) -> Tensor:
    """FSC-CLIP's L_g: each image's own softmax over its caption and its K negatives, focal and smoothed; a scalar.

    Of an image with v valid negatives, p being the softmax and p₀ the caption's share, the term is
    (1 - p₀)^γ · [-(1 - ε) log p₀ - ε/v Σ log p_k]. Mean over the images with a valid negative; 0 if there are none.
    L_l, FSC-CLIP's loss over patches and tokens, needs features that a dual encoder here does not give.

    Args:
        images: Shape (n, dim).
        texts: Shape (n, dim).
        negatives: Shape (n, K, dim).
        valid: Boolean (n, K): false where a negative is missing.
        scale: The logit scale α.
        gamma: γ of the focal weight.
        smoothing: ε, spread over the valid negatives.
    """
    own = _own_logits(images, texts, negatives, valid, scale)
    used = valid.any(dim=1)
    log_p = own.log_softmax(dim=1)
    share = smoothing / valid.sum(dim=1).clamp(min=1)
    wrong = (log_p[:, 1:].masked_fill(~valid, 0.0)).sum(dim=1)
    entropy = -(1 - smoothing) * log_p[:, 0] - share * wrong
    terms = (-log_p[:, 0].expm1()) ** gamma * entropy
    return _mean(terms, used)


def ranking_loss(
    images: Tensor, texts: Tensor, negatives: Tensor, valid: Tensor, scale: Tensor | float, *, max_margin: float = 10.0
) -> Tensor:
    """CE-CLIP's cross-modal rank term: mean of relu(m_k + ℓ⁻ - ℓ⁺) over all valid negatives; a scalar, 0 without any.

    The margin m_k of negatives of type k is the mean gap ℓ⁺ - ℓ⁻ of that type, clamped to [0, `max_margin`] and not
    differentiated. It is published as that of the step before; here it is this batch's, so that a step depends on
    nothing but its batch and resuming is exact.

    Args:
        images: Shape (n, dim).
        texts: Shape (n, dim).
        negatives: Shape (n, K, dim), one column a type.
        valid: Boolean (n, K).
        scale: The logit scale α.
        max_margin: Upper end of the clamp.
    """
    own = _own_logits(images, texts, negatives, valid, scale).masked_fill(_first_kept(~valid), 0.0)
    gaps = own[:, :1] - own[:, 1:]  # (n, K)
    n_valid = valid.sum(dim=0).clamp(min=1)
    margins = (gaps.detach().masked_fill(~valid, 0.0).sum(dim=0) / n_valid).clamp(0.0, max_margin)
    return _mean(functional.relu(margins[None, :] - gaps).flatten(), valid.flatten())


def intra_modal_loss(texts: Tensor, negatives: Tensor, valid: Tensor, scale: Tensor | float) -> Tensor:
    """CE-CLIP's intra-modal contrast as it is published: CE of captions over all negatives of the batch; a scalar.

    The label is the first negative for every row: reported as a likely mistake, kept since its results rest on it.

    Args:
        texts: Shape (n, dim).
        negatives: Shape (n, K, dim).
        valid: Boolean (n, K); others are no columns.
        scale: The logit scale α.
    """
    columns = negatives[valid]  # row by row
    if not len(columns):
        return texts.sum() * 0.0
    logits = logits_of(texts, columns, scale)
    return functional.cross_entropy(logits, torch.zeros(len(texts), dtype=torch.long, device=logits.device))


def own_foil_loss(
    images: Tensor,
    units: Tensor,
    foils: Tensor,
    valid: Tensor,
    scale: Tensor | float,
    *,
    matches: Tensor | None = None,
) -> Tensor:
    """CS-CLIP's unit loss: ½ [CE of images over all units and the own foil only + CE of units over images]; a scalar.

    Args:
        images: Shape (n, dim).
        units: Shape (n, dim): a part of the caption of each image.
        foils: Shape (n, dim): that part with one thing wrong.
        valid: Boolean (n,): false where a foil is missing.
        scale: The logit scale α.
        matches: Boolean (n, n): image i matches unit j; left out off the diagonal.
    """
    _same_shape(images, units)
    logits = logits_of(images, units, scale)
    n = len(logits)
    if matches is not None:
        others = ~torch.eye(n, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(_mask(matches, (n, n)) & others, -torch.inf)
    own = logits_of(images[:, None], foils[:, None], scale)[:, 0].masked_fill(~valid[:, None], -torch.inf)
    labels = torch.arange(n, device=logits.device)
    by_image = functional.cross_entropy(torch.cat([logits, own], dim=1), labels)
    return (by_image + functional.cross_entropy(logits.T, labels)) / 2


def nt_xent(first: Tensor, second: Tensor, *, temperature: float = 0.1) -> Tensor:
    """SimCLR's loss of two views of n images: each view over all others of both, its counterpart being right; a scalar.

    On the encoder's own features; a projection head, as SimCLR has one, would be weights that belong to no encoder.

    Args:
        first: Shape (n, dim), n ≥ 1.
        second: Shape (n, dim); row i shows what row i of `first` shows.
        temperature: τ; SLIP's is 0.1.

    Example:
        >>> views = torch.eye(2)
        >>> round(float(nt_xent(views, views, temperature=1.0)), 4)  # -log(e / (e + 2))
        0.5514
    """
    _same_shape(first, second)
    n = len(first)
    diagonal = torch.eye(n, dtype=torch.bool, device=first.device)
    across = logits_of(first, second, 1 / temperature)
    labels = torch.arange(n, device=first.device)
    total = torch.zeros((), dtype=across.dtype, device=across.device)
    for views, other in ((first, across), (second, across.T)):
        same = logits_of(views, views, 1 / temperature).masked_fill(diagonal, -torch.inf)
        total = total + functional.cross_entropy(torch.cat([other, same], dim=1), labels)
    return total / 2


def _own_logits(images: Tensor, texts: Tensor, negatives: Tensor, valid: Tensor, scale: Tensor | float) -> Tensor:
    """(n, 1 + K): each image against its caption and its own negatives; -inf where a negative is missing."""
    _same_shape(images, texts)
    if negatives.ndim != 3 or len(negatives) != len(images) or valid.shape != negatives.shape[:2]:
        raise DataError(
            f"negatives {tuple(negatives.shape)} and valid {tuple(valid.shape)}: must be (n, K, dim), (n, K)"
        )
    candidates = torch.cat([texts[:, None], negatives], dim=1)
    own = logits_of(images[:, None], candidates, scale)[:, 0]
    return own.masked_fill(_first_kept(~valid), -torch.inf)


def _first_kept(missing: Tensor) -> Tensor:
    """`missing` (n, K) with a column of false before it: the caption itself is always there."""
    return functional.pad(missing, (1, 0), value=False)


def _mean(terms: Tensor, used: Tensor) -> Tensor:
    """Mean of `terms` where `used`; 0, still part of the graph, if nowhere."""
    kept = torch.where(used, terms, torch.zeros_like(terms))
    return kept.sum() / used.sum().clamp(min=1)


def _widened(
    logits: Tensor, queries: Tensor, more: Tensor | None, more_matches: Tensor | None, scale: Tensor | float
) -> Tensor:
    if more is None or not len(more):
        return logits
    further = logits_of(queries, more, scale)
    if more_matches is not None:
        further = further.masked_fill(_mask(more_matches, (len(queries), len(more))), -torch.inf)
    return torch.cat([logits, further], dim=1)


def _mask(mask: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(mask.shape) != shape or mask.dtype != torch.bool:
        raise DataError(f"matches: must be bool of shape {shape}, not {mask.dtype} {tuple(mask.shape)}")
    return mask


def _same_shape(first: Tensor, second: Tensor) -> None:
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise DataError(
            f"features {tuple(first.shape)} and {tuple(second.shape)}: must have one shape of 2 axes, none empty"
        )


def logits_of(queries: Tensor, items: Tensor, scale: Tensor | float) -> Tensor:
    """α times the cosines of the last two axes, (…, n, dim) and (…, m, dim) to (…, n, m), in float32 or better."""
    with torch.autocast(queries.device.type, enabled=False):
        return scale * (_unit(queries) @ _unit(items).mT)


def _unit(features: Tensor) -> Tensor:
    if features.dtype in (torch.float16, torch.bfloat16):
        features = features.float()
    return functional.normalize(features, dim=-1)
