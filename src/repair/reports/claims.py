"""What the paper claims of RePair, and what a bench says of it: differences in mean R@1, paired by seed.

A comparison *holds* if its 95 % interval over seeds is above 0, *fails* if it is below, and is *open* otherwise, where
there is one seed alone, and where all seeds differ by the same: an interval of no width says nothing. A claim over many
comparisons holds if all do and fails if any does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from repair.core.records import Direction
from repair.numerics.statistics import Seeds, paired_seeds
from repair.reports import paper_results as paper
from repair.reports.benches import NONE, Bench, Table, points, share_of, whole_of

_AT_MOST = 50  # percent of the budget with which RePair is to reach the others
_NO_WIDTH = 1e-9  # of an interval, in shares: what is left by rounding
HOLDS, OPEN, FAILS = "holds", "open", "fails"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One difference that a claim wants above 0; `paper` is the paper's, in points."""

    claim: str
    what: str
    gain: Seeds
    paper: float | None = None

    @property
    def verdict(self) -> str:
        return verdict_of(self.gain)


def verdict_of(gain: Seeds) -> str:
    """Of a difference that is wanted above 0."""
    low, high = gain.low, gain.high
    if low is None or high is None:
        return f"{OPEN}, one seed"
    if high - low < _NO_WIDTH:
        return f"{OPEN}, zero variance"
    return HOLDS if low > 0 else FAILS if high < 0 else OPEN


def claims(bench: Bench) -> list[Table]:
    """A line for each claim that the bench can speak of, then every comparison behind them; none without RePair."""
    found = list(comparisons(bench))
    if not found:
        return []
    rows = []
    for claim in dict.fromkeys(one.claim for one in found):
        each = [one for one in found if one.claim == claim]
        least = min(each, key=lambda one: one.gain.mean)
        counts = [sum(one.verdict.startswith(word) for one in each) for word in (HOLDS, OPEN, FAILS)]
        verdict = FAILS if counts[2] else OPEN if counts[1] else HOLDS
        rows.append((claim, *map(str, counts), f"{least.what}: {points(least.gain)}", verdict))
    heads = ("the paper claims", HOLDS, OPEN, FAILS, "the least difference", "this bench")
    note = (
        "Points of mean R@1 of both directions, with the 95 % interval over seeds, paired by seed and not adjusted for "
    )
    note += "how many comparisons there are. Open: the interval holds 0 or has no width, or there is one seed."
    short = Table("Claims", "what the paper claims, and what this bench says", heads, tuple(rows), note)
    every = tuple((_letter(one), one.what, points(one.gain), _said(one.paper), one.verdict) for one in found)
    return [short, Table("Comparisons", "behind the claims", ("", "what", "difference", "paper", "verdict"), every)]


def comparisons(bench: Bench) -> Iterator[Comparison]:
    """Claims (a) to (d), as far as the bench has the variants."""
    whole = bench.repair
    if whole is None:
        return
    baselines = [name for name in bench.whole() if name != whole and _is_baseline(bench, name)]
    claim = f"(a) RePair above {_listed(baselines)}, at its whole budget"
    for name in baselines:
        yield Comparison(claim, f"{whole} − {name}", bench.gain(whole, name), _paper_gain(bench, name))
    shares = sorted({share_of(name) for name in bench.runs if whole_of(name) == whole}, reverse=True)
    for share in (share for share in shares if share <= _AT_MOST):
        claim = f"(b) RePair at {share} % of its budget above {_listed(baselines)} at 100 %"
        for name in baselines:
            some = f"{whole} {share}%"
            yield Comparison(claim, f"{some} − {name}", bench.gain(some, name))
    claim = "(c) every ablation below the full method"
    for name, (i2t, t2i) in paper.ABLATIONS.items():
        if name in bench.runs:
            yield Comparison(claim, f"{whole} − {name}", bench.gain(whole, name), -(i2t + t2i) / 2)
    yield from _of_rounds(bench)


def _listed(names: Sequence[str]) -> str:
    """So that a bench of some baselines does not speak for those that it lacks."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _is_baseline(bench: Bench, variant: str) -> bool:
    config = bench.config(variant)
    return config.method.name != "repair" or config.training.loss == "vanilla"


def _of_rounds(bench: Bench) -> Iterator[Comparison]:
    variant = with_rounds(bench)
    if variant is None:
        return
    by_round = scores_by_round(bench, variant)
    means = [[float(np.mean(seed)) for seed in zip(*scores.values(), strict=True)] for scores in by_round]
    said = [(i2t + t2i) / 2 for _, i2t, t2i in paper.ROUNDS]
    second = paired_seeds(means[0], means[1])
    yield Comparison("(d) a second round adds", f"{variant}: round 1 − round 0", second, said[1] - said[0])
    if len(means) > 2:
        gains = [[after - before for before, after in zip(*pair, strict=True)] for pair in (means[:2], means[1:3])]
        what = f"{variant}: (round 1 − round 0) − (round 2 − round 1)"
        less = 2 * said[1] - said[0] - said[2]
        yield Comparison("(d) a third round adds less", what, paired_seeds(gains[1], gains[0]), less)


def with_rounds(bench: Bench) -> str | None:
    """The variant that is RePair over several rounds; the last one of several."""
    found = [
        name
        for name in bench.whole()
        if bench.config(name).pipeline.rounds > 1 and bench.config(name).method.name == "repair"
    ]
    return found[-1] if found else None


def scores_by_round(bench: Bench, variant: str) -> list[dict[Direction, list[float]]]:
    """R@1 after each round, in the order of the seeds."""
    found: list[dict[Direction, list[float]]] = [
        {direction: [] for direction in Direction} for _ in range(bench.config(variant).pipeline.rounds)
    ]
    for path in bench.runs[variant]:
        for round, scores in enumerate(found):
            for direction, value in bench.scores_after(path, round).items():
                scores[direction].append(value)
    return found


def _paper_gain(bench: Bench, baseline: str) -> float | None:
    """The paper's mean R@1 of RePair minus a baseline's, in points: as the bench file quotes it, else on COCO30K."""
    quoted = bench.row(baseline)["paper"]
    if quoted is not None:
        return -float(np.mean(quoted))
    ours, theirs = paper.RESULTS["RePair"], paper.known(paper.RESULTS, baseline)
    if theirs is None:
        return None
    return float(np.mean([(ours[d].r1 or 0.0) - (theirs[d].r1 or 0.0) for d in Direction]))


def _letter(one: Comparison) -> str:
    return one.claim.split(" ", 1)[0]


def _said(value: float | None) -> str:
    return NONE if value is None else f"{value:+.2f}"
