"""Before and after: scores with intervals, paired differences, and where the queries went. Shares are in [0, 1]."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from repair.core.records import Direction, Repair, RepairStatus
from repair.numerics.statistics import bootstrap_difference
from repair.pipeline.evaluating import QueryRank
from repair.reports.view import Evaluation, RunView

MOVES = ("fixed", "newly_broken", "still_failing", "still_right")


def results_facts(view: RunView) -> dict[str, Any] | None:
    """Scores of the test split before and after, the paired difference, and R@1 of every evaluation and split.

    A difference's interval and p-value come from resampling images (the query's own image), the same for both models;
    without the data source, which knows the images of the captions, they are None. None if nothing was evaluated yet.
    """
    if not view.evaluations:
        return None
    split = view.config.data.test_split
    first, last = view.evaluations[0], view.evaluations[-1]
    facts = first.facts["splits"][split]
    named = ("split", "n_images", "n_captions", "captions_per_image", "tie_rule", "confidence", "n_bootstrap", "seed")
    return {
        **{name: facts[name] for name in named},
        "split_is_val": split == view.config.data.val_split,
        "before": first.label,
        "after": last.label if last is not first else None,
        "directions": {
            str(direction): {
                "n_queries": facts[str(direction)]["n_queries"],
                "n_items": facts[str(direction)]["n_items"],
                "n_tied_queries": facts[str(direction)]["n_tied_queries"],
                "metrics": _metrics(view, first, last, split, direction),
            }
            for direction in Direction
        },
        "evaluations": [
            _line(view, evaluation, name) for evaluation in view.evaluations for name in _splits(view, evaluation)
        ],
    }


def moves_facts(view: RunView) -> dict[str, Any] | None:
    """How many queries were fixed, newly broken, still fail and are still right at rank 1; None before the second
    evaluation."""
    if len(view.evaluations) < 2:
        return None
    split = view.config.data.test_split
    facts = {}
    for direction in Direction:
        moves = query_moves(view.evaluations[0].ranks, view.evaluations[-1].ranks, split=split, direction=direction)
        facts[str(direction)] = {name: len(moves[name]) for name in MOVES}
    return {"split": split, "directions": facts}


def query_moves(
    before: Sequence[QueryRank], after: Sequence[QueryRank], *, split: str, direction: Direction
) -> dict[str, list[tuple[QueryRank, QueryRank]]]:
    """The queries of a split and direction by what became of them, in the order of `before`."""
    moves: dict[str, list[tuple[QueryRank, QueryRank]]] = {name: [] for name in MOVES}
    for old, new in _paired(before, after, split=split, direction=direction):
        right = old.rank == 1, new.rank == 1
        name = {
            (False, True): "fixed",
            (True, False): "newly_broken",
            (False, False): "still_failing",
            (True, True): "still_right",
        }[right]
        moves[name].append((old, new))
    return moves


def _metrics(
    view: RunView, first: Evaluation, last: Evaluation, split: str, direction: Direction
) -> dict[str, dict[str, Any]]:
    before = first.facts["splits"][split][str(direction)]["metrics"]
    after = last.facts["splits"][split][str(direction)]["metrics"]
    found = {}
    for name in _ordered({name: value for name, value in before.items() if name in after}):
        found[name] = {"before": before[name], "after": after[name] if last is not first else None, "difference": None}
        if last is not first:
            pairs = _paired(first.ranks, last.ranks, split=split, direction=direction)
            found[name]["difference"] = _difference(view, pairs, _per_query(name))
    return found


def _ordered(metrics: Mapping[str, Any]) -> list[str]:
    """R@k by k, MRR, true R@1; those without an interval (the median rank) are left out."""
    known = [name for name, value in metrics.items() if isinstance(value, Mapping)]
    recalls = sorted((n for n in known if n.startswith("R@")), key=lambda name: int(name[2:]))
    return [*recalls, *(name for name in ("MRR", "true R@1") if name in known)]


def _per_query(metric: str) -> Callable[[QueryRank], float]:
    if metric == "MRR":
        return lambda row: 1 / row.rank
    if metric == "true R@1":
        return lambda row: float(bool(row.top1_true))
    k = int(metric.removeprefix("R@"))
    return lambda row: float(row.rank <= k)


def _difference(
    view: RunView, pairs: Sequence[tuple[QueryRank, QueryRank]], value: Callable[[QueryRank], float]
) -> dict[str, Any] | None:
    if not pairs:
        return None
    before = [value(old) for old, _ in pairs]
    after = [value(new) for _, new in pairs]
    clusters = _clusters(view, [old for old, _ in pairs])
    if clusters is None:
        return {"value": float(np.mean(after) - np.mean(before)), "low": None, "high": None, "p_value": None}
    settings = view.config.evaluation
    found = bootstrap_difference(
        before,
        after,
        clusters,
        seed=view.config.run.seed,
        confidence=settings.confidence,
        n_resamples=settings.n_bootstrap,
    )
    return {"value": found.estimate, "low": found.low, "high": found.high, "p_value": found.p_value}


def _clusters(view: RunView, rows: Sequence[QueryRank]) -> npt.NDArray[np.int64] | None:
    """Each query's image, as a number."""
    captions = view.captions(view.config.data.test_split)
    numbers: dict[str, int] = {}
    images = []
    for row in rows:
        if row.direction is Direction.IMAGE_TO_TEXT:
            image = row.query_id
        elif row.query_id in captions:
            image = captions[row.query_id].image_id
        else:
            return None
        images.append(numbers.setdefault(image, len(numbers)))
    return np.array(images, dtype=np.int64)


def _paired(
    before: Sequence[QueryRank], after: Sequence[QueryRank], *, split: str, direction: Direction
) -> list[tuple[QueryRank, QueryRank]]:
    later = {row.query_id: row for row in after if row.split == split and row.direction is direction}
    return [
        (row, later[row.query_id])
        for row in before
        if row.split == split and row.direction is direction and row.query_id in later
    ]


def _splits(view: RunView, evaluation: Evaluation) -> list[str]:
    """Test, then val, those of them that were evaluated."""
    data = view.config.data
    return [name for name in dict.fromkeys((data.test_split, data.val_split)) if name in evaluation.facts["splits"]]


def _line(view: RunView, evaluation: Evaluation, split: str) -> dict[str, Any]:
    """One evaluation of one split: R@1, MRR and true R@1 both ways, and the repairs it was trained on."""
    repaired = {
        repair.failure_id
        for round in view.rounds
        if evaluation.round is not None and round <= evaluation.round
        for repair in view.table(round, Repair)
        if repair.status is RepairStatus.REPAIRED
    }
    line: dict[str, Any] = {"label": evaluation.label, "split": split, "n_repairs": len(repaired)}
    for direction in Direction:
        metrics = evaluation.facts["splits"][split][str(direction)]["metrics"]
        shown = (name for name in ("R@1", "MRR", "true R@1") if name in metrics)
        line[str(direction)] = {name: metrics[name]["value"] for name in shown}
    return line
