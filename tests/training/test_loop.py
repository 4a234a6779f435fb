"""The loop: it learns, it stops where it must, and a resumed run is the uninterrupted one, bit for bit."""

import itertools
import json
from dataclasses import asdict, replace

import pytest
import safetensors.torch
import torch

from repair.core.errors import DataError, StoreError, TrainingError
from repair.training.checkpoint import FILE_NAME, read_state
from repair.training.loop import Recipe, Training
from repair.training.prepared import Prepared
from tests.training import tiny

RECIPE = Recipe(
    n_steps=12, batch_pairs=6, grids_per_step=3, lr=0.01, warmup_rate=0.25, checkpoint_every=4, max_grad_norm=1.0
)
DATA = tiny.data(12, 3)


def training(recipe=RECIPE, *, data=DATA, folder=None, seed=0, dropout=0.2, **options):
    return Training(tiny.TinyEncoder(seed=seed, dropout=dropout), data, recipe, folder=folder, **options)


def weights(run):
    return {name: value.clone() for name, value in run.encoder.module.state_dict().items()}


def assert_equal_bits(left, right):
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name


def timeless(row):
    return {name: value for name, value in asdict(row).items() if name not in ("step_s", "pairs_per_s", "wait_s")}


def score_of(encoder):
    """Something that goes up and down during training."""
    return float(torch.sin(1e3 * encoder.module.image[0].weight.detach().double().sum()))


# --------------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("loss", ["local_grids", "local_and_full", "full_matrix", "vanilla"])
def test_the_loss_falls(loss):
    recipe = replace(RECIPE, loss=loss, n_steps=60)
    rows = list(training(recipe, data=tiny.data(60, 3), dropout=0.0).run())
    assert [row.step for row in rows] == list(range(1, 61))
    early, late = (sum(row.loss for row in part) for part in (rows[:10], rows[-10:]))
    assert late < 0.5 * early
    if loss.startswith("local"):
        assert sum(row.local_loss for row in rows[-10:]) < 0.5 * sum(row.local_loss for row in rows[:10])
        for row in rows:
            assert row.loss == pytest.approx(row.global_loss + recipe.local_weight * row.local_loss)
    else:
        assert all(row.local_loss is None and row.loss == row.global_loss for row in rows)


def test_a_row_says_what_the_step_did():
    ticks = itertools.count()
    (row, *_) = training(clock=lambda: float(next(ticks))).run()
    assert (row.n_pairs, row.step_s, row.pairs_per_s) == (15, 1.0, 15.0)
    assert 6 <= row.n_images <= 15
    assert row.lr == pytest.approx(0.01 / 3)
    assert row.grad_norm > 0
    assert row.score is None


def test_the_module_is_left_for_use_and_the_global_generator_alone():
    before = torch.random.get_rng_state()
    run = training()
    list(run.run())
    assert not run.encoder.module.training
    assert torch.equal(torch.random.get_rng_state(), before)
    assert run.finished


def test_the_seed_is_all_there_is_to_chance():
    torch.manual_seed(1)
    first = training()
    rows = [timeless(row) for row in first.run()]
    torch.manual_seed(2)
    second = training()
    assert [timeless(row) for row in second.run()] == rows
    assert_equal_bits(weights(first), weights(second))
    other = training(replace(RECIPE, seed=1))
    assert [timeless(row) for row in other.run()] != rows


def test_the_scale_stays_between_1_and_100():
    for start, sign in ((4.6, 1), (0.01, -1), (9.0, 1), (-2.0, -1)):
        run = training(replace(RECIPE, lr=1.0, warmup_rate=0.0))
        with torch.no_grad():
            run.encoder.module.log_scale.fill_(start)
        rows = list(run.run())
        assert all(0.999 <= row.logit_scale <= 100.001 for row in rows), sign


def test_weight_decay_and_clipping_change_the_result():
    base = training()
    list(base.run())
    for change in ({"weight_decay": 0.5}, {"max_grad_norm": 0.1}, {"local_weight": 0.0}, {"warmup_rate": 0.5}):
        other = training(replace(RECIPE, **change))
        list(other.run())
        assert any(not torch.equal(a, b) for a, b in zip(weights(base).values(), weights(other).values(), strict=True))


# ----------------------------------------------------------------------------------------------------- resume

VARIANTS = {
    "plain": RECIPE,
    "best": replace(RECIPE, eval_every=2, keep="best"),
    "full_matrix": replace(RECIPE, loss="full_matrix", max_grad_norm=None),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stops", [(1,), (4,), (5,), (11,), (12,), (3, 6, 9), (4, 4, 8)])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, variant, stops):
    """`stops`: rows taken before each kill. A killed run's objects are dropped; only the folder stays."""
    recipe = VARIANTS[variant]
    evaluate = score_of if recipe.eval_every else None
    whole = training(recipe, evaluate=evaluate)
    expected = {row.step: timeless(row) for row in whole.run()}

    rows = {}
    for n_rows in stops:
        killed = training(recipe, folder=tmp_path, evaluate=evaluate)
        for row in itertools.islice(killed.run(), n_rows):
            rows[row.step] = timeless(row)
        assert killed.step <= max(rows)
    resumed = training(recipe, folder=tmp_path, evaluate=evaluate)
    assert resumed.step % 4 == 0
    for row in resumed.run():
        rows[row.step] = timeless(row)
    assert rows == expected
    assert_equal_bits(weights(resumed), weights(whole))
    assert resumed.best == whole.best
    left, right = resumed._optimizer.state_dict(), whole._optimizer.state_dict()
    for index, slots in right["state"].items():
        assert_equal_bits(left["state"][index], slots)


def test_the_checkpoint_of_a_stopped_run_is_that_of_an_uninterrupted_one_byte_for_byte(tmp_path):
    for name, n_rows in (("a", 99), ("b", 6)):
        list(itertools.islice(training(folder=tmp_path / name).run(), n_rows))
    list(training(folder=tmp_path / "b").run())
    assert (tmp_path / "a" / FILE_NAME).read_bytes() == (tmp_path / "b" / FILE_NAME).read_bytes()
    assert [path.name for path in (tmp_path / "a").iterdir()] == [FILE_NAME]


def test_a_finished_run_trains_no_more_and_gives_its_weights(tmp_path):
    first = training(VARIANTS["best"], folder=tmp_path, evaluate=score_of)
    list(first.run())
    again = training(VARIANTS["best"], folder=tmp_path, evaluate=score_of)
    assert again.finished
    assert again.step == 12
    assert_equal_bits(weights(again), weights(first))
    assert list(again.run()) == []
    assert read_state(tmp_path).finished


@pytest.mark.parametrize(
    "other", [{"recipe": replace(RECIPE, lr=0.02)}, {"seed": 1}, {"data": tiny.data(12, 3, seed=1)}, {"data_key": "x"}]
)
def test_another_training_starts_from_its_own_beginning(tmp_path, other):
    list(training(folder=tmp_path).run())
    fresh = training(folder=tmp_path, **other)
    assert (fresh.step, fresh.finished) == (0, False)
    assert_equal_bits(weights(fresh), weights(training(**other)))
    list(fresh.run())
    assert training(folder=tmp_path, **other).finished


def test_how_often_to_checkpoint_does_not_name_another_training(tmp_path):
    list(itertools.islice(training(folder=tmp_path).run(), 6))
    assert training(replace(RECIPE, checkpoint_every=5), folder=tmp_path).step == 4


def test_a_broken_checkpoint_is_refused_with_the_remedy(tmp_path):
    list(training(folder=tmp_path).run())
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match="delete it to train from the start"):
        training(folder=tmp_path)


def test_a_checkpoint_that_cannot_be_written_leaves_the_former(tmp_path, monkeypatch):
    run = training(folder=tmp_path).run()
    for _ in range(5):
        next(run)
    before = (tmp_path / FILE_NAME).read_bytes()

    def full(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(StoreError, match=r"cannot write .*No space left on device; the former one is whole"):
        list(run)
    assert (tmp_path / FILE_NAME).read_bytes() == before


# ------------------------------------------------------------------------------------------- choosing, stopping


def test_keep_best_ends_with_the_first_best_weights():
    scores = iter([0.1, 0.7, 0.3, 0.7, 0.2, 0.0])
    seen = []

    def evaluate(encoder):
        assert not encoder.module.training
        seen.append({name: value.clone() for name, value in encoder.module.state_dict().items()})
        return next(scores)

    run = training(replace(RECIPE, eval_every=2, keep="best"), evaluate=evaluate)
    rows = list(run.run())
    assert [row.score for row in rows] == [None, 0.1, None, 0.7, None, 0.3, None, 0.7, None, 0.2, None, 0.0]
    assert run.best == (4, 0.7)
    assert_equal_bits(weights(run), seen[1])


def test_keep_last_ends_with_the_last_weights_and_evaluating_changes_nothing():
    plain = training()
    list(plain.run())
    watched = training(replace(RECIPE, eval_every=5), evaluate=score_of)
    rows = list(watched.run())
    assert [row.step for row in rows if row.score is not None] == [5, 10, 12]
    assert_equal_bits(weights(plain), weights(watched))


def test_patience_counts_evaluations_that_were_no_better():
    scores = iter([0.5, 0.5, 0.4])
    run = training(replace(RECIPE, eval_every=2, patience=2), evaluate=lambda encoder: next(scores))
    assert [row.step for row in run.run()][-1] == 6
    assert run.finished


def test_a_loss_that_is_not_finite_stops_with_the_ids(tmp_path):
    data = tiny.data(12, 3)
    broken = data.texts._arrays[0]
    bad = data.texts._place["t5.1"][1]
    broken[bad] = float("nan")
    run = training(data=data, folder=tmp_path)
    with pytest.raises(TrainingError, match=r"step \d+: the loss is nan; its items are in .*failed-batch\.json"):
        list(run.run())
    saved = json.loads((tmp_path / "failed-batch.json").read_text())
    assert "t5.1" in saved["texts"]
    assert saved["step"] == run.step + 1
    with pytest.raises(TrainingError, match="the loss is nan: lower"):
        list(training(data=data).run())


class Broken(torch.autograd.Function):
    """Finite forward, NaN backward."""

    @staticmethod
    def forward(ctx, values):
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


def with_a_broken_gradient(recipe, *, steps, **options):
    run = training(recipe, **options)
    tower = run._towers[0]
    seen = []

    def image_features(rows):
        seen.append(rows)
        return Broken.apply(tower(rows)) if len(seen) in steps else tower(rows)

    run._towers = (image_features, run._towers[1])
    return run


def test_a_gradient_that_is_not_finite_names_its_own_batch_not_the_next(tmp_path):
    """Without clipping nobody looks at the gradient: the next step's loss is what shows it."""
    run = with_a_broken_gradient(replace(RECIPE, max_grad_norm=None), steps=[2], folder=tmp_path)
    with pytest.raises(TrainingError, match="step 2: its gradient is not finite, and so are the weights after it"):
        list(run.run())
    saved = json.loads((tmp_path / "failed-batch.json").read_text())
    assert (saved["step"], tuple(saved["images"])) == (2, run._batches(1).image_keys)


def test_a_gradient_that_no_scale_makes_finite_stops_the_run():
    run = with_a_broken_gradient(replace(RECIPE, precision="fp16", max_grad_norm=None), steps=range(99))
    run._scaler._init_scale = 4.0
    with pytest.raises(TrainingError, match=r"step 3: the gradient is not finite, however small its scale: .*bf16"):
        list(run.run())


def test_a_score_that_is_no_number_is_no_better():
    scores = iter([float("nan"), 0.5, float("nan")])
    run = training(replace(RECIPE, eval_every=4, keep="best"), evaluate=lambda _: next(scores))
    list(run.run())
    assert run.best == (8, 0.5)


def test_what_cannot_be_compiled_says_what_to_change():
    from torch._dynamo.exc import BackendCompilerFailed

    run = training(replace(RECIPE, compile="eager"))

    def tower(rows):
        raise BackendCompilerFailed("eager", RuntimeError("no C++ compiler"), None)

    run._towers = (tower, tower)
    with pytest.raises(TrainingError, match=r'compile="eager" failed: .*no C\+\+ compiler.*: set training\.compile=""'):
        list(run.run())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_steps": 0}, "n_steps must be at least 1"),
        ({"micro_batch": 0}, "micro_batch must be at least 1, not 0"),
        ({"grids_per_step": -1}, "grids_per_step must be at least 0"),
        ({"lr": float("nan")}, "lr must be a number above 0, not nan"),
        ({"warmup_rate": 2.0}, "warmup_rate must be from 0 to 1"),
        ({"ema_decay": 1.0}, "ema_decay must be at least 0 and below 1"),
        ({"layer_decay": 0.0}, "layer_decay must be above 0 and at most 1"),
        ({"loss": "local"}, "loss must be one of local_grids, full_matrix, local_and_full, vanilla, not local"),
        ({"precision": "int8"}, "precision must be one of fp32, bf16, fp16"),
        ({"compile": "inductr"}, 'unknown backend "inductr": did you mean "inductor"'),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"keep": "best"}, "eval_every"),
        ({"patience": 3, "eval_every": 1}, "eval_every"),
        ({"batch_pairs": 30}, "30 distinct images"),
        ({"n_steps": 13}, "step 12 has 0 grids"),
    ],
)
def test_recipes_that_cannot_run(change, message):
    with pytest.raises(TrainingError, match=message):
        training(replace(RECIPE, **change))


def test_items_that_were_not_prepared_are_named_at_the_start():
    texts = Prepared(([p.caption_id for p in DATA.pairs], DATA.texts._arrays[0]), what="text")
    with pytest.raises(DataError, match=r"\d+ texts to train on were not prepared, the first is e\d+"):
        training(data=replace(DATA, texts=texts))
    training(replace(RECIPE, loss="vanilla"), data=replace(DATA, texts=texts))
