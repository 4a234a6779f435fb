"""The real recipes on a miniature data set with a shrunken model, by overrides alone; then what is exported of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from repair.config import load_config
from repair.core.progress import Silent
from repair.pipeline.export import export
from repair.pipeline.run import run_pipeline

open_clip = pytest.importorskip("open_clip")
pytest.importorskip("spacy")

CONFIGS = Path(__file__).parents[2] / "configs"
COLOURS, THINGS = ["red", "green", "blue", "black"], ["square", "ball", "box", "plate"]
TRAIN, OTHERS = 16, 4


def miniature(folder: Path) -> Path:
    """A Karpathy file and its images: a coloured thing on grey, two captions each."""
    rng = np.random.default_rng(0)
    images = []
    for number in range(TRAIN + 2 * OTHERS):
        colour, thing = COLOURS[number % 4], THINGS[number // 4 % 4]
        picture = Image.new("RGB", (48, 40), "grey")
        x, y = (int(v) for v in rng.integers(0, 20, 2))
        draw = ImageDraw.Draw(picture)
        shape = draw.ellipse if thing in ("ball", "plate") else draw.rectangle
        shape((x, y, x + 12 + 4 * (number // 8), y + 12), fill=colour)
        name = f"{number:03d}.png"
        (folder / "images").mkdir(exist_ok=True)
        picture.save(folder / "images" / name)
        split = "train" if number < TRAIN else "val" if number < TRAIN + OTHERS else "test"
        texts = [f"A {colour} {thing} lies on the floor.", f"There is a {colour} {thing} number {number}."]
        images.append({"filename": name, "split": split, "sentences": [{"raw": text} for text in texts]})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    return folder


def overrides(folder: Path, model: Path) -> list[str]:
    return [
        f'data.options={{path = "{folder}/dataset.json", images = "{folder}/images"}}',
        f'encoder.name="open_clip:{model}"',
        "verification.verifier=lexical",
        "verification.options={}",
        "instruction.instructor=lexical",
        "instruction.options={}",
        "editing.text_editor=lexical",
        "editing.text_options={}",
        "editing.image_editor=none",
        "mining.max_failures=12",
        "training.n_steps=4",
        "training.batch_pairs=6",
        "training.grids_per_step=2",
        "training.eval_every=2",
        "training.lr=1e-3",
        "evaluation.n_bootstrap=100",
        f'run.folder="{folder}/runs"',
    ]


@pytest.fixture(scope="module", params=["flickr30k", "coco30k"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.encoders.families import open_clip_folder

    folder = miniature(tmp_path_factory.mktemp(request.param))
    model = open_clip_folder(folder / "model", quick_gelu=True)
    config = load_config(CONFIGS / f"{request.param}.toml", overrides=overrides(folder, model), environment={})
    assert config.training.precision == "bf16"
    run_pipeline(config, until=None, reuse=False, progress=Silent())
    return config.run_path()


def test_the_recipe_runs_to_its_end(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "round-0" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all(0 <= row["wait_s"] <= row["step_s"] for row in rows)
    summary = json.loads((run / "round-0" / "train.json").read_text())["summary"]
    assert [share for share, _ in summary["wise_ft_curve"]] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert summary["best_step"] in (2, 4)
    for name in ("base", "round-0"):
        facts = json.loads((run / "evaluation" / f"{name}.json").read_text())
        assert facts["splits"]["test"]["n_images"] == OTHERS


def test_its_weights_load_in_open_clip(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "exported"
    done = export(run, "model", out, round=None, force=False)
    assert f"encoder.name=open_clip:{out}" in done["load"]
    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{out}")
    picture = Image.new("RGB", (48, 40), "red")
    with torch.no_grad():
        theirs = torch.nn.functional.normalize(model.eval().encode_image(preprocess(picture)[None]), dim=1)
    from repair.encoders.open_clip import open_clip as build

    mine = build(model=str(run / "round-0" / "weights"))
    np.testing.assert_allclose(mine.embed_images(mine.prepare_images([picture])), theirs.numpy(), atol=1e-6)
    card = (out / "README.md").read_text()
    for part in (
        "## Data",
        "## Budget",
        "## Results",
        "i2t R@1 on test (4 images)",
        "→",
        "| pairs encoded per step | 12 |",
    ):
        assert part in card


def test_its_grids_and_pairs_are_exported(run: Path, tmp_path: Path) -> None:
    done = export(run, "negclip", tmp_path / "out", round=None, force=False)
    lines = (tmp_path / "out" / "pairs.tsv").read_text().splitlines()
    assert len(lines) == 1 + done["pairs"]
    assert len(list((tmp_path / "out" / "images").iterdir())) == done["images"]
    export(run, "negclip", tmp_path / "out", round=0, force=True)
