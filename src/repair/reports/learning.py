"""What training was given and how it went: links per anchor (the paper's Figures 7 and 8), grids, the loss curve."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from repair.core.records import Grid, Link, LinkKind, Modality
from repair.reports.view import RunView

_MAX_POINTS = 240  # of a drawn curve; each point is the mean of its stretch of steps
_CURVES = ("loss", "global_loss", "local_loss", "logit_scale", "lr", "grad_norm")


def links_facts(view: RunView) -> dict[str, Any] | None:
    """Distinct targets per anchor, by the anchor's modality and the kind of link, of the last round that linked.

    `histogram` holds [targets, anchors that have so many], ascending; anchors without any such link are not in it.
    """
    rounds = [round for round in view.rounds if (round, "link") in view.states]
    if not rounds:
        return None
    links = view.table(rounds[-1], Link)
    summary = view.states[rounds[-1], "link"].summary
    return {
        "round": rounds[-1],
        "n_links": len(links),
        "n_dropped": summary.get("n_dropped"),
        "distributions": [_distribution(links, m, k) for k in LinkKind for m in Modality],
    }


def _distribution(links: Sequence[Link], modality: Modality, kind: LinkKind) -> dict[str, Any]:
    targets: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.anchor_modality is modality and link.kind is kind:
            targets[link.anchor_key].add(link.target_key)
    sizes = [len(found) for found in targets.values()]
    return {
        "anchor": str(modality),
        "kind": str(kind),
        "n_anchors": len(sizes),
        "n_links": sum(sizes),
        "mean": sum(sizes) / len(sizes) if sizes else None,
        "max": max(sizes, default=0),
        "histogram": [list(entry) for entry in sorted(Counter(sizes).items())],
    }


def grids_facts(view: RunView) -> list[dict[str, Any]]:
    """One dict a round: grids drawn, how many edits they hold, and what the stage said of them."""
    found = []
    for round in view.rounds:
        state = view.states.get((round, "grids"))
        if state is not None:
            grids = view.table(round, Grid)
            held = Counter(grid.n_synthetic for grid in grids)
            found.append(
                {
                    "round": round,
                    "n_grids": len(grids),
                    "by_edits": dict(sorted(held.items())),
                    "summary": state.summary,
                }
            )
    return found


def training_facts(view: RunView) -> list[dict[str, Any]]:
    """One dict a round that has begun to train: steps done, first and last stretch of the losses, best validation, the
    share of the time the device waited for inputs, and val scores of mixes with the start (WiSE-FT)."""
    found = []
    for round in range(view.config.pipeline.rounds):
        rows = view.metrics(round)
        if not rows:
            continue
        stretch = max(1, len(rows) // 20)
        scores = [(row["step"], row["score"]) for row in rows if row.get("score") is not None]
        state = view.states.get((round, "train"))
        waits = [row["wait_s"] for row in rows if row.get("wait_s") is not None]
        seconds = sum(row.get("step_s") or 0.0 for row in rows)
        found.append(
            {
                "round": round,
                "n_steps": view.config.training.n_steps,
                "n_done": len(rows),
                "finished": state is not None,
                "first": _means(rows[:stretch]),
                "last": _means(rows[-stretch:]),
                "scores": [list(score) for score in scores],
                "best": list(_best(scores)) if scores else None,
                "seconds": round_to(seconds, 1),
                "idle": sum(waits) / seconds if waits and seconds else None,
                "mixes": [] if state is None else state.summary.get("wise_ft_curve", []),
                "mix": 1.0 if state is None else state.summary.get("wise_ft", 1.0),
                "n_samples": sum(row["n_pairs"] for row in rows),
            }
        )
    return found


def curves(view: RunView, round: int) -> dict[str, list[tuple[float, float]]]:
    """Points (step, value) of each recorded curve, thinned by means to at most 240; `score` keeps every point."""
    rows = view.metrics(round)
    size = max(1, -(-len(rows) // _MAX_POINTS))
    found: dict[str, list[tuple[float, float]]] = {}
    for name in _CURVES:
        points = []
        for start in range(0, len(rows), size):
            values = [row[name] for row in rows[start : start + size] if row.get(name) is not None]
            steps = [row["step"] for row in rows[start : start + size]]
            if values:
                points.append((float(np.mean(steps)), float(np.mean(values))))
        if points:
            found[name] = points
    scores = [(float(row["step"]), float(row["score"])) for row in rows if row.get("score") is not None]
    return found | ({"score": scores} if scores else {})


def _best(scores: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """The (step, score) of the highest score, the first of equals."""
    return max(scores, key=lambda entry: (entry[1], -entry[0]))


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    means = {}
    for name in ("loss", "global_loss", "local_loss", "logit_scale"):
        values = [row[name] for row in rows if row.get(name) is not None]
        if values:
            means[name] = float(np.mean(values))
    return means


def round_to(value: float, decimals: int) -> float:
    """`value` rounded, as a float."""
    return float(f"{value:.{decimals}f}")
