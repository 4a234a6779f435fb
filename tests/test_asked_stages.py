"""What the stages that ask demand of a reply, and that a useless reply keeps its cost."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from repair import editing, instruction, verification
from repair.core.errors import BadReply
from repair.core.ports import Case, ImageItem, Reply, TextItem
from repair.core.records import Criterion, Direction, ErrorType, Failure, Instruction, Usage, Verdict

USAGE = Usage(tokens_in=7, tokens_out=3)
CASE = Case(
    failure_id="i2t-1",
    direction=Direction.IMAGE_TO_TEXT,
    query=ImageItem(key="a", content_hash="b2:a", captions=("a dog",), read=lambda: b""),
    false_positive=TextItem(key="b#0", text="a cat"),
    ground_truths=(TextItem(key="a#0", text="a dog"),),
)
TOLD = Instruction(
    failure_id="i2t-1",
    error_types=(ErrorType.OBJECT,),
    residual="cat",
    scaffold="a",
    instruction="Replace cat with dog.",
)


class Answers:
    """Every port at once, each answering with the value it was made with."""

    fingerprint = "b2:test"

    def __init__(self, value: Any) -> None:
        self.value = value

    async def _reply(self, *_: object, **__: object) -> Reply[Any]:
        return Reply(self.value, USAGE, "raw text")

    verify = instruct = edit_text = edit_image = _reply


def ask(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def verdict(**changes: Any) -> Verdict:
    return Verdict(**{"failure_id": "", "keep": True, "criterion": None, "reason": "", **changes})


@pytest.mark.parametrize(
    "work",
    [
        verification.verify(CASE, verifier=Answers(verdict(keep=False)), seed=0),
        verification.verify(CASE, verifier=Answers(verdict(criterion=Criterion.ANNOTATION_NOISE)), seed=0),
        instruction.instruct(
            CASE,
            instructor=Answers(Instruction(failure_id="", error_types=(), residual="", scaffold="", instruction="x")),
            seed=0,
        ),
        instruction.instruct(
            CASE,
            instructor=Answers(
                Instruction(failure_id="", error_types=(ErrorType.COUNT,), residual="", scaffold="", instruction=" ")
            ),
            seed=0,
        ),
        editing.edit_text(CASE, TOLD, editor=Answers(" \n "), seed=0),
        editing.edit_image(CASE, TOLD, editor=Answers(b""), seed=0),
    ],
)
def test_a_useless_reply_is_refused_and_keeps_its_cost(work: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(BadReply) as caught:
        ask(work)
    assert caught.value.usage == USAGE
    assert caught.value.raw == "raw text"


def test_an_edited_caption_is_one_line() -> None:
    assert ask(editing.edit_text(CASE, TOLD, editor=Answers(" a  dog\n"), seed=0)).value == "a dog"


def test_answers_come_back_from_json() -> None:
    dropped = verdict(keep=False, criterion=Criterion.BENIGN_MISMATCH, reason="it does match")
    assert verification.from_json(verification.to_json(dropped), failure_id="") == dropped
    assert instruction.from_json(instruction.to_json(TOLD), failure_id="i2t-1") == TOLD


def test_equal_texts_are_one_item() -> None:
    assert editing.text_candidate("f", 0, "a dog").key == editing.text_candidate("g", 1, "a dog").key


def test_counts() -> None:
    failure = Failure(
        failure_id="f", direction=Direction.IMAGE_TO_TEXT, query_id="q", false_positive_id="p", ground_truth_id="g",
        false_positive_rank=1, ground_truth_rank=2, false_positive_score=0.5, ground_truth_score=0.4, outranks=True,
    )  # fmt: skip
    noise = verdict(keep=False, criterion=Criterion.ANNOTATION_NOISE)
    verdicts = [verification.unasked(failure), noise, verification.failed("x", "no answer")]
    assert verification.summarise(verdicts) == {"kept": 1, "failed": 1, "annotation_noise": 1, "benign_mismatch": 0}
    told = instruction.summarise([TOLD, instruction.failed("x", "no answer")])
    assert (told["instructed"], told["failed"], told["object"], told["count"]) == (1, 1, 1, 0)
    edits = [
        editing.text_candidate("f", 0, "a"),
        editing.text_candidate("f", 1, "a"),
        editing.failed("f", 2, "no answer"),
    ]
    assert editing.summarise(edits) == {"candidates": 2, "distinct": 1, "failed": 1}
