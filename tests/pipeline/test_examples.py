"""The worked examples of docs/, run as they stand: only the names of model and grids are replaced."""

import re
from pathlib import Path

import pytest

from repair.pipeline.formats import FORMATS
from tests.pipeline.test_formats import material

DOCS = Path(__file__).parents[2] / "docs"


def example(name: str, **values: object) -> dict[str, object]:
    """Run the page's one block with its upper-case constants set; gives its variables."""
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / f"example-{name}.md").read_text(), flags=re.DOTALL)
    names, found = next(
        (match[1].split(", "), match[0]) for match in re.finditer(r"^((?:[A-Z]+, )+[A-Z]+) = .*$", code, re.MULTILINE)
    )
    assert set(values) <= set(names)
    chosen = "".join(f"{key} = {value!r}\n" for key, value in values.items())
    variables: dict[str, object] = {}
    exec(compile(code.replace(found, f"{found}\n{chosen}"), f"example-{name}", "exec"), variables)
    return variables


@pytest.fixture(scope="module")
def grids(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("datasets")
    place = tmp_path_factory.mktemp("grids")
    FORMATS["datasets"](material(), place)
    return str(place)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


def test_open_clip(grids: str, tmp_path: Path) -> None:
    pytest.importorskip("open_clip")
    from tests.encoders.families import open_clip_folder

    model = f"local-dir:{open_clip_folder(tmp_path / 'model')}"
    losses = example("open-clip", NAME=model, GRIDS=grids, STEPS=12, BATCH=3)["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore")  # of the trainer's own making
def test_sentence_transformers(grids: str, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from tests.encoders.families import clip_processor_folder

    model = str(clip_processor_folder(tmp_path / "model"))
    out = str(tmp_path / "out")
    losses = example("sentence-transformers", NAME=model, GRIDS=grids, OUT=out, STEPS=6, BATCH=3)["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < losses[0]
