"""Prompts as versioned files, filled in so that data can never become part of the task.

A file `NAME.vN.txt` begins with lines of comment (`#`), then holds the sections [system] (may be absent) and [user],
with `{{slots}}`. Its id is NAME, its version vN, and its content hash goes into the fingerprint of whoever uses it:
another word is another prompt. A shipped file is never changed once runs were made with it; a better one gets the next
number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from repair.core.errors import ConfigError, DataError, suggest
from repair.core.identity import canonical_json, hash_bytes

MAX_TEXT = 2000  # characters of one caption or sentence; longer ones are no captions

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_NAME = re.compile(r"(?P<id>\w+)\.(?P<version>v\d+)\.txt")
_SECTIONS = ("system", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`system` and `user` are templates; `digest` is the content hash of the whole file."""

    id: str
    version: str
    system: str
    user: str
    digest: str

    def fill(self, slots: Mapping[str, str]) -> tuple[str, str]:
        """System and user text with the slots filled, each once and not again in what was filled in.

        Raises ConfigError if the prompt has a slot that nothing fills.
        """
        return self._filled(self.system, slots), self._filled(self.user, slots)

    def _filled(self, template: str, slots: Mapping[str, str]) -> str:
        unknown = sorted(set(_SLOT.findall(template)) - set(slots))
        if unknown:
            raise ConfigError(f'prompt {self.id} {self.version}: no slot "{unknown[0]}": {suggest(unknown[0], slots)}')
        return _SLOT.sub(lambda match: slots[match.group(1)], template)


def load_prompt(name: str, path: str = "") -> Prompt:
    """The newest shipped prompt called `name`, or the one in the file `path`, which must be called NAME.vN.txt.

    Raises ConfigError if there is no such prompt or the file is not in the form described above.
    """
    if not path:
        return _shipped(name)
    file = Path(path)
    try:
        return _parse(file.name, file.read_text(encoding="utf-8"), where=str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt file {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def shipped_prompts() -> dict[str, Prompt]:
    """The newest version of each prompt that comes with the package, by id."""
    newest: dict[str, tuple[int, Prompt]] = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name):
        if _NAME.fullmatch(file.name):
            prompt = _parse(file.name, file.read_text(encoding="utf-8"), where=file.name)
            number = int(prompt.version[1:])
            if prompt.id not in newest or number > newest[prompt.id][0]:
                newest[prompt.id] = (number, prompt)
    return {name: prompt for name, (_, prompt) in newest.items()}


@cache
def _shipped(name: str) -> Prompt:
    prompts = shipped_prompts()
    if name not in prompts:
        raise ConfigError(f'no prompt "{name}": {suggest(name, prompts)}')
    return prompts[name]


def _parse(file_name: str, text: str, *, where: str) -> Prompt:
    named = _NAME.fullmatch(file_name)
    if named is None:
        raise ConfigError(f"prompt file {where}: its name must be NAME.vN.txt, e.g. verify.v2.txt")
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if line.strip() in {f"[{name}]" for name in _SECTIONS}:
            current = sections.setdefault(line.strip()[1:-1], [])
        elif current is not None:
            current.append(line)
        elif line.strip() and not line.startswith("#"):
            raise ConfigError(f"prompt file {where}: text before the first section: begin with [system] or [user]")
    if not "".join(sections.get("user", ())).strip():
        raise ConfigError(f"prompt file {where}: it has no section [user]")
    return Prompt(
        id=named["id"],
        version=named["version"],
        system="\n".join(sections.get("system", ())).strip(),
        user="\n".join(sections["user"]).strip(),
        digest=hash_bytes(text.encode()),
    )


# --------------------------------------------------------------------------------------------- data


def data_block(name: str, texts: Mapping[str, str | list[str]]) -> str:
    """`texts` as a delimited block of data: one line of JSON a text, in which no delimiter can occur.

    `<` and `>` are written as JSON escapes, as is every character that cannot be seen, so whatever a caption
    says, the block ends where it was closed. `name` and the keys are ours. Raises DataError for a text over MAX_TEXT.

    Example:
        >>> print(data_block("query", {"caption": "a dog </data>"}))
        <data name="query">
        caption: "a dog \\u003c/data\\u003e"
        </data>
    """
    lines = [f"{key}: {quoted(value)}" for key, value in texts.items()]
    return "\n".join([f'<data name="{name}">', *lines, "</data>"])


def quoted(value: str | list[str]) -> str:
    """JSON on one line, without `<`, `>` and unseen characters. Raises DataError for a text over MAX_TEXT."""
    for text in [value] if isinstance(value, str) else value:
        _check_length(text)
    return "".join(
        char if char.isprintable() and char not in "<>" else _escaped(char) for char in canonical_json(value)
    )


def plain_line(text: str) -> str:
    """`text` on one line without unseen characters, for models that take plain text only."""
    _check_length(text)
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _check_length(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise DataError(f'a text of {len(text)} characters, more than {MAX_TEXT}, is not sent: "{text[:60]}…"')
