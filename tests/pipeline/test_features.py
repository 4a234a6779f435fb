"""Progress of prepared inputs counts the work that is left, not what a cache holds."""

from collections.abc import Iterator
from contextlib import contextmanager

from repair.core.progress import Advance
from repair.pipeline.features import _counting


class Heard:
    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Advance]:
        steps: list[int] = []
        self.tasks.append((label, total, steps))
        yield lambda n=1, /, note="": steps.append(n)

    def say(self, line: str) -> None:
        raise AssertionError(line)


def test_only_what_is_computed_is_counted() -> None:
    heard = Heard()
    with _counting(heard, "images") as count:
        count(64, 100)
        count(100, 100)
    assert heard.tasks == [("images", 100, [64, 36])]


def test_nothing_to_compute_shows_nothing() -> None:
    heard = Heard()
    with _counting(heard, "images"):
        pass
    assert heard.tasks == []
