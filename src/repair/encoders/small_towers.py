"""The two towers of the small encoder: under a million parameters, made to train on two CPU cores.

Nothing in here depends on what else is in the batch (layer norm only, padding is masked), so an item's features
are the same alone, in a batch, or in a grid.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

STRIDE = 8  # the image tower sees one cell for every 8 × 8 pixels
_WIDTH = 128
_HEADS = 4
_QUERIES = 8
_STEM_WIDTH = 48
_FIRST_LOG_SCALE = math.log(1 / 0.07)  # as CLIP starts


class _ConvBlock(nn.Module):
    """A 3 × 3 convolution of each channel by itself, layer norm, a two-layer map of each cell, beside a shortcut.

    As in ConvNeXt (Liu et al., 2022): full 3 × 3 convolutions took most of a step on CPUs without wide vectors.
    """

    def __init__(self, width: int, *, widening: int = 2) -> None:
        super().__init__()
        self.mix = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.map_in = nn.Linear(width, widening * width)
        self.map_out = nn.Linear(widening * width, width)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.norm(self.mix(x).permute(0, 2, 3, 1))
        out: Tensor = x + self.map_out(functional.relu(self.map_in(mixed))).permute(0, 3, 1, 2)
        return out


class _MixBlock(nn.Module):
    """One pre-norm transformer block: attention over the positions, then a two-layer map of each position."""

    def __init__(self, width: int, *, n_heads: int = _HEADS, widening: int = 2) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.map_norm = nn.LayerNorm(width)
        self.map_in = nn.Linear(width, widening * width)
        self.map_out = nn.Linear(widening * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`x` is (n, positions, width); `mask` (n, 1, 1, positions) is true where there is something to attend to."""
        n, length, width = x.shape
        parts = self.query_key_value(self.attention_norm(x)).view(n, length, 3, self.n_heads, width // self.n_heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(n, length, width))
        out: Tensor = x + self.map_out(functional.relu(self.map_in(self.map_norm(x))))
        return out


class _Pool(nn.Module):
    """Weighted means of the positions under a few learned weightings, side by side, mapped to `dim`."""

    def __init__(self, width: int, dim: int, *, n_queries: int = _QUERIES) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.weigh = nn.Linear(width, n_queries)
        self.out = nn.Linear(n_queries * width, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (n, positions) is true at the positions that count."""
        x = self.norm(x)
        logits = self.weigh(x)
        if mask is not None:
            logits = logits.masked_fill(~mask[..., None], -torch.inf)
        out: Tensor = self.out(torch.einsum("nlq,nlw->nqw", logits.softmax(dim=1), x).flatten(1))
        return out


class ImageTower(nn.Module):
    """uint8 (n, 3, size, size) to (n, dim). Keeps the layout: every cell carries its position until the pool."""

    def __init__(self, *, image_size: int, dim: int, n_conv_blocks: int = 1, n_mix_blocks: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, _STEM_WIDTH, 4, stride=4)
        self.down = nn.Conv2d(_STEM_WIDTH, _WIDTH, 2, stride=2)
        self.conv_blocks = nn.ModuleList(_ConvBlock(_WIDTH) for _ in range(n_conv_blocks))
        self.position = nn.Parameter(0.02 * torch.randn((image_size // STRIDE) ** 2, _WIDTH))
        self.mix_blocks = nn.ModuleList(_MixBlock(_WIDTH) for _ in range(n_mix_blocks))
        self.pool = _Pool(_WIDTH, dim)

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.float().div(127.5).sub(1.0).contiguous(memory_format=torch.channels_last)
        x = self.down(functional.relu(self.stem(x)))
        for block in self.conv_blocks:
            x = block(x)
        x = x.flatten(2).transpose(1, 2) + self.position
        for block in self.mix_blocks:
            x = block(x)
        features: Tensor = self.pool(x)
        return features


class TextTower(nn.Module):
    """Token ids (n, length), 0 where there is none, to (n, dim)."""

    def __init__(self, *, n_tokens: int, length: int, dim: int, n_mix_blocks: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(n_tokens, _WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.position = nn.Parameter(0.02 * torch.randn(length, _WIDTH))
        self.mix_blocks = nn.ModuleList(_MixBlock(_WIDTH) for _ in range(n_mix_blocks))
        self.pool = _Pool(_WIDTH, dim)

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids.long()
        mask = ids != 0
        used = int(mask.sum(dim=1).max()) if len(ids) else 1  # columns in which no text has a token cost time only
        ids, mask = ids[:, :used], mask[:, :used]
        x = self.embedding(ids) + self.position[:used]
        for block in self.mix_blocks:
            x = block(x, mask[:, None, None, :])
        features: Tensor = self.pool(x, mask)
        return features


class SmallModule(nn.Module):
    """Both towers and the logit scale: what an optimiser sees."""

    def __init__(self, *, image_size: int, n_tokens: int, length: int, dim: int) -> None:
        super().__init__()
        self.image_tower = ImageTower(image_size=image_size, dim=dim)
        self.text_tower = TextTower(n_tokens=n_tokens, length=length, dim=dim)
        self.log_scale = nn.Parameter(torch.tensor(_FIRST_LOG_SCALE))
        self.to(memory_format=torch.channels_last)

    def image_features(self, prepared: Tensor) -> Tensor:
        """(n, 3, size, size) uint8 to (n, dim) float32, not normalised."""
        features: Tensor = self.image_tower(prepared)
        return features

    def text_features(self, prepared: Tensor) -> Tensor:
        """(n, length) integer ids to (n, dim) float32, not normalised."""
        features: Tensor = self.text_tower(prepared)
        return features


def seeded(build: Callable[[], SmallModule], *, seed: int) -> SmallModule:
    """`build()` with its first weights drawn from `seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
