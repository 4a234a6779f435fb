"""The inputs of a step: its batch, this process's share of it, and the prepared rows; read ahead if wished."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from repair.training.batches import Batch
from repair.training.compositions.batches import ComposedBatch
from repair.training.parallel import Group, Share, own_items, share_of
from repair.training.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Rows:
    """`images` and `texts`: prepared rows of what this process encodes, in order, not yet on the device. `batch` is the
    whole batch, `share` this process's part (None: alone, or shared by item); `waited_s`: how long they were awaited.
    """

    batch: Batch
    share: Share | None
    images: Tensor
    texts: Tensor
    waited_s: float = 0.0


class Inputs:
    """The rows of any step. With `prefetch` a thread reads the next step's while this one computes (memory pinned)."""

    def __init__(
        self, batches: Callable[[int], Batch], images: Prepared, texts: Prepared, *, group: Group, prefetch: bool
    ) -> None:
        self._batches = batches
        self._images = images
        self._texts = texts
        self._group = group
        self._prefetch = prefetch
        self._pool: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[Rows]] | None = None

    def __enter__(self) -> Self:
        if self._prefetch:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="inputs")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._pool = self._next = None

    def __call__(self, step: int, *, last: int) -> Rows:
        """The rows of `step`; then those of step + 1 are begun, unless it is `last`."""
        start = time.perf_counter()
        rows = self._awaited(step)
        rows = replace(rows, waited_s=time.perf_counter() - start)
        if self._pool is not None:
            self._next = (step + 1, self._pool.submit(self._read, step + 1)) if step + 1 < last else None
        return rows

    def _awaited(self, step: int) -> Rows:
        if self._pool is None:
            return self._read(step)
        if self._next is not None and self._next[0] == step:
            return self._next[1].result()
        return self._pool.submit(self._read, step).result()

    def _read(self, step: int) -> Rows:
        batch = self._batches(step)
        share = None
        image_keys, text_keys = batch.image_keys, batch.text_keys
        if self._group.world > 1 and isinstance(batch, ComposedBatch):
            image_keys, text_keys = own_items(image_keys, self._group), own_items(text_keys, self._group)
        elif self._group.world > 1:
            share = share_of(batch, self._group)
            image_keys, text_keys = share.batch.image_keys, share.batch.text_keys
        images, texts = self._images.take(image_keys), self._texts.take(text_keys)
        if self._pool is not None and torch.cuda.is_available():
            images, texts = images.pin_memory(), texts.pin_memory()
        return Rows(batch, share, images, texts)
