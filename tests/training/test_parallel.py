"""Two processes train as one does: the same losses, gradients and final weights, for every loss."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from repair.core.errors import TrainingError
from repair.training import parallel
from repair.training.batches import Batches
from repair.training.loop import Training
from tests.training import ranks, tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """What both processes found, from one start of two."""
    out = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    command = [sys.executable, "-m", "tests.training.ranks", str(out)]
    running = [
        subprocess.Popen([*command, rank, port], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert [json.loads((out / f"rank-{rank}.json").read_text()) for rank in (0, 1)] == [{"from": 0}] * 2
    return [torch.load(out / f"rank-{rank}.pt") for rank in (0, 1)]


def assert_same(left, right, *, tolerance=2e-5):
    assert left.keys() <= right.keys()
    for name, value in left.items():
        close = torch.allclose(value, right[name], rtol=tolerance, atol=tolerance)
        assert close, (name, value, right[name])


@pytest.mark.parametrize("name", [name for name in ranks.CASES if name != "bf16"])
def test_two_processes_train_as_one(of_two, name):
    """Rows (loss, global and local part, scale, gradient norm), the first gradients, the final weights."""
    recipe = ranks.CASES[name]
    alone = ranks.outcome(recipe, ranks.data_of(recipe))
    for found in of_two:
        assert_same(found[name], alone)


@pytest.mark.parametrize("name", list(ranks.COMPOSED))
def test_other_methods_train_alike_too(of_two, name):
    alone = ranks.outcome(replace(ranks.PLAIN, loss="vanilla"), ranks.composed(name))
    assert (alone["rows"][:, 2] > 0).all() == (name == "terms")
    for found in of_two:
        assert_same(found[name], alone)


def test_in_half_precision_nearly(of_two):
    recipe = ranks.CASES["bf16"]
    alone = ranks.outcome(recipe, ranks.data_of(recipe))
    for found in of_two:
        assert_same({"rows": found["bf16"]["rows"]}, alone, tolerance=0.05)


@pytest.mark.parametrize("name", list(ranks.SHARDED))
def test_shards_train_as_the_whole(of_two, name):
    recipe = replace(ranks.SHARDED[name], sharded=False)
    alone = ranks.outcome(recipe, ranks.data_of(recipe))
    for found in of_two:
        assert_same(found[name], alone)


@pytest.mark.parametrize("name", ["local_grids", "fsdp"])
def test_two_processes_resume_bit_for_bit(of_two, name):
    for found in of_two:
        resumed, whole = found[f"{name}_resumed"], found[name]
        for key, value in resumed.items():
            if key.startswith("final."):
                assert torch.equal(value, whole[key]), key
        assert torch.equal(resumed["rows"], whole["rows"][2:])


def test_processes_hold_equal_weights(of_two):
    for name, result in of_two[0].items():
        for key, value in result.items():
            if key.startswith("final."):
                assert torch.equal(value, of_two[1][name][key]), (name, key)


# ----------------------------------------------------------------------------------------------- shares, alone


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_shares_cover_the_batch_once_and_hold_only_what_they_need(world):
    data = tiny.data(2, 3)
    batch = Batches(
        data.pairs,
        data.grids,
        matches=data.matches,
        loss="local_grids",
        n_steps=2,
        batch_pairs=7,
        grids_per_step=3,
        seed=0,
    )(1)
    pairs, grids = [], []
    for rank in range(world):
        share = parallel.share_of(batch, parallel.Group(rank, world))
        mine = share.batch
        assert sum(share.counts) == 7
        assert share.first == len(pairs)
        pairs += pairs_of(mine)
        grids += grids_of(mine)
        assert set(mine.image_keys) == {mine.image_keys[i] for i in [*mine.pair_images, *mine.grid_images.flatten()]}
        np.testing.assert_array_equal(share.row_matches, batch.pair_matches[share.first : len(pairs)])
    assert pairs == pairs_of(batch)
    assert grids == grids_of(batch)


def pairs_of(batch):
    places = zip(batch.pair_images, batch.pair_texts, strict=True)
    return [(batch.image_keys[i], batch.text_keys[t]) for i, t in places]


def grids_of(batch):
    places = zip(batch.grid_images, batch.grid_texts, strict=True)
    return [([batch.image_keys[i] for i in images], [batch.text_keys[t] for t in texts]) for images, texts in places]


def test_more_processes_than_pairs_are_refused():
    data = tiny.data(1, 0)
    batch = Batches(
        data.pairs, (), matches=data.matches, loss="vanilla", n_steps=1, batch_pairs=3, grids_per_step=0, seed=0
    )(0)
    with pytest.raises(TrainingError, match=r"3 pairs for 4 processes: raise training.batch_pairs"):
        parallel.share_of(batch, parallel.Group(0, 4))


@pytest.mark.parametrize(
    "change", [{"micro_batch": 2}, {"lora_rank": 2}, {"ema_decay": 0.9}, {"precision": "fp16"}], ids=str
)
def test_what_shards_cannot_do_is_refused(change):
    recipe = replace(ranks.PLAIN, sharded=True, **change)
    with pytest.raises(TrainingError, match=r"training\.parallel=fsdp cannot go with training\."):
        Training(tiny.TinyEncoder(), ranks.data_of(recipe), recipe, group=parallel.Group(0, 2))


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert parallel.join() == parallel.ALONE
    assert parallel.told(parallel.ALONE, 3) == 3
