"""COCO-5k-sized retrieval: ours beside CLIP_benchmark's code path, on one machine in one run.

    pip install --no-deps clip-benchmark    # scripts/setup dev has done so; its other needs are not needed here
    python benchmarks/evaluation.py [--images 5000] [--captions 25010] [--dim 512] [--repeats 3] [--threads 1]

Both get the same unit rows and give R@1, R@5 and R@10 both ways. *ours* is `evaluate_retrieval` as it is called by
default: exact scores, ties counted, and on top MRR, median rank, mAP@R, R-precision and 2,000 bootstrap resamples
behind every interval. *ours, no intervals* leaves the resamples out. *clip_benchmark* is the published code path: the
package's own functions where clip-benchmark is installed, else the same steps written out here (the whole score matrix,
a boolean matrix of positives, top-k, one-hot, batches of 64). Each measurement is a fresh process, the methods take
turns, medians are printed. Memory is the peak of the process above what it held when its data were ready.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

METHODS = ("ours", "ours, no intervals", "clip_benchmark")
KS = (1, 5, 10)
_BATCH = 64  # CLIP_benchmark's default batch size

Scores = dict[str, float]


def main() -> None:
    options = _options()
    if options.method:
        print(json.dumps(_measure(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        _write_data(options)
        runs: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
        for _ in range(options.repeats):
            for method in METHODS:
                runs[method].append(_in_process(options, method))
    shape = f"{options.images:,} x {options.captions:,}, dim {options.dim}"
    print(f"retrieval both ways, {shape}, {options.threads} threads, median of {options.repeats}; {_peer()}")
    print(f"{'':20}{'seconds':>10}{'ratio':>8}{'cpu s':>10}{'ratio':>8}{'peak MB':>10}{'ratio':>8}")
    medians = {m: {key: statistics.median(run[key] for run in runs[m]) for key in _FIGURES} for m in METHODS}
    for method in METHODS:
        own, base = medians[method], medians["ours"]
        cells = "".join(f"{own[key]:>10.{digits}f}{own[key] / base[key]:>8.2f}" for key, digits in _FIGURES.items())
        print(f"{method:20}{cells}")
    wanted, found = runs["clip_benchmark"][0]["scores"], runs["ours"][0]["scores"]
    apart = max(abs(wanted[name] - found[name]) for name in wanted)
    print(f"largest difference of any R@k: {apart:.2e}")


_FIGURES = {"seconds": 2, "cpu_s": 2, "peak_mb": 0}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("images", 5000), ("captions", 25010), ("dim", 512), ("repeats", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def _write_data(options: argparse.Namespace) -> None:
    """Captions near their images, so that R@1 is about that of a good model; every image has five, a few have six."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((options.images, options.dim), dtype=np.float32)
    owner = np.sort(np.arange(options.captions) % options.images)
    texts = images[owner] + 5 * rng.standard_normal((options.captions, options.dim), dtype=np.float32)
    for name, rows in (("images", images), ("texts", texts)):
        np.save(Path(options.folder) / f"{name}.npy", rows / np.linalg.norm(rows, axis=1, keepdims=True))
    np.save(Path(options.folder) / "owner.npy", owner)


def _in_process(options: argparse.Namespace, method: str) -> dict[str, Any]:
    threads = str(options.threads)
    command = [sys.executable, __file__, "--method", method, "--folder", options.folder, "--threads", threads]
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(options.folder)
    images, texts, owner = (np.load(folder / f"{name}.npy") for name in ("images", "texts", "owner"))
    evaluate = {"ours": _ours(2000), "ours, no intervals": _ours(1), "clip_benchmark": _clip_benchmark}[options.method]
    if options.method == "clip_benchmark":
        import torch

        torch.set_num_threads(options.threads)
    few = owner < 20
    evaluate(images[:20], texts[few], owner[few])  # load libraries and start threads before the clock does
    held, cpu, started = _peak_mb(), time.process_time(), time.perf_counter()
    scores = evaluate(images, texts, owner)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mb": _peak_mb() - held, "scores": scores}


def _ours(n_bootstrap: int) -> Callable[[Any, Any, Any], Scores]:
    def evaluate(images: Any, texts: Any, owner: Any) -> Scores:
        from repair.evaluation.retrieval import evaluate_retrieval

        found = evaluate_retrieval(
            images,
            texts,
            image_ids=[f"{i:06}" for i in range(len(images))],
            caption_ids=[f"{i:06}" for i in range(len(texts))],
            owner=owner,
            split="test",
            recall_at=KS,
            n_bootstrap=n_bootstrap,
        )
        return {
            f"{direction} R@{recall.k}": recall.interval.estimate
            for direction, side in found.directions.items()
            for recall in side.recall
        }

    return evaluate


def _clip_benchmark(images: Any, texts: Any, owner: Any) -> Scores:
    """What clip_benchmark.metrics.zeroshot_retrieval.evaluate does once embeddings are there."""
    import torch

    recall_at_k, batchify = _functions()
    scores = torch.from_numpy(texts) @ torch.from_numpy(images).t()
    positive = torch.zeros_like(scores, dtype=torch.bool)
    positive[torch.arange(len(scores)), torch.from_numpy(owner)] = True
    found = {}
    for k in KS:
        for name, x, y in (("text_to_image", scores, positive), ("image_to_text", scores.T, positive.T)):
            recall = batchify(recall_at_k, x, y, _BATCH, "cpu", k=min(k, x.shape[1]))
            found[f"{name} R@{k}"] = float((recall > 0).float().mean())
    return found


def _functions() -> tuple[Any, Any]:
    try:
        from clip_benchmark.metrics.zeroshot_retrieval import batchify, recall_at_k

        return recall_at_k, batchify
    except ImportError:
        return _recall_at_k, _batchify


def _recall_at_k(scores: Any, positive: Any, k: int) -> Any:
    import torch

    found = torch.nn.functional.one_hot(scores.topk(k, dim=1)[1], num_classes=scores.shape[1])
    return (found * positive.reshape(len(scores), 1, -1)).sum(dim=(1, 2)) / positive.sum(dim=1)


def _batchify(function: Any, x: Any, y: Any, size: int, device: str, **options: Any) -> Any:
    import torch

    parts = range(0, len(x), size)
    return torch.cat([function(x[i : i + size].to(device), y[i : i + size].to(device), **options) for i in parts])


def _peer() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"clip-benchmark {version('clip-benchmark')}"
    except PackageNotFoundError:
        return (
            "clip-benchmark is not installed (pip install --no-deps clip-benchmark): its published steps, written out "
            "here"
        )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
