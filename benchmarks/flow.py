"""Items that go their way one by one against stages that wait for each other: wall time of verify to select.

    python benchmarks/flow.py [--failures 60] [--concurrency 8]

Its files lie in a temporary folder: TMPDIR says where, if another disk is to be measured.

The world's backends with simulated latency: a language model (median 50 ms) and an image editor (median 300 ms), both
log-normal with a long tail, each a place of its own. Both ways make the same calls and must leave the same tables. The
ideal is the busier place's seconds of work over its calls in flight: no order of calls can be quicker.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from repair.config import Config, load_config
from repair.core.identity import derive_rng
from repair.core.ports import Case
from repair.core.progress import Silent
from repair.pipeline import registries
from repair.pipeline.run import run_pipeline
from repair.world import backends as world

MEDIAN_S = {"language": 0.05, "image": 0.3}
SPREAD = 0.6  # of the logarithm: one call in twenty takes 2.7 times the median
busy_s: Counter[str] = Counter()


class Slow:
    """A backend of the world that answers late."""

    def __init__(self, inner: Any, model: str) -> None:
        self._inner = inner
        self._model = model
        self.place = f"simulated|{model}"
        self.fingerprint = inner.fingerprint

    async def _wait(self, task: str, case: Case, seed: int) -> None:
        delay_s = MEDIAN_S[self._model] * float(derive_rng(seed, task, case.failure_id).lognormal(0.0, SPREAD))
        busy_s[self._model] += delay_s  # type: ignore[assignment]
        await asyncio.sleep(delay_s)

    async def verify(self, case: Case, *, seed: int) -> Any:
        await self._wait("verify", case, seed)
        return await self._inner.verify(case, seed=seed)

    async def instruct(self, case: Case, *, seed: int) -> Any:
        await self._wait("instruct", case, seed)
        return await self._inner.instruct(case, seed=seed)

    async def edit_text(self, case: Case, instruction: Any, *, seed: int) -> Any:
        await self._wait("edit_text", case, seed)
        return await self._inner.edit_text(case, instruction, seed=seed)

    async def edit_image(self, case: Case, instruction: Any, *, seed: int) -> Any:
        await self._wait("edit_image", case, seed)
        return await self._inner.edit_image(case, instruction, seed=seed)

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Any:
        await self._wait("plan", case, seed)
        return await self._inner.plan(case, n_edits=n_edits, seed=seed)


def slow_verifier() -> Slow:
    return Slow(world.WorldVerifier(), "language")


def slow_instructor() -> Slow:
    return Slow(world.WorldInstructor(), "language")


def slow_text_editor() -> Slow:
    return Slow(world.WorldTextEditor(), "language")


def slow_image_editor() -> Slow:
    return Slow(world.WorldImageEditor(), "image")


def slow_planner() -> Slow:
    return Slow(world.WorldPlanner(), "language")


def register() -> None:
    for registry, factory in (
        (registries.VERIFIERS, slow_verifier),
        (registries.INSTRUCTORS, slow_instructor),
        (registries.TEXT_EDITORS, slow_text_editor),
        (registries.IMAGE_EDITORS, slow_image_editor),
        (registries.PLANNERS, slow_planner),
    ):
        registry.add("slow", f"{__name__}:{factory.__name__}", "simulated latency")


def config(folder: Path, name: str, args: argparse.Namespace, *more: str) -> Config:
    settings = [
        "data.options={n_train=150, n_val=5, n_test=5}",
        f"mining.max_failures={args.failures}",
        f"calls.concurrency={args.concurrency}",
        "verification.verifier=slow",
        "instruction.instructor=slow",
        "editing.text_editor=slow",
        "editing.image_editor=slow",
        "calls.planner=slow",
        f"run.folder={folder}",
        f"run.name={name}",
        f"run.cache={folder}/cache",
    ]
    return load_config(None, overrides=[*settings, *more], environment={})


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "round-0").glob("*.parquet"))}


def compare(folder: Path, plan: str, args: argparse.Namespace) -> None:
    seconds, ideal_s = {}, 0.0
    for flow in ("false", "true"):
        name = f"{plan}-{flow}"
        run_pipeline(config(folder, name, args), until="mine", reuse=False, progress=Silent())
        busy_s.clear()
        began = time.perf_counter()
        more = (f"calls.plan={plan}", f"calls.flow={flow}")
        run_pipeline(config(folder, name, args, *more), until="select", reuse=True, progress=Silent())
        seconds[flow] = time.perf_counter() - began
        ideal_s = max(busy_s.values()) / args.concurrency
    same = tables(folder / f"{plan}-false") == tables(folder / f"{plan}-true")
    print(
        f"{plan}: stage by stage {seconds['false']:.1f} s, one by one {seconds['true']:.1f} s, "
        f"ratio {seconds['false'] / seconds['true']:.2f}; ideal {ideal_s:.1f} s; tables {'equal' if same else 'DIFFER'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=60, help="a direction")
    parser.add_argument("--concurrency", type=int, default=8, help="calls in flight at each place")
    args = parser.parse_args()
    register()
    with tempfile.TemporaryDirectory() as folder:
        for plan in ("staged", "fused"):
            compare(Path(folder), plan, args)


if __name__ == "__main__":
    main()
