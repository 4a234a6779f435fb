"""What is wrong with the edits that selection kept, judged by a source that knows (the paper's Table 18)."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from repair.core.errors import DataError
from repair.core.ports import EditTruth
from repair.core.records import Direction, Repair, RepairStatus, Shortfall


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEdit:
    """A kept edit and what is wrong with it: None if nothing is, or (`known` False) if the source cannot read it."""

    repair: Repair
    known: bool
    shortfall: Shortfall | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortfallCounts:
    """Of one direction: kept edits, those that the source can read, and how many of these are wrong, by class."""

    n: int
    n_known: int
    wrong: dict[Shortfall, int]

    @property
    def n_wrong(self) -> int:
        return sum(self.wrong.values())


def judge_edits(
    source: EditTruth,
    repairs: Sequence[Repair],
    *,
    text: Callable[[str], str],
    image: Callable[[str], bytes],
) -> Iterator[JudgedEdit]:
    """Every kept edit once, in the order of `repairs`; the others are left out. `text` and `image` give the content of
    a caption or image by its key, and raise DataError where that of an original, or of an edited image, is gone.
    """
    for repair in repairs:
        if repair.status is not RepairStatus.REPAIRED:
            continue
        judge = _judge_of(source, repair, text, image)
        try:
            known, shortfall = True, judge()
        except DataError:
            known, shortfall = False, None
        yield JudgedEdit(repair=repair, known=known, shortfall=shortfall)


def count_shortfalls(judged: Iterable[JudgedEdit]) -> dict[Direction, ShortfallCounts]:
    """Of each direction, also where it has no edit."""
    edits = list(judged)
    found = {}
    for direction in Direction:
        own = [edit for edit in edits if edit.repair.direction is direction]
        wrong = Counter(edit.shortfall for edit in own)
        n_known = sum(edit.known for edit in own)
        found[direction] = ShortfallCounts(n=len(own), n_known=n_known, wrong={kind: wrong[kind] for kind in Shortfall})
    return found


def _judge_of(
    source: EditTruth, repair: Repair, text: Callable[[str], str], image: Callable[[str], bytes]
) -> Callable[[], Shortfall | None]:
    """What judges the edit. Its contents are fetched at once, so that one that is gone is no edit that is not read."""
    if repair.direction is Direction.IMAGE_TO_TEXT:
        shown, said, edited = image(repair.query_id), text(repair.false_positive_id), str(repair.text)
        return lambda: source.text_shortfall(shown, said, edited)
    said, shown, drawn = text(repair.query_id), image(repair.false_positive_id), image(str(repair.key))
    return lambda: source.image_shortfall(said, shown, drawn)
