"""Progress for people: bars with ETA on a terminal, plain lines elsewhere; everything goes to stderr."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from repair.core.progress import Advance
from repair.core.redaction import redacted

_PLAIN_EVERY_S = 10.0


class ConsoleProgress:
    """A `core.progress.Progress` on stderr, so that stdout holds results only; or on `console`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, line: str) -> None:
        self._console.print(redacted(line), markup=False)

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        if self._console.is_terminal:
            panel = _Panel(label, total)
            with Live(panel, console=self._console, transient=True, refresh_per_second=4):
                yield panel
        else:
            yield _Plain(self, label, total)


class _Panel:
    """A bar with rate and ETA, and below it what is worth knowing, one line each."""

    def __init__(self, label: str, total: int | None) -> None:
        self._bars = RichProgress(
            TextColumn("{task.description:>12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
        )
        self._task = self._bars.add_task(label, total=total, rate="")
        self._began = time.monotonic()
        self._done = 0
        self._note = ""

    def __call__(self, n: int = 1, /, note: str = "") -> None:
        self._done += n
        self._note = note or self._note
        rate = self._done / max(time.monotonic() - self._began, 1e-9)
        self._bars.update(self._task, advance=n, rate=f"{rate:.3g}/s")

    def __rich__(self) -> Group:
        lines = [Text(f"{'':>12} {line}", style="dim") for line in redacted(self._note).splitlines()]
        return Group(self._bars, *lines)


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
        self._progress.say(line + (f", {'; '.join(note.splitlines())}" if note else ""))
