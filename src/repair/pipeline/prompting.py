"""`repair prompts`: a prompt file as it is, or filled in with one failure of a run."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repair.backends.chat.images import ImageAs, ImageSender
from repair.backends.chat.showing import instruction_block, messages_of
from repair.backends.chat.tasks import edits_wish
from repair.backends.image_edits import as_sentence
from repair.backends.prompts import Prompt, load_prompt
from repair.config import Config
from repair.core.errors import ConfigError, suggest
from repair.core.ports import Case
from repair.core.records import Direction, Instruction
from repair.core.registry import parse_spec
from repair.pipeline.catalogue import build_case, build_catalogue
from repair.pipeline.look import find_failure, rows_of
from repair.pipeline.places import config_of
from repair.pipeline.sources import open_source
from repair.store.run_folder import RunFolder

TASKS = ("verify", "instruct", "edit", "plan")


def shown_prompt(task: str, *, failure_id: str | None, run: Path | None) -> dict[str, Any]:
    """The prompt of `task` as {"prompt", "version", "hash", "messages"}; without `failure_id` with its slots open.

    What the run's config says of the chat backend counts: its own prompt file, images or captions. `run` None: the run
    below runs/ that was changed last. Nothing is asked of a model. Raises ConfigError for an unknown task, run or
    failure, and for an edit whose instruction has not been made yet.
    """
    if task not in TASKS:
        raise ConfigError(f'unknown task "{task}": {suggest(task, TASKS)}')
    if failure_id is None:
        names = ("edit_text", "edit_image") if task == "edit" else (task,)
        prompts = [load_prompt(name) for name in names]
        return _shown(prompts[0], [m for prompt in prompts for m in _open_messages(prompt)])
    folder = RunFolder.view(run or newest_run(Path("runs")))
    config = config_of(folder)
    round, failure = find_failure(folder, failure_id)
    source = open_source(config)
    case = build_case(failure, build_catalogue(source, config.data.train_split), source)
    options = _chat_options(config, task)
    name = _prompt_name(task, case)
    prompt = load_prompt(name, str(options.get("prompt", "")))
    if name == "edit_image":
        _, user = prompt.fill({"instruction": as_sentence(_told(folder, round, case).instruction)})
        return _shown(prompt, [{"role": "user", "content": user}])
    slots: dict[str, str] = {}
    if name == "edit_text":
        slots["instruction"] = instruction_block(_told(folder, round, case))
    if name == "plan":
        with_edits = case.direction is Direction.IMAGE_TO_TEXT
        slots["edits"] = edits_wish(config.editing.n_candidates if with_edits else 0)
    # Pictures sent as files are the same pictures; nothing is written here.
    image_as: ImageAs = "captions" if options.get("image_as") == "captions" else "data_url"
    images = ImageSender(image_as=image_as, max_side=int(options.get("max_side", 768)), folder="")
    messages = asyncio.run(messages_of(prompt, case, images, slots))
    return _shown(prompt, [{"role": m["role"], "content": _text_of(m["content"])} for m in messages])


def prompt_lines(shown: Mapping[str, Any]) -> list[str]:
    lines = [f"prompt {shown['prompt']} {shown['version']} ({shown['hash']})"]
    for message in shown["messages"]:
        lines += ["", f"--- {message['role']}", message["content"]]
    return lines


def newest_run(runs: Path) -> Path:
    """The run below `runs` whose manifest was written last. Raises ConfigError if there is none."""
    found = sorted(runs.glob("*/run.json"), key=lambda manifest: manifest.stat().st_mtime)
    if not found:
        raise ConfigError(f"no run below {runs}/: name one with --run")
    return found[-1].parent


def _shown(prompt: Prompt, messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"prompt": prompt.id, "version": prompt.version, "hash": prompt.digest, "messages": messages}


def _open_messages(prompt: Prompt) -> list[dict[str, str]]:
    parts = {"system": prompt.system, "user": prompt.user}
    return [{"role": role, "content": text} for role, text in parts.items() if text]


def _prompt_name(task: str, case: Case) -> str:
    if task != "edit":
        return task
    return "edit_text" if case.direction is Direction.IMAGE_TO_TEXT else "edit_image"


def _chat_options(config: Config, task: str) -> dict[str, Any]:
    """The options of the run's backend for `task`, if that is one with prompts; a replay's are those of its inner."""
    editing = config.editing
    spec, options = {
        "verify": (config.verification.verifier, config.verification.options),
        "instruct": (config.instruction.instructor, config.instruction.options),
        "edit": (editing.text_editor, editing.text_options),
        "plan": (config.calls.planner, config.calls.planner_options),
    }[task]
    name, own = parse_spec(spec)
    options = {**own, **options}
    if name == "replay" and options.get("of"):
        name, own = parse_spec(str(options["of"]))
        options = {**own, **options.get("options", {})}
    return options if name == "chat" else {}


def _told(folder: RunFolder, round: int, case: Case) -> Instruction:
    for instruction in rows_of(folder, round, "instructions", Instruction):
        if instruction.failure_id == case.failure_id and instruction.error is None:
            return instruction
    raise ConfigError(
        f'failure "{case.failure_id}" has no instruction in round {round} of {folder.path}, so no edit prompt: it was '
        "dropped, or `repair instruct` has not run"
    )


def _text_of(content: Any) -> str:
    """A message's content for people: an image as its size."""
    if isinstance(content, str):
        return content
    shown = []
    for part in content:
        if part["type"] == "text":
            shown.append(part["text"])
        else:
            url = part["image_url"]["url"]
            shown.append(f"[JPEG, {len(url.split(',', 1)[1]) * 3 // 4} bytes]")
    return "\n".join(shown)
