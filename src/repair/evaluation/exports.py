"""Results in the words of CLIP_benchmark, one JSON file for each data set, as its `clip_benchmark build` reads them.

    {"dataset", "model", "pretrained", "task", "metrics", "language"}

Numbers follow *its* rules: first of the equal scores for a choice (a tie with a wrong text that stands second is
right), hit rates for R@k. Suites that it does not have are left out, and partial ones too: there is no place to say so.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repair.evaluation.document import Document
from repair.store.files import write_json


def clip_benchmark_rows(document: Document) -> tuple[list[dict[str, Any]], list[str]]:
    """The files' contents, and the suites that have none."""
    name, _, pretrained = str(document.model["spec"]).partition(":")
    rows = []
    left_out = [suite.suite for suite in document.suites if suite.partial or not suite.clip_benchmark]
    for suite in document.suites:
        if suite.suite not in left_out:
            rows += [
                {**found, "model": name, "pretrained": pretrained or "none", "language": "en"}
                for found in suite.clip_benchmark
            ]
    return rows, left_out


def write_clip_benchmark(folder: Path, rows: Sequence[dict[str, Any]]) -> list[Path]:
    """DATASET_PRETRAINED_MODEL_LANGUAGE_TASK.json below `folder`. Raises StoreError if one cannot be written."""
    paths = []
    for row in rows:
        parts = [row["dataset"], row["pretrained"], row["model"], row["language"], row["task"]]
        path = folder / ("_".join(re.sub(r"[^\w.-]+", "-", part) for part in parts) + ".json")
        write_json(path, row)
        paths.append(path)
    return paths
