"""Scenes: their JSON, their limits, their relations, and how they are sampled."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from repair.core.errors import DataError
from repair.world.drawing import _foot
from repair.world.sampling import redrawn, sample_scene, vary_facts, vary_scene
from repair.world.scenes import CELLS, Place, Scene, Thing, related, relations_of, supports
from repair.world.vocabulary import COLOURS, KINDS, RELATIONS, SETTINGS
from tests.world.oracle import random_scene, stands

BALL = Thing(kind="ball", colour="red", size="big", action=None, place=Place(1, 1), noise=5)
SCENE = Scene(setting="park", things=(BALL,), noise=7)


def test_json_round_trip_and_canonical():
    for seed in range(200):
        scene = random_scene(np.random.default_rng(seed))
        text = scene.to_json()
        assert Scene.from_json(text) == scene
        assert Scene.from_json(text).to_json() == text
        assert text.isascii()


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"noise":1,"setting":"park","things":[["ball"]]}'])
def test_json_that_is_no_scene_is_refused(text):
    with pytest.raises(DataError, match="not a scene"):
        Scene.from_json(text)


@pytest.mark.parametrize(
    "fault",
    [
        {"setting": "moon"},
        {"things": ()},
        {"things": tuple(replace(BALL, place=cell) for cell in CELLS[:5])},
        {"things": (BALL, BALL)},
        {"things": tuple(replace(BALL, place=Place(0, row)) for row in range(3))},
        {"things": (replace(BALL, kind="dragon"),)},
        {"things": (replace(BALL, colour="pink"),)},
        {"things": (replace(BALL, action="running"),)},
        {"things": (replace(BALL, kind="dog"),)},
        {"things": (replace(BALL, kind="bird", action="waving"),)},
        {"things": (replace(BALL, place=Place(3, 0)),)},
    ],
)
def test_impossible_scenes_are_refused(fault):
    with pytest.raises(DataError, match="not a scene"):
        replace(SCENE, **fault)


def test_relations_agree_with_the_oracle_and_are_mirrored():
    mirror = {"left": "right", "right": "left", "above": "below", "below": "above"}
    for seed in range(500):
        scene = random_scene(np.random.default_rng(seed))
        for i, a in enumerate(scene.things):
            for j, b in enumerate(scene.things):
                if i == j:
                    continue
                held = {relation for relation in RELATIONS if related(scene, relation, i, j)}
                assert held == {relation for relation in RELATIONS if stands(scene, relation, a, b)}
                assert all(related(scene, mirror[relation], j, i) for relation in held & mirror.keys())
                assert held & {"left", "right", "above", "below"}, "two things always stand in some relation"


def test_jitter_never_makes_a_relation_look_other_than_it_is():
    """Over many drawings: "left" and "above" are always wider apart in the picture than things that are neither."""
    left, level, above, between = 9.0, 0.0, 9.0, 0.0
    for seed in range(3000):
        scene = random_scene(np.random.default_rng(seed))
        resting = supports(scene)
        feet = [_foot(scene, i, resting) for i in range(len(scene.things))]
        relations = relations_of(tuple(thing.place for thing in scene.things))
        for i in range(len(feet)):
            for j in range(len(feet)):
                if i == j:
                    continue
                dx, dy = feet[j][0] - feet[i][0], feet[j][1] - feet[i][1]
                if ("left", i, j) in relations:
                    left = min(left, dx)
                elif ("right", i, j) not in relations:
                    level = max(level, abs(dx))
                if i in resting and resting[i] == j:
                    assert dy > 0.1
                elif ("above", i, j) in relations:
                    above = min(above, dy)
                elif ("below", i, j) not in relations:
                    between = max(between, abs(dy))
    assert left > level + 0.5
    assert above > between


def test_sampling_is_broad_and_correlated():
    scenes = [sample_scene(np.random.default_rng(seed)) for seed in range(3000)]
    things = [thing for scene in scenes for thing in scene.things]
    assert {thing.kind for thing in things} == set(KINDS)
    assert {thing.colour for thing in things} == set(COLOURS)
    assert {scene.setting for scene in scenes} == set(SETTINGS)
    assert {len(scene.things) for scene in scenes} == {1, 2, 3, 4}
    assert {(thing.kind, thing.action) for thing in things} == {
        (kind.name, action) for kind in KINDS.values() for action in kind.actions or (None,)
    }
    dogs = Counter(thing.colour for thing in things if thing.kind == "dog")
    assert dogs["brown"] > 2 * dogs["purple"] > 0
    boats = Counter(scene.setting for scene in scenes for thing in scene.things if thing.kind == "boat")
    assert boats["beach"] > 2 * boats["street"] > 0
    assert sum(bool(supports(scene)) for scene in scenes) > 300


def test_varied_facts_keep_noise_and_redrawing_keeps_facts():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        scene = sample_scene(rng)
        again = redrawn(rng, scene)
        assert again.facts() == scene.facts()
        assert again.noise != scene.noise
        assert all(a.noise != b.noise for a, b in zip(again.things, scene.things, strict=True))
        varied = vary_facts(rng, scene, n_changes=2)
        assert varied.noise == scene.noise
        kept = {thing.noise for thing in scene.things} & {thing.noise for thing in varied.things}
        assert len(kept) >= min(len(scene.things), len(varied.things)) - 1
    assert vary_scene(np.random.default_rng(1), SCENE, n_changes=0).facts() == SCENE.facts()
