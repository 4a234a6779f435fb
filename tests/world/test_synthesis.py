"""The world's writer and maker: what is asked for is what comes, and it goes wrong as often as RePair's editors do."""

import asyncio
from collections import Counter

import pytest

from repair.core.errors import ConfigError, Refused
from repair.core.synthesis import Change, MakingTask, WritingTask
from repair.world.claims import holds
from repair.world.distance import caption_distance, scene_distance
from repair.world.drawing import read_scene
from repair.world.language import parse
from repair.world.source import WorldSource
from repair.world.synthesis import WorldMaker, WorldWriter, world_rules
from repair.world.vocabulary import SETTINGS

SOURCE = WorldSource(n_train=120, n_val=0, n_test=0, annotation_noise_rate=0.0)
PAIRS = SOURCE.pairs("train")[::5]
FALSE = [change for change in Change if change not in (Change.REWRITE, Change.UNITS, Change.FOIL, Change.DOMAINS)]
RIGHT = {"no_op_rate": 0.0, "excess_rate": 0.0, "misplaced_rate": 0.0}


def item(pair):
    from repair.core.ports import ImageItem

    return ImageItem(
        key=pair.image_id,
        content_hash=SOURCE.image_hash(pair.image_id),
        captions=(pair.text,),
        read=lambda: SOURCE.read_image(pair.image_id),
    )


def write(writer, pair, change, *, seed=0, text=None, parts=()):
    task = WritingTask(change=change, text=text or pair.text, image=item(pair), parts=parts)
    return asyncio.run(writer.write(task, seed=seed)).value


@pytest.mark.parametrize("change", FALSE)
def test_what_is_asked_to_be_false_is_false_and_close(change):
    writer, n_written = WorldWriter(**RIGHT), 0
    for pair in PAIRS[:15]:
        for text in write(writer, pair, change):
            n_written += 1
            assert not SOURCE.holds(SOURCE.read_image(pair.image_id), text)
            distance = caption_distance(parse(pair.text), parse(text))
            assert 1 <= distance <= 4
            if change in (Change.REPLACE_ATTRIBUTE, Change.ADD_OBJECT, Change.ADD_ATTRIBUTE):
                assert distance == 1
    assert n_written > 4


def test_rules_do_not_err():
    assert world_rules().fingerprint == WorldWriter(**RIGHT).fingerprint


def test_swaps_keep_the_words():
    for pair in PAIRS[:40]:
        for text in write(world_rules(), pair, Change.SWAP_ATTRIBUTE):
            assert sum((Counter(pair.text.split()) - Counter(text.split())).values()) <= 2  # "a" may become "an"


def test_a_rewrite_says_the_same_otherwise():
    different = 0
    for pair in PAIRS[:40]:
        (text,) = write(WorldWriter(**RIGHT), pair, Change.REWRITE)
        assert parse(text) == parse(pair.text)
        different += text != pair.text
    assert different == 40


def test_units_are_true_and_foils_are_not():
    writer = WorldWriter(**RIGHT)
    for pair in PAIRS[:30]:
        units = write(writer, pair, Change.UNITS)
        n_phrases = len(parse(pair.text).phrases)
        assert all(SOURCE.holds(SOURCE.read_image(pair.image_id), unit) for unit in units[:n_phrases])
        foils = write(writer, pair, Change.FOIL, parts=units)
        assert len(foils) == len(units)
        assert all(not foil or not SOURCE.holds(SOURCE.read_image(pair.image_id), foil) for foil in foils)
        assert sum(map(bool, foils)) >= n_phrases


def test_it_errs_as_often_as_it_says():
    writer = WorldWriter(no_op_rate=0.3, excess_rate=0.0, misplaced_rate=0.3)
    outcomes = Counter()
    for pair in PAIRS[:50]:
        for seed in range(3):
            for text in write(writer, pair, Change.REPLACE_ATTRIBUTE, seed=seed):
                true = SOURCE.holds(SOURCE.read_image(pair.image_id), text)
                outcomes["no_op" if text == pair.text else "misplaced" if true else "right"] += 1
    n = sum(outcomes.values())
    assert n > 110
    assert abs(outcomes["no_op"] / n - 0.3) < 0.13
    assert abs(outcomes["misplaced"] / n - 0.3) < 0.13


def test_the_same_request_gets_the_same_answer():
    for change in FALSE:
        assert write(WorldWriter(), PAIRS[0], change, seed=5) == write(WorldWriter(), PAIRS[0], change, seed=5)
    given = {write(WorldWriter(**RIGHT), PAIRS[0], Change.CONTRAST, seed=seed) for seed in range(8)}
    assert len(given) > 1


def make(maker, text, pair=None, *, seed=0):
    source = None if pair is None else item(pair)
    return asyncio.run(maker.make(MakingTask(text=text, source=source, source_text=""), seed=seed))


def test_pictures_fit_what_they_were_asked_to_show():
    writer, maker = WorldWriter(**RIGHT), WorldMaker(**RIGHT)
    for pair in PAIRS[:10]:
        (text,) = write(writer, pair, Change.CONTRAST) or (pair.text,)
        reply = make(maker, text, pair)
        edited, before = read_scene(reply.value), read_scene(SOURCE.read_image(pair.image_id))
        assert holds(edited, parse(text))
        assert scene_distance(before, edited) <= 8
        assert reply.usage.n_images == 1
        fresh = make(maker, text)
        assert holds(read_scene(fresh.value), parse(text))
        assert fresh.value != reply.value


def test_a_domain_changes_the_setting():
    for pair in PAIRS[:8]:
        edited = read_scene(make(WorldMaker(**RIGHT), f"{pair.text} | {SETTINGS['snow'][0]}", pair).value)
        assert edited.setting == "snow"


def test_refused():
    with pytest.raises(Refused, match="cannot read"):
        write(WorldWriter(), PAIRS[0], Change.SWAP, text="Quite another world.")
    with pytest.raises(Refused, match="no setting"):
        make(WorldMaker(), f"{PAIRS[0].text} | on the moon", PAIRS[0])
    with pytest.raises(ConfigError, match="a rate in"):
        WorldWriter(no_op_rate=2)
    with pytest.raises(ConfigError, match="sum to more"):
        WorldMaker(no_op_rate=0.6, excess_rate=0.6)
