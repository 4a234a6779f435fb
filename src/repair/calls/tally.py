"""What has become of the items so far, by task, and whether too many have failed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from repair.core.calls import Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where one task stands in this session. `spent` is the whole run's."""

    task: str
    n_done: int  # answered by a call just made
    n_cached: int  # answered by the ledger, or by an equal request in this session
    n_failed: int
    n_in_flight: int  # all tasks
    spent: Spent


ProgressCallback = Callable[[Progress], None]


class TaskTally:
    """Counts for one task."""

    def __init__(self) -> None:
        self.n_done = 0
        self.n_cached = 0
        self.n_failed = 0
        self._reasons: Counter[str] = Counter()
        self._again: Counter[str] = Counter()  # of items that failed so in an earlier session too

    def fail(self, reason: str, *, again: bool = False) -> None:
        self.n_failed += 1
        (self._again if again else self._reasons)[reason] += 1

    def too_many_failed(self, *, max_failed_rate: float, min_items: int, answers: bool) -> str | None:
        """Why to stop, in one line; None if there is no reason to, or fewer than `min_items` items have settled.

        What failed is asked first when a run goes on. Items refused, or answered with something of no use, once
        more are left out, if the backend `answers` (it has, in this session or before): it is judged by the others.
        """
        reasons = self._reasons if answers else self._reasons + self._again
        n_failed = reasons.total()
        n_items = self.n_done + self.n_cached + n_failed
        if n_items < min_items or n_failed <= max_failed_rate * n_items:
            return None
        reason, n = reasons.most_common(1)[0]
        return f'{n_failed} of {n_items} items failed, most often ({n} times) with "{reason}"'
