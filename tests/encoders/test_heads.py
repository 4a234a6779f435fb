"""Fitting heads: what a batch holds, the loss, and that it learns the same thing twice."""

import math

import numpy as np
import pytest
import torch

from repair.core.errors import ConfigError, TrainingError
from repair.encoders import heads
from repair.encoders.heads import FitSettings, Heads, fit_heads, seeded_heads

SIZES = {"n_image": 12, "n_text": 8, "n_hidden": 32, "dim": 6}


def made(*, seed: int = 0, dropout: float = 0.0) -> Heads:
    return seeded_heads(seed=seed, dropout=dropout, **SIZES)


def features(*, n_images: int = 40, n_texts: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both modalities are random maps of the same few numbers, so that a head can find them."""
    rng = np.random.default_rng(0)
    meaning = rng.normal(size=(n_images, 4))
    owner = np.repeat(np.arange(n_images), n_texts)[rng.permutation(n_images * n_texts)]
    texts = (meaning[owner] + 0.05 * rng.normal(size=(len(owner), 4))) @ rng.normal(size=(4, 8))
    images = meaning @ rng.normal(size=(4, 12))
    return images.astype(np.float16), texts.astype(np.float16), owner


def right_rate(module: Heads, images: np.ndarray, texts: np.ndarray, owner: np.ndarray) -> float:
    with torch.no_grad():
        image = torch.nn.functional.normalize(module.image_features(torch.from_numpy(images)), dim=1)
        text = torch.nn.functional.normalize(module.text_features(torch.from_numpy(texts)), dim=1)
    return float(((text @ image.T).argmax(dim=1).numpy() == owner).mean())


def test_fitting_learns_and_a_second_time_the_same() -> None:
    data = features()
    settings = FitSettings(epochs=40, batch_size=20, lr=1e-2, weight_decay=0.01)
    first, second, other = made(dropout=0.1), made(dropout=0.1), made(dropout=0.1)
    assert right_rate(first, *data) < 0.3
    losses = fit_heads(first, *data, settings=settings, seed=3)
    assert len(losses) == 40
    assert losses[-1] < 0.5 * losses[0]
    assert right_rate(first, *data) > 0.9
    assert fit_heads(second, *data, settings=settings, seed=3) == losses
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert fit_heads(other, *data, settings=settings, seed=4) != losses


def test_fitting_leaves_torchs_generator_and_the_data_alone() -> None:
    images, texts, owner = features(n_images=6)
    for array in (images, texts):
        array.flags.writeable = False
    before = torch.random.get_rng_state()
    module = made(dropout=0.5)
    fit_heads(module, images, texts, owner, settings=FitSettings(epochs=2, batch_size=4), seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not module.training


def test_progress_counts_epochs() -> None:
    seen: list[tuple[int, int]] = []
    fit_heads(
        made(),
        *features(n_images=6),
        settings=FitSettings(epochs=3, batch_size=4),
        seed=0,
        progress=lambda *done: seen.append(done),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_batch_holds_an_image_once_and_all_captions_have_their_turn() -> None:
    owner = np.array([0, 0, 0, 1, 2, 2, 4, 4, 4, 5, 5, 5])  # image 3 has no caption
    captions_of = heads._captions_of(owner, n_images=7)
    assert [rows.tolist() for rows in captions_of] == [[0, 1, 2], [3], [4, 5], [6, 7, 8], [9, 10, 11]]
    epochs = heads._batches(captions_of, settings=FitSettings(epochs=6, batch_size=2), seed=0)
    for steps in epochs:
        assert sorted(owner[np.concatenate(steps)]) == [0, 1, 2, 4, 5]
        assert all(len(rows) >= 2 for rows in steps)
    shown = np.concatenate([rows for steps in epochs for rows in steps])
    assert np.bincount(shown, minlength=12).tolist() == [2, 2, 2, 6, 3, 3, 2, 2, 2, 2, 2, 2]


def test_the_loss_is_clips() -> None:
    images, texts, owner = features(n_images=5, n_texts=1)
    images = images[owner]
    module = made()
    with torch.no_grad():
        image = torch.nn.functional.normalize(module.image_features(torch.from_numpy(images)), dim=1).double()
        text = torch.nn.functional.normalize(module.text_features(torch.from_numpy(texts)), dim=1).double()
    logit = [[math.exp(module.log_scale.item()) * float(i @ t) for t in text] for i in image]
    total = 0.0
    for k in range(5):
        total -= logit[k][k] - math.log(sum(math.exp(logit[k][j]) for j in range(5)))
        total -= logit[k][k] - math.log(sum(math.exp(logit[j][k]) for j in range(5)))
    assert heads._loss(module, images, texts).item() == pytest.approx(total / 10, rel=1e-4)


def test_what_cannot_be_fitted() -> None:
    images, texts, owner = features(n_images=3, n_texts=1)
    settings = FitSettings(epochs=1)
    with pytest.raises(TrainingError, match="at least 2 images with captions, there are 1"):
        fit_heads(made(), images, texts[:2], np.array([1, 1]), settings=settings, seed=0)
    images[0] = np.nan
    with pytest.raises(TrainingError, match=r"the loss is nan at epoch 1: lower encoder\.fit\.lr"):
        fit_heads(made(), images, texts, owner, settings=settings, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": 3}, 'unknown option "epoch": did you mean "epochs"'),
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1, not 0"),
        ({"lr": "fast"}, "lr: Input should be a valid number.*not 'fast'"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FitSettings.from_options(options)


def test_right_options() -> None:
    assert FitSettings.from_options({"epochs": 3}).epochs == 3
