"""Drawings: deterministic, telling, and local: an edit changes no pixel it need not."""

import io
import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.world.backdrops import backdrop
from repair.world.drawing import draw, encode_png, read_scene, region, render
from repair.world.image_edits import minimal_image_edit
from repair.world.sampling import redrawn, sample_scene
from repair.world.scenes import Place, Scene, Thing, supports
from repair.world.vocabulary import COLOURS, KINDS, SETTINGS, SIZES
from tests.world.oracle import near_claim, random_scene


def pixels(scene: Scene, size: int = 64) -> np.ndarray:
    return np.asarray(draw(scene, size=size), dtype=np.int16)


def alone(**facts) -> Scene:
    base = {"kind": "ball", "colour": "red", "size": "big", "action": None, "place": Place(1, 1), "noise": 3}
    return Scene(setting="park", things=(Thing(**{**base, **facts}),), noise=1)


@pytest.mark.parametrize("size", [32, 64, 96])
def test_bytes_decode_to_the_drawing_and_carry_the_scene(size):
    scene = random_scene(np.random.default_rng(size))
    data = render(scene, size=size)
    with Image.open(io.BytesIO(data)) as image:
        assert image.size == (size, size)
        assert image.mode == "RGB"
        assert np.array_equal(np.asarray(image), pixels(scene, size))
    assert read_scene(data) == scene
    assert data == render(scene, size=size)


def test_truth_is_in_the_metadata_only():
    """The same picture with another scene's text differs in no pixel."""
    a, b = (random_scene(np.random.default_rng(seed)) for seed in (1, 2))
    image = draw(a)
    forged = encode_png(image, b)
    assert read_scene(forged) == b
    with Image.open(io.BytesIO(forged)) as decoded:
        assert np.array_equal(np.asarray(decoded), np.asarray(image))


def test_bytes_are_the_same_in_another_process():
    scene = random_scene(np.random.default_rng(8))
    code = (
        "import sys; from repair.core.identity import hash_bytes; from repair.world.drawing import render;"
        "from repair.world.scenes import Scene; print(hash_bytes(render(Scene.from_json(sys.argv[1]))))"
    )
    done = subprocess.run([sys.executable, "-c", code, scene.to_json()], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hash_bytes(render(scene))


def test_size_budget():
    sizes = [len(render(random_scene(np.random.default_rng(seed)))) for seed in range(60)]
    assert max(sizes) < 14_000


@pytest.mark.parametrize(
    "data", [b"", b"not a png", b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfftEXtcut short"]
)
def test_bytes_without_a_scene_are_refused(data):
    with pytest.raises(DataError, match="nothing is known of what it shows"):
        read_scene(data)


def test_another_png_is_refused():
    buffer = io.BytesIO()
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "hello")
    Image.new("RGB", (4, 4)).save(buffer, format="PNG", pnginfo=info)
    with pytest.raises(DataError, match="carries no scene"):
        read_scene(buffer.getvalue())


def test_every_fact_shows():
    """Any two values of one fact, all else and all noise being equal, differ in many pixels."""
    for kind in KINDS.values():
        for a, b in combinations(kind.actions, 2):
            assert_differ(alone(kind=kind.name, action=a), alone(kind=kind.name, action=b), at_least=25)
    for a, b in combinations(KINDS, 2):
        one, two = (alone(kind=kind, action=next(iter(KINDS[kind].actions), None)) for kind in (a, b))
        assert_differ(one, two, at_least=20)
    for a, b in combinations(COLOURS, 2):
        assert_differ(alone(kind="box", colour=a), alone(kind="box", colour=b), at_least=60)
    for a, b in combinations(SIZES, 2):
        assert_differ(alone(size=a), alone(size=b), at_least=60)
    for a, b in combinations(SETTINGS, 2):
        assert_differ(replace(alone(), setting=a), replace(alone(), setting=b), at_least=300)


def assert_differ(a: Scene, b: Scene, *, at_least: int) -> None:
    n_different = int((np.abs(pixels(a) - pixels(b)).max(axis=2) > 40).sum())
    assert n_different >= at_least, (a, b, n_different)


def test_two_drawings_of_one_scene_differ_but_less_than_two_scenes():
    same, other = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scene = sample_scene(rng)
        again, stranger = redrawn(rng, scene), sample_scene(rng)
        assert not np.array_equal(pixels(scene), pixels(again))
        same.append(np.abs(pixels(scene) - pixels(again)).mean())
        other.append(np.abs(pixels(scene) - pixels(stranger)).mean())
    assert np.mean(same) < 0.5 * np.mean(other)


def outside_of_edits(before: Scene, after: Scene, size: int) -> np.ndarray:
    """True where no changed, added or moved thing, and nothing resting on one, is drawn before or after."""
    mask = np.ones((size, size), dtype=bool)
    for scene, other in ((before, after), (after, before)):
        resting = supports(scene)
        for i, thing in enumerate(scene.things):
            changed = i >= len(other.things) or other.things[i] != thing
            below = resting.get(i)
            moved = below is not None and (below >= len(other.things) or other.things[below] != scene.things[below])
            if changed or moved or resting.get(i) != supports(other).get(i):
                left, top, right, bottom = region(scene, i, size=size)
                mask[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = False
    return mask


@pytest.mark.parametrize("size", [64, 96])
def test_an_edit_leaves_all_other_pixels_as_they_were(size):
    n_checked, shares = 0, []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        scene = random_scene(rng)
        try:
            after = minimal_image_edit(scene, near_claim(rng, scene), rng=rng)
        except DataError:
            continue
        if after == scene or after.setting != scene.setting:
            continue
        mask = outside_of_edits(scene, after, size)
        assert np.array_equal(pixels(scene, size)[mask], pixels(after, size)[mask]), (scene, after)
        assert not np.array_equal(pixels(scene, size), pixels(after, size))
        shares.append(mask.mean())
        n_checked += 1
        if n_checked == 60:
            break
    assert n_checked == 60
    assert np.mean(shares) > 0.5  # so the check is about most of the picture


def test_a_thing_is_drawn_inside_its_region():
    for seed in range(60):
        scene = random_scene(np.random.default_rng(seed))
        if len(scene.things) < 2 or supports(scene):
            continue
        without = replace(scene, things=scene.things[:-1])
        left, top, right, bottom = region(scene, len(scene.things) - 1)
        different = np.argwhere((pixels(scene) != pixels(without)).any(axis=2))
        assert len(different)
        assert different[:, 0].min() >= top
        assert different[:, 0].max() < bottom
        assert different[:, 1].min() >= left
        assert different[:, 1].max() < right


def test_no_figure_is_cut_off_by_its_tile():
    """The outermost rows and columns of a thing's region stay background, so nothing is clipped there."""
    for kind in KINDS.values():
        for action in kind.actions or (None,):
            for noise in range(4):
                scene = alone(kind=kind.name, action=action, noise=noise)
                left, top, right, bottom = region(scene, 0)
                empty = np.asarray(backdrop(scene.setting, scene.noise, 64), dtype=np.int16)
                changed = (pixels(scene) != empty).any(axis=2)
                for edge in (changed[:, left], changed[:, right - 1], changed[top], changed[bottom - 1]):
                    assert not edge.any(), (kind.name, action)
