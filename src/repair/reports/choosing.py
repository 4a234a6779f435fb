"""Which of many records a page shows."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def in_turn(queues: Sequence[Sequence[Item]], n: int) -> list[Item]:
    """The first `n` distinct items, taking one from each queue in turn."""
    taken: dict[Item, None] = {}
    waiting = [list(queue) for queue in queues]
    while len(taken) < n and any(waiting):
        for queue in waiting:
            while queue and queue[0] in taken:
                queue.pop(0)
            if queue and len(taken) < n:
                taken[queue.pop(0)] = None
    return list(taken)
