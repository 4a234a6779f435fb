"""What went wrong in kept edits: the classes of the paper's Table 18 by the truth of the data, and examples of them.

Only for runs that repair, on data that know the truth. No stage knows it: such edits were kept, and trained on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.core.ports import EditTruth
from repair.core.progress import Progress
from repair.core.records import Direction, Instruction, Repair, RepairStatus, Shortfall
from repair.evaluation.shortfalls import JudgedEdit, count_shortfalls
from repair.reports.judged import WORDS, judged_edits
from repair.reports.shown import Shower, Shown
from repair.reports.view import RunView

_MOST = 3_000  # edits of a round that are judged, a minute at most: of more a draw


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEdit:
    """A kept edit that is wrong, with what it was made from and for."""

    repair: Repair
    round: int
    query: Shown
    false_positive: Shown
    edit: Shown
    instruction: str | None


# ---------------------------------------------------------------------------------------------- numbers


def kept_edits_facts(view: RunView, progress: Progress) -> dict[str, Any] | None:
    """{"rounds": one dict for each that has selected, "error": why there are none, or None}.

    A round: {"round", "n_kept", "n_judged", "n_known", "n_wrong", "directions": {direction: {"n", "n_known",
    "n_wrong"}}, "classes": {class: {"n", "by_direction", "share_of_wrong", "share_of_known", "examples"}}}.
    Classes are in the paper's order, examples are failure ids, shares are in [0, 1]. None where truth is unknown, or
    the method repairs nothing.
    """
    if not isinstance(view.source, EditTruth) or all(step.stage != "select" for step in view.steps):
        return None
    rounds = [round for round in view.rounds if (round, "select") in view.states]
    try:
        return {"rounds": [_round(view, round, progress) for round in rounds], "error": None}
    except DataError as error:
        return {"rounds": [], "error": str(error)}


def _round(view: RunView, round: int, progress: Progress) -> dict[str, Any]:
    kept = [repair for repair in view.table(round, Repair) if repair.status is RepairStatus.REPAIRED]
    rng = derive_rng(view.config.run.seed, "report", "kept edits", str(round))
    drawn = [kept[i] for i in rng.permutation(len(kept))[:_MOST]]
    with progress.task("kept edits", len(drawn)) as advance:
        judged = judged_edits(view, drawn, advance) or []
    counts = count_shortfalls(judged)
    n_known, n_wrong = (sum(getattr(side, name) for side in counts.values()) for name in ("n_known", "n_wrong"))
    classes = {}
    for kind in WORDS:
        by_direction = {str(direction): side.wrong[kind] for direction, side in counts.items()}
        n = sum(by_direction.values())
        classes[str(kind)] = {
            "n": n,
            "by_direction": by_direction,
            "share_of_wrong": n / n_wrong if n_wrong else None,
            "share_of_known": n / n_known if n_known else None,
            "examples": _examples(judged, kind),
        }
    return {
        "round": round,
        "n_kept": len(kept),
        "n_judged": len(judged),
        "n_known": n_known,
        "n_wrong": n_wrong,
        "directions": {
            str(direction): {"n": side.n, "n_known": side.n_known, "n_wrong": side.n_wrong}
            for direction, side in counts.items()
        },
        "classes": classes,
    }


def _examples(drawn: Sequence[JudgedEdit], kind: Shortfall) -> list[str]:
    """The first of each direction, in the drawn order."""
    own = [edit.repair for edit in drawn if edit.shortfall is kind]
    firsts = (next((repair for repair in own if repair.direction is direction), None) for direction in Direction)
    return [repair.failure_id for repair in firsts if repair is not None]


# ---------------------------------------------------------------------------------------------- examples


def wrong_edits(view: RunView, shower: Shower, facts: Mapping[str, Any] | None) -> dict[str, list[WrongEdit]]:
    """The examples that `facts` name, by class: those of the last round that has any of a class."""
    found: dict[str, list[WrongEdit]] = {}
    for entry in reversed(facts["rounds"] if facts else []):
        repairs = {repair.failure_id: repair for repair in view.table(entry["round"], Repair)}
        told = {one.failure_id: one.instruction for one in view.table(entry["round"], Instruction)}
        for kind, values in entry["classes"].items():
            if values["examples"] and kind not in found:
                found[kind] = [
                    _wrong_edit(view, shower, entry["round"], repairs[failure_id], told.get(failure_id))
                    for failure_id in values["examples"]
                ]
    return found


def _wrong_edit(view: RunView, shower: Shower, round: int, repair: Repair, instruction: str | None) -> WrongEdit:
    query, was, key = repair.query_id, repair.false_positive_id, str(repair.key)
    if repair.direction is Direction.IMAGE_TO_TEXT:
        shown = shower.image(query, "query")
        before = shower.caption(was, "false positive")
        after = shower.caption(key, "kept edit", text=repair.text, was=view.text(was))
    else:
        shown = shower.caption(query, "query")
        before = shower.image(was, "false positive")
        after = shower.image(key, "kept edit", was=was)
    return WrongEdit(
        repair=repair, round=round, query=shown, false_positive=before, edit=after, instruction=instruction
    )
