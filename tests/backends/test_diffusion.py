"""The editor over the real diffusers pipelines, each with tiny random weights.

Pictures come out as noise; what counts is that every family runs, gives the source's size back, and draws each
candidate from its own seed.
"""

import asyncio
import importlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("diffusers", reason='needs the extra: pip install "repair-clip[diffusion]"')

from repair.backends.diffusion import FAMILIES, DiffusionEditor, weights_of
from repair.core.errors import BadReply, ConfigError
from repair.core.identity import hash_bytes
from repair.core.ports import Case, ImageItem
from repair.pipeline import registries
from tests.backends.chat.cases import TOLD, image_to_text, text_to_image
from tests.backends.loopback import png
from tests.backends.pipelines import BUILDERS
from tests.backends.test_registration import picture

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries' own, and of models that were never trained

SIZE = (112, 80)
# The pipelines that encode their condition at a megapixel, whatever is asked: here at a 64th of it, for minutes of CPU.
QWEN = [f"diffusers.pipelines.qwenimage.pipeline_qwenimage_{name}" for name in ("edit", "edit_plus")]


@pytest.fixture
def small_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in QWEN:
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "calculate_dimensions", partial(_shrunk, module.calculate_dimensions))


def _shrunk(calculate: Callable[[float, float], tuple[Any, ...]], area: float, ratio: float) -> tuple[Any, ...]:
    return calculate(area / 64, ratio)


def case() -> Case:
    data = png(picture(12, SIZE))
    item = ImageItem(key="a.png", content_hash=hash_bytes(data), captions=(), read=lambda: data)
    return replace(text_to_image(), false_positive=item)


def editor(family: str, folder: Path, **options: Any) -> DiffusionEditor:
    settings = {"family": family, "model": str(folder), "dtype": "float32", "device": "cpu", "steps": 2}
    settings |= {"min_area": 0, **options}
    made = registries.IMAGE_EDITORS.build("diffusion", options=settings)
    assert isinstance(made, DiffusionEditor)
    return made


@pytest.mark.usefixtures("small_conditions")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_edits_and_each_seed_is_its_own(tmp_path: Path, family: str) -> None:
    BUILDERS[family](tmp_path)
    made = editor(family, tmp_path)
    seeds = (5, 6, 7)
    together = [asyncio.run(made.edit_image(case(), TOLD, seed=seed)) for seed in seeds]
    for reply in together:
        with Image.open(io.BytesIO(reply.value)) as image:
            assert image.size == SIZE
        assert (reply.usage.n_images, reply.usage.price_usd) == (1, 0.0)
        assert json.loads(reply.raw)["answered"] == list(SIZE)
    assert len({reply.value for reply in together}) == len(seeds)
    alone = asyncio.run(editor(family, tmp_path).edit_image(case(), TOLD, seed=seeds[1]))
    assert alone.value == together[1].value


def test_fingerprints_and_facts(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    base = editor("flux_kontext", tmp_path)
    assert base.fingerprint == editor("flux_kontext", tmp_path, device="cuda", cpu_offload=True).fingerprint
    others: list[dict[str, Any]] = [{"steps": 3}, {"guidance_scale": 1.0}, {"dtype": "bfloat16"}, {"max_area": 65536}]
    assert len({base.fingerprint, *(editor("flux_kontext", tmp_path, **o).fingerprint for o in others)}) == 5
    before = weights_of(str(tmp_path))
    (tmp_path / "model_index.json").write_text("[]")
    assert weights_of(str(tmp_path)) != before
    assert weights_of("someone/a-model") == "someone/a-model"
    assert FAMILIES["qwen_edit"].settings["negative_prompt"] == " "  # or guidance is silently off


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"family": "pix2pix"}, "family"),
        ({"family": "flux2_klein", "true_cfg_scale": 2.0}, "has steps, guidance_scale only"),
        ({"family": "flux_kontext", "steps": 0}, "steps"),
        ({"family": "flux_kontext", "max_area": 1}, "max_area"),
        ({"family": "flux_kontext", "max_area": 65536, "min_area": 65537}, "min_area"),
        ({"family": "flux_kontext", "model": ""}, "model"),
    ],
)
def test_wrong_options(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        registries.IMAGE_EDITORS.build("diffusion", options={"model": "m", **options})


def test_what_cannot_be_edited_or_loaded(tmp_path: Path) -> None:
    with pytest.raises(BadReply, match="images only"):
        asyncio.run(editor("flux_kontext", tmp_path).edit_image(image_to_text(), TOLD, seed=0))
    with pytest.raises(ConfigError, match="no FluxKontextPipeline can be loaded"):
        asyncio.run(editor("flux_kontext", tmp_path).edit_image(case(), TOLD, seed=0))
