"""The world as a data set: ids, splits, determinism, and trouble at the rates that were set."""

import subprocess
import sys
from collections import Counter

import pytest

from repair.core.errors import ConfigError, DataError
from repair.core.identity import hash_bytes, hash_value
from repair.core.ports import TruthSource
from repair.core.registry import Registry
from repair.world.claims import holds
from repair.world.drawing import read_scene, render
from repair.world.language import parse
from repair.world.source import SPLITS, WorldSource


def small(**options) -> WorldSource:
    return WorldSource(**{"n_train": 40, "n_val": 12, "n_test": 16, **options})


@pytest.fixture(scope="module")
def troubled() -> WorldSource:
    """Much of both troubles, and enough images to see the rates."""
    return small(n_train=600, n_test=300, annotation_noise_rate=0.2, near_duplicate_rate=0.15)


def test_pairs_are_five_an_image_in_order_with_unique_ids():
    source = small()
    assert tuple(source.splits()) == SPLITS
    ids: list[str] = []
    for split, n in zip(SPLITS, (40, 12, 16), strict=True):
        pairs = source.pairs(split)
        assert [pair.image_id for pair in pairs] == [f"{split}-{i:06d}" for i in range(n) for _ in range(5)]
        assert [pair.caption_id for pair in pairs[:6]] == [f"{split}-00000{k // 5}#{k % 5}" for k in range(6)]
        assert {pair.split for pair in pairs} == {split}
        assert pairs is source.pairs(split)
        ids += [pair.caption_id for pair in pairs]
    assert len(set(ids)) == len(ids)
    assert list(source.set_aside) == []


def test_images_are_drawn_of_the_scene_and_hashed():
    source = small(image_size=48)
    data = source.read_image("test-000003")
    assert data == source.read_image("test-000003") == small(image_size=48).read_image("test-000003")
    assert data == render(source.scene("test-000003"), size=48)
    assert source.image_hash("test-000003") == hash_bytes(data)
    assert read_scene(data) == source.scene("test-000003")


def test_truth_is_decided_by_the_image():
    source = small()
    assert isinstance(source, TruthSource)
    pairs = source.pairs("test")
    for pair in pairs:
        assert source.holds(source.read_image(pair.image_id), pair.text)
    others = [source.holds(source.read_image("test-000000"), pair.text) for pair in pairs[5:]]
    assert sum(others) < len(others) / 5
    with pytest.raises(DataError, match="outside the grammar"):
        source.holds(source.read_image("test-000000"), "a unicorn")
    with pytest.raises(DataError, match="not a PNG"):
        source.holds(b"jpeg", "a dog")


def test_same_options_same_world_in_another_process():
    code = (
        "from repair.world.source import WorldSource; from repair.core.identity import hash_value\n"
        "s = WorldSource(n_train=40, n_val=12, n_test=16, seed=5)\n"
        "print(hash_value([p.text for x in s.splits() for p in s.pairs(x)]), s.image_hash('val-000003'), s.fingerprint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    source = small(seed=5)
    source.read_image("test-000001")  # another order of requests
    texts = [pair.text for split in source.splits() for pair in source.pairs(split)]
    assert done.stdout.split() == [hash_value(texts), source.image_hash("val-000003"), source.fingerprint]


def test_splits_do_not_depend_on_each_other_and_grow_at_the_end():
    source, bigger = small(), small(n_train=80, n_val=0)
    assert bigger.pairs("test") == source.pairs("test")
    assert bigger.pairs("train")[: 40 * 5] == source.pairs("train")
    assert bigger.read_image("train-000039") == source.read_image("train-000039")
    assert tuple(bigger.splits()) == ("train", "test")
    assert small(seed=1).pairs("test") != source.pairs("test")


def test_no_two_splits_share_a_scene():
    source = WorldSource(n_train=900, n_val=300, n_test=300)
    facts = {
        split: {source.scene(pair.image_id).facts() for pair in source.pairs(split)[::5]} for split in source.splits()
    }
    assert all(not facts[a] & facts[b] for a in SPLITS for b in SPLITS if a < b)


def test_annotation_noise_comes_at_its_rate_and_parses(troubled):
    pairs = troubled.pairs("train")
    wrong = [pair for pair in pairs if not holds(troubled.scene(pair.image_id), parse(pair.text))]
    assert abs(len(wrong) / len(pairs) - 0.2) < 0.03


def test_near_duplicates_come_at_their_rate(troubled):
    ids = [pair.image_id for pair in troubled.pairs("train")[::5]]
    again = [image_id for image_id in ids if troubled.is_redrawn(image_id)]
    assert abs(len(again) / len(ids) - 0.15) < 0.05
    by_facts = Counter(troubled.scene(image_id).facts() for image_id in ids)
    for image_id in again:
        assert by_facts[troubled.scene(image_id).facts()] >= 2
    assert len({troubled.image_hash(image_id) for image_id in ids}) == len(ids)


@pytest.mark.parametrize("split", ["val", "test"])
def test_other_splits_are_clean_by_default(troubled, split):
    for pair in troubled.pairs(split):
        assert holds(troubled.scene(pair.image_id), parse(pair.text))
        assert not troubled.is_redrawn(pair.image_id)


def test_rates_of_zero_are_clean_and_do_not_move_the_rest():
    clean, noisy = (small(annotation_noise_rate=rate, near_duplicate_rate=0.0) for rate in (0.0, 0.3))
    same = [a.text == b.text for a, b in zip(clean.pairs("train"), noisy.pairs("train"), strict=True)]
    assert 0.55 < sum(same) / len(same) < 0.85
    assert all(holds(clean.scene(pair.image_id), parse(pair.text)) for pair in clean.pairs("train"))
    assert small(troubled_splits=("test",), annotation_noise_rate=0.3).pairs("test") != clean.pairs("test")


def test_the_default_world_has_the_trouble_it_promises():
    source = WorldSource(n_train=1200)
    pairs = source.pairs("train")
    wrong = sum(not holds(source.scene(pair.image_id), parse(pair.text)) for pair in pairs)
    assert 0.015 < wrong / len(pairs) < 0.045
    assert 0.008 < sum(source.is_redrawn(pair.image_id) for pair in pairs[::5]) / 1200 < 0.035
    texts = Counter((pair.text) for pair in pairs)
    assert len({pair.image_id for pair in pairs if texts[pair.text] > 1}) > 2  # identical captions on different images


def test_labels_are_mostly_honest_and_benign_mismatches_arise():
    """Of a gallery of 600 test images, most captions are true of their own only, but not all."""
    source = WorldSource(n_test=600)
    scenes = [source.scene(f"test-{i:06d}") for i in range(600)]
    claims = [parse(pair.text) for pair in source.pairs("test")[::15]]
    n_true = [sum(holds(scene, claim) for scene in scenes) for claim in claims]
    assert min(n_true) >= 1
    share = sum(n == 1 for n in n_true) / len(n_true)
    assert 0.8 < share < 0.98


def test_themes_give_near_misses():
    """An image of the split shares all but a few facts with some other far more often than by chance."""
    source = WorldSource(n_test=240)
    things = [{(t.kind, t.colour, t.place) for t in source.scene(f"test-{i:06d}").things} for i in range(240)]
    near = [any(len(things[i] & things[j]) >= 2 for j in range(240) if j != i) for i in range(240)]
    assert sum(near) > 40


def test_fingerprint_follows_the_options():
    prints = [
        small(**options).fingerprint
        for options in ({}, {"seed": 1}, {"image_size": 72}, {"n_train": 41}, {"annotation_noise_rate": 0.1},
                        {"near_duplicate_rate": 0.1}, {"troubled_splits": ()})
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert small().fingerprint == prints[0]


@pytest.mark.parametrize(
    "options",
    [
        {"n_train": -1},
        {"n_test": 10**6},
        {"image_size": 16},
        {"annotation_noise_rate": 0.9},
        {"near_duplicate_rate": -0.1},
        {"troubled_splits": ("tset",)},
    ],
)
def test_impossible_options_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        WorldSource(**options)


def test_unknown_names_are_refused_with_the_choices():
    source = small(n_val=0)
    with pytest.raises(ConfigError, match="Choices: test, train"):
        source.pairs("val")
    for image_id in ("train-000040", "train-1", "val-000000", "nonsense", "train-00000x"):
        with pytest.raises(DataError, match="is not in this world"):
            source.read_image(image_id)


def test_the_registry_can_build_it():
    registry = Registry("data source")
    registry.add("world", "repair.world.source:WorldSource", "the drawn world")
    source = registry.build('world(n_train=10, troubled_splits=["train", "val"])', seed=3)
    assert len(source.pairs("train")) == 50
    with pytest.raises(ConfigError, match='did you mean "n_train"'):
        registry.build("world(n_trian=10)")
