"""What is chosen to be shown, and what the models say of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repair.core.records import Criterion, Direction, ErrorType, Failure, Grid, RepairStatus
from repair.pipeline.features import Features
from repair.pipeline.matches import labelled_matching
from repair.reports import standing
from repair.reports.gallery import Records, choose, gallery
from repair.reports.gridcards import choose_grids, grid_cards
from repair.reports.measuring import Vectors, grid_accuracy
from repair.reports.moved import moved_queries
from repair.reports.pictures import Pictures
from repair.reports.shown import Shower
from repair.reports.standing import standings
from repair.reports.view import RunView
from tests.reports.runs import failure, repaired, told, verdict

TYPES = list(ErrorType)


def records(n: int = 60) -> Records:
    """Failures of both directions, every error type; a third dropped, a sixth not repaired."""
    failures = {}
    for i in range(n):
        name = f"{'i2t' if i % 2 else 't2i'}-{i:03d}"
        failures[name] = failure(name, "q", "f", "g")
    verdicts = {
        name: verdict(name, list(Criterion)[i // 6 % 2] if i % 6 in (0, 1) else None) for i, name in enumerate(failures)
    }
    repairs = {
        name: repaired(failures[name], key=None if i % 6 in (2, 3) else "b2:1")
        for i, name in enumerate(failures)
        if verdicts[name].keep
    }
    instructions = {name: told(name, TYPES[i // 2 % 6]) for i, name in enumerate(failures)}
    return Records(failures, verdicts, instructions, repairs)


def test_repaired_failures_are_half_of_each_direction_and_of_every_type() -> None:
    found = records()
    chosen = choose(found, n_repaired=12, seed=0)["repaired"]
    assert len(chosen) == len(set(chosen)) == 12
    for short in ("i2t", "t2i"):
        own = [i for i in chosen if i.startswith(short)]
        assert len(own) == 6
        available = {t for i, r in found.repairs.items() if i.startswith(short) and r.key for t in _types(found, i)}
        assert {t for i in own for t in _types(found, i)} == available
    assert chosen == sorted(chosen, key=lambda i: i.startswith("t2i"))


def _types(found: Records, failure_id: str) -> tuple[ErrorType, ...]:
    return found.instructions[failure_id].error_types


def test_one_direction_fills_what_the_other_lacks() -> None:
    found = records()
    for name in [i for i, r in found.repairs.items() if i.startswith("t2i") and r.key][1:]:
        found.repairs[name] = replace(found.repairs[name], status=RepairStatus.NEGATIVE_ONLY)
    chosen = choose(found, n_repaired=10, seed=0)["repaired"]
    assert sum(i.startswith("i2t") for i in chosen) == 9


def test_two_of_every_other_outcome_and_direction() -> None:
    chosen = choose(records(), n_repaired=4, seed=0)
    assert list(chosen) == ["repaired", "annotation_noise", "benign_mismatch", "unrepaired"]
    for name in list(chosen)[1:]:
        assert [i[:3] for i in chosen[name]] == ["i2t", "i2t", "t2i", "t2i"]


def test_the_choice_is_by_seed_and_nothing_else() -> None:
    first, again, other = (choose(records(), n_repaired=6, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert "repaired" not in choose(records(), n_repaired=0, seed=1)


def grid(number: int, n_synthetic: int) -> Grid:
    return Grid(step=number, index=0, images=("a", "b", "c"), texts=("x", "y", "z"), n_synthetic=n_synthetic)


def test_grids_of_every_number_of_edits_are_shown() -> None:
    grids = [grid(i, 0) for i in range(50)] + [grid(50 + i, 3) for i in range(2)] + [grid(60, 1)]
    chosen = choose_grids(grids, n=6, seed=0)
    assert [g.n_synthetic for g in chosen] == [3, 1, 0, 3, 0, 0]
    assert len({g.step for g in chosen}) == 6
    assert choose_grids(grids, n=99, seed=0) != grids
    assert len(choose_grids(grids, n=99, seed=0)) == 53


def test_grid_accuracy_counts_rows_and_columns() -> None:
    def unit(*values: float) -> np.ndarray:
        return np.array(values, dtype=np.float32)

    images = {"a": unit(1, 0, 0), "b": unit(0, 1, 0), "c": unit(0, 0, 1)}
    # column y points to image a: row a is a tie of x and y, row b is left with nothing
    known = Vectors(images=images, texts={"x": unit(1, 0, 0), "y": unit(1, 0, 0), "z": unit(0, 0, 1)})
    assert grid_accuracy([grid(0, 0)], known) == {"n_grids": 1, "rows": 1 / 3, "columns": 2 / 3}
    assert grid_accuracy([replace(grid(0, 0), images=("a", "b", "gone"))], known) is None


def test_ranks_equal_those_of_mining_and_a_plain_count(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        failures = view.table(1, Failure)
        found = standings(view, 1, failures)
        train = view.bench.train
        images, texts = Features(view.bench, 1).embeddings(train)
        twins = np.array(view.twins(1), dtype=np.int64).reshape(-1, 2)
        matching = labelled_matching(view.bench, train, twins).pairs.toarray()
    assert (found.n_images, found.n_captions, found.whole) == (40, 200, True)
    assert {i: (r.false_positive, r.ground_truth) for i, r in found.before.items()} == {
        f.failure_id: (f.false_positive_rank, f.ground_truth_rank) for f in failures
    }
    assert list(found.after) == list(found.before)
    scores = images.astype(np.float64) @ texts.T.astype(np.float64)
    n_far = 0
    for f in failures:
        if f.direction is Direction.IMAGE_TO_TEXT:
            row = train.image_row[f.query_id]
            line, masked, item = scores[row], matching[row], train.caption_row[f.false_positive_id]
            own = list(train.captions_of[row])
        else:
            row = train.caption_row[f.query_id]
            line, masked, item = scores[:, row], matching[:, row], train.image_row[f.false_positive_id]
            own = [int(train.owner[row])]
        others = line[~masked]
        ranks = found.after[f.failure_id]
        # Cosines nearer than the search's own rounding may stand either way.
        for rank, score in ((ranks.false_positive, line[item]), (ranks.ground_truth, line[own].max())):
            low, high = (others > score + 1e-6).sum(), (others > score - 1e-6).sum()
            assert 1 + low <= rank <= 1 + high
            n_far += low == high
    assert n_far


def test_a_big_split_is_ranked_by_a_draw_that_holds_the_failures(
    world_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "N_DRAWN_IMAGES", 5)
    with RunView.open(world_run) as view:
        failures = view.table(1, Failure)[:3]
        whole = {f.failure_id: f for f in failures}
        found = standings(view, 1, failures)
    assert not found.whole
    assert 5 <= found.n_images <= 5 + 3 * len(failures)
    assert found.n_captions == 5 * found.n_images
    assert set(found.after) == set(whole)
    for failure_id, ranks in found.before.items():
        assert ranks.false_positive <= whole[failure_id].false_positive_rank
        assert ranks.ground_truth <= whole[failure_id].ground_truth_rank


def test_cards_hold_the_run_and_its_own_scores(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        found = gallery(view, Shower.of(view))
        assert found is not None
        assert found["round"] == 1
        assert found["standings"].whole
        (repaired_cards,) = (g["cards"] for g in found["groups"] if g["outcome"] == "repaired")
        assert len(repaired_cards) == 6
        for card in repaired_cards:
            lines = {line.name: line for line in card.lines}
            (chosen,) = (c for c in card.others if c.selected)
            expected = card.failure.false_positive_score + chosen.gain
            assert lines["edit"].score_before == pytest.approx(expected, abs=2e-5)
            assert lines["edit"].score_after is not None
            assert lines["false positive"].rank_after is not None
            assert len(card.others) == 3
            if card.failure.direction is Direction.TEXT_TO_IMAGE:
                assert card.edit is not None
                assert card.edit.uri
                assert card.edit.change is not None
            else:
                assert card.edit is not None
                assert card.edit.text
                assert card.query.uri


def test_grid_cards_name_edits_and_cells(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        found = grid_cards(view, Shower.of(view))
    assert found is not None
    assert found["accuracy_before"]["n_grids"] == found["accuracy_after"]["n_grids"] == 8
    assert len(found["cards"]) == 4
    for card in found["cards"]:
        items = (*card.images, *card.texts)
        assert sum(item.edited for item in items) == card.grid.n_synthetic
        assert all(item.uri or item.text for item in items)
        assert all(item.spans for item in card.texts if item.edited)
        cells = [cell for row in card.cells for cell in row]
        assert [cell.true for cell in cells] == [True, False, False, False, True, False, False, False, True]
        assert all(cell.before is not None and cell.after is not None for cell in cells)
        assert not any(cell.wrong_before or cell.assumed for cell in cells if cell.true)


def test_moved_queries_say_what_stood_first(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        found = moved_queries(view, Shower.of(view))
    assert set(found) == {"fixed", "newly_broken", "still_failing"}
    for moved in found["still_failing"]:
        assert moved.rank_before > 1
        assert moved.rank_after > 1
        assert moved.first_before.note in ("wrong", "not own, but true")
        assert moved.own


def test_a_picture_that_cannot_be_read_is_left_out(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        pictures = Pictures(view)
        assert pictures.uri("train-999999") is None
        assert pictures.uri("b2:" + "0" * 32) is None
        assert pictures.change("train-000000", "b2:" + "0" * 32) is None
