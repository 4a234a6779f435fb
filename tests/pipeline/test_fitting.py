"""Heads are fitted once for all runs that share a cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from repair.core.progress import Silent
from repair.encoders.small import SmallEncoder, small
from repair.pipeline import registries
from repair.pipeline.judging import judge
from repair.pipeline.run import run_pipeline
from tests.pipeline.tiny import config

fits: list[int] = []


class Headed(SmallEncoder):
    """The small encoder, as if it could not retrieve before its logit scale is fitted."""

    needs_fit = True

    def fit_heads(self, images: Any, texts: Any, owner: Any, *, seed: int, options: Any, progress: Any) -> list[float]:
        assert len(images) == 60
        assert len(texts) == len(owner)
        fits.append(seed)
        progress(1, 1)
        with torch.no_grad():
            self.module.log_scale.fill_(float(np.log(10 + seed)) + options.get("more", 0.0))
        self.needs_fit = False
        return [float(seed)]

    def load_weights(self, folder: str) -> None:
        super().load_weights(folder)
        self.needs_fit = False


def headed(*, seed: int = 0, dropout: float = 0.0) -> Headed:  # dropout is of the fit, not of the first weights
    return Headed(words=small().words, image_size=64, seed=seed)


def fit(folder: Path, name: str, *more: str) -> bytes:
    if "headed" not in registries.ENCODERS.entries:
        registries.ENCODERS.add("headed", "tests.pipeline.test_fitting:headed", "for tests")
    settings = config(folder, "encoder.name=headed", f"run.name={name}", *more)
    run_pipeline(settings, until="mine", reuse=False, progress=Silent())
    return (folder / name / "base" / "model.safetensors").read_bytes()


def test_runs_that_share_a_cache_start_from_the_same_heads(tmp_path: Path) -> None:
    fits.clear()
    first = fit(tmp_path, "a")
    assert fit(tmp_path, "b", "training.lr=1e-3") == first
    assert fits == [0]
    assert fit(tmp_path, "c", "run.seed=1") != first
    assert fits == [0, 1]
    assert fit(tmp_path, "d", "encoder.fit={more=1.0}") != first
    assert fit(tmp_path, "e", "data.options={n_train=60, n_val=15, n_test=20, seed=7}") == first  # other data: fitted
    fit(tmp_path, "f", "encoder.options={dropout=0.5}")
    assert fits == [0, 1, 0, 0, 0]


def test_an_evaluation_finds_the_heads_of_a_run(tmp_path: Path) -> None:
    fits.clear()
    fit(tmp_path, "a")
    data = "world(n_train=60, n_val=15, n_test=20)"
    suite = 'world(n=2, source={"n_test": 12})'
    shared: dict[str, Any] = {"suites": [suite], "fit": data, "cache": tmp_path / "cache", "n_bootstrap": 20}
    judge(models=["headed"], progress=Silent(), **shared)
    assert fits == [0]
    judge(models=[str(tmp_path / "a"), "headed(dropout=0.5)"], progress=Silent(), **shared)
    assert fits == [0, 0]


@pytest.mark.parametrize("name", ["model.safetensors", "losses.json"])
def test_a_torn_file_in_the_cache_is_fitted_anew(name: str, tmp_path: Path) -> None:
    fits.clear()
    first = fit(tmp_path, "a")
    (torn,) = (tmp_path / "cache" / "fitted").glob(f"*/{name}")
    torn.write_bytes(b"{")
    assert fit(tmp_path, "b") == first
    assert fits == [0, 0]
    assert fit(tmp_path, "c") == first
    assert fits == [0, 0]
