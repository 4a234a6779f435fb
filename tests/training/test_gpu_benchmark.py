"""benchmarks/gpu.py on small sizes: what it times is the real thing, and what it counts is what torch counts."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

transformers = pytest.importorskip("transformers")
pytest.importorskip("torchvision")


@pytest.fixture(scope="module")
def gpu():
    path = Path(__file__).parents[2] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_row_of_the_table_is_there(gpu, capsys):
    gpu.main(["--smoke"])
    said = capsys.readouterr().out
    rows = [line.split("|")[1:-1] for line in said.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows} == {8}
    for what in (
        "matrix product",
        "embed 48 images",
        "vanilla, 20 pairs",
        "grids, 8 pairs + 4 grids",
        "pieces, 20 pairs",
    ):
        assert any(row[0].strip().startswith(what) and float(row[1]) > 0 for row in rows), what
    assert "top-k, 300 × 90" in said
    assert "lists equal" in said


def test_without_a_gpu_nothing_is_measured(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="torch sees no GPU; --smoke"):
        gpu.main([])


def test_operations_are_counted_as_torch_counts_them(gpu):
    config = transformers.CLIPConfig(**gpu.SMOKE.model, attn_implementation="eager")
    model = transformers.CLIPModel(config).eval()
    inputs = {
        "get_image_features": {"pixel_values": torch.zeros(1, 3, 64, 64)},
        "get_text_features": {"input_ids": torch.full((1, 77), 49407)},
    }
    for flop, (method, arguments) in zip(gpu.forward_flop(config), inputs.items(), strict=True):
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            getattr(model, method)(**arguments)
        assert flop == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_a_search_that_runs_out_of_time_says_how_far_it_came(gpu):
    rows = torch.nn.functional.normalize(torch.randn(8, 4))
    n_done, _ = gpu.top_k_both(rows, rows, k=2, block=4, until=0.0)
    assert n_done == 0
