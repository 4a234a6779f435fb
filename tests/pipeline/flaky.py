"""The world's backends behind a door: calls that a file names fail, and every call is written down.

Their folder holds `fails` (one word a line: a task, or a task and a remainder of three, "verify 1") and gets `calls`
(task, failure id and seed of each call, in order). While a file `hangs` is there, no call is answered.
"""

import asyncio
from pathlib import Path
from typing import Any

from repair.core.errors import Refused
from repair.core.identity import derive_seed
from repair.core.ports import Case
from repair.pipeline import registries
from repair.world import backends as world


class _Door:
    def __init__(self, inner: Any, folder: str) -> None:
        self._inner = inner
        self._folder = Path(folder)
        self.fingerprint = inner.fingerprint

    async def _enter(self, task: str, case: Case, seed: int) -> None:
        with (self._folder / "calls").open("a") as file:
            file.write(f"{task} {case.failure_id} {seed}\n")
        while (self._folder / "hangs").exists():
            await asyncio.sleep(0.005)
        fails = self._folder / "fails"
        words = fails.read_text().splitlines() if fails.exists() else []
        if task in words or f"{task} {derive_seed(0, case.failure_id) % 3}" in words:
            raise Refused("the door is shut")

    async def verify(self, case: Case, *, seed: int) -> Any:
        await self._enter("verify", case, seed)
        return await self._inner.verify(case, seed=seed)

    async def instruct(self, case: Case, *, seed: int) -> Any:
        await self._enter("instruct", case, seed)
        return await self._inner.instruct(case, seed=seed)

    async def edit_text(self, case: Case, instruction: Any, *, seed: int) -> Any:
        await self._enter("edit_text", case, seed)
        return await self._inner.edit_text(case, instruction, seed=seed)

    async def edit_image(self, case: Case, instruction: Any, *, seed: int) -> Any:
        await self._enter("edit_image", case, seed)
        return await self._inner.edit_image(case, instruction, seed=seed)

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Any:
        await self._enter("plan", case, seed)
        return await self._inner.plan(case, n_edits=n_edits, seed=seed)


def verifier(*, folder: str) -> _Door:
    return _Door(world.WorldVerifier(), folder)


def instructor(*, folder: str) -> _Door:
    return _Door(world.WorldInstructor(), folder)


def text_editor(*, folder: str) -> _Door:
    return _Door(world.WorldTextEditor(), folder)


def image_editor(*, folder: str) -> _Door:
    return _Door(world.WorldImageEditor(), folder)


def planner(*, folder: str) -> _Door:
    return _Door(world.WorldPlanner(), folder)


_REGISTRIES = {
    "verifier": registries.VERIFIERS,
    "instructor": registries.INSTRUCTORS,
    "text_editor": registries.TEXT_EDITORS,
    "image_editor": registries.IMAGE_EDITORS,
    "planner": registries.PLANNERS,
}


def register() -> None:
    for role, registry in _REGISTRIES.items():
        if "flaky" not in registry.entries:
            registry.add("flaky", f"tests.pipeline.flaky:{role}", "for tests")


def settings(folder: Path) -> list[str]:
    options = f'{{folder="{folder}"}}'
    return [
        "verification.verifier=flaky",
        f"verification.options={options}",
        "instruction.instructor=flaky",
        f"instruction.options={options}",
        "editing.text_editor=flaky",
        f"editing.text_options={options}",
        "editing.image_editor=flaky",
        f"editing.image_options={options}",
        "calls.planner=flaky",
        f"calls.planner_options={options}",
        "calls.max_failed_rate=1",
    ]


def requests(folder: Path) -> list[tuple[str, str, str]]:
    """(task, failure id, seed) of every call so far, in order."""
    file = folder / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(task, failure, seed) for task, failure, seed in map(str.split, lines)]


def calls(folder: Path) -> list[tuple[str, str]]:
    """(task, failure id) of every call so far, in order; the list is emptied."""
    found = [(task, failure) for task, failure, _ in requests(folder)]
    (folder / "calls").write_text("")
    return found


COMMAND = "from tests.pipeline import flaky; flaky.register(); from repair.cli import main; main()"
