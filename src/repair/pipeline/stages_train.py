"""The stages around training, as the run folder sees them: fit, mine, link, grids, train, evaluate."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from repair import links as linking
from repair import mining
from repair.core.errors import DataError
from repair.core.progress import Progress
from repair.core.records import (
    Criterion,
    Direction,
    Failure,
    Grid,
    Link,
    LinkKind,
    Modality,
    Repair,
    RepairStatus,
    Verdict,
)
from repair.core.texts import folded
from repair.grids import assumed_cells, sample_grids
from repair.pipeline.features import Features
from repair.pipeline.graph import Work
from repair.pipeline.stages_repair import mined_with, table, write
from repair.pipeline.workbench import Workbench
from repair.store.files import replacing_folder, write_json
from repair.training.loop import Recipe, Training, TrainingData
from repair.training.matching import MatchTable
from repair.training.prepared import Prepared

ROWS = "metrics.jsonl"


def link(bench: Workbench, round: int) -> Work:
    """Links of the repairs of all rounds so far; of a failure mined twice the first repair counts."""
    repairs: dict[str, Repair] = {}
    for earlier in range(round + 1):
        for repair in table(bench, earlier, "repairs", Repair):
            if repairs.get(repair.failure_id) is None or repair.status is RepairStatus.REPAIRED:
                repairs.setdefault(repair.failure_id, repair)
    settings = bench.config.links
    built = linking.build_links(
        list(repairs.values()),
        texts=dict(zip(bench.train.caption_ids, bench.train.texts, strict=True)),
        max_positives=settings.max_positives,
        max_negatives=settings.max_negatives,
        unrepaired_negatives=settings.unrepaired_negatives,
        seed=bench.config.run.seed,
    )
    work = write(bench, round, "links", built.links, Link)
    return Work(work.outputs, asdict(built.summary))
