import base64
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from repair.reports.pictures import data_uri, picture_change, text_change
from tests.reports.runs import picture

WORDS = st.lists(st.sampled_from(["a", "red", "Dog", "cat", "on", ",", ".", "left-hand", "man's"]), max_size=8)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    sink = BytesIO()
    image.save(sink, kind)
    return sink.getvalue()


def decoded(uri: str) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(uri.split(",", 1)[1])))


def plain(tokens: str) -> str:
    return "".join(tokens.split()).casefold()


@given(WORDS, WORDS)
def test_spans_hold_both_captions(before: list[str], after: list[str]) -> None:
    spans = text_change(" ".join(before), " ".join(after))
    assert plain("".join(s.text for s in spans if s.kind != "inserted")) == plain("".join(before))
    assert plain("".join(s.text for s in spans if s.kind != "deleted")) == plain("".join(after))
    assert all(s.text for s in spans)


def test_a_caption_without_a_change_is_one_span() -> None:
    assert [(s.kind, s.text) for s in text_change("A  red dog .", "a red dog.")] == [("same", "a red dog.")]
    assert text_change("", "") == []


def test_changed_regions_are_boxed_in_per_cent() -> None:
    before = Image.new("RGB", (200, 100), "grey")
    after = before.copy()
    draw = ImageDraw.Draw(after)
    draw.rectangle((20, 10, 39, 29), fill="red")  # 20 × 20
    draw.rectangle((150, 60, 159, 69), fill="red")  # 10 × 10
    change = picture_change(before, after)
    assert change.share == 500 / 20_000
    assert [(b.left, b.top, b.width, b.height) for b in change.boxes] == [(10, 10, 10, 20), (75, 60, 5, 10)]


def test_noise_below_the_threshold_is_no_change() -> None:
    before = Image.new("RGB", (64, 64), (100, 100, 100))
    assert picture_change(before, Image.new("RGB", (64, 64), (124, 100, 100))).share == 0
    assert picture_change(before, Image.new("RGB", (64, 64), (125, 100, 100))).share == 1


def test_near_changes_are_one_region_and_at_most_six_are_boxed() -> None:
    before = Image.new("RGB", (200, 200), "grey")
    near, many = before.copy(), before.copy()
    for x in (50, 54):
        ImageDraw.Draw(near).rectangle((x, 50, x + 1, 60), fill="red")
    assert len(picture_change(before, near).boxes) == 1
    for i in range(9):
        x, y = 20 + 60 * (i % 3), 20 + 60 * (i // 3)
        ImageDraw.Draw(many).rectangle((x, y, x + 10 + i, y + 10), fill="red")
    boxes = picture_change(before, many).boxes
    assert len(boxes) == 6
    assert [b.width for b in boxes] == sorted((b.width for b in boxes), reverse=True)


def test_an_edit_of_another_size_is_compared_at_the_size_of_what_it_was_made_from() -> None:
    before = Image.new("RGB", (64, 48), "grey")
    assert picture_change(before, Image.new("RGB", (128, 96), "grey")).share == 0


def test_small_drawings_keep_every_pixel() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3)).astype(np.uint8)
    data = encoded(Image.fromarray(pixels))
    uri = data_uri(data)
    assert uri is not None
    assert uri.startswith("data:image/png;base64,")
    assert base64.b64decode(uri.split(",")[1]) == data


def test_photos_become_small_jpegs() -> None:
    uri = data_uri(picture("red", size=(1200, 800)))
    assert uri is not None
    assert uri.startswith("data:image/jpeg;base64,")
    assert decoded(uri).size == (224, 149)


@pytest.mark.parametrize("data", [b"", b"not a picture", encoded(Image.new("RGB", (32, 32)))[:60]])
def test_a_broken_picture_is_left_out(data: bytes) -> None:
    assert data_uri(data) is None
