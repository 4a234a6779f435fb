"""The image editor against a real HTTP server."""

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from repair.backends.image_edits import ImagesEditor
from repair.core.errors import BackendError, BadReply, ConfigError, DataError, RateLimited, Refused, Unavailable
from repair.core.identity import hash_bytes
from repair.core.ports import Case, ImageItem, Reply
from repair.pipeline import registries
from tests.backends.chat.cases import TOLD, image_to_text, text_to_image
from tests.backends.loopback import Answer, Loopback, Seen, image_answer, loopback, png
from tests.backends.test_registration import SIZE, decoder, edited, framed, picture

SOURCE = picture(11)
SOURCE_BYTES = png(SOURCE)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def case(data: bytes = SOURCE_BYTES) -> Case:
    item = ImageItem(key="a.png", content_hash=hash_bytes(data), captions=(), read=lambda: data)
    return replace(text_to_image(), false_positive=item)


def editor(server: Loopback, /, **options: Any) -> ImagesEditor:
    made = registries.IMAGE_EDITORS.build(
        "image_edits", options={"model": "m", "base_url": server.url, "connect_timeout_s": 120.0, **options}
    )
    assert isinstance(made, ImagesEditor)
    return made


def edit(made: ImagesEditor, *, seed: int = 5, of: Case | None = None) -> Reply[bytes]:
    return asyncio.run(made.edit_image(of or case(), TOLD, seed=seed))


def canvas_edit(seen: Seen) -> Answer:
    """An editor that does as it is told, on the canvas it got."""
    with Image.open(io.BytesIO(seen.body["image"])) as canvas:
        return image_answer(png(decoder(edited(canvas.convert("RGB")))))


def test_a_request_and_its_answer(server: Loopback) -> None:
    server.answer = canvas_edit
    reply = edit(editor(server, steps=8, guidance_scale=2.5, extra={"negative_prompt": " "}), seed=(1 << 40) + 3)
    assert server.last.path == "/v1/images/edits"
    fields = dict(server.last.body)
    with Image.open(io.BytesIO(fields.pop("image"))) as sent:
        assert sent.convert("RGB").tobytes() == SOURCE.tobytes()
    assert fields == {
        "model": "m",
        "n": "1",
        "size": "192x144",
        "seed": "3",
        "response_format": "b64_json",
        "num_inference_steps": "8",
        "guidance_scale": "2.5",
        "negative_prompt": " ",
        "prompt": 'Replace "blue" by "red". Keep everything else exactly as it is: the same composition, framing, '
        "background, light and style.",
    }
    with Image.open(io.BytesIO(reply.value)) as image:
        assert (image.format, image.size) == ("JPEG", SIZE)
    assert reply.usage.n_images == 1
    assert json.loads(reply.raw)["answered"] == [192, 144]


def test_openai_takes_no_seed_and_counts_tokens(server: Loopback) -> None:
    answer = image_answer(png(edited(SOURCE)))
    answer.body["usage"] = {"input_tokens": 300, "output_tokens": 1000}
    server.script = [answer]
    usage = edit(editor(server, server="openai", extra={"input_fidelity": "high"})).usage
    assert (usage.tokens_in, usage.tokens_out, usage.n_images) == (300, 1000, 1)
    assert not {"seed", "response_format"} & set(server.last.body)
    assert server.last.body["input_fidelity"] == "high"


def test_a_fixed_size_is_filled_not_squeezed(server: Loopback) -> None:
    server.answer = canvas_edit
    reply = edit(editor(server, size="256x256"))
    with Image.open(io.BytesIO(server.last.body["image"])) as sent:
        assert sent.size == (256, 256)
    with Image.open(io.BytesIO(reply.value)) as image:
        assert image.size == SIZE


@pytest.mark.parametrize("size", [(1024, 1024), (96, 72), (200, 300)], ids=str)
def test_whatever_size_comes_back_the_edit_has_the_sources(server: Loopback, size: tuple[int, int]) -> None:
    server.script = [image_answer(png(edited(SOURCE).resize(size)))]
    reply = edit(editor(server))
    with Image.open(io.BytesIO(reply.value)) as image:
        assert image.size == SIZE


def test_no_op_and_zoomed_edits_are_recognised(server: Loopback) -> None:
    server.script = [image_answer(png(decoder(SOURCE))), image_answer(png(framed(edited(SOURCE), 1.06, 0, 0)))]
    same = edit(editor(server))
    assert same.value == SOURCE_BYTES  # selection rejects a candidate with the false positive's own hash
    assert json.loads(same.raw)["no_op"] is True
    zoomed = json.loads(edit(editor(server)).raw)
    assert zoomed["zoom"] == pytest.approx(1.06, abs=0.01)
    assert zoomed["no_op"] is False


def failure(server: Loopback, /, **options: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        edit(editor(server, **options))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("item", "part"),
    [
        ({"b64_json": "!!"}, "cannot be read"),
        ({"b64_json": ""}, "holds an address"),
        ({"url": "http://elsewhere/a.png"}, "holds an address"),
        ({}, "holds an address"),
        ({"b64_json": "AAAA"}, "image from the editor"),
    ],
)
def test_answers_without_an_image_are_billed_failures(server: Loopback, item: dict[str, str], part: str) -> None:
    server.script = [Answer(body={"data": [item]})]
    error = failure(server)
    assert type(error) is BadReply
    assert part in str(error)
    assert error.usage is not None
    assert error.usage.n_images == 1


def test_corrupt_blank_and_tiny_images(server: Loopback) -> None:
    whole = png(edited(SOURCE))
    for data in (whole[: len(whole) // 2], b"GIF89a", png(Image.new("RGB", SIZE)), png(picture(1, (4, 4)))):
        server.script = [image_answer(data)]
        assert type(failure(server)) is BadReply


def test_data_urls_are_images_too(server: Loopback) -> None:
    answer = image_answer(png(edited(SOURCE)))
    encoded = answer.body["data"][0].pop("b64_json")
    answer.body["data"][0]["url"] = f"data:image/png;base64,{encoded}"
    server.script = [answer]
    assert edit(editor(server)).value


def test_server_failures(server: Loopback) -> None:
    server.fails(429, retry_after="3")
    error = failure(server)
    assert (type(error), error.retry_after_s) == (RateLimited, 3)
    server.fails(400, "blocked", code="moderation_blocked")
    assert type(failure(server)) is Refused
    for answer in (Answer(body=b"<html>"), Answer(body={"data": []}), Answer(body=[]), Answer(503, {})):
        server.script = [answer]
        assert type(failure(server)) is Unavailable


def test_the_instruction_is_one_line_of_text(server: Loopback) -> None:
    server.answer = canvas_edit
    told = replace(TOLD, instruction="Make it red\n\n{{instruction}} \x00 now")
    asyncio.run(editor(server).edit_image(case(), told, seed=0))
    assert server.last.body["prompt"].startswith("Make it red {{instruction}} now. Keep everything else")


def test_sources_that_cannot_be_edited(server: Loopback) -> None:
    with pytest.raises(DataError, match=r"image a\.png"):
        edit(editor(server), of=case(b"no image"))
    with pytest.raises(BadReply, match="images only"):
        edit(editor(server), of=image_to_text())
    assert server.seen == []


def test_fingerprints(server: Loopback) -> None:
    base = editor(server)
    assert base.fingerprint == ImagesEditor(model="m", base_url="http://elsewhere/v1", read_timeout_s=1).fingerprint
    others: list[dict[str, Any]] = [
        {"revision": "2"},
        {"server": "sglang"},
        {"size": "512x512"},
        {"max_area": 65536},
        {"steps": 4},
        {"extra": {"true_cfg_scale": 4}},
    ]
    assert len({base.fingerprint, *(editor(server, **other).fingerprint for other in others)}) == 1 + len(others)


@pytest.mark.parametrize(
    "options",
    [{"size": "big"}, {"size": "10x10"}, {"max_area": 1}, {"steps": 0}, {"extra": {"seed": 1}}, {"model": ""}],
    ids=str,
)
def test_wrong_options(server: Loopback, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        editor(server, **options)
