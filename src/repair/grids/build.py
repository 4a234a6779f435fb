"""One grid from one failure.

Written once for both sides. `x` is the failure's item on the anchor's side, `hard` its item on the other side; they do
not match. `mate` completes the anchor pair, `repaired` fits `hard`, and a third pair (`third`, `third_fit`) fills up:

                    mate     third_fit   hard
        x           true       false     verified
        third       false      true      false
        repaired    false      false     true

With an image as `x` these are the rows and columns of `core.records.Grid`; with a caption it is the other way round.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from repair.core.records import Modality
from repair.grids.pool import Failure, Fit, Pool, other

N_DRAWS = 6  # uniform numbers one attempt uses
_TRIES = 8  # alternatives looked at for one place in the grid
_FIT_NAMES = ("edit_of_contrast", "other_edit", "own")


class Fill(StrEnum):
    """Where the third pair's hard item comes from; tried in this order."""

    VERIFIED = "verified"  # it was verified not to match the mate
    SIBLING = "sibling"  # verified against another item that matches x (another caption of the same image)
    COUSIN = "cousin"  # verified against the failure's hard item
    RANDOM = "random"  # any labelled item


class Refusal(StrEnum):
    """Why a failure gave no grid in a pass."""

    PAIR_MATCHES = "pair_matches"  # its own pair is labelled, made or judged to match elsewhere
    CELL_MATCHES = "cell_matches"  # every way to fill the grid had a matching pair off the diagonal
    ITEM_CAP = "item_cap"
    NOTHING_LEFT = "nothing_left"  # too few distinct items


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    anchor: Modality
    images: tuple[str, str, str]
    texts: tuple[str, str, str]
    fill: Fill
    fits: tuple[str, str]  # where `repaired` and `third_fit` come from
    synthetic_anchor: bool


class Room(Protocol):
    """Whether one more grid of this epoch may take an item that it is free to leave out."""

    def has(self, modality: Modality, key: str) -> bool: ...


class Attempt:
    """One try to build a grid, and what stood in its way."""

    def __init__(self, pool: Pool, room: Room, *, anchor: Modality, draws: Sequence[float]) -> None:
        self.pool = pool
        self.room = room
        self.here = anchor
        self.there = other(anchor)
        self.draws = draws
        self.refusal = Refusal.NOTHING_LEFT

    def build(self, failure: Failure, *, anchor_synthetic_rate: float) -> Built | None:
        x, hard = failure.key(self.here), failure.key(self.there)
        if self.pool.match(self.here, x, hard):
            self.refusal = Refusal.PAIR_MATCHES
            return None
        for synthetic, mate in self._mates(x, hard, synthetic=self.draws[0] < anchor_synthetic_rate):
            if not self._free(self.there, mate, taken=(hard,)):
                continue
            fit = self.pool.fit(self.there, hard, contrast=x)
            for source, repaired in self._fitting(fit, self.draws[2]):
                if not self._free(self.here, repaired, taken=(x,)) or self._clash(repaired, mate):
                    continue
                found = self._third(x, mate, hard, repaired)
                if found is not None:
                    fill, third, third_source, third_fit = found
                    return self._built(
                        (x, third, repaired), (mate, third_fit, hard), fill, (source, third_source), synthetic
                    )
        return None

    def _mates(self, x: str, hard: str, *, synthetic: bool) -> Iterator[tuple[bool, str]]:
        """What completes the anchor pair: an edit if asked for and there is one, else own items, mined ones first."""
        fit = self.pool.fit(self.here, x, contrast=hard)
        if synthetic:
            for edits in (fit.of_contrast, fit.edits):
                yield from ((True, edit) for edit in _walk(edits, self.draws[1]))
        mined = [item for item in fit.own if item in self.pool.negatives[self.there]]
        plain = [item for item in fit.own if item not in self.pool.negatives[self.there]]
        for own in (mined, plain):
            yield from ((False, item) for item in _walk(own, self.draws[1]))

    def _third(self, x: str, mate: str, hard: str, repaired: str) -> tuple[Fill, str, str, str] | None:
        for fill in Fill:
            for third in _walk(self._candidates(fill, x, mate, hard), self.draws[3]):
                if not self._free(self.here, third, taken=(x, repaired)):
                    continue
                if self._clash(third, mate) or self._clash(third, hard):
                    continue
                fit = self.pool.fit(self.here, third, contrast=mate)
                for source, third_fit in self._fitting(fit, self.draws[4]):
                    if not self._free(self.there, third_fit, taken=(mate, hard)):
                        continue
                    if not self._clash(x, third_fit) and not self._clash(repaired, third_fit):
                        return fill, third, source, third_fit
        return None

    def _candidates(self, fill: Fill, x: str, mate: str, hard: str) -> Sequence[str]:
        negatives = self.pool.negatives[self.there]
        if fill is Fill.VERIFIED:
            return negatives.get(mate, ())
        if fill is Fill.SIBLING:
            siblings = (item for item in self.pool.own[self.here][x] if item != mate)
            return sorted({third for sibling in siblings for third in negatives.get(sibling, ())})
        if fill is Fill.COUSIN:
            return negatives.get(hard, ())
        return self.pool.originals[self.here]

    def _fitting(self, fit: Fit, draw: float) -> Iterator[tuple[str, str]]:
        for name, items in zip(_FIT_NAMES, fit, strict=True):
            yield from ((name, item) for item in _walk(items, draw))

    def _free(self, modality: Modality, key: str, *, taken: tuple[str, ...]) -> bool:
        if key in taken:
            return False
        if not self.room.has(modality, key):
            self.refusal = Refusal.ITEM_CAP
            return False
        return True

    def _clash(self, item: str, partner: str) -> bool:
        if self.pool.match(self.here, item, partner):
            self.refusal = Refusal.CELL_MATCHES
            return True
        return False

    def _built(
        self,
        here: tuple[str, str, str],
        there: tuple[str, str, str],
        fill: Fill,
        fits: tuple[str, str],
        synthetic_anchor: bool,
    ) -> Built:
        if self.here is Modality.IMAGE:
            images, texts = here, there
        else:
            # A caption's own order: `hard` is the negative image (row 2) and its repaired caption stands in column 2.
            images, texts = (there[0], there[2], there[1]), (here[0], here[2], here[1])
        return Built(
            anchor=self.here, images=images, texts=texts, fill=fill, fits=fits, synthetic_anchor=synthetic_anchor
        )


def _walk(items: Sequence[str], draw: float) -> Iterator[str]:
    """Up to `_TRIES` of `items`, from a drawn place on."""
    n = len(items)
    start = int(draw * n)
    for step in range(min(n, _TRIES)):
        yield items[(start + step) % n]
