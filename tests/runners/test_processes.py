import os
from collections.abc import Iterator

import pytest

from repair.core.errors import DataError, RepairError
from repair.runners.processes import map_processes
from tests.runners import functions

WORKERS = pytest.mark.parametrize("n_workers", [0, 1, 2])


@pytest.mark.parametrize("n_workers, chunk_size", [(1, 5), (2, 1), (3, 7), (2, 1000)])
def test_results_are_the_same_for_any_number_of_workers(n_workers: int, chunk_size: int) -> None:
    found = list(map_processes(functions.square, range(60), n_workers=n_workers, chunk_size=chunk_size))
    assert found == [(number, number * number) for number in range(60)]


@WORKERS
def test_nothing_gives_nothing(n_workers: int) -> None:
    assert list(map_processes(functions.square, [], n_workers=n_workers)) == []


@WORKERS
def test_an_exception_comes_after_the_results_before_it_and_names_the_item(n_workers: int) -> None:
    found: list[int] = []
    with pytest.raises(ValueError, match="seven") as caught:
        found.extend(map_processes(functions.fail_at_seven, range(40), n_workers=n_workers, chunk_size=3))
    assert "while working on 7" in caught.value.__notes__
    results = map_processes(functions.fail_at_seven, range(40), n_workers=n_workers, chunk_size=3)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="seven"):
        next(results)


@WORKERS
def test_errors_on_purpose_travel_as_they_are(n_workers: int) -> None:
    with pytest.raises(DataError) as caught:
        list(map_processes(functions.refuse_eleven, range(40), n_workers=n_workers, chunk_size=4))
    assert str(caught.value) == "photo 11 is cut short"
    assert not getattr(caught.value, "__notes__", [])


def test_one_worker_is_this_process_and_more_are_others_that_leave_interrupts_alone() -> None:
    assert set(map_processes(functions.process_id, range(5), n_workers=1)) == {os.getpid()}
    assert os.getpid() not in set(map_processes(functions.process_id, range(5), n_workers=2, chunk_size=1))
    assert all(map_processes(functions.interrupt_handler, range(2), n_workers=2))


def test_a_worker_that_dies_is_one_clear_line() -> None:
    with pytest.raises(RepairError, match=r"a worker process died .*run\.n_workers"):
        list(map_processes(functions.die_at_five, range(20), n_workers=2, chunk_size=2))


@pytest.mark.parametrize("n_workers, most_ahead", [(1, 2), (2, 2 * 3 * 2)])
def test_items_are_taken_as_results_are_used(n_workers: int, most_ahead: int) -> None:
    n_taken = 0

    def items() -> Iterator[int]:
        nonlocal n_taken
        for number in range(1000):
            n_taken += 1
            yield number

    results = map_processes(functions.square, items(), n_workers=n_workers, chunk_size=2)
    for n_used in range(1, 30):
        next(results)
        assert n_taken <= n_used + most_ahead
    results.close()  # type: ignore[attr-defined]


def test_a_chunk_holds_an_item() -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        next(map_processes(functions.square, [1], n_workers=1, chunk_size=0))
