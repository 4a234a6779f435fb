"""Trainable heads on frozen features, and how they are first fitted."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from repair.core.errors import ConfigError, TrainingError, suggest
from repair.core.identity import derive_rng, derive_seed
from repair.core.ports import Array

_FIRST_LOG_SCALE = math.log(1 / 0.07)  # as CLIP starts
_MAX_LOG_SCALE = math.log(100)
_MAX_GRADIENT_NORM = 1.0


class Heads(nn.Module):
    """One hidden layer from each backbone's features to the shared space, and the logit scale."""

    def __init__(self, *, n_image: int, n_text: int, n_hidden: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.image_head = _head(n_image, n_hidden=n_hidden, dim=dim, dropout=dropout)
        self.text_head = _head(n_text, n_hidden=n_hidden, dim=dim, dropout=dropout)
        self.log_scale = nn.Parameter(torch.tensor(_FIRST_LOG_SCALE))

    def image_features(self, prepared: Tensor) -> Tensor:
        """(n, n_image) backbone features to (n, dim) float32, not normalised."""
        features: Tensor = self.image_head(prepared.float())
        return features

    def text_features(self, prepared: Tensor) -> Tensor:
        """(n, n_text) backbone features to (n, dim) float32, not normalised."""
        features: Tensor = self.text_head(prepared.float())
        return features


def _head(n_in: int, *, n_hidden: int, dim: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(n_in, elementwise_affine=False),
        nn.Dropout(dropout),
        nn.Linear(n_in, n_hidden),
        nn.GELU(),
        nn.Dropout(dropout),
        nn.Linear(n_hidden, dim),
    )


def seeded_heads(*, seed: int, **sizes: Any) -> Heads:
    """`Heads(**sizes)` with first weights drawn from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Heads(**sizes)


class FitSettings(BaseModel):
    """How heads are fitted; `fit = { epochs = 10 }` in a config file.

    An epoch shows every image once, with one of its captions; epoch after epoch all its captions have their turn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: int = Field(25, ge=1)
    batch_size: int = Field(512, ge=2, description="Pairs.")
    lr: float = Field(1e-3, gt=0, description="At its highest; falls to 0 by a cosine.")
    weight_decay: float = Field(0.1, ge=0)
    warmup_rate: float = Field(0.1, ge=0, le=1, description="Share of all steps.")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> "FitSettings":
        """Raises ConfigError naming an option that is unknown, of the wrong type, or out of range."""
        for key in options:
            if key not in cls.model_fields:
                raise ConfigError(f'encoder.fit: unknown option "{key}": {suggest(key, cls.model_fields)}')
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(f"encoder.fit: {first['loc'][0]}: {first['msg']}, not {first['input']!r}") from error


def fit_heads(
    heads: Heads,
    images: Array,
    texts: Array,
    owner: Array,
    *,
    settings: FitSettings,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[float]:
    """Train `heads` in place by symmetric InfoNCE (CLIP's loss); returns the mean loss of each epoch.

    `images` (n, …) and `texts` (m, …) are prepared rows, `owner` (m,) the row of the image each text belongs to. A
    batch never holds two captions of one image, so all its off-diagonal pairs are unlabelled. `progress(done, total)`
    counts epochs. The same seed and number of threads give the same weights.

    Raises TrainingError if there are fewer than two images or the loss is not finite.
    """
    captions_of = _captions_of(owner, n_images=len(images))
    if len(captions_of) < 2:
        raise TrainingError(f"fitting heads needs at least 2 images with captions, there are {len(captions_of)}")
    plan = _batches(captions_of, settings=settings, seed=seed)
    optimizer, schedule = _optimizer(heads, settings=settings, n_steps=sum(map(len, plan)))
    losses: list[float] = []
    with torch.random.fork_rng(devices=[]):  # dropout draws from torch's global generator
        torch.manual_seed(derive_seed(seed, "fit_heads", "dropout"))
        heads.train()
        for epoch in plan:
            total = 0.0
            for rows in epoch:
                loss = _loss(heads, images[owner[rows]], texts[rows])
                if not torch.isfinite(loss):
                    raise TrainingError(
                        f"fitting heads: the loss is {loss.item()} at epoch {len(losses) + 1}: lower encoder.fit.lr"
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(heads.parameters(), _MAX_GRADIENT_NORM)
                optimizer.step()
                schedule.step()
                with torch.no_grad():
                    heads.log_scale.clamp_(0, _MAX_LOG_SCALE)
                total += loss.item()
            losses.append(total / len(epoch))
            if progress is not None:
                progress(len(losses), len(plan))
        heads.eval()
    return losses


def _captions_of(owner: Array, *, n_images: int) -> list[Array]:
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=n_images)
    return [rows for rows in np.split(order, np.cumsum(counts)[:-1]) if len(rows)]


def _batches(captions_of: list[Array], *, settings: FitSettings, seed: int) -> list[list[Array]]:
    """Rows of texts for every step of every epoch, one text an image; an image's texts take turns."""
    turns = [derive_rng(seed, "fit_heads", "turns", image).permutation(own) for image, own in enumerate(captions_of)]
    epochs = []
    for epoch in range(settings.epochs):
        rows = np.array([own[epoch % len(own)] for own in turns])
        order = derive_rng(seed, "fit_heads", "order", epoch).permutation(len(rows))
        epochs.append(np.array_split(rows[order], max(1, round(len(rows) / settings.batch_size))))
    return epochs


def _loss(heads: Heads, images: Array, texts: Array) -> Tensor:
    image = functional.normalize(heads.image_features(torch.from_numpy(images)), dim=1)
    text = functional.normalize(heads.text_features(torch.from_numpy(texts)), dim=1)
    logits = heads.log_scale.exp() * image @ text.T
    labels = torch.arange(len(logits))
    return (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2


def _optimizer(
    heads: Heads, *, settings: FitSettings, n_steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    decayed = [p for p in heads.parameters() if p.ndim > 1]
    kept = [p for p in heads.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": kept, "weight_decay": 0.0}],
        lr=settings.lr,
    )
    n_warmup = max(1, round(settings.warmup_rate * n_steps))

    def rate(step: int) -> float:
        if step < n_warmup:
            return (step + 1) / n_warmup
        return 0.5 * (1 + math.cos(math.pi * (step - n_warmup) / max(1, n_steps - n_warmup)))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
