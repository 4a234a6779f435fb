"""The loss of a composed batch, from features."""

import torch
from torch import Tensor

from repair.numerics.method_losses import (
    asymmetric_loss,
    focal_negatives_loss,
    intra_modal_loss,
    nt_xent,
    own_foil_loss,
    ranking_loss,
    triplet_loss,
)
from repair.training.compositions.batches import ComposedBatch


def composed_loss(
    z_images: Tensor, z_texts: Tensor, scale: Tensor, batch: ComposedBatch
) -> tuple[Tensor, Tensor | None]:
    """The batch's contrastive loss, and the weighted sum of the composition's further terms (None without any).

    `z_images` and `z_texts` are the features of the batch's distinct items, in the order of its keys; `scale` is α.
    """
    device = z_images.device

    def at(features: Tensor, indices: object) -> Tensor:
        return features[torch.as_tensor(indices, device=device)]

    def mask(values: object) -> Tensor:
        return torch.as_tensor(values, dtype=torch.bool, device=device)

    images, texts = at(z_images, batch.pair_images), at(z_texts, batch.pair_texts)
    if batch.composition.pairs == "triplet":
        main = triplet_loss(
            images,
            texts,
            at(z_images, batch.triplet_images),
            at(z_texts, batch.triplet_texts),
            scale,
            matches=mask(batch.pair_matches),
            negative_matches=mask(batch.triplet_matches),
            cross_matches=mask(batch.cross_matches),
            crossed_back=mask(batch.crossed_back),
        )
    else:
        main = asymmetric_loss(
            images,
            texts,
            scale,
            matches=mask(batch.pair_matches),
            more_texts=at(z_texts, batch.more_texts),
            more_text_matches=mask(batch.more_text_matches),
            more_images=at(z_images, batch.more_images),
            more_image_matches=mask(batch.more_image_matches),
        )
    terms: list[Tensor] = []
    for term, weight in batch.composition.terms:
        terms.append(weight * _term(term, images, texts, z_images, z_texts, scale, batch))
    return main, torch.stack(terms).sum() if terms else None


def _term(
    term: str,
    images: Tensor,
    texts: Tensor,
    z_images: Tensor,
    z_texts: Tensor,
    scale: Tensor,
    batch: ComposedBatch,
) -> Tensor:
    device = z_images.device
    if term == "views":
        views = torch.as_tensor(batch.views, device=device)
        return nt_xent(z_images[views[:, 0]], z_images[views[:, 1]]) if len(views) else z_images.sum() * 0.0
    if term == "units":
        losses = []
        for unit in batch.units:
            if not len(unit.rows):
                continue
            foils = torch.as_tensor(unit.foils, device=device)
            losses.append(
                own_foil_loss(
                    images[torch.as_tensor(unit.rows, device=device)],
                    z_texts[torch.as_tensor(unit.units, device=device)],
                    z_texts[foils.clamp(min=0)],
                    foils >= 0,
                    scale,
                    matches=torch.as_tensor(unit.matches, device=device),
                )
            )
        return torch.stack(losses).mean() if losses else z_texts.sum() * 0.0
    places = torch.as_tensor(batch.negatives, device=device)
    negatives, valid = z_texts[places.clamp(min=0)], places >= 0
    if term == "focal":
        return focal_negatives_loss(images, texts, negatives, valid, scale)
    if term == "ranked":
        return ranking_loss(images, texts, negatives, valid, scale)
    return intra_modal_loss(texts, negatives, valid, scale)
