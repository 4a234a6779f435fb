"""`repair init`: a commented config for the user's own data."""

import textwrap
from pathlib import Path
from typing import Any

from repair.config import Config, settings, toml_literal
from repair.core.errors import ConfigError, suggest
from repair.pipeline.registries import ENCODERS, SOURCES

_SOURCE_OPTIONS = {
    "jsonl": '{ path = "captions.jsonl", images = "images" }',
    "csv": '{ path = "captions.csv", images = "images" }',
    "karpathy": '{ path = "dataset_flickr30k.json", images = "flickr30k-images" }',
    "coco": '{ path = "captions_train2017.json", images = "train2017" }',
    "folder": '{ path = "images" }',
    "world": "{}",
}
_HEADER = """\
# RePair settings. Check them with `repair doctor {path}`, then run `repair run {path}`.
# A line that starts with "# " and a setting shows its default; remove the mark to change it.
# Any setting can also be given as --set section.key=value or as REPAIR_SECTION__KEY in the environment.
"""


def write_template(path: Path, *, source: str, encoder: str, force: bool) -> None:
    """Write the file. Raises ConfigError if it exists (without `force`) or a name is unknown."""
    for registry, name in ((SOURCES, source), (ENCODERS, encoder)):
        if name not in registry.entries:
            raise ConfigError(f'unknown {registry.kind} "{name}": {suggest(name, registry.entries)}')
    if path.exists() and not force:
        raise ConfigError(f"{path} exists; choose another name, or overwrite it with --force")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is not a folder; make it first")
    path.write_text(template(path, source=source, encoder=encoder), encoding="utf-8")


def template(path: Path, *, source: str, encoder: str) -> str:
    """The file's text; loads as it stands."""
    backend = "world" if source == "world" else "lexical"
    chosen = {
        "data.source": f'"{source}"',
        "data.options": _SOURCE_OPTIONS[source],
        "encoder.name": f'"{encoder}"',
        "verification.verifier": f'"{backend}"',
        "instruction.instructor": f'"{backend}"',
        "editing.text_editor": f'"{backend}"',
        "editing.image_editor": f'"{backend if backend == "world" else "none"}"',
        "calls.planner": f'"{backend}"',
        "training.lr": "3e-4" if encoder == "towers" else "1e-4",
    }
    lines = [_HEADER.format(path=path)]
    section = ""
    for name, default, kind, description in settings():
        if name.split(".")[0] != section:
            section = name.split(".")[0]
            lines.append(f"[{section}]")
        lines += _setting(name, default, kind, description, chosen.get(name))
    return "\n".join(lines) + "\n"


def _setting(name: str, default: Any, kind: str, description: str, chosen: str | None) -> list[str]:
    key = name.split(".")[1]
    comment = textwrap.wrap(f"{description} ({kind})", width=110, initial_indent="# ", subsequent_indent="# ")
    if chosen is not None:
        line = f"{key} = {chosen}"
    elif default is None:
        line = f"# {key} = "
    else:
        line = f"# {key} = {toml_literal(Config().model_dump(mode='json')[name.split('.')[0]][key])}"
    return [*comment, line, ""]
