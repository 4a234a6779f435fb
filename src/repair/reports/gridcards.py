"""3×3 grids with their pictures and captions, and the model's similarities in every cell before and after training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repair.core.identity import derive_rng
from repair.core.records import Grid, Link
from repair.grids import assumed_cells
from repair.reports.measuring import Vectors, before_and_after, grid_accuracy, grid_scores, judged_grids
from repair.reports.shown import Shower, Shown
from repair.reports.view import RunView

IMAGE_ROLES = ("anchor_image", "negative_image", "repaired_image")
TEXT_ROLES = ("anchor_text", "repaired_text", "negative_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One of a grid's nine cells: its cosine before and after, and whether it wrongly beats a true cell of its row or
    column."""

    true: bool
    assumed: bool  # false, but no verdict says so
    before: float | None
    after: float | None
    wrong_before: bool
    wrong_after: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCard:
    grid: Grid
    images: tuple[Shown, ...]
    texts: tuple[Shown, ...]
    cells: tuple[tuple[Cell, ...], ...]
    n_wrong_before: int | None
    n_wrong_after: int | None


def grid_cards(view: RunView, shower: Shower) -> dict[str, Any] | None:
    """Grids of the last round that drew any: {"round", "cards", "accuracy_before", "accuracy_after"}.

    The cards are a seeded draw, one of each number of edits in turn, most edits first.
    """
    rounds = [round for round in view.rounds if view.table(round, Grid)]
    if not rounds:
        return None
    round = rounds[-1]
    shown = choose_grids(view.table(round, Grid), n=view.config.report.n_grids, seed=view.config.run.seed)
    judged = judged_grids(view, round)
    images = sorted({key for grid in (*shown, *judged) for key in grid.images})
    keys = {key for grid in (*shown, *judged) for key in grid.texts}
    texts = {key: text for key in keys if (text := view.text(key)) is not None}
    before, after = before_and_after(view, round, images=images, texts=texts)
    assumed = set(assumed_cells(shown, view.table(round, Link)))
    return {
        "round": round,
        "cards": [_grid_card(shower, grid, assumed, before, after) for grid in shown],
        "accuracy_before": None if before is None else grid_accuracy(judged, before),
        "accuracy_after": None if after is None else grid_accuracy(judged, after),
    }


def choose_grids(grids: Sequence[Grid], *, n: int, seed: int) -> list[Grid]:
    """`n` grids: a seeded draw, one of each number of edits in turn, most edits first."""
    order = derive_rng(seed, "report", "grids").permutation(len(grids)).tolist()
    queues: dict[int, list[Grid]] = {}
    for i in order:
        queues.setdefault(grids[i].n_synthetic, []).append(grids[i])
    chosen: list[Grid] = []
    while len(chosen) < n and any(queues.values()):
        for edits in sorted(queues, reverse=True):
            if queues[edits] and len(chosen) < n:
                chosen.append(queues[edits].pop(0))
    return chosen


def _grid_card(
    shower: Shower, grid: Grid, assumed: set[tuple[str, str]], before: Vectors | None, after: Vectors | None
) -> GridCard:
    old = None if before is None else grid_scores(grid, before)
    new = None if after is None else grid_scores(grid, after)
    cells = tuple(
        tuple(
            Cell(
                true=i == j,
                assumed=(grid.images[i], grid.texts[j]) in assumed,
                before=None if old is None else old[i][j],
                after=None if new is None else new[i][j],
                wrong_before=old is not None and _beats(old, i, j),
                wrong_after=new is not None and _beats(new, i, j),
            )
            for j in range(3)
        )
        for i in range(3)
    )
    return GridCard(
        grid=grid,
        images=tuple(shower.item(k, r, is_image=True) for k, r in zip(grid.images, IMAGE_ROLES, strict=True)),
        texts=tuple(shower.item(k, r, is_image=False) for k, r in zip(grid.texts, TEXT_ROLES, strict=True)),
        cells=cells,
        n_wrong_before=None if old is None else sum(cell.wrong_before for row in cells for cell in row),
        n_wrong_after=None if new is None else sum(cell.wrong_after for row in cells for cell in row),
    )


def _beats(scores: Sequence[Sequence[float]], i: int, j: int) -> bool:
    """Whether a false cell scores at least as high as the true cell of its row or of its column."""
    return i != j and (scores[i][j] >= scores[i][i] or scores[i][j] >= scores[j][j])
