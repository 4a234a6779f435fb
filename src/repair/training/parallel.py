"""Several processes, one batch: who encodes what, and how features and gradients meet. Launched by torchrun.

Every process knows every batch (a function of seed and step) and takes its share of the pairs and of the grids. A
grid's loss needs nothing from elsewhere. The global loss needs the features of all pairs: they are gathered with
gradient, and each process asks with its own pairs among all (a slice of the logits, not the square). The losses of the
processes add up to the loss of the whole batch, so gradients are summed, once a step, whatever was done to get them.

Batches of other methods are shared by item: each is encoded by one process, all features are gathered, and every
process takes the same loss.
"""

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from repair.core.errors import TrainingError
from repair.numerics.losses import contrastive_share, grid_loss
from repair.training.batches import Batch
from repair.training.compositions.batches import ComposedBatch
from repair.training.objective import Parts, features_loss

_BUCKET_VALUES = 8 * 2**20  # gradients are summed in pieces of 32 MB
_PATIENCE = timedelta(days=30)  # how long the others wait while the first process works alone


@dataclass(frozen=True, slots=True)
class Group:
    """This process among those of one training. `control` passes messages between processes, however long one takes."""

    rank: int
    world: int
    control: Any = None

    @property
    def first(self) -> bool:
        return self.rank == 0


ALONE = Group(0, 1)


def launched_by_torchrun() -> bool:
    """Whether this process is one of several that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def join() -> Group:
    """Meet the other processes that torchrun started; alone without it. Where there are GPUs each process takes one."""
    if not launched_by_torchrun():
        return ALONE
    if not dist.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        dist.init_process_group("cuda:nccl,cpu:gloo" if torch.cuda.is_available() else "gloo")
    control = dist.new_group(backend="gloo", timeout=_PATIENCE)
    return Group(dist.get_rank(), dist.get_world_size(), control)


def leave() -> None:
    """Part from the others."""
    if dist.is_initialized():
        dist.destroy_process_group()


def told(group: Group, message: Any = None) -> Any:
    """The first process's `message`, in every process."""
    if group.world == 1:
        return message
    box = [message]
    dist.broadcast_object_list(box, src=0, group=group.control)
    return box[0]


# -------------------------------------------------------------------------------------------------- shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One process's part of a batch: `batch` holds its own pairs and grids, over its own distinct items.

    `first`: where its pairs stand among the P of all; `counts`: pairs of every process; `row_matches` (k, P),
    `column_matches` (P, k), `n_grids` of all.
    """

    batch: Batch
    first: int
    counts: tuple[int, ...]
    row_matches: np.ndarray[Any, np.dtype[np.bool_]]
    column_matches: np.ndarray[Any, np.dtype[np.bool_]]
    n_grids: int


def bounds(n: int, group: Group) -> list[int]:
    """Where the parts of n things begin, and n: sizes differ by one at most."""
    return [n * rank // group.world for rank in range(group.world + 1)]


def share_of(batch: Batch, group: Group) -> Share:
    """This process's share. Raises TrainingError if there are fewer pairs than processes."""
    n = len(batch.pair_images)
    if n < group.world:
        raise TrainingError(
            f"a batch has {n} pairs for {group.world} processes: raise training.batch_pairs or start fewer processes"
        )
    cuts, grid_cuts = bounds(n, group), bounds(len(batch.grid_images), group)
    own = slice(cuts[group.rank], cuts[group.rank + 1])
    own_grids = slice(grid_cuts[group.rank], grid_cuts[group.rank + 1])
    image_keys, pair_images, grid_images = _own(batch.image_keys, batch.pair_images[own], batch.grid_images[own_grids])
    text_keys, pair_texts, grid_texts = _own(batch.text_keys, batch.pair_texts[own], batch.grid_texts[own_grids])
    mine = replace(
        batch,
        image_keys=image_keys,
        text_keys=text_keys,
        pair_images=pair_images,
        pair_texts=pair_texts,
        pair_matches=batch.pair_matches[own, own],
        grid_images=grid_images,
        grid_texts=grid_texts,
    )
    return Share(
        batch=mine,
        first=own.start,
        counts=tuple(int(b - a) for a, b in itertools.pairwise(cuts)),
        row_matches=batch.pair_matches[own],
        column_matches=batch.pair_matches[:, own],
        n_grids=len(batch.grid_images),
    )


def _own(keys: Sequence[str], pairs: Any, grids: Any) -> tuple[tuple[str, ...], Any, Any]:
    """The keys in use, in the order of their first use, and both index arrays pointing into them."""
    used = list(dict.fromkeys([*pairs.tolist(), *grids.flatten().tolist()]))
    place = np.zeros(len(keys), dtype=np.int64)
    place[used] = np.arange(len(used))
    return tuple(keys[index] for index in used), place[pairs], place[grids]


def own_items(keys: Sequence[str], group: Group) -> tuple[str, ...]:
    """The items this process encodes when they are shared one by one."""
    cuts = bounds(len(keys), group)
    return tuple(keys[cuts[group.rank] : cuts[group.rank + 1]])


# -------------------------------------------------------------------------------------------------- losses


def share_loss(
    z_images: Tensor, z_texts: Tensor, scale: Tensor, share: Share, group: Group, *, local_weight: float
) -> Parts:
    """This process's part of the batch's loss; the parts of all add up to `objective.features_loss`."""
    batch, device = share.batch, z_images.device

    def at(features: Tensor, indices: object) -> Tensor:
        return features[torch.as_tensor(indices, device=device)]

    own_images, own_texts = at(_full(z_images), batch.pair_images), at(_full(z_texts), batch.pair_texts)
    both = _Gather.apply(torch.cat([own_images, own_texts], dim=1), share.counts, group, True)
    dim = own_images.shape[1]
    global_part = contrastive_share(
        own_images,
        own_texts,
        both[:, :dim],
        both[:, dim:],
        scale,
        first=share.first,
        row_matches=torch.as_tensor(share.row_matches, device=device),
        column_matches=torch.as_tensor(share.column_matches, device=device),
    )
    if not share.n_grids:
        return Parts(total=global_part, global_loss=global_part, local_loss=None)
    n_own = len(batch.grid_images)
    if n_own:
        local_part = grid_loss(at(z_images, batch.grid_images), at(z_texts, batch.grid_texts), scale)
        local_part = local_part * (n_own / share.n_grids)
    else:
        local_part = global_part.detach() * 0
    return Parts(total=global_part + local_weight * local_part, global_loss=global_part, local_loss=local_part)


def gathered_loss(
    z_images: Tensor, z_texts: Tensor, scale: Tensor, batch: ComposedBatch, group: Group, *, local_weight: float
) -> Parts:
    """The loss of the whole batch from own items' features, the same in every process; gradients for own items only.

    As with `share_loss`, the gradients of all processes add up to those of the batch; so do the returned losses.
    """
    sides = []
    for features, keys in ((z_images, batch.image_keys), (z_texts, batch.text_keys)):
        cuts = bounds(len(keys), group)
        counts = tuple(b - a for a, b in itertools.pairwise(cuts))
        sides.append(_Gather.apply(_full(features), counts, group, False))
    parts = features_loss(
        sides[0], sides[1], scale if group.first else scale.detach(), batch, local_weight=local_weight
    )
    # Each process has the whole value and, for what it encoded, the whole gradient: only the value is split.
    share = 1 / group.world

    def split(value: Tensor) -> Tensor:
        return value + (share - 1) * value.detach()

    local = parts.local_loss
    return Parts(
        total=split(parts.total),
        global_loss=split(parts.global_loss),
        local_loss=None if local is None else split(local),
    )


def _full(features: Tensor) -> Tensor:
    """Half precision raised to float32, as every loss does."""
    return features.float() if features.dtype in (torch.float16, torch.bfloat16) else features


class _Gather(torch.autograd.Function):
    """Rows of all processes, in order of rank, from each process's own.

    Backward, `summed`: the gradients that all processes have for the own rows, added up (each has a loss of its own);
    else only the own one (all have the same loss).
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: tuple[int, ...], group: Group, summed: bool) -> Tensor:
        ctx.counts, ctx.group, ctx.summed = counts, group, summed
        most = max(counts)
        padded = rows.new_zeros((most, rows.shape[1]))
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(found, padded)
        return torch.cat([part[:n] for part, n in zip(found, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        gradient = gradient.contiguous()
        if ctx.summed:
            dist.all_reduce(gradient)
        first = sum(ctx.counts[: ctx.group.rank])
        return gradient[first : first + ctx.counts[ctx.group.rank]], None, None, None


# ----------------------------------------------------------------------------------------------- gradients


def sum_gradients(parameters: Iterable[nn.Parameter], group: Group) -> None:
    """Sum the gradients over processes, in place: once a step, in a few large pieces.

    A parameter that got no gradient here (an item of its kind was not in this share) counts as zero.
    """
    if group.world == 1:
        return
    waiting: list[nn.Parameter] = []
    n_values = 0
    for parameter in [*(p for p in parameters if p.requires_grad), None]:
        if waiting and (parameter is None or n_values + parameter.numel() > _BUCKET_VALUES):
            _sum_together(waiting)
            waiting, n_values = [], 0
        if parameter is not None:
            waiting.append(parameter)
            n_values += parameter.numel()


def _sum_together(parameters: Sequence[nn.Parameter]) -> None:
    gradients = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    at = 0
    for gradient in gradients:
        gradient.copy_(flat[at : at + gradient.numel()].view_as(gradient))
        at += gradient.numel()


def sum_values(values: Sequence[float], group: Group) -> list[float]:
    """Numbers summed over processes."""
    if group.world == 1:
        return list(values)
    total = torch.tensor(list(values), dtype=torch.float64)
    dist.all_reduce(total, group=group.control)
    return [float(value) for value in total]


def own_part(parameter: Tensor) -> Tensor:
    """What this process holds of a parameter: all of it, or its shard."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def same_start(module: nn.Module, group: Group) -> None:
    """Every process takes the first one's weights."""
    if group.world > 1:
        with torch.no_grad():
            for value in module.state_dict().values():
                dist.broadcast(value, src=0)
