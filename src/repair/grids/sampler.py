"""Draw grids from links, epoch by epoch.

An epoch passes over all failures once, in a drawn order, and builds at most one grid from each; so every repair is seen
about equally often. A failure is an anchor from its image in one epoch and from its caption in the next, starting with
either; if one side gives no grid, the other is tried. Epoch e draws from `derive_rng(seed, "grids", e)` alone and grids
are cut into steps as they come, so more steps only add.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from repair.core.errors import TrainingError
from repair.core.identity import derive_rng
from repair.core.records import Grid, Link, Modality, Pair
from repair.grids.build import N_DRAWS, Attempt, Built, Fill, Refusal
from repair.grids.pool import Failure, Matches, Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSummary:
    """What was drawn. "Within the budget" is meant wherever failures or repairs are counted."""

    n_grids: int
    n_failures: int  # with a hard-negative link: what an epoch passes over
    n_failures_seen: int  # passed over at least once
    n_failures_used: int  # gave at least one grid
    n_repairs: int  # failures with an edit
    n_repairs_used: int  # their edit stood on the diagonal of a grid at least once
    mean_uses: float  # grids that hold a repair's edit, mean over n_repairs
    n_epochs: float
    anchors: Mapping[str, int]  # grids by the side the failure was anchored from
    fills: Mapping[str, int]  # grids by where the third pair comes from (`Fill`)
    fits: Mapping[str, int]  # the two non-anchor pairs of each grid: edit_of_contrast, other_edit or own
    n_synthetic_anchors: int
    refusals: Mapping[str, int]  # passes of a failure without a grid (`Refusal`)
    max_item_uses: int  # most grids of one epoch that hold the same item


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSample:
    """Grids ordered by (step, index), `grids_per_step` a step."""

    grids: tuple[Grid, ...]
    summary: GridSummary


def sample_grids(
    links: Iterable[Link],
    pairs: Sequence[Pair],
    *,
    matches: Matches,
    n_steps: int,
    grids_per_step: int,
    seed: int,
    use_edits: bool = True,
    anchor_synthetic_rate: float = 0.5,
    max_samples: int | None = None,
    max_per_item: int | None = 20,
) -> GridSample:
    """`n_steps` × `grids_per_step` grids, the same whatever the order of `links`.

    `pairs`: the split that is trained on; gives own captions and own images. `matches(image key, text key)` says of any
    two items, edits included, whether they are labelled, near-duplicates of a labelled pair, or were judged to match;
    own pairs, equal texts and edits are known without it. No such pair stands off the diagonal of a grid, and the
    three images and the three captions of a grid are distinct.

    `use_edits=False`: the false positives as hard negatives only, own captions and images in the place of every edit
    (ablation w/o Repair). `anchor_synthetic_rate`: how often an edit completes the anchor pair, where there is one.
    `max_samples`: the budget in edits, drawn; failures without one that are drawn among them come along, so that a
    budget that is not exceeded leaves nothing out. Nested as it grows. Where no failure has an edit, failures are
    counted. `max_per_item`: how many grids of one epoch may hold the same item; of a failure's own two items first,
    then of what fills the grid.

    Raises TrainingError if a whole epoch gives no grid, DataError for a failure of items that `pairs` does not know.
    """
    pool = Pool(links, pairs, matches=matches, use_edits=use_edits, budget=max_samples, seed=seed)
    tally = _Tally(pool)
    grids: list[Grid] = []
    n_grids = n_steps * grids_per_step
    epoch = 0
    while len(grids) < n_grids:
        before = len(grids)
        passes = _epoch(pool, epoch, seed=seed, rate=anchor_synthetic_rate, cap=max_per_item)
        for failure, outcome in passes:
            tally.add(epoch, failure, outcome)
            if isinstance(outcome, Built):
                step, index = divmod(len(grids), grids_per_step)
                grids.append(_grid(outcome, step, index, pool))
                if len(grids) == n_grids:
                    break
        if len(grids) == before:
            raise TrainingError(
                f"no grid can be built from {len(pool.failures)} failures ({_listed(tally.refusals) or 'no links'}): "
                "mine more failures, raise grids.max_per_item, or set grids.grids_per_step=0"
            )
        epoch += 1
    return GridSample(grids=tuple(grids), summary=tally.summary(len(grids)))


class _Items:
    """Uses of each item in one epoch. A failure's own items are set apart first, so that fillers never crowd it out."""

    def __init__(self, failures: Iterable[Failure], cap: int | None) -> None:
        self.cap = cap
        self.reserved: Counter[tuple[Modality, str]] = Counter()
        self.own: Counter[tuple[Modality, str]] = Counter()
        self.filled: Counter[tuple[Modality, str]] = Counter()
        for failure in failures:
            self.reserved.update((modality, failure.key(modality)) for modality in Modality)

    def has(self, modality: Modality, key: str) -> bool:
        return self.cap is None or self.filled[modality, key] + self.reserved[modality, key] < self.cap

    def has_for(self, failure: Failure) -> bool:
        return self.cap is None or all(self.own[m, failure.key(m)] < self.cap for m in Modality)

    def take(self, failure: Failure, built: Built) -> None:
        for modality, keys in ((Modality.IMAGE, built.images), (Modality.TEXT, built.texts)):
            for key in keys:
                uses = self.own if key == failure.key(modality) else self.filled
                uses[modality, key] += 1


def _epoch(
    pool: Pool, epoch: int, *, seed: int, rate: float, cap: int | None
) -> Iterator[tuple[Failure, Built | Refusal]]:
    rng = derive_rng(seed, "grids", epoch)
    order = rng.permutation(len(pool.failures)).tolist()
    draws = rng.random((len(order), len(Modality), N_DRAWS)).tolist()
    items = _Items(pool.failures, cap)
    for row in order:
        failure = pool.failures[row]
        if not items.has_for(failure):
            yield failure, Refusal.ITEM_CAP
            continue
        first = (row + epoch) % len(failure.anchors)
        refusal: Refusal | None = None
        for turn, anchor in enumerate(failure.anchors[first:] + failure.anchors[:first]):
            attempt = Attempt(pool, items, anchor=anchor, draws=draws[row][turn])
            built = attempt.build(failure, anchor_synthetic_rate=rate)
            if built is not None:
                items.take(failure, built)
                yield failure, built
                break
            refusal = refusal or attempt.refusal
        else:
            yield failure, refusal or Refusal.NOTHING_LEFT


def _grid(built: Built, step: int, index: int, pool: Pool) -> Grid:
    return Grid(
        step=step,
        index=index,
        images=built.images,
        texts=built.texts,
        n_synthetic=sum(key in pool.edit_keys[Modality.IMAGE] for key in built.images)
        + sum(key in pool.edit_keys[Modality.TEXT] for key in built.texts),
    )


class _Tally:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.seen: Counter[str] = Counter()
        self.used: set[str] = set()
        self.pairs: Counter[tuple[str, str]] = Counter()  # on a diagonal
        self.anchors: Counter[str] = Counter({str(m): 0 for m in Modality})
        self.fills: Counter[str] = Counter({str(f): 0 for f in Fill})
        self.fits: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.n_synthetic_anchors = 0
        self.epoch = 0
        self.item_uses: Counter[tuple[Modality, str]] = Counter()
        self.max_item_uses = 0

    def add(self, epoch: int, failure: Failure, outcome: Built | Refusal) -> None:
        self.seen[failure.failure_id] += 1
        if isinstance(outcome, Refusal):
            self.refusals[str(outcome)] += 1
            return
        if epoch != self.epoch:
            self.epoch = epoch
            self.item_uses.clear()
        self.used.add(failure.failure_id)
        self.pairs.update(zip(outcome.images, outcome.texts, strict=True))
        self.anchors[str(outcome.anchor)] += 1
        self.fills[str(outcome.fill)] += 1
        self.fits.update(outcome.fits)
        self.n_synthetic_anchors += outcome.synthetic_anchor
        for modality, keys in ((Modality.IMAGE, outcome.images), (Modality.TEXT, outcome.texts)):
            for key in keys:
                self.item_uses[modality, key] += 1
                self.max_item_uses = max(self.max_item_uses, self.item_uses[modality, key])

    def summary(self, n_grids: int) -> GridSummary:
        n_failures = len(self.pool.failures)
        edited = [failure.edit_pair for failure in self.pool.failures if failure.edit_pair is not None]
        uses = [self.pairs[pair] for pair in edited]
        return GridSummary(
            n_grids=n_grids,
            n_failures=n_failures,
            n_failures_seen=len(self.seen),
            n_failures_used=len(self.used),
            n_repairs=len(edited),
            n_repairs_used=sum(n > 0 for n in uses),
            mean_uses=sum(uses) / len(uses) if uses else 0.0,
            n_epochs=sum(self.seen.values()) / n_failures if n_failures else 0.0,
            anchors=dict(self.anchors),
            fills=dict(self.fills),
            fits=dict(sorted(self.fits.items())),
            n_synthetic_anchors=self.n_synthetic_anchors,
            refusals=dict(sorted(self.refusals.items())),
            max_item_uses=self.max_item_uses,
        )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
