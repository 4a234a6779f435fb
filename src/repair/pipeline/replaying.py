"""`replay(path=…, of=…)` by name: a recording over any other backend of the same kind."""

from typing import Any, TypeVar

from repair.backends.replay import (
    Recording,
    ReplayImageEditor,
    ReplayInstructor,
    ReplayPlanner,
    ReplayTextEditor,
    ReplayVerifier,
)
from repair.core.registry import Registry
from repair.pipeline import registries

Made = TypeVar("Made", ReplayVerifier, ReplayInstructor, ReplayTextEditor, ReplayImageEditor, ReplayPlanner)


def verifier(*, path: str, of: str = "", options: dict[str, Any] = {}, backend: str = "") -> ReplayVerifier:  # noqa: B006
    """Answers recorded in the file `path`; `of` names the backend that answers the rest, with its `options`.

    Without `of` only what is recorded is answered; `backend` is then the beginning of a fingerprint, needed if answers
    of several are recorded. Raises what making the backend raises, and what `Recording` and `_Replay` raise.
    """
    return _made(ReplayVerifier, registries.VERIFIERS, path, of, options, backend)


def instructor(*, path: str, of: str = "", options: dict[str, Any] = {}, backend: str = "") -> ReplayInstructor:  # noqa: B006
    """As `verifier`."""
    return _made(ReplayInstructor, registries.INSTRUCTORS, path, of, options, backend)


def text_editor(*, path: str, of: str = "", options: dict[str, Any] = {}, backend: str = "") -> ReplayTextEditor:  # noqa: B006
    """As `verifier`."""
    return _made(ReplayTextEditor, registries.TEXT_EDITORS, path, of, options, backend)


def image_editor(*, path: str, of: str = "", options: dict[str, Any] = {}, backend: str = "") -> ReplayImageEditor:  # noqa: B006
    """As `verifier`."""
    return _made(ReplayImageEditor, registries.IMAGE_EDITORS, path, of, options, backend)


def planner(*, path: str, of: str = "", options: dict[str, Any] = {}, backend: str = "") -> ReplayPlanner:  # noqa: B006
    """As `verifier`."""
    return _made(ReplayPlanner, registries.PLANNERS, path, of, options, backend)


def _made(kind: type[Made], registry: Registry, path: str, of: str, options: dict[str, Any], backend: str) -> Made:
    inner = registry.build(of, options=options) if of else None
    return kind(Recording(path), inner, backend=backend)
