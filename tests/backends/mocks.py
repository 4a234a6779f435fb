"""Mock servers that nobody here wrote, started for a test: llmock (breaks on demand, judges its client) and fakellm.

They belong into an environment of their own (llmock brings a pytest plugin): REPAIR_LLMOCK and REPAIR_FAKELLM name
their programs, or both are on the path.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_S = 60


def program(name: str) -> str | None:
    return os.environ.get(f"REPAIR_{name.upper()}") or shutil.which(name)


def missing(name: str) -> str:
    """Why there is no such server here; empty if there is one."""
    if program(name) is not None:
        return ""
    return f"no {name}: pip install {name} into an environment of its own and set REPAIR_{name.upper()} to its program"


@contextmanager
def llmock(folder: Path) -> Iterator[str]:
    """Address of a running llmock, without /v1."""
    with _running("llmock", ["serve", "--port"], folder, ready="/health") as address:
        yield address


@contextmanager
def fakellm(folder: Path, rules: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Address of a running fakellm that answers by `rules`, the first that fits."""
    (folder / "fakellm.yaml").write_text(json.dumps({"version": 1, "rules": list(rules)}))  # JSON is YAML
    command = ["serve", "--config", str(folder / "fakellm.yaml"), "--port"]
    with _running("fakellm", command, folder, ready="/_fakellm/stats") as address:
        yield address


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def post(url: str, value: Any) -> None:
    request = urllib.request.Request(url, json.dumps(value).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30):
        pass


@contextmanager
def _running(name: str, arguments: list[str], folder: Path, *, ready: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [str(program(name)), *arguments, str(port)]
    with (folder / f"{name}.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_until_ready(address + ready, process)
            yield address
        finally:
            process.kill()


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            get(url)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} did not start (exit code {process.poll()})")
