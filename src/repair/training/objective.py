"""The loss of one batch: every distinct item encoded once, then contrasted as the batch says."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from repair.numerics.losses import contrastive_loss, grid_loss, logit_scale
from repair.training.batches import Batch
from repair.training.compositions.batches import ComposedBatch
from repair.training.compositions.objective import composed_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Scalars: `total` = `global_loss` + λ `local_loss`; the latter is None for a batch without grids."""

    total: Tensor
    global_loss: Tensor
    local_loss: Tensor | None


def batch_loss(module: nn.Module, images: Tensor, texts: Tensor, batch: Batch, *, local_weight: float) -> Parts:
    """L = CLIP(pairs, matches masked) + λ · mean_g L_g.

    `module` as `core.ports.TrainableEncoder` describes it; `images` and `texts` are the prepared rows of the batch's
    distinct keys, in order, on the module's device. `local_weight` is λ.
    """
    z_images: Tensor = module.image_features(images)  # type: ignore[operator]  # (n_images, dim)
    z_texts: Tensor = module.text_features(texts)  # type: ignore[operator]  # (n_texts, dim)
    scale = logit_scale(module.get_parameter("log_scale"))
    return features_loss(z_images, z_texts, scale, batch, local_weight=local_weight)


def features_loss(z_images: Tensor, z_texts: Tensor, scale: Tensor, batch: Batch, *, local_weight: float) -> Parts:
    """The same from features: those of the batch's distinct images and texts, in the order of its keys; `scale`: α."""
    if isinstance(batch, ComposedBatch):  # another method than RePair
        main, terms = composed_loss(z_images, z_texts, scale, batch)
        return Parts(total=main if terms is None else main + terms, global_loss=main, local_loss=terms)

    def at(features: Tensor, indices: object) -> Tensor:
        return features[torch.as_tensor(indices, device=features.device)]

    matches = torch.as_tensor(batch.pair_matches, device=z_images.device)
    of_pairs = at(z_images, batch.pair_images), at(z_texts, batch.pair_texts)
    global_loss = contrastive_loss(*of_pairs, scale, matches=matches)
    if not len(batch.grid_images):
        return Parts(total=global_loss, global_loss=global_loss, local_loss=None)
    local_loss = grid_loss(at(z_images, batch.grid_images), at(z_texts, batch.grid_texts), scale)
    return Parts(total=global_loss + local_weight * local_loss, global_loss=global_loss, local_loss=local_loss)
