"""Runs of the tiny world in processes of their own, behind the doors of `flaky`, to be killed."""

import subprocess
import sys
from pathlib import Path

from tests.pipeline.tiny import overrides

ROOT = Path(__file__).parents[2]
_CODE = """
import sys
from repair.config import load_config
from repair.core.progress import Silent
from repair.pipeline.run import run_pipeline
from tests.pipeline import flaky
flaky.register()
until = sys.argv[1] or None
settings = load_config(None, overrides=sys.argv[2:], environment={})
run_pipeline(settings, until=until, reuse=False, progress=Silent())
"""


def start(folder: Path, *settings: str, until: str = "") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", _CODE, until, *overrides(folder, *settings)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=ROOT)


def finish(process: "subprocess.Popen[bytes]") -> None:
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
