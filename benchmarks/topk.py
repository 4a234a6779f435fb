"""Exact top-k in both directions: ours beside faiss's flat index and plain torch, on one machine in one run.

    python benchmarks/topk.py [--rows 30000] [--columns 8192] [--dim 512] [--k 10] [--repeats 3] [--threads 2]

Each measurement is a fresh process (so that peaks do not mix), the methods take turns (so that a busy minute hits
them alike), and medians are printed. Memory is the peak of the process above what it held when its data were ready.
faiss and torch search twice, once for each direction; ours fills both from one pass. `other list` is the share of
queries whose list is not that of the order (-score, index) of exact scores: copies and near-ties in the wrong place.
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

METHODS = ("ours", "faiss", "torch")


def main() -> None:
    options = _options()
    if options.method:
        print(json.dumps(_measure(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        _write_data(options)
        runs: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
        for _ in range(options.repeats):
            for method in METHODS:
                runs[method].append(_in_process(options, method))
        other = {method: _other_list(folder, method) for method in METHODS}
    shape = f"{options.rows:,} x {options.columns:,}, dim {options.dim}, k {options.k}"
    print(f"top-k both ways, {shape}, {options.threads} threads, median of {options.repeats}")
    print(f"{'':8}{'seconds':>10}{'ratio':>8}{'cpu s':>10}{'ratio':>8}{'peak MB':>10}{'other list':>14}")
    medians = {m: {key: statistics.median(run[key] for run in runs[m]) for key in runs[m][0]} for m in METHODS}
    for method in METHODS:
        own, base = medians[method], medians["ours"]
        print(
            f"{method:8}{own['seconds']:>10.2f}{own['seconds'] / base['seconds']:>8.2f}{own['cpu_s']:>10.2f}"
            f"{own['cpu_s'] / base['cpu_s']:>8.2f}{own['peak_mb']:>10.0f}{other[method]:>14.2%}"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 30000), ("columns", 8192), ("dim", 512), ("k", 10), ("repeats", 3), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def _write_data(options: argparse.Namespace) -> None:
    """Unit rows; one column in ten is a copy of another, as captions are."""
    rng = np.random.default_rng(0)
    for name, n in (("rows", options.rows), ("columns", options.columns)):
        vectors = rng.standard_normal((n, options.dim), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        if name == "columns":
            vectors[-(n // 10) :] = vectors[: n // 10]
        np.save(Path(options.folder) / f"{name}.npy", vectors)


def _in_process(options: argparse.Namespace, method: str) -> dict[str, float]:
    threads = str(options.threads)
    command = [sys.executable, __file__, "--method", method, "--folder", options.folder]
    command += ["--k", str(options.k), "--threads", threads]
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _measure(options: argparse.Namespace) -> dict[str, float]:
    folder = Path(options.folder)
    rows, columns = np.load(folder / "rows.npy"), np.load(folder / "columns.npy")
    search = {"ours": _ours, "faiss": _faiss, "torch": _torch}[options.method]()
    search(rows[:64], columns[:64], 2)  # load libraries and start threads before the clock does
    held, cpu, started = _peak_mb(), time.process_time(), time.perf_counter()
    found = search(rows, columns, options.k)
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    np.savez(folder / f"{options.method}.npz", rows=found[0], columns=found[1])
    return {"seconds": seconds, "cpu_s": cpu_s, "peak_mb": _peak_mb() - held}


Search = Callable[[Any, Any, int], tuple[Any, Any]]


def _ours() -> Search:
    from repair.numerics.similarity import search_both

    def search(rows: Any, columns: Any, k: int) -> tuple[Any, Any]:
        found = search_both(rows, columns, k=k)
        return found.rows.indices, found.columns.indices

    return search


def _faiss() -> Search:
    import faiss

    def one_way(queries: Any, items: Any, k: int) -> Any:
        index = faiss.IndexFlatIP(items.shape[1])
        index.add(items)
        return index.search(queries, k)[1]

    return lambda rows, columns, k: (one_way(rows, columns, k), one_way(columns, rows, k))


def _torch() -> Search:
    import torch

    def one_way(queries: Any, items: Any, k: int) -> Any:
        left, right = torch.from_numpy(queries), torch.from_numpy(items)
        return torch.cat([(block @ right.T).topk(k, 1).indices for block in left.split(1024)]).numpy()

    return lambda rows, columns, k: (one_way(rows, columns, k), one_way(columns, rows, k))


def _other_list(folder: str, method: str) -> float:
    """The share of queries, both directions, whose list is not ours; the tests hold ours equal to brute force."""
    with np.load(Path(folder) / f"{method}.npz") as found, np.load(Path(folder) / "ours.npz") as exact:
        other = [(found[side] != exact[side]).any(axis=1) for side in ("rows", "columns")]
    return float(np.concatenate(other).mean())


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
