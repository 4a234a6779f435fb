"""Names to factories, loaded only when asked for: "name", "name(key=value, …)" or "name:what".

A factory is a class or function with keyword-only options. Options are checked against its signature, so that a
misspelt one is refused with the nearest right one, and converted by pydantic from what a config file can say.
"""

import ast
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from repair.core.errors import ConfigError, MissingDependency, suggest


@dataclass(frozen=True, slots=True)
class Entry:
    target: str  # "package.module:attribute"
    summary: str
    extra: str | None = None  # the optional dependency group it needs
    argument: str | None = None  # the option that the rest of "name:rest" is; None: there is no such form


@dataclass(slots=True)
class Registry:
    """All choices of one kind. `provided` names arguments the caller passes in, which are not options."""

    kind: str
    entries: dict[str, Entry] = field(default_factory=dict)

    def add(
        self, name: str, target: str, summary: str, *, extra: str | None = None, argument: str | None = None
    ) -> None:
        """Register `name`; with `argument`, "name:rest" sets that option to "rest". Raises ValueError if taken."""
        if name in self.entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self.entries[name] = Entry(target, summary, extra, argument)

    def build(self, spec: str, *, options: Mapping[str, Any] | None = None, **provided: Any) -> Any:
        """The object named by `spec`, with the options of the spec and of `options` (which win).

        `provided` are arguments only the program can supply (a seed, an image reader); those the factory does not
        ask for are left out. Raises ConfigError for an unknown name or option or a value of the wrong type, and
        MissingDependency naming the pip command.
        """
        name, own = self.parse(spec)
        factory = self._load(name)
        chosen = {**own, **dict(options or {})}
        signature = inspect.signature(factory)
        hints = get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
        allowed = [p for p in signature.parameters if p not in provided]
        arguments = {key: value for key, value in provided.items() if key in signature.parameters}
        for key, value in chosen.items():
            if key not in allowed:
                raise ConfigError(f'unknown option "{key}" of {self.kind} "{name}": {suggest(key, allowed)}')
            arguments[key] = _converted(value, hints.get(key, Any), where=f'option "{key}" of {self.kind} "{name}"')
        missing = [key for key, p in signature.parameters.items() if p.default is p.empty and key not in arguments]
        if missing:
            fix = f"write {name}:{missing[0].upper()}" if missing[0] == self.entries[name].argument else ""
            raise ConfigError(
                f'{self.kind} "{name}" needs the option "{missing[0]}": {fix or "set it in the config file"}'
            )
        return factory(**arguments)

    def require(self, spec: str) -> str:
        """The name in `spec`. Raises ConfigError listing the choices if it is not one of them."""
        name, _ = self.parse(spec)
        if name not in self.entries:
            raise ConfigError(f'unknown {self.kind} "{name}": {suggest(name, self.entries)}')
        return name

    def parse(self, spec: str) -> tuple[str, dict[str, Any]]:
        """Name and options of a spec, "name:what" included."""
        name, colon, rest = spec.strip().partition(":")
        if not colon or not name.isidentifier():
            return parse_spec(spec, kind=self.kind)
        entry = self.entries.get(name)
        if entry is None:
            return name, {}
        if entry.argument is None or not rest:
            form = f'"{name}:{entry.argument.upper()}"' if entry.argument else f'"{name}"'
            raise ConfigError(f'cannot read {self.kind} "{spec}": write {form}')
        return name, {entry.argument: rest}

    def _load(self, name: str) -> Any:
        self.require(name)
        entry = self.entries[name]
        module, attribute = entry.target.split(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "repair":
                raise
            extra = f"[{entry.extra}]" if entry.extra else ""
            raise MissingDependency(
                f'{self.kind} "{name}" needs the package "{error.name}": pip install "repair-clip{extra}"'
            ) from error


def parse_spec(spec: str, *, kind: str = "name") -> tuple[str, dict[str, Any]]:
    """Split "name(key=value)" into name and options; values are Python literals.

    Example:
        >>> parse_spec('world(n_train=100, noise="none")')
        ('world', {'n_train': 100, 'noise': 'none'})
    """
    try:
        tree = ast.parse(spec.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and not tree.args:
            return tree.func.id, {str(k.arg): ast.literal_eval(k.value) for k in tree.keywords if k.arg}
        if isinstance(tree, ast.Name):
            return tree.id, {}
    except (SyntaxError, ValueError):
        pass
    raise ConfigError(f'cannot read {kind} "{spec}": write name or name(key=value, …), e.g. world(n_train=100)')


def _converted(value: Any, hint: Any, *, where: str) -> Any:
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"{where}: {error.errors()[0]['msg']}, not {value!r}") from error
