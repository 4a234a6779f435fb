"""Edits laid on their source, on synthetic pictures: discs over soft colours, moved, zoomed, re-encoded."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

from repair.backends.canvas import canvas_of, working_size
from repair.backends.registration import changed_share, framing_of, register, registered_bytes
from repair.core.errors import BadReply
from tests.backends.loopback import png

SIZE = (192, 144)


def picture(seed: int, size: tuple[int, int] = SIZE) -> Image.Image:
    rng = np.random.default_rng(seed)
    soft = Image.fromarray(rng.integers(0, 255, (9, 12, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(soft)
    for _ in range(25):
        x, y, r = rng.integers(size[0]), rng.integers(size[1]), int(rng.integers(5, 25))
        draw.ellipse((x - r, y - r, x + r, y + r), fill=tuple(int(c) for c in rng.integers(0, 255, 3)))
    return soft


def decoder(image: Image.Image) -> Image.Image:
    """What an editor's decoder adds: a little blur and noise all over."""
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7)), dtype=float)
    noise = np.random.default_rng(1).normal(0, 4, blurred.shape)
    return Image.fromarray((blurred + noise).clip(0, 255).astype(np.uint8))


def framed(image: Image.Image, zoom: float, right: float, down: float) -> Image.Image:
    """The picture enlarged by `zoom` about its centre and moved by pixels."""
    w, h = image.size
    matrix = (1 / zoom, 0, w / 2 - (w / 2 + right) / zoom, 0, 1 / zoom, h / 2 - (h / 2 + down) / zoom)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC)


def edited(image: Image.Image) -> Image.Image:
    """A local edit: a red square."""
    changed = image.copy()
    ImageDraw.Draw(changed).rectangle((40, 40, 80, 90), fill=(250, 10, 10))
    return changed


@pytest.mark.parametrize(
    ("zoom", "right", "down"), [(1.05, 0, 0), (0.95, 0, 0), (1, 7, -5), (1.08, 6, 4), (1, 1.5, 0)], ids=str
)
def test_zoomed_and_shifted_edits_are_found_and_put_back(zoom: float, right: float, down: float) -> None:
    source = picture(3)
    wrong = decoder(framed(edited(source), zoom, right, down))
    found = register(wrong, source)
    assert found.framing.zoom == pytest.approx(zoom, abs=0.006)
    assert found.framing.right * SIZE[0] == pytest.approx(right, abs=0.8)
    assert found.framing.down * SIZE[1] == pytest.approx(down, abs=0.8)
    assert changed_share(wrong, source) > 2 * found.changed
    inside = np.asarray(found.image, dtype=float)[45:85, 45:75].mean(axis=(0, 1))
    assert inside == pytest.approx((250, 10, 10), abs=12)


def test_an_edit_in_place_is_left_in_place() -> None:
    source = picture(4)
    found = register(decoder(edited(source)), source)
    assert tuple(found.framing[:3]) == (1.0, 0.0, 0.0)
    share = 40 * 50 / (SIZE[0] * SIZE[1])
    assert share < found.changed < 2 * share
    assert not found.no_op


@pytest.mark.parametrize("size", [SIZE, (256, 256), (96, 72), (333, 250)], ids=str)
def test_nothing_changed_is_a_no_op_whatever_size_comes_back(size: tuple[int, int]) -> None:
    source = picture(5)
    found = register(decoder(source.resize(size, Image.Resampling.LANCZOS)), source)
    assert found.image.size == source.size
    if min(size) >= SIZE[1]:  # a smaller one has lost detail
        assert found.no_op
        assert registered_bytes(found, b"the source") == b"the source"
        assert found.facts()["no_op"] is True


def test_another_picture_is_not_forced_onto_the_source() -> None:
    found = framing_of(picture(6), picture(7))
    assert tuple(found[:3]) == (1.0, 0.0, 0.0)
    assert found.agreement < 0.1


def test_an_edit_is_kept_as_jpeg_of_the_sources_size() -> None:
    source = picture(8)
    data = registered_bytes(register(edited(source).resize((300, 300)), source), png(source))
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.size) == ("JPEG", SIZE)


@pytest.mark.parametrize(
    ("image", "part"), [(Image.new("RGB", SIZE), "one colour"), (picture(1, (8, 8)), "8 × 8")], ids=["blank", "tiny"]
)
def test_what_no_editor_means(image: Image.Image, part: str) -> None:
    with pytest.raises(BadReply, match=part):
        register(image, picture(9))


@pytest.mark.parametrize("size", [(17, 400), (16, 16), (1, 1), (40, 30)], ids=str)
def test_odd_sources(size: tuple[int, int]) -> None:
    source = picture(2, size)
    found = register(picture(2).resize((64, 64)), source)
    assert found.image.size == size


@pytest.mark.parametrize("source", [(192, 144), (100, 301), (1, 1), (4000, 10)], ids=str)
@pytest.mark.parametrize("fixed", [None, (256, 256), (512, 128)], ids=str)
def test_a_canvas_keeps_the_shape_and_gives_it_back(source: tuple[int, int], fixed: tuple[int, int] | None) -> None:
    image = picture(1, source)
    canvas = canvas_of(image, size=fixed, max_area=64 * 1024, multiple=16)
    assert canvas.image.size == (fixed or working_size(source, max_area=64 * 1024, multiple=16))
    assert all(side % 16 == 0 for side in canvas.image.size)
    off = canvas.taken_off(canvas.image.resize((320, 320)))
    assert off.size == (canvas.box[2] - canvas.box[0], canvas.box[3] - canvas.box[1])
    if min(source) > 16:
        assert off.width / off.height == pytest.approx(source[0] / source[1], rel=0.15)


@pytest.mark.parametrize(
    ("source", "size"), [((100, 50), (368, 176)), ((400, 200), (400, 192)), ((2000, 1000), (512, 256))], ids=str
)
def test_the_size_worked_at_lies_between_the_areas(source: tuple[int, int], size: tuple[int, int]) -> None:
    assert working_size(source, min_area=65536, max_area=131072, multiple=16) == size


def test_a_side_too_short_is_filled_up() -> None:
    canvas = canvas_of(picture(1, (320, 16)), size=None, max_area=65536, multiple=16, min_side=64)
    assert (canvas.image.size, canvas.box) == ((320, 64), (0, 24, 320, 40))


def test_the_rest_of_a_canvas_repeats_the_edge() -> None:
    canvas = canvas_of(Image.new("RGB", (64, 32), "blue"), size=(128, 128), max_area=1, multiple=16)
    assert canvas.box == (0, 32, 128, 96)
    assert canvas.image.getcolors() == [(128 * 128, (0, 0, 255))]
