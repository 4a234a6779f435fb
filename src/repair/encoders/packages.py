"""Weights that come inside installed packages, found without importing the package."""

import importlib.util
from functools import cache
from pathlib import Path

from repair.core.errors import MissingDependency
from repair.core.identity import hash_bytes


def package_file(package: str, name: str) -> Path:
    """The path of data file `name` inside the installed `package`.

    Raises MissingDependency, with the pip command, if the package is absent or came without the file.
    """
    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).parent / name if spec is not None and spec.origin is not None else None
    if path is None or not path.is_file():
        distribution = package.replace("_", "-")
        problem = "is not installed" if path is None else f"came without {name}"
        raise MissingDependency(
            f'encoder "towers": the package {distribution} {problem}: '
            'pip install --force-reinstall "repair-clip[towers]"'
        )
    return path


@cache
def package_hash(path: Path) -> str:
    """Content hash of an installed file, which does not change while the program runs."""
    return hash_bytes(path.read_bytes())
