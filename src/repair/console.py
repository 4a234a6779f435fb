"""Progress for people: bars with ETA on a terminal, plain lines elsewhere; everything goes to stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from repair.core.progress import Advance

_PLAIN_EVERY_S = 10.0


class ConsoleProgress:
    """A `core.progress.Progress` on stderr, so that stdout holds results only."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        if self._console.is_terminal:
            with self._bars() as bars:
                task = bars.add_task(label, total=total, note="")

                def advance(n: int = 1, /, note: str = "") -> None:
                    bars.advance(task, n)
                    if note:
                        bars.update(task, note=note)

                yield advance
        else:
            yield _Plain(self, label, total)

    def _bars(self) -> RichProgress:
        return RichProgress(
            TextColumn("{task.description:>12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )


class _Plain:
    """One line now and then: `verify 1200/5000 (24 %), 310/s, ETA 12 s`."""

    def __init__(self, progress: ConsoleProgress, label: str, total: int | None) -> None:
        self._progress, self._label, self._total = progress, label, total
        self._done = 0
        self._started = self._printed = time.monotonic()

    def __call__(self, n: int = 1, /, note: str = "") -> None:
        self._done += n
        now = time.monotonic()
        if now - self._printed < _PLAIN_EVERY_S:
            return
        self._printed = now
        rate = self._done / (now - self._started)
        line = f"  {self._label} {self._done}"
        if self._total:
            line += f"/{self._total} ({100 * self._done // self._total} %)"
        line += f", {rate:.3g}/s"
        if self._total and rate > 0:
            line += f", ETA {(self._total - self._done) / rate:.0f} s"
        self._progress.say(line + (f", {note}" if note else ""))
