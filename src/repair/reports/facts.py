"""All numbers of a run's report as one JSON-able dict: what report.json holds and report.html shows."""

import json
from pathlib import Path
from typing import Any

from repair.core.progress import Progress, Silent
from repair.reports.account import account_facts
from repair.reports.costs import costs_facts
from repair.reports.kept_edits import kept_edits_facts
from repair.reports.learning import grids_facts, links_facts, training_facts
from repair.reports.outcomes import moves_facts, results_facts
from repair.reports.quality import quality_facts
from repair.reports.samples import samples_facts
from repair.reports.view import RunView


def report_facts(run_path: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Every number of the report of the run in `run_path`; a part that the run has not got to is None or empty.

    Shares are in [0, 1], times in seconds, money in US dollars (None: unknown). Raises StoreError if the folder holds
    no run or a damaged one.
    """
    with RunView.open(run_path) as view:
        return facts_of(view, progress or Silent())


def facts_of(view: RunView, progress: Progress) -> dict[str, Any]:
    """See `report_facts`."""
    calls = costs_facts(view)
    facts = {
        "run": account_facts(view),
        "results": results_facts(view),
        "moves": moves_facts(view),
        "quality": quality_facts(view),
        "kept_edits": kept_edits_facts(view, progress),
        "samples": samples_facts(view, calls),
        "calls": calls,
        "links": links_facts(view),
        "grids": grids_facts(view),
        "training": training_facts(view),
    }
    plain: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return plain
