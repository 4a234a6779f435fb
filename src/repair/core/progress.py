"""How long work tells where it stands, without knowing who listens."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    def __call__(self, n: int = 1, /, note: str = "") -> None:
        """`n` more items are done; `note` is the latest worth knowing (a loss, a cost), a line or a few."""
        ...


class Progress(Protocol):
    def task(self, label: str, total: int | None) -> AbstractContextManager[Advance]:
        """A stretch of work with `total` items (None: unknown), shown until the context ends."""
        ...

    def say(self, line: str) -> None:
        """One line that stays."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:  # noqa: ARG002
        yield _nothing

    def say(self, line: str) -> None:
        pass


def _nothing(n: int = 1, /, note: str = "") -> None:
    pass
