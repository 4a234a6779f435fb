"""What is wrong with the edits that selection kept, counted by a source that knows (the paper's Table 18)."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from repair.core.errors import DataError
from repair.core.ports import EditTruth
from repair.core.records import Direction, Repair, RepairStatus, Shortfall


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortfallCounts:
    """Of one direction: kept edits, those that the source can read, and how many of these are wrong, by class."""

    n: int
    n_known: int
    wrong: dict[Shortfall, int]


def count_shortfalls(
    source: EditTruth,
    repairs: Sequence[Repair],
    *,
    text: Callable[[str], str],
    image: Callable[[str], bytes],
) -> dict[Direction, ShortfallCounts]:
    """Every kept edit judged once. `text` and `image` give the content of a caption or image by its key.

    Raises DataError: the content of an original, or of an edited image, is not there.
    """
    found: dict[Direction, Counter[Shortfall | str]] = {direction: Counter() for direction in Direction}
    for repair in repairs:
        if repair.status is RepairStatus.REPAIRED:
            found[repair.direction][_shortfall(source, repair, text, image)] += 1
    return {
        direction: ShortfallCounts(
            n=sum(counts.values()),
            n_known=sum(counts.values()) - counts[_UNKNOWN],
            wrong={kind: counts[kind] for kind in Shortfall},
        )
        for direction, counts in found.items()
    }


_UNKNOWN, _RIGHT = "unknown", "right"


def _shortfall(
    source: EditTruth, repair: Repair, text: Callable[[str], str], image: Callable[[str], bytes]
) -> Shortfall | str:
    if repair.direction is Direction.IMAGE_TO_TEXT:
        shown, said, edited = image(repair.query_id), text(repair.false_positive_id), str(repair.text)
        try:
            return source.text_shortfall(shown, said, edited) or _RIGHT
        except DataError:
            return _UNKNOWN
    said, shown, drawn = text(repair.query_id), image(repair.false_positive_id), image(str(repair.key))
    try:
        return source.image_shortfall(said, shown, drawn) or _RIGHT
    except DataError:
        return _UNKNOWN
