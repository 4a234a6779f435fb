"""Which calls of a shared ledger are a run's own, and the tables that count them, by exact numbers."""

from dataclasses import replace
from pathlib import Path

import pytest

from repair.core.calls import Attempt
from repair.core.errors import DataError, StoreError
from repair.core.identity import derive_seed
from repair.core.records import Criterion, Grid, Verdict
from repair.pipeline.questions import CELL_TASK, cell_id
from repair.reports.asked import own_keys, rows_of
from repair.reports.bench_tables import bench_tables
from repair.reports.benches import Bench, Table
from repair.reports.view import RunView
from repair.store.files import read_json, write_json
from repair.store.tables import write_table
from repair.world.source import WorldSource
from tests.reports.asking import FAILED, asked_bench, edited, keep, own
from tests.reports.benches import finish
from tests.reports.runs import EDIT_TEXT, WORLD, attempt, failure, negative, repaired, scored, verdict

NO_DATA = ("data.source=jsonl", 'data.options={path="none.jsonl"}')


def tables_of(folder: Path) -> dict[str, Table]:
    return {table.name: table for table in bench_tables(Bench.open(folder))}


def test_what_another_variant_asked_about_the_same_failure_does_not_count(tmp_path: Path) -> None:
    folder = asked_bench(tmp_path / "one", *NO_DATA)
    edited(folder / "RePair-0")
    keep(
        folder,
        own(0, "edit_text", key="other editor", text="another edit"),  # older than its own
        own(0, "edit_text", key="e0", text=EDIT_TEXT),
        own(0, "edit_text", key="e1", index=1, text="of a variant of more candidates"),
        own(0, "verify_candidate", key="c"),  # RePair checks nothing
        own(1, "verify", key="another seed"),
    )
    tables = tables_of(folder)
    assert "The data cannot be opened from here." in tables["Table 18"].note
    rows = {row[0]: row for row in tables["Tables 10, 11"].rows}
    assert rows["RePair"][1:6] == ("1", "3", "0", "3.00", "0.00")
    assert rows["3 rounds"][1:4] == ("0", "0", "0")
    tokens = {row[1]: row[2:4] for row in tables["Table 9"].rows if row[0] == "i2t"}
    assert tokens == {"verify": ("10", "2"), "instruct": ("10", "2"), "edit_text": ("10", "2"), "total": ("30", "6")}


def test_samples_without_edits_are_negatives(tmp_path: Path) -> None:
    folder = asked_bench(tmp_path / "one")
    links = [
        negative("train0.jpg", "train1.jpg#0", "i2t-1"),
        negative("train1.jpg#0", "train0.jpg", "i2t-1"),  # the same failure from its other side
        negative("train0.jpg", "train2.jpg#0", "i2t-2"),
    ]
    finish(folder / "w-o-Repair-0", "link", links)
    rows = {row[0]: row for row in tables_of(folder)["Tables 1, 7, 8"].rows}
    assert list(rows) == ["base", "RePair", "w/o Repair", "3 rounds"]
    assert rows["base"][1:3] == ("–", "–")
    assert rows["base"][11] == "-40.00"
    assert rows["w/o Repair"][1:3] == ("T⁻ I⁻", "2")
    assert rows["RePair"][1:3] == ("I⁺ I⁻ T⁺ T⁻", "0")


def test_without_an_editor_there_are_no_hard_positives_of_its_kind(tmp_path: Path) -> None:
    rows = {row[0]: row for row in tables_of(asked_bench(tmp_path, "editing.image_editor=none"))["Tables 1, 7, 8"].rows}
    assert rows["RePair"][1] == "I⁻ T⁺ T⁻"


def test_ablations_have_the_verdicts_of_the_claims(tmp_path: Path) -> None:
    (row,) = tables_of(asked_bench(tmp_path / "one"))["Table 2"].rows
    assert row == ("w/o Repair", "-10.00", "-10.00", "-1.81 / -1.91", "open, one seed")


def test_checks_of_edits_count_by_what_was_checked(tmp_path: Path) -> None:
    """One edit refused and one chosen are two checks: of a third, which another variant's selection chose, nothing."""
    folder = asked_bench(tmp_path / "one", "selection.verify_candidates=true", *NO_DATA)
    refused = replace(scored("i2t-1", 0, "refused_by_verifier"), key="b2:other")
    finish(folder / "RePair-0", "select", [repaired(FAILED), refused, scored("i2t-1", 1), scored("i2t-1", 2, "no_op")])
    keep(folder, *(own(0, "verify_candidate", key=key) for key in ("c0", "c1", "c2")))
    rows = {row[0]: row for row in tables_of(folder)["Tables 10, 11"].rows}
    assert rows["RePair"][2] == "4"  # verdict, instruction, two checks


DRAWN = Grid(
    step=0, index=0, images=("a.jpg", "b.jpg", "c.jpg"), texts=("a.jpg#0", "b.jpg#0", "c.jpg#0"), n_synthetic=0
)


def of_cell(image: str, text: str) -> Attempt:
    name = cell_id(image, text)
    return attempt(name, CELL_TASK, key=name, seed=derive_seed(0, CELL_TASK, name))


def test_cells_are_those_that_it_asked_about_not_those_that_its_grids_hold_now(tmp_path: Path) -> None:
    folder = asked_bench(tmp_path / "one", "grids.verify_cells=true", *NO_DATA)
    finish(folder / "RePair-0", "grids", [DRAWN])
    checked = [verdict(cell_id("a.jpg", "b.jpg#0")), verdict(cell_id("a.jpg", "d.jpg#0"), Criterion.BENIGN_MISMATCH)]
    leave_cells(folder / "RePair-0", checked)
    keep(folder, of_cell("a.jpg", "b.jpg#0"), of_cell("a.jpg", "d.jpg#0"), of_cell("a.jpg", "c.jpg#0"))
    assert calls_of(folder / "RePair-0") == {"v", "i", "cell-a.jpg-b.jpg#0", "cell-a.jpg-d.jpg#0"}


def test_a_table_of_cells_that_is_gone_is_an_error(tmp_path: Path) -> None:
    folder = asked_bench(tmp_path / "one", "grids.verify_cells=true", *NO_DATA)
    finish(folder / "RePair-0", "grids", [DRAWN])
    leave_cells(folder / "RePair-0", [])
    (folder / "RePair-0" / "round-0" / "cells.parquet").unlink()
    with pytest.raises(StoreError, match=r"cells\.parquet"):
        calls_of(folder / "RePair-0")


def test_another_best_ground_truth_in_a_later_round_is_another_call(tmp_path: Path) -> None:
    """Two ground truths in three rounds are two calls, those of the oldest two of three that the ledger holds."""
    folder = asked_bench(tmp_path / "one", *NO_DATA)
    run = folder / "3-rounds-0"
    again = replace(FAILED, ground_truth_id="train0.jpg#1")
    for round, one in enumerate((FAILED, again, again)):
        finish(run, "mine", [one], round=round)
        finish(run, "verify", [verdict("i2t-1")], round=round)
    keep(folder, own(0, "verify", key="other truth"), own(0, "verify", key="of another variant"))
    assert calls_of(run) == {"v", "other truth"}
    assert calls_of(folder / "RePair-0") == {"v", "i"}


def leave_cells(run: Path, verdicts: list[Verdict]) -> None:
    """As a grids stage that checked cells leaves them."""
    place = run / "round-0"
    write_table(place / "cells.parquet", verdicts, Verdict)
    state = read_json(place / "grids.json")
    state["outputs"]["round-0/cells.parquet"] = "b2:0"
    write_json(place / "grids.json", state)


def calls_of(run: Path) -> set[str]:
    with RunView.open(run) as view:
        return own_keys(view, rows_of(view.attempts()))


def test_edited_images_that_are_gone_are_an_error(tmp_path: Path) -> None:
    options = ", ".join(f"{name}={value}" for name, value in WORLD.items())
    folder = asked_bench(tmp_path / "one", f"data.options={{{options}}}")
    query, shown = WorldSource(**WORLD).pairs("train")[0], WorldSource(**WORLD).pairs("train")[-1]
    failed = failure("t2i-1", query.caption_id, shown.image_id, query.image_id)
    finish(folder / "RePair-0", "select", [replace(repaired(failed, key="b2:gone"), text=None)])
    with pytest.raises(
        DataError, match=r"RePair-0: its edited image b2:gone is gone: there is no blobs\.sqlite in .*calls-seed-0; put"
    ):
        bench_tables(Bench.open(folder))
