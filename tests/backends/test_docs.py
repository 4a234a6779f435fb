"""What the pages about backends show holds: the example backend runs, every config of docs/servers.md is one."""

import asyncio
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from repair.config import load_config
from repair.core.errors import BadReply, ConfigError
from repair.core.records import Criterion
from repair.core.registry import Registry
from repair.pipeline import registries
from tests.backends.chat.cases import image_to_text, text_to_image

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_example_backend_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    code, registration = blocks("adding-a-backend.md", "python")
    module = ModuleType("repair.backends.overlap")
    exec(compile(code, "overlap.py", "exec"), module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    own = Registry("verifier")
    exec(registration, {"VERIFIERS": own})
    made = own.build("overlap", options={"max_shared": 0.5})
    kept = asyncio.run(made.verify(image_to_text("A cat sleeps ."), seed=0)).value
    assert kept.keep
    dropped = asyncio.run(made.verify(image_to_text("A man in a red shirt"), seed=0)).value
    assert dropped.criterion is Criterion.BENIGN_MISMATCH
    assert made.fingerprint != own.build("overlap").fingerprint
    with pytest.raises(BadReply, match="image_to_text"):
        asyncio.run(made.verify(text_to_image(), seed=0))
    with pytest.raises(ConfigError, match="max_shared"):
        own.build("overlap", options={"max_shared": 2.0})


@pytest.mark.parametrize("text", blocks("servers.md", "toml"), ids=lambda text: text.split("\n")[1][:30])
def test_every_config_of_the_servers_page_is_one(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    config = load_config(tomllib.loads(text), environment={})
    registries.require_choices(config)
    if config.calls.planner != "world":
        registries.PLANNERS.build(config.calls.planner, options=config.calls.planner_options)
    if config.editing.image_editor == "image_edits":
        registries.IMAGE_EDITORS.build("image_edits", options=config.editing.image_options)
    if config.editing.image_editor == "diffusion":
        pytest.importorskip("diffusers")
        registries.IMAGE_EDITORS.build("diffusion", options=config.editing.image_options)


def test_the_example_config_makes_its_backends() -> None:
    config = load_config(DOCS.parent / "configs" / "chat.toml", environment={})
    registries.VERIFIERS.build(config.verification.verifier, options=config.verification.options)
    registries.INSTRUCTORS.build(config.instruction.instructor, options=config.instruction.options)
    registries.TEXT_EDITORS.build(config.editing.text_editor, options=config.editing.text_options)
    registries.IMAGE_EDITORS.build(config.editing.image_editor, options=config.editing.image_options)
    registries.PLANNERS.build(config.calls.planner, options=config.calls.planner_options)
