"""What a run used, counted by hand from tables written by hand, and what a share of it allows."""

from pathlib import Path

import pytest

from repair.config import Config, load_config
from repair.core.errors import ConfigError
from repair.core.records import (
    Candidate,
    ErrorType,
    Failure,
    Instruction,
    Repair,
    ScoredCandidate,
    Verdict,
)
from repair.mining import budget_order
from repair.pipeline.budgets import Use, allowance, best_rate, last_stage, reference_use
from repair.pipeline.questions import cell_id
from repair.store.tables import write_table
from tests.reports.runs import failure, repaired, scored, told, verdict

ONE = failure("i2t-1", "a.jpg", "b.jpg#0", "a.jpg#0")
TWO = failure("i2t-2", "b.jpg", "a.jpg#0", "b.jpg#0")  # dropped by the verifier
THREE = failure("t2i-1", "a.jpg#0", "b.jpg", "a.jpg")
LATER = failure("t2i-2", "b.jpg#0", "c.jpg", "b.jpg")
AGAIN = failure("i2t-1", "a.jpg", "b.jpg#0", "a.jpg#1")  # another caption is the best ground truth: asked anew
RECORDS = {
    "failures": Failure,
    "instructions": Instruction,
    "candidates": Candidate,
    "scored": ScoredCandidate,
    "repairs": Repair,
    "cells": Verdict,
}


def config(folder: Path, *more: str) -> Config:
    return load_config(None, overrides=[f"run.folder={folder}", "run.name=run", *more], environment={})


def leave(folder: Path, round: int, **tables: list) -> None:
    """The tables of a round, empty where not given; that of cells only if given."""
    (folder / "run" / f"round-{round}").mkdir(parents=True, exist_ok=True)
    for name, record_type in RECORDS.items():
        if name != "cells" or name in tables:
            path = folder / "run" / f"round-{round}" / f"{name}.parquet"
            write_table(path, tables.get(name, []), record_type)


def edit(failure_id: str, index: int) -> Candidate:
    return Candidate(failure_id=failure_id, index=index, key=f"b2:{failure_id}-{index}", text=None)


def cell(image: str, text: str) -> Verdict:
    return verdict(cell_id(image, text))


def two_rounds(folder: Path) -> None:
    refused = scored("i2t-1", 1, "refused_by_verifier")  # the edit that is chosen in the second round
    leave(
        folder,
        0,
        failures=[ONE, TWO, THREE],
        instructions=[told("i2t-1", ErrorType.OBJECT), told("t2i-1", ErrorType.OBJECT)],
        candidates=[edit("i2t-1", 0), edit("i2t-1", 1), edit("t2i-1", 0)],
        scored=[scored("i2t-1", 0), refused, scored("t2i-1", 0, "no_op")],
        repairs=[repaired(ONE, key="b2:first"), repaired(THREE, key=None)],
        cells=[cell("a.jpg", "c.jpg#0"), cell("c.jpg", "a.jpg#0")],
    )
    leave(
        folder,
        1,
        failures=[AGAIN, THREE, LATER],
        instructions=[told(one.failure_id, ErrorType.OBJECT) for one in (AGAIN, THREE)],
        candidates=[edit("i2t-1", 0), edit("t2i-1", 0), edit("t2i-1", 1)],
        scored=[scored("i2t-1", 0)],
        repairs=[repaired(AGAIN, key="b2:first")],
        cells=[cell("a.jpg", "c.jpg#0"), cell("b.jpg", "c.jpg#0")],
    )


def test_calls_are_counted_once_over_rounds_and_with_the_checks_of_cells(tmp_path: Path) -> None:
    """Of ONE in the first round: verdict, instruction, two edits, two checks; in the second, asked about with another
    ground truth, verdict, instruction, one edit, one check. Of TWO a verdict. Of THREE verdict, instruction and one
    edit, of which only another edit is new in the second round. Of LATER a verdict. And three cells."""
    two_rounds(tmp_path)
    settings = config(tmp_path, "pipeline.rounds=2", "selection.verify_candidates=true", "grids.verify_cells=true")
    assert budget_order("i2t-2", seed=0) < budget_order("i2t-1", seed=0)
    assert budget_order("t2i-2", seed=0) < budget_order("t2i-1", seed=0)
    # Of one failure a direction and round there would be TWO, THREE, AGAIN and LATER; of two all, ONE and the other
    # edit of THREE as well.
    assert reference_use(settings, "calls") == Use(6 + 4 + 1 + 4 + 1 + 3, n_cells=3, within=(1 + 3 + 4 + 1, 16))


@pytest.mark.parametrize(
    "more, n",
    [
        ((), 8),  # 3 verdicts, 2 instructions, 3 edits
        (("verification.enabled=false",), 5),
        (("selection.verify_candidates=true",), 10),
        (("calls.plan=fused",), 4),  # 3 plans, an image
        (("grids.verify_cells=true",), 10),
    ],
)
def test_each_kind_of_call(tmp_path: Path, more: tuple[str, ...], n: int) -> None:
    two_rounds(tmp_path)
    assert reference_use(config(tmp_path, *more), "calls").n == n


def test_samples_are_repaired_failures_of_any_round(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    assert reference_use(config(tmp_path, "pipeline.rounds=2"), "samples") == Use(1, n_failures=2)
    without = "links.unrepaired_negatives=false"
    assert reference_use(config(tmp_path, "pipeline.rounds=2", without), "samples") == Use(1, n_failures=1)
    assert reference_use(config(tmp_path), "steps") == Use(0)


def test_without_grids_no_cell_was_checked(tmp_path: Path) -> None:
    leave(tmp_path, 0, failures=[ONE], cells=[])
    assert reference_use(config(tmp_path, "grids.verify_cells=true"), "calls") == Use(1, within=(1,))


def test_cells_count_even_if_no_grid_was_left_once_they_were_checked(tmp_path: Path) -> None:
    leave(tmp_path, 0, failures=[ONE], cells=[cell("a.jpg", "c.jpg#0")])
    assert reference_use(config(tmp_path, "grids.verify_cells=true"), "calls").n_cells == 1


def test_the_reference_runs_as_far_as_its_use_is_known(tmp_path: Path) -> None:
    plain, cells = config(tmp_path), config(tmp_path, "grids.verify_cells=true")
    assert last_stage(plain, "calls") == last_stage(cells, "samples") == "select"
    assert last_stage(cells, "calls") == "grids"


def test_what_a_budget_allows() -> None:
    repair, other = config(Path("x")), config(Path("x"), "method.name=laclip")
    assert allowance(other, "samples", Use(100), 0.5) == ["method.max_samples=50"]
    assert allowance(other, "calls", Use(100), 1.0) == ["method.max_calls=100"]
    assert allowance(other, "steps", Use(100), 1.0) == []
    failures = config(Path("x"), "method.name=fp_as_hn")
    assert allowance(failures, "samples", Use(100, n_failures=130), 0.5) == ["method.max_samples=65"]
    within = Use(100, within=tuple(range(1, 101)))
    assert allowance(failures, "calls", within, 0.5) == allowance(repair, "calls", within, 0.5)
    assert allowance(repair, "samples", Use(100), 0.2) == ["grids.max_samples=20"]
    assert allowance(repair, "calls", Use(100), 1.0) == []
    assert best_rate({1e-4: 0.5, 1e-5: 0.5, 1e-3: 0.4}) == 1e-5


@pytest.mark.parametrize(
    "more, share, max_failures",
    [
        ((), 0.8, 4),  # the 20 checks are the reference's, not this variant's
        ((), 0.6, 3),
        ((), 0.59, 2),
        ((), 0.05, 1),  # one at least
        (("mining.max_failures=2",), 0.8, 2),  # its own cap holds
        (("grids.verify_cells=true",), 0.8, 3),
        (("grids.verify_cells=true",), 0.79, 2),
    ],
)
def test_a_share_of_calls_is_a_number_of_failures(more: tuple[str, ...], share: float, max_failures: int) -> None:
    use = Use(100, n_cells=20, within=(10, 30, 60, 80))
    assert allowance(config(Path("x"), *more), "calls", use, share) == [f"mining.max_failures={max_failures}"]


def test_no_number_of_failures_makes_room_for_more_checks_of_cells_than_the_share() -> None:
    with pytest.raises(ConfigError, match=r"0\.2 of 1,000 calls are not enough for the 200 checks of grid cells alone"):
        allowance(config(Path("x"), "grids.verify_cells=true"), "calls", Use(1000, 200, (800,)), 0.2)
