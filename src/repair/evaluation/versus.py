"""Two evaluations of the same items: where they differ, item by item, and whether the difference is more than noise.

The test is paired and resamples images, both models on the same resample; McNemar's exact test stands beside it for
readers who expect it (it takes items as independent). Either side may be several seeds of one method: an item's value
is then the share of seeds that have it right, and the spread over seeds gets a row of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.records import Direction
from repair.evaluation.document import FromItems, Outcome
from repair.evaluation.tables import UNIT, shown, table
from repair.numerics.statistics import (
    N_RESAMPLES,
    Difference,
    Seeds,
    bootstrap_group_difference,
    mcnemar,
    paired_seeds,
)

Key = tuple[str, str]  # suite and task
Rows = Mapping[str, Outcome]  # of one suite and task, by item
MOVES = ("fixed", "newly_broken")
ALL_ITEMS = "all items"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """One item that one side has right and the other wrong; `before` and `after` are outcomes of the first seeds."""

    move: str  # "fixed" or "newly_broken"
    before: Outcome
    after: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """B against A on one score of one suite: `group` and `metric` are those of `document.Score`."""

    suite: str
    task: str
    group: str
    metric: str
    difference: Difference
    before: float
    after: float
    p_mcnemar: float | None  # None with several seeds, for a macro average, and where items are not right or wrong
    seeds: Seeds | None  # None with one
    counts: Mapping[str, int | None]  # fixed, newly_broken, still_failing, still_right, only_before, only_after
    changed: tuple[Changed, ...] | None = field(repr=False)  # on one score of each task, that of most items

    def to_json(self, *, items: int | None = None) -> dict[str, Any]:
        """Everything, with at most `items` of the changed ones (None: all)."""
        listed = (self.changed or ())[:items]
        return {
            "suite": self.suite,
            "task": self.task,
            "group": self.group,
            "metric": self.metric,
            "before": self.before,
            "after": self.after,
            "difference": asdict(self.difference),
            "p_mcnemar": self.p_mcnemar,
            "seeds": None if self.seeds is None else asdict(self.seeds),
            "counts": dict(self.counts),
            "changed": [{"move": one.move, "before": asdict(one.before), "after": asdict(one.after)} for one in listed],
        }


def versus(
    before: Sequence[Sequence[Outcome]],
    after: Sequence[Sequence[Outcome]],
    *,
    scores: Mapping[str, Sequence[FromItems]] | None = None,
    confidence: float = 0.95,
    n_bootstrap: int = N_RESAMPLES,
    seed: int = 0,
) -> list[Versus]:
    """Every suite and task that both sides have, on each of its scores that items alone decide.

    Args:
        before: Outcomes of A, for each seed.
        after: Outcomes of B, for each seed. With equal numbers of seeds these are taken as pairs, in order.
        scores: By suite, `from_items` of its result. A suite without any is tested on all its items alike (retrieval:
            on R@1, R@5, R@10 and MRR).
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
    found: list[Versus] = []
    for key in keys:
        wanted = [one for one in (scores or {}).get(key[0], ()) if one.task == key[1]]
        pair = _Pair.of(key, [run[key] for run in first], [run[key] for run in second])
        if pair is not None:
            found += pair.tested(_complete(wanted, key[1]), uncertainty)
    if not found:
        raise DataError(
            "the two evaluations have no item in common: they are of other data, or of another seed's texts"
        )
    return found


def _by_key(run: Sequence[Outcome]) -> dict[Key, dict[str, Outcome]]:
    found: dict[Key, dict[str, Outcome]] = {}
    for outcome in run:
        found.setdefault((outcome.suite, outcome.task), {})[outcome.item] = outcome
    return found


def _complete(wanted: Sequence[FromItems], task: str) -> list[FromItems]:
    """`wanted`, or a score of all items alike where there is none of right and wrong items."""
    if not wanted and task in list(Direction):
        wanted = [
            *(FromItems(group=task, metric=f"R@{k}", task=task, value="rank", most=k) for k in (1, 5, 10)),
            FromItems(group=task, metric="MRR", task=task, value="1/rank"),
        ]
    if any(_says_hits(one) for one in wanted):
        return list(wanted)
    return [*wanted, FromItems(group=ALL_ITEMS, metric=task, task=task)]


def _says_hits(one: FromItems) -> bool:
    return one.value == "hit" or one.most == 1


@dataclass(frozen=True, slots=True)
class _Pair:
    """Both sides on one suite and task, for each seed; `items` are those that all have, and have alike."""

    key: Key
    before: Sequence[Rows]
    after: Sequence[Rows]
    items: tuple[str, ...]

    @classmethod
    def of(cls, key: Key, before: Sequence[Rows], after: Sequence[Rows]) -> "_Pair | None":
        """None if they have no item in common."""
        runs = (*before, *after)
        items = tuple(
            item for item in before[0] if all(item in run and _same(before[0][item], run[item]) for run in runs)
        )
        return cls(key, before, after, items) if items else None

    def tested(self, scores: Sequence[FromItems], uncertainty: Mapping[str, Any]) -> list[Versus]:
        hits = [one for one in scores if _says_hits(one)]
        whole = next((one for one in hits if one.parts is None), hits[0])
        return [
            found for one in scores if (found := self._tested(one, uncertainty, with_items=one is whole)) is not None
        ]

    def _tested(self, score: FromItems, uncertainty: Mapping[str, Any], *, with_items: bool) -> Versus | None:
        part = None
        if score.parts is not None:
            part = {group: number for number, groups in enumerate(score.parts) for group in groups}
        rows = [self.before[0][item] for item in self.items]
        rows = [row for row in rows if part is None or row.group in part]
        if not rows:
            return None
        members = np.array([0 if part is None else part[row.group] for row in rows])
        names: dict[str, int] = {}
        clusters = [names.setdefault(row.cluster, len(names)) for row in rows]
        values = [
            np.array([[_value(score, run[row.item]) for row in rows] for run in side])
            for side in (self.before, self.after)
        ]
        first, second = (side.mean(axis=0) for side in values)
        single = len(self.before) == len(self.after) == 1
        one_part = len(np.unique(members)) == 1
        binary = score.value != "1/rank"
        was, now = first > 0.5, second > 0.5
        seeds = None
        if not single and len(self.before) == len(self.after):
            means = [[_mean(run, members) for run in side] for side in values]
            seeds = paired_seeds(*means, confidence=uncertainty["confidence"])
        return Versus(
            suite=self.key[0],
            task=self.key[1],
            group=score.group,
            metric=score.metric,
            difference=bootstrap_group_difference(first, second, members, clusters, **uncertainty),
            before=_mean(first, members),
            after=_mean(second, members),
            p_mcnemar=mcnemar(was, now) if single and binary and one_part else None,
            seeds=seeds,
            counts=self._counts(was, now, binary=binary),
            changed=self._changed(rows, was, now) if with_items else None,
        )

    def _counts(self, was: npt.NDArray[Any], now: npt.NDArray[Any], *, binary: bool) -> dict[str, int | None]:
        moves = {
            "fixed": ~was & now,
            "newly_broken": was & ~now,
            "still_failing": ~was & ~now,
            "still_right": was & now,
        }
        return {
            **{name: int(rows.sum()) if binary else None for name, rows in moves.items()},
            "only_before": len(self.before[0]) - len(self.items),
            "only_after": len(self.after[0]) - len(self.items),
        }

    def _changed(self, rows: Sequence[Outcome], was: npt.NDArray[Any], now: npt.NDArray[Any]) -> tuple[Changed, ...]:
        return tuple(
            Changed(
                move="fixed" if now[place] else "newly_broken",
                before=self.before[0][row.item],
                after=self.after[0][row.item],
            )
            for place, row in enumerate(rows)
            if was[place] != now[place]
        )


def _value(score: FromItems, row: Outcome) -> float:
    if score.value == "hit":
        return float(row.hit)
    if row.rank is None:
        raise DataError(f"suite {row.suite}: item {row.item} has no rank, so {score.metric} cannot be told")
    return 1 / row.rank if score.value == "1/rank" else float(row.rank <= (score.most or 1))


def _mean(values: npt.NDArray[np.float64], members: npt.NDArray[Any]) -> float:
    return float(np.mean([values[members == number].mean() for number in np.unique(members)]))


def _same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes are of one item: a suite made with another seed has other texts under the same ids."""
    return (first.image, first.query, first.expected) == (second.image, second.query, second.expected)


def versus_lines(found: Mapping[str, Any]) -> list[str]:
    """A table of comparisons in their JSON form, in per cent and points."""
    lines = [f"A  {found['a']['name']}", f"B  {found['b']['name']}", "", *comparison_table(found["comparisons"])]
    for one in found["comparisons"]:
        apart = one["counts"]["only_before"] + one["counts"]["only_after"]
        if apart:
            lines.append(f"{one['suite']} {one['metric']}: {apart} items are in one of the two only, and left out")
    lines += [f"{name} is partial: {suites}" for name, suites in found["partial"].items() if suites]
    if found.get("page"):
        lines.append(f"page: {found['page']}")
    return lines


def comparison_table(comparisons: Sequence[Mapping[str, Any]], *, names: tuple[str, str] = ("A", "B")) -> list[str]:
    """One line a comparison in its JSON form, and what seeds say."""
    first, second = names
    rows = [["suite", "of", "score", first, second, f"{second} - {first}", "interval", "p", "McNemar", "n"]]
    rows[0] += ["fixed", "broken"]
    for one in comparisons:
        gain, counts, metric = one["difference"], one["counts"], one["metric"]
        rows.append(
            [
                one["suite"],
                one["group"],
                metric,
                shown(metric, one["before"]),
                shown(metric, one["after"]),
                _signed(metric, gain["estimate"]),
                f"[{_signed(metric, gain['low'])}, {_signed(metric, gain['high'])}]",
                f"{gain['p_value']:.3g}",
                "" if one["p_mcnemar"] is None else f"{one['p_mcnemar']:.3g}",
                str(gain["n"]),
                *("" if counts[move] is None else str(counts[move]) for move in MOVES),
            ]
        )
    lines = table(rows, n_left=3)
    for one in comparisons:
        seeds, metric = one["seeds"], one["metric"]
        if seeds is not None:
            lines.append(
                f"{one['suite']} {one['group']} {metric}: over {seeds['n']} seeds {_signed(metric, seeds['mean'])} "
                f"[{_signed(metric, seeds['low'])}, {_signed(metric, seeds['high'])}], standard deviation "
                f"{shown(metric, seeds['sd'])}, paired t-test p {seeds['p_value']:.3g}"
            )
    return lines


def _signed(metric: str, value: float) -> str:
    value = round(value, 8) + 0.0  # no "-0.00"
    return f"{value:+.4f}" if metric in UNIT else f"{100 * value:+.2f}"
