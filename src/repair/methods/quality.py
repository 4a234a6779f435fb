"""Quality control of samples: what is dropped, and why."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from repair.core.identity import derive_rng
from repair.core.synthesis import Sample
from repair.methods.method import Measure, rejected

OTHER_CHOSEN = "another candidate was chosen"
N_CELLS, N_BINS = 50, 10


def one_each(samples: Sequence[Sample], badness: Callable[[Sample], float], *, keep: int = 1) -> list[Sample]:
    """Of each anchor's valid candidates the `keep` least bad ones; the first of equals."""
    by_anchor: dict[str, list[int]] = {}
    for row, sample in enumerate(samples):
        if sample.rejected is None:
            by_anchor.setdefault(sample.caption_id, []).append(row)
    best = {
        row for rows in by_anchor.values() for row in sorted(rows, key=lambda row: (badness(samples[row]), row))[:keep]
    }
    return [sample if row in best else rejected(sample, OTHER_CHOSEN) for row, sample in enumerate(samples)]


def refine_adversarially(gaps: npt.ArrayLike, *, seed: int, n_cells: int = N_CELLS, n_bins: int = N_BINS) -> list[int]:
    """SugarCrepe's adversarial refinement: rows to keep, ascending, so that neither text score tells who is right.

    `gaps`, shape (n, 2), in [-1, 1]: two scores of the caption minus those of its negative. They are laid on a grid of
    `n_cells`²; of each pair of mirror cells (g₁, g₂) and (-g₁, -g₂) the same number is kept, a draw of the fuller one.
    Rows with exactly one gap of 0 lie on an axis and are balanced along it, in `n_bins` bins; rows with two are kept.

    Example:
        >>> refine_adversarially([[0.5, 0.5], [-0.5, -0.5], [0.52, 0.52]], seed=0)[-1] >= 1
        True
    """
    values = np.asarray(gaps, dtype=np.float64).reshape(-1, 2)
    on_axis = values == 0
    kept = np.flatnonzero(on_axis.all(axis=1)).tolist()
    plane = np.flatnonzero(~on_axis.any(axis=1))
    cells = _cells(values[plane], n_cells)
    kept += _balanced(plane, cells[:, 0] * n_cells + cells[:, 1], n_cells * n_cells, seed, "plane")
    for axis in (0, 1):
        rows = np.flatnonzero(on_axis[:, 1 - axis] & ~on_axis[:, axis])
        kept += _balanced(rows, _cells(values[rows, axis], n_bins), n_bins, seed, f"axis {axis}")
    return sorted(int(row) for row in kept)


def _cells(values: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.int64]:
    return np.clip(((values + 1) / 2 * n).astype(np.int64), 0, n - 1)


def _balanced(rows: npt.NDArray[np.int64], cells: npt.NDArray[np.int64], n: int, seed: int, name: str) -> list[int]:
    """Of each cell and its mirror, n - 1 - cell, as many rows as the emptier of the two has."""
    found: dict[int, list[int]] = {}
    for row, cell in zip(rows.tolist(), cells.tolist(), strict=True):
        found.setdefault(cell, []).append(row)
    kept: list[int] = []
    for cell, own in sorted(found.items()):
        n_kept = min(len(own), len(found.get(n - 1 - cell, ())))
        order = derive_rng(seed, "refine", name, cell).permutation(len(own))[:n_kept]
        kept += [own[int(place)] for place in order]
    return kept


def semantic_filter(sample: Sample, measure: Measure) -> Sample:
    """ALIA's first filter, ported to retrieval: the picture must fit its caption better than any generic text."""
    if measure.fit is None or measure.generic is None or measure.fit > measure.generic:
        return sample
    return rejected(sample, "fits a generic text better than its caption")


def confidence_filter(samples: Sequence[Sample], measures: Mapping[str, Measure], *, top_k: int) -> list[Sample]:
    """ALIA's second filter, ported to retrieval (ours): what is destroyed, and what is hardly changed.

    Dropped: pictures whose own caption is not among the `top_k`, and those whose own caption stands first by more than
    the mean margin of the pictures that rank it first.
    """
    margins = [
        m.margin
        for s in samples
        if s.rejected is None and (m := measures[s.sample_id]).own_rank == 1 and m.margin is not None
    ]
    usual = float(np.mean(margins)) if margins else np.inf
    out = []
    for sample in samples:
        measure = measures[sample.sample_id]
        if measure.own_rank is not None and measure.own_rank > top_k:
            sample = rejected(sample, f"its caption is not among the first {top_k}: meaning destroyed")
        elif measure.own_rank == 1 and measure.margin is not None and measure.margin > usual:
            sample = rejected(sample, "its caption stands first by more than usual: hardly changed")
        out.append(sample)
    return out


def within(value: float | None, low: float, high: float) -> bool:
    """low < value ≤ high; what was not measured passes."""
    return value is None or low < value <= high
