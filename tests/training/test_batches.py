"""What a step trains on, in the three modes."""

from collections import Counter

import numpy as np
import pytest

from repair.core.errors import TrainingError
from repair.training.batches import Batches
from repair.training.matching import MatchTable
from tests.training import tiny

DATA = tiny.data(4, 2)


def batches(loss="local_grids", *, grids=None, matches=None, n_steps=4, batch_pairs=6, grids_per_step=2, seed=0, **_):
    return Batches(
        DATA.pairs, DATA.grids if grids is None else grids, matches=matches or DATA.matches, loss=loss, n_steps=n_steps,
        batch_pairs=batch_pairs, grids_per_step=grids_per_step, seed=seed,
    )  # fmt: skip


def pairs_of(batch):
    return [(batch.image_keys[i], batch.text_keys[t]) for i, t in zip(batch.pair_images, batch.pair_texts, strict=True)]


def grids_of(batch):
    return [
        (tuple(batch.image_keys[i] for i in images), tuple(batch.text_keys[t] for t in texts))
        for images, texts in zip(batch.grid_images, batch.grid_texts, strict=True)
    ]


@pytest.mark.parametrize("loss", ["local_grids", "local_and_full", "full_matrix", "vanilla"])
def test_every_distinct_item_is_listed_once_and_used(loss):
    for step in range(4):
        batch = batches(loss)(step)
        assert len(set(batch.image_keys)) == len(batch.image_keys)
        assert len(set(batch.text_keys)) == len(batch.text_keys)
        used = np.concatenate([batch.pair_images, batch.grid_images.ravel()])
        assert set(used.tolist()) == set(range(len(batch.image_keys)))
        used = np.concatenate([batch.pair_texts, batch.grid_texts.ravel()])
        assert set(used.tolist()) == set(range(len(batch.text_keys)))


def test_what_the_losses_share_and_where_they_differ():
    local, full, vanilla = (batches(loss)(1) for loss in ("local_grids", "full_matrix", "vanilla"))
    own = [(grid.images, grid.texts) for grid in DATA.grids if grid.step == 1]
    assert grids_of(local) == own
    assert len(pairs_of(local)) == 6
    # Full matrix: the same items, the grids' diagonals beside the same global pairs, and no grid of its own.
    assert pairs_of(full) == pairs_of(local) + [pair for grid in own for pair in zip(*grid, strict=True)]
    assert grids_of(full) == grids_of(vanilla) == []
    assert (full.image_keys, full.text_keys) == (local.image_keys, local.text_keys)
    # Both: the pairs of the one and the grids of the other.
    both = batches("local_and_full")(1)
    assert (pairs_of(both), grids_of(both)) == (pairs_of(full), own)
    assert (both.image_keys, both.text_keys, both.n_pairs) == (local.image_keys, local.text_keys, 12)
    # Vanilla: as many pairs, all of them labelled.
    assert len(pairs_of(vanilla)) == len(pairs_of(full)) == 12
    assert set(pairs_of(vanilla)) <= {(p.image_id, p.caption_id) for p in DATA.pairs}
    assert local.n_pairs == full.n_pairs == vanilla.n_pairs == 12


def test_vanilla_never_encodes_fewer_items():
    for step in range(4):
        vanilla, local = batches("vanilla")(step), batches("local_grids")(step)
        assert len(vanilla.image_keys) == len(vanilla.text_keys) == 12
        assert len(local.image_keys) <= 12
        assert len(local.text_keys) <= 12


def test_an_epoch_takes_every_image_once_and_draws_captions_anew():
    n_epochs, per_epoch = 12, tiny.N_IMAGES // 6
    many = batches("vanilla", grids_per_step=0)
    chosen = [pair for step in range(n_epochs * per_epoch) for pair in pairs_of(many(step))]
    for epoch in range(n_epochs):
        images = [image for image, _ in chosen[epoch * tiny.N_IMAGES : (epoch + 1) * tiny.N_IMAGES]]
        assert len(set(images)) == tiny.N_IMAGES
    counts = Counter(chosen)
    assert set(counts) == {(p.image_id, p.caption_id) for p in DATA.pairs}


def test_a_batch_depends_on_seed_and_step_only():
    forward, backward = batches(), batches()
    straight = [forward(step) for step in range(20)]
    for step in reversed(range(20)):
        again = backward(step)
        assert pairs_of(again) == pairs_of(straight[step])
        assert grids_of(again) == grids_of(straight[step])
    assert any(pairs_of(batches(seed=1)(s)) != pairs_of(straight[s]) for s in range(4))


def test_labelled_pairs_equal_captions_and_twins_are_masked():
    everything = batches("full_matrix")
    for step in range(4):
        batch = everything(step)
        keys = pairs_of(batch)
        expected = [[DATA.matches(image, text) for _, text in keys] for image, _ in keys]
        np.testing.assert_array_equal(batch.pair_matches, expected)
        assert batch.pair_matches.diagonal().all()
    texts = {p.caption_id: p.text if p.image_id != "i1" else "caption 0 of 0" for p in DATA.pairs}
    table = MatchTable([(p.image_id, p.caption_id) for p in DATA.pairs], texts=texts, twins={"i2": "x", "i3": "x"})
    batch = batches("vanilla", matches=table, batch_pairs=24, grids_per_step=0)(0)
    row = {image: n for n, (image, _) in enumerate(pairs_of(batch))}
    assert batch.pair_matches[row["i2"], row["i3"]]
    assert batch.pair_matches[row["i0"], row["i1"]]
    assert batch.pair_matches.sum() <= 24 + 4


def test_an_edit_not_in_the_match_table_still_matches_its_own_image():
    labelled = MatchTable([(p.image_id, p.caption_id) for p in DATA.pairs])
    assert batches("full_matrix", matches=labelled)(0).pair_matches.diagonal().all()


def test_too_few_images_or_grids_are_refused():
    with pytest.raises(TrainingError, match="25 distinct images, the split has 24"):
        batches(batch_pairs=25)
    with pytest.raises(TrainingError, match="27 distinct images"):
        batches("vanilla", batch_pairs=21)
    with pytest.raises(TrainingError, match="step 4 has 0 grids"):
        batches(n_steps=5)
    batches("vanilla", n_steps=5)


def test_grids_of_a_step_are_taken_in_order_of_their_index():
    assert grids_of(batches(grids=DATA.grids[::-1])(2)) == grids_of(batches()(2))


def test_without_grids_a_step_is_its_global_pairs():
    for loss in ("local_grids", "local_and_full", "full_matrix", "vanilla"):
        batch = batches(loss, grids_per_step=0)(0)
        assert pairs_of(batch) == pairs_of(batches()(0))
        assert grids_of(batch) == []


def test_keys_are_all_that_can_occur():
    found_images, found_texts = batches().keys(4)
    assert found_images == {f"i{n}" for n in range(tiny.N_IMAGES)}
    edits = {text for grid in DATA.grids for text in grid.texts if text.startswith("e")}
    assert found_texts == {p.caption_id for p in DATA.pairs} | edits
    assert batches("vanilla").keys(4)[1] == {p.caption_id for p in DATA.pairs}
