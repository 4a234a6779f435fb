"""What a run's tables tell of its questions, finished stages or not."""

from dataclasses import replace
from typing import Any

import pytest

from repair.config import Config, load_config
from repair.core.records import Candidate, ErrorType
from repair.pipeline.questions import SELECTED_TASK, Question, RoundTables, cell_id, questions
from tests.reports.runs import EDIT_KEY, EDIT_TEXT, failure, repaired, scored, told, verdict

CAPTION = failure("i2t-1", "a.jpg", "b.jpg#0", "a.jpg#0")
PICTURE = failure("t2i-1", "a.jpg#0", "b.jpg", "a.jpg")


def config(*more: str) -> Config:
    return load_config(None, overrides=["editing.n_candidates=2", *more], environment={})


def tables(*done: str, **given: Any) -> RoundTables:
    names = ("instructions", "candidates", "scored", "repairs")
    empty: dict[str, Any] = dict.fromkeys(names, ())
    return RoundTables(done=set(done), failures=[CAPTION, PICTURE], **{**empty, **given})


def asked(given: RoundTables, *more: str) -> list[tuple[str, str, int]]:
    return [(one.task, one.failure_id, one.index) for one in questions(given, config(*more))]


def test_of_stages_that_have_not_finished_all_that_can_be_asked() -> None:
    edits = [(f"edit_{kind}", name, k) for kind, name in (("text", "i2t-1"), ("image", "t2i-1")) for k in (0, 1)]
    both = ("i2t-1", "t2i-1")
    staged = [(task, name, 0) for task in ("verify", "instruct") for name in both]
    assert asked(tables()) == staged + edits
    assert asked(tables(), "calls.plan=fused") == [("plan", name, 0) for name in both] + edits
    every = questions(tables(), config("selection.verify_candidates=true"))
    checks = [(one.failure_id, one.edit) for one in every if one.task == SELECTED_TASK]
    assert checks == [(name, None) for name in both]


@pytest.mark.parametrize("plan", ["staged", "fused"])
def test_of_finished_stages_what_they_left(plan: str) -> None:
    refused = replace(scored("i2t-1", 1, "refused_by_verifier"), key="b2:refused")
    given = tables(
        "instruct",
        "edit",
        "select",
        instructions=[told("i2t-1", ErrorType.OBJECT)],
        candidates=[
            Candidate(failure_id="i2t-1", index=0, key=EDIT_KEY, text=EDIT_TEXT),
            Candidate(failure_id="t2i-1", index=1, key="b2:image", text=None),
        ],
        scored=[scored("i2t-1", 0), refused, scored("t2i-1", 1, "no_op")],
        repairs=[repaired(CAPTION), repaired(PICTURE, key=None)],
    )
    found = list(questions(given, config(f"calls.plan={plan}", "selection.verify_candidates=true")))
    answers = {(one.task, one.index): one.answer for one in found if one.answer is not None}
    edits = {("edit_image", 1): "b2:image"}
    assert answers == (edits if plan == "fused" else {("edit_text", 0): f'"{EDIT_TEXT}"', **edits})
    assert [one.edit for one in found if one.task == SELECTED_TASK] == ["b2:refused", EDIT_KEY]
    assert len(found) == (5 if plan == "fused" else 7)
    assert {one.truth_id for one in found if one.failure_id == "i2t-1"} == {"a.jpg#0"}


@pytest.mark.parametrize("plan, task", [("staged", "verify"), ("fused", "plan")])
def test_false_positives_as_hard_negatives_are_verified_and_no_more(plan: str, task: str) -> None:
    found = asked(tables(), "method.name=fp_as_hn", f"calls.plan={plan}", "selection.verify_candidates=true")
    assert [one[:2] for one in found] == [(task, "i2t-1"), (task, "t2i-1")]


def test_cells_are_those_that_were_checked() -> None:
    known = tables(cells=[verdict(cell_id("a", "y")), verdict(cell_id("b", "q"))])
    on = "grids.verify_cells=true"
    assert [name for task, name, _ in asked(known, on) if task == "verify_cell"] == ["cell-a-y", "cell-b-q"]
    assert "verify_cell" not in {task for task, *_ in asked(known)}


def test_equal_questions_may_have_different_answers() -> None:
    one = Question(task="edit_text", failure_id="i2t-1", answer="a")
    assert one == replace(one, answer="b")
    assert one != replace(one, truth_id="a.jpg#1")
