"""Two evaluations of the same items: where they differ, item by item, and whether the difference is more than noise.

The test is paired and resamples images, both models on the same resample; McNemar's exact test stands beside it for
readers who expect it (it takes items as independent). Either side may be several seeds of one method: an item's value
is then the share of seeds that have it right, and the spread over seeds gets a row of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from repair.core.errors import DataError
from repair.evaluation.document import Outcome
from repair.numerics.statistics import N_RESAMPLES, Difference, Seeds, bootstrap_difference, mcnemar, paired_seeds

Key = tuple[str, str]  # suite and task
MOVES = ("fixed", "newly_broken")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One item that one side has right and the other wrong; `before` and `after` are outcomes of the first seeds."""

    move: str  # "fixed" or "newly_broken"
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """B against A on one suite and task."""

    suite: str
    task: str
    difference: Difference
    before: float
    after: float
    p_mcnemar: float | None  # None with several seeds
    seeds: Seeds | None  # None with one
    counts: Mapping[str, int]  # fixed, newly_broken, still_failing, still_right, only_before, only_after
    changed: tuple[Changed, ...] = field(repr=False)

    def to_json(self, *, items: int | None = None) -> dict[str, Any]:
        """Everything, with at most `items` of the changed ones (None: all)."""
        shown = self.changed if items is None else self.changed[:items]
        return {
            "suite": self.suite,
            "task": self.task,
            "before": self.before,
            "after": self.after,
            "difference": asdict(self.difference),
            "p_mcnemar": self.p_mcnemar,
            "seeds": None if self.seeds is None else asdict(self.seeds),
            "counts": dict(self.counts),
            "changed": [{"move": one.move, "before": asdict(one.before), "after": asdict(one.after)} for one in shown],
        }


def versus(
    before: Sequence[Sequence[Outcome]],
    after: Sequence[Sequence[Outcome]],
    *,
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
) -> list[Versus]:
    """Every suite and task that both sides have.

    Args:
        before: Outcomes of A, for each seed.
        after: Outcomes of B, for each seed. With equal numbers of seeds these are taken as pairs, in order.
        confidence: Level of the intervals, from `n_bootstrap` resamples of images, drawn by `seed`.
        n_bootstrap: See `confidence`.
        seed: See `confidence`.

    Raises:
        DataError: the two have no item of any suite in common.
    """
    first, second = [_by_key(run) for run in before], [_by_key(run) for run in after]
    keys = [key for key in first[0] if all(key in run for run in (*first, *second))]
    if not keys:
        raise DataError("the two evaluations have no suite in common, so there is nothing to compare")
    uncertainty: dict[str, Any] = {"confidence": confidence, "n_resamples": n_bootstrap, "seed": seed}
    found = [_versus(key, [run[key] for run in first], [run[key] for run in second], uncertainty) for key in keys]
    if not any(found):
        raise DataError(
            "the two evaluations have no item in common: they are of other data, or of another seed's texts"
        )
    return [one for one in found if one is not None]


def _by_key(run: Sequence[Outcome]) -> dict[Key, dict[str, Outcome]]:
    found: dict[Key, dict[str, Outcome]] = {}
    for outcome in run:
        found.setdefault((outcome.suite, outcome.task), {})[outcome.item] = outcome
    return found


def _versus(
    key: Key,
    before: Sequence[Mapping[str, Outcome]],
    after: Sequence[Mapping[str, Outcome]],
    uncertainty: Mapping[str, Any],
) -> Versus | None:
    items = [item for item in before[0] if all(item in run for run in (*before, *after))]
    same = [item for item in items if _same(before[0][item], after[0][item])]
    if not same:
        return None
    hits = [np.array([[run[item].hit for item in same] for run in side], dtype=float) for side in (before, after)]
    first, second = (side.mean(axis=0) for side in hits)
    names: dict[str, int] = {}
    clusters = [names.setdefault(before[0][item].cluster, len(names)) for item in same]
    was, now = first > 0.5, second > 0.5
    counts = {
        "fixed": int((~was & now).sum()),
        "newly_broken": int((was & ~now).sum()),
        "still_failing": int((~was & ~now).sum()),
        "still_right": int((was & now).sum()),
        "only_before": len(before[0]) - len(same),
        "only_after": len(after[0]) - len(same),
    }
    single = len(before) == len(after) == 1
    seeds = None
    if not single and len(before) == len(after):
        seeds = paired_seeds(hits[0].mean(axis=1).tolist(), hits[1].mean(axis=1).tolist())
    return Versus(
        suite=key[0],
        task=key[1],
        difference=bootstrap_difference(first, second, clusters, **uncertainty),
        before=float(first.mean()),
        after=float(second.mean()),
        p_mcnemar=mcnemar(was, now) if single else None,
        seeds=seeds,
        counts=counts,
        changed=tuple(
            Changed(move="fixed" if now[row] else "newly_broken", before=before[0][item], after=after[0][item])
            for row, item in enumerate(same)
            if was[row] != now[row]
        ),
    )


def _same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes are of one item: a suite made with another seed has other texts under the same ids."""
    return (first.image, first.query, first.expected) == (second.image, second.query, second.expected)


def versus_lines(found: Mapping[str, Any]) -> list[str]:
    """A table of comparisons in their JSON form, in per cent and points."""
    head = ["suite", "task", "A", "B", "B - A", "interval", "p", "McNemar", "n", "fixed", "broken"]
    rows = [head]
    for one in found["comparisons"]:
        gain, counts = one["difference"], one["counts"]
        rows.append(
            [
                one["suite"],
                one["task"],
                f"{100 * one['before']:.2f}",
                f"{100 * one['after']:.2f}",
                f"{100 * gain['estimate']:+.2f}",
                f"[{100 * gain['low']:+.2f}, {100 * gain['high']:+.2f}]",
                f"{gain['p_value']:.3g}",
                "" if one["p_mcnemar"] is None else f"{one['p_mcnemar']:.3g}",
                str(gain["n"]),
                str(counts["fixed"]),
                str(counts["newly_broken"]),
            ]
        )
    widths = [max(len(row[k]) for row in rows) for k in range(len(head))]
    lines = [f"A  {found['a']['name']}", f"B  {found['b']['name']}", ""]
    for row in rows:
        cells = [cell.ljust(widths[k]) if k < 2 else cell.rjust(widths[k]) for k, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    for one in found["comparisons"]:
        if one["seeds"] is not None:
            seeds = one["seeds"]
            lines.append(
                f"{one['suite']} {one['task']}: over {seeds['n']} seeds {100 * seeds['mean']:+.2f} points, standard "
                f"deviation {100 * seeds['sd']:.2f}, paired t-test p {seeds['p_value']:.3g}"
            )
        apart = one["counts"]["only_before"] + one["counts"]["only_after"]
        if apart:
            lines.append(f"{one['suite']} {one['task']}: {apart} items are in one of the two only, and left out")
    lines += [f"{name} is partial: {suites}" for name, suites in found["partial"].items() if suites]
    if found.get("page"):
        lines.append(f"page: {found['page']}")
    return lines
