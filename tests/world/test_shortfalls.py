"""What is wrong with an edit: every class by an edit that has it, and none for the smallest ones."""

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from repair.core.ports import EditTruth
from repair.core.records import Direction, Repair, RepairStatus, Shortfall
from repair.evaluation.shortfalls import count_shortfalls, judge_edits
from repair.world.bad_edits import (
    overreaching_image_edit,
    overreaching_text_edit,
    wrong_image_edit,
    wrong_text_edit,
)
from repair.world.claims import holds
from repair.world.distance import scene_distance
from repair.world.drawing import draw, encode_png, render
from repair.world.image_edits import minimal_image_edit
from repair.world.language import parse
from repair.world.scenes import Place, Scene, Thing
from repair.world.shortfalls import image_shortfall, text_shortfall
from repair.world.source import WorldSource
from repair.world.text_edits import minimal_text_edits


def thing(kind: str, colour: str, column: int, noise: int = 0) -> Thing:
    action = {"dog": "running", "cat": "sitting"}.get(kind)
    return Thing(kind=kind, colour=colour, size="big", action=action, place=Place(column, 2), noise=noise)


SCENE = Scene(setting="beach", things=(thing("dog", "brown", 0, 1), thing("cat", "black", 2, 2)), noise=3)
TEXT = "a red dog and a black cat"  # the dog is brown


def test_captions() -> None:
    assert text_shortfall(SCENE, TEXT, "a brown dog and a black cat") is None
    assert text_shortfall(SCENE, TEXT, "a red dog and a white cat") is Shortfall.SEMANTIC_MISMATCH
    assert text_shortfall(SCENE, TEXT, "a big brown dog and a black cat") is Shortfall.SCAFFOLD_DRIFT
    assert text_shortfall(SCENE, "a dog and a black cat", "a dog and a cat") is Shortfall.AMBIGUOUS_FALSE_POSITIVE


def test_images() -> None:
    before = render(SCENE)
    dog, cat = SCENE.things
    red = replace(SCENE, things=(replace(dog, colour="red"), cat))
    assert image_shortfall(TEXT, before, render(red)) is None
    assert image_shortfall(TEXT, before, before) is Shortfall.SEMANTIC_MISMATCH
    assert image_shortfall("a brown dog", before, render(red)) is Shortfall.AMBIGUOUS_FALSE_POSITIVE
    moved = replace(red, things=(red.things[0], replace(cat, place=Place(1, 2))))
    assert image_shortfall(TEXT, before, render(moved)) is Shortfall.SCAFFOLD_DRIFT
    for other in (replace(red, noise=4), replace(red, things=(red.things[0], replace(cat, noise=5)))):
        assert image_shortfall(TEXT, before, render(other)) is Shortfall.ARTEFACT
    smeared = Image.fromarray(np.asarray(draw(red)) // 2)
    assert image_shortfall(TEXT, before, encode_png(smeared, red)) is Shortfall.ARTEFACT


def test_the_faults_of_the_backends_have_their_class() -> None:
    source = WorldSource(n_train=40, n_val=0, n_test=0)
    assert isinstance(source, EditTruth)
    rng = np.random.default_rng(0)
    pairs = source.pairs("train")
    n_drifted = 0
    for one, other in zip(pairs[:60:3], pairs[100:160:3], strict=True):
        scene, claim = source.scene(one.image_id), parse(other.text)
        if holds(scene, claim):
            continue
        image = source.read_image(one.image_id)
        for edit in minimal_text_edits(scene, other.text, 3):
            assert source.text_shortfall(image, other.text, edit) is None
        wrong = wrong_text_edit(scene, other.text, rng=rng)
        assert source.text_shortfall(image, other.text, wrong) is Shortfall.SEMANTIC_MISMATCH
        excess = overreaching_text_edit(scene, other.text, rng=rng)
        n_drifted += source.text_shortfall(image, other.text, excess) is Shortfall.SCAFFOLD_DRIFT
        smallest = minimal_image_edit(scene, claim, rng=rng)
        assert source.image_shortfall(other.text, image, render(smallest)) is None
        missed = render(wrong_image_edit(scene, claim, rng=rng))
        assert source.image_shortfall(other.text, image, missed) is Shortfall.SEMANTIC_MISMATCH
        more = overreaching_image_edit(scene, claim, rng=rng)
        drifted = source.image_shortfall(other.text, image, render(more))
        assert (drifted is Shortfall.SCAFFOLD_DRIFT) == (scene_distance(scene, more) > scene_distance(scene, smallest))
    assert n_drifted > 5


def repair(direction: Direction, query: str, false_positive: str, **fields: str | RepairStatus | None) -> Repair:
    given = {"status": RepairStatus.REPAIRED, "key": None, "text": None, **fields}
    return Repair(
        failure_id="f", direction=direction, query_id=query, false_positive_id=false_positive, ground_truth_id="g",
        reason="", candidate_index=0, gain=0.1, closeness=0.9, n_candidates=1, n_valid=1, **given,
    )  # fmt: skip


def test_every_kept_edit_is_counted_once() -> None:
    texts = {"t": TEXT}
    images = {"i": render(SCENE), "edit": render(SCENE), "photo": b"not of this world"}
    i2t, t2i = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE
    repairs = [
        repair(i2t, "i", "t", text="a brown dog"),
        repair(i2t, "i", "t", text="a brown dog and a black cat"),
        repair(i2t, "i", "t", status=RepairStatus.UNREPAIRED),
        repair(t2i, "t", "i", key="edit"),
        repair(t2i, "t", "i", key="photo"),
    ]
    source = WorldSource(n_train=1, n_val=0, n_test=0)
    judged = list(judge_edits(source, repairs, text=texts.__getitem__, image=images.__getitem__))
    assert [(one.known, one.shortfall) for one in judged] == [
        (True, Shortfall.SCAFFOLD_DRIFT),  # dropping the cat was not needed
        (True, None),
        (True, Shortfall.SEMANTIC_MISMATCH),
        (False, None),
    ]
    found = count_shortfalls(judged)
    assert (found[i2t].n, found[i2t].n_known) == (2, 2)
    assert found[i2t].wrong[Shortfall.SCAFFOLD_DRIFT] == found[i2t].n_wrong == 1
    assert (found[t2i].n, found[t2i].n_known) == (2, 1)
    assert found[t2i].wrong[Shortfall.SEMANTIC_MISMATCH] == 1


def test_bytes_of_no_picture_are_not_drawn() -> None:
    sink = io.BytesIO()
    draw(SCENE).save(sink, "PNG")  # carries no scene
    (judged,) = judge_edits(
        WorldSource(n_train=1, n_val=0, n_test=0),
        [repair(Direction.TEXT_TO_IMAGE, "t", "i", key="edit")],
        text=lambda _: TEXT,
        image=lambda key: render(SCENE) if key == "i" else sink.getvalue(),
    )
    assert not judged.known
