"""Command lines and other quoted words as a page tells them: without this machine's folders."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

_ROOT = r"(?:file://)?(?:/|~[\w.-]*/)"  # how an absolute path begins
_QUOTED = re.compile(rf"""(?P<quote>["'])(?P<path>{_ROOT}.*?)(?P=quote)""")
_BARE = re.compile(rf"""(?<![^\s=,;({{\[])(?P<path>{_ROOT}[^\s,;"')}}\]]*)""")
_WHOLE = re.compile(rf"{_ROOT}[^=\"']*")


def command_line(words: Sequence[str]) -> str:
    """To be typed in the project's folder: paths below it are relative, and of others only the name is told."""
    return " ".join(_quoted(without_folders(word)) for word in words)


def without_folders(word: str) -> str:
    """`word` with the last name only of every absolute path: of `run.folder=/home/me/x` and `'path="/home/me/x"'` too.

    Paths below the working directory are told from there.
    """
    if _WHOLE.fullmatch(word):
        return _short(word)
    name, equals, value = word.partition("=")
    if equals and _WHOLE.fullmatch(value):  # unquoted to its end, so that it may hold spaces
        return f"{name}={_short(value)}"
    word = _QUOTED.sub(lambda found: f"{found['quote']}{_short(found['path'])}{found['quote']}", word)
    return _BARE.sub(lambda found: _short(found["path"]), word)


def _quoted(word: str) -> str:
    """For a shell; a word with single quotes stands in double ones, where that is easier to read."""
    if "'" not in word or set(word) & set('"$`\\!'):
        return shlex.quote(word)
    return f'"{word}"'


def _short(path: str) -> str:
    place, here = Path(path.removeprefix("file://")), Path.cwd()
    if place.is_relative_to(here):
        return str(place.relative_to(here))
    return place.name or "/"
