"""Verifier, instructor, editor and planner over a real HTTP server."""

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from repair.backends.chat import ChatInstructor, ChatPlanner, ChatTextEditor, ChatVerifier
from repair.backends.chat.images import shrunk_jpeg
from repair.backends.chat.schemas import InstructionAnswer, PlanAnswer, VerdictAnswer, parse_answer, strict_schema
from repair.core.errors import BackendError, BadReply, ConfigError, DataError, Refused, Unavailable
from repair.core.ports import ImageItem
from repair.core.records import Criterion, ErrorType, Usage
from repair.pipeline import registries
from tests.backends.chat.cases import TOLD, image, image_to_text, text_to_image
from tests.backends.loopback import Loopback, loopback

KEEP = {"reason": "the shirt is red", "query_matches_ground_truth": True, "candidate_matches_query": False}
INSTRUCTED = {
    "error_types": ["attribute", "attribute"],
    "residual": "blue",
    "scaffold": "a man rides a bike",
    "instruction": "Change the shirt\nto red.",
}
PLAN = {
    **KEEP,
    **INSTRUCTED,
    "edits": ["A man in a red shirt rides a bike .", "a man in a RED shirt rides a bike", "x"],
}
DROP = {"error_types": [], "residual": "", "scaffold": "", "instruction": "", "edits": []}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def verifier(server: Loopback, **options: Any) -> ChatVerifier:
    made = registries.VERIFIERS.build("chat", options={"model": "m", "base_url": server.url, **options})
    assert isinstance(made, ChatVerifier)
    return made


@pytest.mark.parametrize(
    ("truth", "candidate", "criterion"),
    [
        (True, False, None),
        (False, False, Criterion.ANNOTATION_NOISE),
        (False, True, Criterion.ANNOTATION_NOISE),
        (True, True, Criterion.BENIGN_MISMATCH),
    ],
)
def test_the_verdict_follows_from_the_two_criteria(
    server: Loopback, truth: bool, candidate: bool, criterion: Criterion | None
) -> None:
    server.says({**KEEP, "query_matches_ground_truth": truth, "candidate_matches_query": candidate})
    reply = asyncio.run(verifier(server).verify(image_to_text(), seed=3))
    assert (reply.value.keep, reply.value.criterion) == (criterion is None, criterion)
    assert reply.value.reason == "the shirt is red"
    assert reply.usage == Usage(tokens_in=100, tokens_out=10)
    assert server.last.body["temperature"] == 0.0


def test_images_come_before_the_prompt_shrunk_and_encoded_again(server: Loopback) -> None:
    server.says(KEEP, KEEP)
    asyncio.run(verifier(server, max_side=20).verify(image_to_text(), seed=0))
    system, user = server.last.body["messages"]
    assert system["role"] == "system"
    label, shown, text = user["content"]
    assert label["text"] == "Image 1:"
    assert "image: Image 1 above" in text["text"]
    header, data = shown["image_url"]["url"].split(",")
    assert header == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (20, 15)
    asyncio.run(verifier(server).verify(text_to_image(), seed=0))
    kinds = [part["type"] for part in server.last.body["messages"][1]["content"]]
    assert kinds == ["text", "image_url", "text", "image_url", "text"]


def test_images_as_files_are_content_addressed(server: Loopback, tmp_path: Path) -> None:
    server.says(*[KEEP] * 3)
    chat = verifier(server, image_as="file", image_folder=str(tmp_path))
    for case in (image_to_text(), image_to_text("Another ."), text_to_image()):
        asyncio.run(chat.verify(case, seed=0))
    url = urlsplit(server.seen[0].body["messages"][1]["content"][1]["image_url"]["url"])
    assert url.scheme == "file"
    assert Path(url.path).read_bytes() == shrunk_jpeg(Image.new("RGB", (40, 30), "red"), max_side=768)
    assert len(list(tmp_path.iterdir())) == 2  # a red picture and a blue one
    assert chat.fingerprint == verifier(server).fingerprint  # the same pixels reach the model


def test_a_model_without_eyes_reads_captions(server: Loopback) -> None:
    server.says(KEEP, KEEP)
    chat = verifier(server, image_as="captions")
    asyncio.run(chat.verify(image_to_text(), seed=0))
    text = server.last.body["messages"][1]["content"]
    assert 'image_described_by: ["A cyclist on a street ."]' in text  # not by the ground truth it is compared with
    asyncio.run(chat.verify(text_to_image(), seed=0))
    assert "A cyclist in blue" in server.last.body["messages"][1]["content"]
    assert chat.fingerprint != verifier(server).fingerprint
    with pytest.raises(DataError, match="without captions"):
        asyncio.run(chat.verify(_without_captions(), seed=0))


def _without_captions() -> Any:
    from dataclasses import replace

    return replace(text_to_image(), false_positive=image(captions=()))


def test_a_broken_image_is_that_items_failure(server: Loopback) -> None:
    from dataclasses import replace

    broken = ImageItem(key="b.jpg", content_hash="b2:0", captions=(), read=lambda: b"\xff\xd8\xff")
    with pytest.raises(DataError, match=r"image b\.jpg"):
        asyncio.run(verifier(server).verify(replace(image_to_text(), query=broken), seed=0))
    assert server.seen == []


def test_instructions(server: Loopback) -> None:
    made = registries.INSTRUCTORS.build("chat", options={"model": "m", "base_url": server.url})
    assert isinstance(made, ChatInstructor)
    server.says(INSTRUCTED)
    told = asyncio.run(made.instruct(image_to_text(), seed=0)).value
    assert told.error_types == (ErrorType.ATTRIBUTE,)
    assert told.instruction == "Change the shirt to red."
    server.says({**INSTRUCTED, "error_types": []}, INSTRUCTED)
    assert asyncio.run(made.instruct(image_to_text(), seed=0)).usage.tokens_in == 200
    assert "at least one of object" in server.last.body["messages"][-1]["content"]


def test_edits(server: Loopback) -> None:
    made = registries.TEXT_EDITORS.build("chat", options={"model": "m", "base_url": server.url})
    assert isinstance(made, ChatTextEditor)
    server.says({"caption": " A man in a red shirt\nrides a bike . "})
    assert asyncio.run(made.edit_text(image_to_text(), TOLD, seed=1)).value == "A man in a red shirt rides a bike ."
    assert '<data name="instruction">' in server.last.body["messages"][1]["content"][-1]["text"]
    assert server.last.body["temperature"] == 0.8
    with pytest.raises(BadReply, match="captions only"):
        asyncio.run(made.edit_text(text_to_image(), TOLD, seed=1))


def test_plans(server: Loopback) -> None:
    made = registries.PLANNERS.build("chat", options={"model": "m", "base_url": server.url})
    assert isinstance(made, ChatPlanner)
    server.says(PLAN)
    plan = asyncio.run(made.plan(image_to_text(), n_edits=3, seed=0)).value
    assert plan.verdict.keep
    assert plan.edits == ("A man in a red shirt rides a bike .", "x")  # the second repeats the first
    assert "in 3 distinct ways" in server.last.body["messages"][1]["content"][-1]["text"]
    server.says(PLAN)
    plan = asyncio.run(made.plan(text_to_image(), n_edits=3, seed=0)).value
    assert (plan.edits, plan.instruction is not None) == ((), True)
    assert 'Leave the list "edits" empty.' in server.last.body["messages"][1]["content"][-1]["text"]
    server.says({**KEEP, **DROP, "candidate_matches_query": True})
    plan = asyncio.run(made.plan(image_to_text(), n_edits=3, seed=0)).value
    assert (plan.verdict.criterion, plan.instruction, plan.edits) == (Criterion.BENIGN_MISMATCH, None, ())


@pytest.mark.parametrize(
    ("spoilt", "part"),
    [
        ({"instruction": " "}, '"instruction"'),
        ({"edits": []}, '"edits"'),
        ({"edits": ["A man in a BLUE shirt rides a bike"]}, '"edits"'),
        ({"error_types": []}, '"error_types"'),
        ({"error_types": ["colour"]}, '"error_types.0"'),
        ({"reason": ""}, '"reason"'),
        ({"more": 1}, '"more"'),
    ],
)
def test_a_plan_that_cannot_be_used_is_asked_for_once_more(server: Loopback, spoilt: dict[str, Any], part: str) -> None:
    made = ChatPlanner(model="m", base_url=server.url)
    server.says({**PLAN, **spoilt}, PLAN)
    assert asyncio.run(made.plan(image_to_text(), n_edits=3, seed=0)).value.edits
    wish = server.last.body["messages"][-1]
    assert wish["role"] == "user"
    assert part in wish["content"]


def test_the_repair_turn_is_billed_and_shows_what_was_wrong(server: Loopback) -> None:
    server.says('{"reason": "half', KEEP, tokens=(70, 9))
    reply = asyncio.run(verifier(server).verify(image_to_text(), seed=0))
    assert reply.usage == Usage(tokens_in=140, tokens_out=18)
    assert reply.raw.startswith('{"reason": "half\n')
    first, second = (seen.body["messages"] for seen in server.seen)
    assert second[:2] == first
    assert second[2] == {"role": "assistant", "content": '{"reason": "half'}
    assert "not JSON" in second[3]["content"]


def failure(server: Loopback, **options: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        asyncio.run(verifier(server, **options).verify(image_to_text(), seed=0))
    return caught.value


def test_two_bad_answers_are_a_failure_with_the_cost_of_both(server: Loopback) -> None:
    server.says("no", {"reason": "x"})
    error = failure(server)
    assert type(error) is BadReply
    assert str(error).endswith("after 2 turns")
    assert error.usage == Usage(tokens_in=200, tokens_out=20)
    assert error.raw == 'no\n{"reason": "x"}'
    assert len(server.seen) == 2


def test_one_turn_only(server: Loopback) -> None:
    server.says("no")
    assert type(failure(server, repair_turn=False)) is BadReply
    assert len(server.seen) == 1


def test_a_repair_turn_that_fails_keeps_the_cost_of_the_first(server: Loopback) -> None:
    server.says("no")
    server.fails(503)
    error = failure(server)
    assert type(error) is Unavailable
    assert error.usage == Usage(tokens_in=100, tokens_out=10)
    server.says("no")
    server.says(None, refusal="never")
    error = failure(server)
    assert (type(error), error.usage) == (Refused, Usage(tokens_in=200, tokens_out=20))


def test_cut_answers_and_refusals_are_not_asked_again(server: Loopback) -> None:
    server.says("{", finish="length")
    assert type(failure(server)) is BadReply
    server.says(None, refusal="no")
    assert type(failure(server)) is Refused
    assert len(server.seen) == 2


def test_schemas_are_strict_and_flat() -> None:
    for model in (VerdictAnswer, PlanAnswer):
        schema = strict_schema(model)
        assert schema["additionalProperties"] is False
        assert schema["required"] == list(schema["properties"])
        assert not {"$ref", "$defs", "default", "anyOf", "title"} & set(json.dumps(schema["properties"]).split('"'))
    properties = strict_schema(PlanAnswer)["properties"]
    assert properties["error_types"]["items"]["enum"] == [str(kind) for kind in ErrorType]
    assert next(iter(strict_schema(VerdictAnswer)["properties"])) == "reason"
    told = strict_schema(InstructionAnswer)["properties"]
    assert (told["error_types"]["minItems"], told["instruction"]["minLength"]) == (1, 1)
    assert "minLength" not in properties["instruction"]  # empty where there is nothing to repair
    # Guided decoding ends: whatever has no fixed values has a longest length.
    assert all("maxItems" in part for part in properties.values() if part["type"] == "array")
    texts = [part.get("items", part) for part in properties.values()]
    assert all("enum" in part or "maxLength" in part for part in texts if part["type"] == "string")


@pytest.mark.parametrize(
    "text",
    ["```json\n{}\n```", "<think>hm {</think> {}", "  {}  ", "```\n{}\n```"],
    ids=["json", "think", "space", "fence"],
)
def test_wrappings_are_taken_off(text: str) -> None:
    whole = text.replace("{}", json.dumps(KEEP))
    assert parse_answer(whole, VerdictAnswer).reason == KEEP["reason"]


@pytest.mark.parametrize(
    "text",
    ["", "yes", "{}", "[]", "null", '{"reason": 1}', "[" * 100_000, json.dumps({**KEEP, "reason": "x" * 1001})],
    ids=range(8),
)
def test_other_answers_are_bad(text: str) -> None:
    with pytest.raises(BadReply) as caught:
        parse_answer(text, VerdictAnswer)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"max_side": 4}, "max_side"),
        ({"image_as": "file"}, "image_folder"),
        ({"image_folder": "x"}, "image_folder"),
        ({"temperature": "hot"}, "temperature"),
        ({"modl": "m"}, 'did you mean "model"'),
        ({"prompt": "nowhere.v1.txt"}, "cannot be read"),
    ],
)
def test_wrong_options(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        registries.VERIFIERS.build("chat", options={"model": "m", **options})
    with pytest.raises(ConfigError, match='needs the option "model"'):
        registries.VERIFIERS.build("chat")


def test_place_and_facts() -> None:
    made = ChatVerifier(model="m", base_url="http://h/v1/")
    assert made.place == "http://h/v1|m"
    assert (made.facts.prompt_id, made.facts.model_id) == ("verify", "m")
    assert made.facts.parameters["max_tokens"] == 1024
