"""The whole pipeline under torchrun: the first process runs it, the others join its training."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.pipeline.tiny import overrides, run


@pytest.mark.slow
def test_two_processes_make_the_same_model_as_one(tmp_path: Path) -> None:
    more = ("training.wise_ft_curve=[0.0, 1.0]", "training.eval_every=2")
    run(tmp_path / "one", *more, until="train")
    config = tmp_path / "run.toml"
    config.write_text("")
    settings = [word for setting in overrides(tmp_path / "two", *more) for word in ("--set", setting)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", port]
    done = subprocess.run(
        [*launcher, "-m", "repair", "train", str(config), *settings],
        env=dict(os.environ, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("run ") == 1  # one process reports
    one, two = (
        load_file(tmp_path / name / "run" / "round-0" / "weights" / "model.safetensors") for name in ("one", "two")
    )
    assert one.keys() == two.keys()
    for name, value in one.items():
        assert torch.allclose(value, two[name], atol=1e-4), name
    assert len((tmp_path / "two" / "run" / "round-0" / "metrics.jsonl").read_text().splitlines()) == 4
