"""The options of training: what must not change the result does not, what must does; each resumes bit for bit."""

import itertools
import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from repair.config import load_config
from repair.core.errors import MissingDependency, TrainingError
from repair.numerics.losses import mean_cosine
from repair.pipeline.registries import require_choices
from repair.training.adapters import Adapters, linear_layers
from repair.training.averaging import Average, copied, mix, mixing_curve, put
from repair.training.checkpoint import FILE_NAME, read_state
from repair.training.loop import Recipe, Training
from repair.training.optimizer import build_optimizer, layers_above, set_lr
from repair.training.prepared import Prepared
from tests.training import tiny

RECIPE = Recipe(n_steps=6, batch_pairs=7, grids_per_step=3, lr=0.01, warmup_rate=0.25, checkpoint_every=2)
DATA = tiny.data(6, 3)


def training(recipe=RECIPE, *, folder=None, dropout=0.0, data=DATA, **options):
    return Training(tiny.TinyEncoder(dropout=dropout), data, recipe, folder=folder, **options)


def finished(recipe=RECIPE, **options):
    run = training(recipe, **options)
    rows = list(run.run())
    return run, rows, copied(run.encoder.module)


def assert_close(left, right, tolerance=1e-5):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.allclose(value, right[name], rtol=tolerance, atol=tolerance), name


def assert_equal_bits(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def score_of(encoder):
    return float(torch.sin(1e3 * encoder.module.image[0].weight.detach().double().sum()))


# ------------------------------------------------------------------------------------------------------ pieces


@pytest.mark.parametrize("loss", ["local_grids", "local_and_full", "full_matrix", "vanilla"])
@pytest.mark.parametrize("size", [4, 1000])
def test_encoding_in_pieces_changes_nothing(loss, size):
    """The loss of a step is that of the whole batch, so are its gradient and all weights after it."""
    _, rows, weights = finished(replace(RECIPE, loss=loss))
    run, pieces, same = finished(replace(RECIPE, loss=loss, micro_batch=size))
    assert_close(same, weights)
    np.testing.assert_allclose([row.loss for row in pieces], [row.loss for row in rows], rtol=1e-5)
    assert max(run.encoder.module.n_encoded) <= size


def test_both_passes_drop_out_the_same():
    """Else the gradient would be that of features which never made the loss."""
    recipe = replace(RECIPE, n_steps=1, micro_batch=4, lr=0.0001)
    run = training(recipe, dropout=0.5)
    list(run.run())
    gradient = run.encoder.module.text[0].weight.grad.clone()
    again = training(recipe, dropout=0.5)
    features = []
    original = again.encoder.module.text_features

    def noted(prepared):
        features.append(original(prepared))
        return features[-1]

    again._towers = (again._towers[0], noted)
    list(again.run())
    first, second = features[: len(features) // 2], features[len(features) // 2 :]
    assert_equal_bits(dict(enumerate(f.detach() for f in first)), dict(enumerate(f.detach() for f in second)))
    assert torch.equal(again.encoder.module.text[0].weight.grad, gradient)


# --------------------------------------------------------------------------------------------------- precision


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_float32_weights(precision):
    _, rows, weights = finished()
    run = training(replace(RECIPE, precision=precision))
    if run._scaler is not None:
        run._scaler._init_scale = 256.0  # so small that no step overflows and is left out
    half = list(run.run())
    near = copied(run.encoder.module)
    assert {value.dtype for value in near.values()} == {torch.float32}
    assert {slot.dtype for state in run._optimizer.state.values() for slot in state.values()} == {torch.float32}
    np.testing.assert_allclose([row.loss for row in half], [row.loss for row in rows], rtol=0.1, atol=0.1)
    assert any(not torch.equal(near[name], weights[name]) for name in weights)


def test_a_gradient_too_large_for_half_precision_costs_a_step_not_the_run():
    run = training(replace(RECIPE, precision="fp16", max_grad_norm=1.0))
    run._scaler._init_scale = 2.0**40  # overflows at once
    before = copied(run.encoder.module)
    rows = run.run()
    next(rows)
    assert_equal_bits(copied(run.encoder.module), before)
    assert run._scaler.get_scale() == 2.0**39
    list(rows)
    assert run.finished


def test_channels_last_and_a_compiler_change_no_more_than_rounding():
    _, _, weights = finished()
    assert_close(finished(replace(RECIPE, channels_last=True))[2], weights)
    assert_close(finished(replace(RECIPE, compile="eager"))[2], weights, 1e-4)


# -------------------------------------------------------------------------------------------------------- LoRA


def test_adapters_train_alone_and_are_merged():
    recipe = replace(RECIPE, lora_rank=2, lora_alpha=8.0)
    run = training(recipe)
    start = copied(tiny.TinyEncoder().module)
    trained = {name for name, p in run._module.named_parameters() if p.requires_grad}
    assert {name for name in trained if "lora_" not in name} == {"log_scale"}
    images = torch.randn(5, tiny.DIM_IMAGE)
    with torch.no_grad():  # an adapter adds nothing at first
        assert torch.allclose(run.encoder.module.image_features(images), tiny.TinyEncoder().module.image(images))
    rows = run.run()
    for _ in range(RECIPE.n_steps - 1):
        next(rows)
    next(rows)
    with torch.no_grad():
        adapted = run.encoder.module.eval().image_features(images)
    assert list(rows) == []
    merged = copied(run.encoder.module)
    assert merged.keys() == start.keys()
    assert torch.allclose(run.encoder.module.image_features(images), adapted, atol=1e-5)
    changed = {name for name in start if not torch.equal(start[name], merged[name])}
    assert changed == {"image.0.weight", "image.3.weight", "text.0.weight", "text.3.weight", "log_scale"}
    assert torch.linalg.matrix_rank(merged["image.3.weight"] - start["image.3.weight"], atol=1e-5) <= 2
    assert all(p.requires_grad for p in run.encoder.module.parameters())


def test_adapters_where_one_asks_for_them():
    run = training(replace(RECIPE, lora_rank=2, lora_targets=r"image\..*"))
    adapted = {name.split(".lora_")[0] for name, _ in run._module.named_parameters() if "lora_" in name}
    assert adapted == {"image.0", "image.3"}
    with pytest.raises(TrainingError, match=r'lora_targets="nowhere" matches no whole name .*: image\.0, image\.3'):
        training(replace(RECIPE, lora_rank=2, lora_targets="nowhere"))
    with pytest.raises(TrainingError, match="is no regular expression"):
        training(replace(RECIPE, lora_rank=2, lora_targets="("))


def test_frozen_parameters_stay_frozen_after_merging():
    module = tiny.TinyModule()
    module.text[0].bias.requires_grad_(False)
    Adapters(module, rank=1, alpha=1.0, targets="", seed=0).merge()
    assert [name for name, p in module.named_parameters() if not p.requires_grad] == ["text.0.bias"]


def test_attention_layers_get_adapters_as_a_whole():
    block = nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2), "out": nn.Linear(8, 8)})
    assert linear_layers(block) == ["attn", "out"]


def test_adapters_in_a_real_clip(tmp_path):
    """Attention layers that keep their projections to themselves included; merged, open_clip loads the result."""
    open_clip = pytest.importorskip("open_clip")
    from repair.encoders.open_clip import open_clip as build
    from tests.encoders.families import open_clip_folder

    encoder = build(model=str(open_clip_folder(tmp_path / "start")))
    names = set(encoder.module.state_dict())
    pixels = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    tokens = torch.from_numpy(encoder.prepare_texts(["a red dog", "two cats", "a man", "a tree"]))
    adapters = Adapters(encoder.module, rank=2, alpha=4.0, targets="", seed=0)
    trained = [p for p in encoder.module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.5)
    for _ in range(2):  # at first only one half of an adapter gets a gradient
        optimizer.zero_grad()
        images, texts = encoder.module.image_features(pixels), encoder.module.text_features(tokens)
        (images * texts).sum().backward()
        assert all(p.grad is not None for p in trained if p.ndim == 2)
        optimizer.step()
    with torch.no_grad():
        adapted = encoder.module.image_features(pixels)
    adapters.merge()
    assert set(encoder.module.state_dict()) == names
    with torch.no_grad():
        assert torch.allclose(encoder.module.image_features(pixels), adapted, atol=1e-4)
    encoder.save(str(tmp_path / "end"), facts={})
    model, _ = open_clip.create_model_from_pretrained(f"local-dir:{tmp_path / 'end'}")
    with torch.no_grad():
        again = model.eval().encode_image(encoder.module.normalised(pixels))
    assert torch.allclose(again, adapted, atol=1e-4)


# ------------------------------------------------------------------------------------------------- layer decay


class Deep(nn.Module):
    """Named as open_clip names its towers."""

    def __init__(self):
        super().__init__()
        self.visual = nn.Module()
        self.visual.conv1 = nn.Conv2d(3, 4, 2)
        self.visual.transformer = nn.Module()
        self.visual.transformer.resblocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.visual.proj = nn.Parameter(torch.zeros(4, 4))
        self.transformer = nn.Module()
        self.transformer.resblocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.token_embedding = nn.Embedding(9, 4)
        self.log_scale = nn.Parameter(torch.tensor(1.0))


def test_layers_further_from_the_output_learn_slower():
    above = layers_above(Deep())
    assert above["visual.conv1.weight"] == 4
    assert [above[f"visual.transformer.resblocks.{n}.bias"] for n in range(3)] == [3, 2, 1]
    assert [above[f"transformer.resblocks.{n}.weight"] for n in range(2)] == [2, 1]
    assert above["token_embedding.weight"] == 3
    assert above["visual.proj"] == above["log_scale"] == 0
    module = Deep()
    optimizer = build_optimizer(module, weight_decay=0.1, betas=(0.9, 0.98), eps=1e-6, layer_decay=0.5)
    set_lr(optimizer, 1.0)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert {name: rates[id(p)] for name, p in module.named_parameters()} == {n: 0.5**d for n, d in above.items()}
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decays[id(module.visual.proj)] == 0.1
    assert decays[id(module.log_scale)] == 0.0


def test_a_module_without_blocks_has_one_rate():
    assert set(layers_above(tiny.TinyModule()).values()) == {0}


# --------------------------------------------------------------------------------------------------- averaging


def test_the_average_is_what_is_judged_and_kept():
    _, _, plain = finished()
    seen = []

    def evaluate(encoder):
        seen.append(copied(encoder.module))
        return float(len(seen))

    run, _, ended = finished(replace(RECIPE, ema_decay=0.9, eval_every=6, keep="best"), evaluate=evaluate)
    assert_equal_bits(ended, seen[-1])
    assert_equal_bits(ended, dict(run._average.weights))
    assert any(not torch.allclose(ended[name], plain[name]) for name in plain)


def test_the_average_follows_its_formula():
    module = tiny.TinyModule()
    average = Average(module, decay=0.5)
    first = copied(module)
    put(module, {name: value + 1 for name, value in first.items()})
    average.update(module, step=1)  # decay (1 + 1) / (10 + 1)
    assert_close(average.weights, {name: value + 9 / 11 for name, value in first.items()})
    average.update(module, step=100)
    assert_close(average.weights, {name: value + 10 / 11 for name, value in first.items()})
    now = copied(module)
    with average.in_place(module):
        assert_equal_bits(copied(module), average.weights)
    assert_equal_bits(copied(module), now)


def test_mixes_lie_between_start_and_end():
    module = tiny.TinyModule()
    start = copied(module)
    trained = {name: value + 1 for name, value in start.items()}
    bias = module.image[0].bias
    curve = mixing_curve(
        module, start, trained, shares=(0.0, 0.25, 1.0), score=lambda: (bias - start["image.0.bias"]).mean().item()
    )
    assert [share for share, _ in curve] == [0.0, 0.25, 1.0]
    assert [score for _, score in curve] == pytest.approx([0.0, 0.25, 1.0], abs=1e-6)
    assert_equal_bits(copied(module), trained)
    mix(module, start, trained, 0.0)
    assert_equal_bits(copied(module), start)


# ------------------------------------------------------------------------------------------------------ resume

VARIANTS = {
    "pieces": replace(RECIPE, micro_batch=4),
    "bf16": replace(RECIPE, precision="bf16"),
    "fp16": replace(RECIPE, precision="fp16", max_grad_norm=1.0),
    "lora": replace(RECIPE, lora_rank=2, eval_every=2, keep="best"),
    "ema": replace(RECIPE, ema_decay=0.8, eval_every=2, keep="best"),
    "all": replace(RECIPE, micro_batch=5, precision="fp16", lora_rank=1, ema_decay=0.7, layer_decay=0.5),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stops", [(3,), (1, 2, 3)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, variant, stops):
    recipe = VARIANTS[variant]
    options = {"dropout": 0.3, "evaluate": score_of if recipe.eval_every else None}
    whole, rows, weights = finished(recipe, **options)
    expected = [(row.step, row.loss, row.score) for row in rows]
    got = {}
    for n_rows in stops:
        killed = training(recipe, folder=tmp_path, **options)
        for row in itertools.islice(killed.run(), n_rows):
            got[row.step] = (row.step, row.loss, row.score)
    resumed = training(recipe, folder=tmp_path, **options)
    for row in resumed.run():
        got[row.step] = (row.step, row.loss, row.score)
    assert [got[step] for step in sorted(got)] == expected
    assert_equal_bits(copied(resumed.encoder.module), weights)
    assert resumed.best == whole.best
    again = training(recipe, folder=tmp_path, **options)
    assert again.finished
    assert_equal_bits(copied(again.encoder.module), weights)


def test_the_scale_of_float16_gradients_is_kept(tmp_path):
    recipe = replace(VARIANTS["fp16"], n_steps=6)
    run = training(recipe, folder=tmp_path)
    run._scaler._init_scale = 256.0
    list(itertools.islice(run.run(), 3))
    state = read_state(tmp_path)
    assert state.scaler["scale"] == 256.0
    assert state.scaler["_growth_tracker"] == 2


def test_options_that_are_off_leave_the_checkpoint_as_it_was(tmp_path):
    list(training(folder=tmp_path).run())
    text = (tmp_path / FILE_NAME).read_bytes()[:4000]
    assert b"scaler" not in text
    assert b"average." not in text
    assert training(replace(RECIPE, collapse_cosine=0.5), folder=tmp_path).finished
    assert not training(replace(RECIPE, micro_batch=4), folder=tmp_path).finished


# --------------------------------------------------------------------------------------------- inputs, warnings


def test_reading_ahead_changes_nothing():
    _, rows, weights = finished()
    _, ahead, same = finished(prefetch=True)
    assert_equal_bits(same, weights)
    assert [row.loss for row in ahead] == [row.loss for row in rows]
    assert all(row.wait_s >= 0 for row in [*rows, *ahead])


def test_an_error_while_reading_ahead_is_the_same_error():
    texts = Prepared(([p.caption_id for p in DATA.pairs], DATA.texts._arrays[0]), what="caption")
    run = training(prefetch=True)
    run._inputs._texts = texts  # as if the edits' file had gone
    with pytest.raises(Exception, match=r"caption e.* was not prepared"):
        list(run.run())


def test_mapped_rows_travel_by_name(tmp_path):
    rows = np.arange(24, dtype=np.uint8).reshape(6, 4)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r").view(np.ndarray)
    prepared = Prepared((["a", "b", "c"], mapped[2:5]), (["d"], rows[:1]), what="image")
    sent = pickle.dumps(prepared)
    there = pickle.loads(sent)
    assert torch.equal(there.take(["c", "a", "d"]), prepared.take(["c", "a", "d"]))
    assert isinstance(there._arrays[0].base, np.memmap)
    (tmp_path / "rows.npy").unlink()
    with pytest.raises(Exception, match=r"rows\.npy cannot be read here: all processes need the same run\.cache"):
        pickle.loads(sent)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried …"),
        MemoryError(),
    ],
    ids=["gpu", "cpu", "python"],
)
def test_out_of_memory_names_the_batch_and_what_to_change(error):
    run = training()

    def tower(rows):
        raise error

    run._towers = (tower, tower)
    with pytest.raises(TrainingError) as caught:
        list(run.run())
    message = str(caught.value)
    assert message.startswith("step 1: out of memory encoding ")
    assert "images of 6 and " in message
    assert "captions of 5: set training.micro_batch=" in message
    assert "training.precision=bf16" in message
    assert "training.batch_pairs" in message


def test_other_errors_are_not_called_memory():
    run = training()

    def tower(rows):
        raise RuntimeError("shapes do not fit")

    run._towers = (tower, tower)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        list(run.run())


def test_a_collapsed_embedding_warns():
    said = []
    run = training(warn=said.append)
    list(run.run())
    assert said == []
    run = training(warn=said.append)
    with torch.no_grad():
        run.encoder.module.image[3].weight.zero_()
    list(run.run())
    assert len(said) == 1
    assert said[0].startswith(
        "step 1: the images of the batch have a mean cosine of 1.000: the embedding has collapsed"
    )
    assert mean_cosine(torch.tensor([[1.0, 0], [0, 2]])) == pytest.approx(0)


def test_what_only_training_would_notice_is_noticed_before_any_work(monkeypatch):
    with pytest.raises(TrainingError, match='unknown backend "inductr"'):
        require_choices(load_config({"training": {"compile": "inductr"}}, environment={}))
    monkeypatch.setitem(sys.modules, "peft", None)  # as if it were not installed
    with pytest.raises(MissingDependency, match=r'training\.lora_rank needs peft: pip install "repair-clip\[lora\]"'):
        require_choices(load_config({"training": {"lora_rank": 4}}, environment={}))
