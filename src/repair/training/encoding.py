"""From a batch's rows to its loss and gradient: all at once, or in pieces with the same loss and gradient."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from repair.core.identity import derive_seed
from repair.training.objective import Parts

Precision = Literal["fp32", "bf16", "fp16"]
Tower = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor, Tensor], Parts]  # (n_images, dim), (n_texts, dim) → the batch's loss
Backward = Callable[[Tensor], None]
Finite = Callable[[Tensor], bool]  # whether the loss is finite, in all processes: only then may one go backward
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Autocast to `precision`; nothing at all for fp32. Losses switch it off again (`numerics.losses`)."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=_DTYPES[precision])


def whole_step(
    towers: tuple[Tower, Tower],
    images: Tensor,
    texts: Tensor,
    loss: Loss,
    backward: Backward,
    finite: Finite,
    *,
    device: torch.device,
    precision: Precision,
) -> Parts:
    """Encode everything, then one backward pass through everything; none if the loss is not `finite`."""
    with autocast(device, precision):
        z_images, z_texts = towers[0](_on(device, images)), towers[1](_on(device, texts))
    parts = loss(z_images, z_texts)
    if finite(parts.total):
        backward(parts.total)
    return parts


def cached_step(
    towers: tuple[Tower, Tower],
    images: Tensor,
    texts: Tensor,
    loss: Loss,
    backward: Backward,
    finite: Finite,
    *,
    device: torch.device,
    precision: Precision,
    size: int,
    seed: int,
) -> Parts:
    """Gradient caching (Gao et al. 2021): loss and gradient of the whole batch, with `size` items in memory at once.

    First all items are encoded without a graph and the loss is taken, which gives each feature's gradient; then each
    piece is encoded again, with the same random numbers, and its gradient sent through it. So the loss is that of the
    whole batch, not of pieces, at the price of a second forward pass. Models with batch norm see pieces: not the same.
    """
    pieces = [(0, slice(at, at + size)) for at in range(0, len(images), size)]
    pieces += [(1, slice(at, at + size)) for at in range(0, len(texts), size)]
    rows = (images, texts)

    def encode(number: int) -> Tensor:
        tower, part = pieces[number]
        torch.manual_seed(derive_seed(seed, "piece", number))  # the second pass drops out what the first did
        with autocast(device, precision):
            return towers[tower](_on(device, rows[tower][part])).float()

    with torch.no_grad():
        features = [encode(number) for number in range(len(pieces))]
    sides = [torch.cat([f for f, (t, _) in zip(features, pieces, strict=True) if t == tower]) for tower in (0, 1)]
    leaves = [side.detach().requires_grad_() for side in sides]
    parts = loss(leaves[0], leaves[1])
    if not finite(parts.total):
        return parts
    backward(parts.total)
    for number, (tower, part) in enumerate(pieces):
        gradient = leaves[tower].grad
        if gradient is not None:
            encode(number).backward(gradient[part])  # type: ignore[no-untyped-call]
    return parts


def _on(device: torch.device, rows: Tensor) -> Tensor:
    """`rows` on the device; the host does not wait for pinned ones to be there."""
    return rows.to(device, non_blocking=True)
