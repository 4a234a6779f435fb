"""The kept edits of a round, each judged by the truth of the data; and the words for what can be wrong with one."""

from collections.abc import Callable, Sequence
from functools import cache

from repair.core.errors import DataError
from repair.core.ports import EditTruth
from repair.core.records import Repair, Shortfall
from repair.evaluation.shortfalls import JudgedEdit, judge_edits
from repair.pipeline.places import BLOBS
from repair.reports.view import EDIT, RunView

WORDS = {
    Shortfall.SEMANTIC_MISMATCH: "semantic mismatch: not true of the query",
    Shortfall.SCAFFOLD_DRIFT: "scaffold drift: true, but more has changed than had to",
    Shortfall.AMBIGUOUS_FALSE_POSITIVE: "ambiguous false positive: it was true all along",
    Shortfall.ARTEFACT: "artefact: something else in the picture has changed",
}


def judged_edits(
    view: RunView, repairs: Sequence[Repair], tell: Callable[[], None] | None = None
) -> list[JudgedEdit] | None:
    """Those of `repairs` that were kept, in their order; None where the data do not know the truth.

    Thousands of edits take minutes: `tell` is called after each. Raises DataError for edited images that are gone.
    """
    source = view.source
    if not isinstance(source, EditTruth):
        return None

    @cache  # an image is asked about, or returned, again and again
    def original(key: str) -> bytes:
        return source.read_image(key)

    def image(key: str) -> bytes:
        return _edited(view, key) if key.startswith(EDIT) else original(key)

    def text(key: str) -> str:
        train = view.captions(view.config.data.train_split)
        if key not in train:
            raise DataError(f"{view.folder.path}: caption {key} is not in the data that its config names")
        return train[key].text

    found = []
    for edit in judge_edits(source, repairs, text=text, image=image):
        found.append(edit)
        if tell is not None:
            tell()
    return found


def _edited(view: RunView, key: str) -> bytes:
    data = None if view.blobs is None else view.blobs.get(key)
    if data is None:
        path = view.calls_file(BLOBS)
        why = f"it is not in {path}" if path else view.no_calls_file(BLOBS)
        raise DataError(
            f"{view.folder.path}: its edited image {key} is gone: {why}; put the folder of calls back beside the runs"
        )
    return data
