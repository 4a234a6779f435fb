from pathlib import Path

import pytest

from repair.encoders.small import words_of
from repair.world.source import WorldSource
from tests.pipeline.tiny import run
from tests.reports.runs import WORLD


@pytest.fixture(scope="session")
def world_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two rounds on a very small world, whose encoder knows nothing yet; every edit is accepted."""
    folder = tmp_path_factory.mktemp("world")
    words = {word for pair in WorldSource(**WORLD).pairs("train") for word in words_of(pair.text)}
    (folder / "words.txt").write_text("\n".join(sorted(words)), encoding="utf-8")
    options = ", ".join(f"{name}={value}" for name, value in WORLD.items())
    run(
        folder,
        f"data.options={{{options}}}",
        f'encoder.options={{checkpoint="none", vocabulary="{folder}/words.txt"}}',
        "selection.min_gain=-2",
        "pipeline.rounds=2",
        "training.eval_every=2",
        "report.n_failures=6",
        "report.n_grids=4",
    )
    return folder / "run"
