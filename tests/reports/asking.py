"""A bench of one seed whose runs asked about one failure, on one ledger."""

from pathlib import Path

from repair.core.calls import Attempt
from repair.core.identity import canonical_json, derive_seed
from repair.core.records import Candidate, ErrorType, Usage
from repair.store.ledger import Ledger
from tests.reports.benches import bench, finish
from tests.reports.runs import EDIT_KEY, EDIT_TEXT, attempt, failure, repaired, scored, told, verdict

FAILED = failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0")
SCORES = {"RePair": [0.5], "w/o Repair": [0.4], "3 rounds": [0.6]}


def asked_bench(folder: Path, *more: str, seed: int = 0) -> Path:
    """RePair and two variants; RePair asked for a verdict and an instruction, by the tables of its run."""
    settings = [f"run.calls={folder}/calls-seed-0", f"run.seed={seed}", "editing.n_candidates=2", *more]
    by_variant = {
        "RePair": settings,
        "w/o Repair": [*settings, "grids.use_edits=false"],
        "3 rounds": settings,
    }
    bench(folder, SCORES, by_variant, rounds={"3 rounds": [[0.5, 0.55, 0.6]]})
    finish(folder / "RePair-0", "mine", [FAILED])
    finish(folder / "RePair-0", "verify", [verdict("i2t-1")])
    finish(folder / "RePair-0", "instruct", [told("i2t-1", ErrorType.OBJECT)])
    (folder / "calls-seed-0").mkdir()
    keep(folder, own(seed, "verify", key="v"), own(seed, "instruct", key="i"))
    return folder


def own(seed: int, task: str, *, key: str, index: int = 0, text: str = "") -> Attempt:
    """A call about the failure, with the seed that a run asks with."""
    value = canonical_json(text) if text else "1"
    return attempt("i2t-1", task, key=key, seed=derive_seed(seed, task, "i2t-1") + index, value=value)


def keep(folder: Path, *attempts: Attempt) -> None:
    with Ledger.open(folder / "calls-seed-0" / "ledger.sqlite") as ledger:
        for one in attempts:
            grant = ledger.lease(one.call, declared=Usage(), started_s=0.0).result()
            ledger.record(one, lease=grant.lease or 0).result()


def edited(run: Path) -> None:
    """The run's only candidate is the edit of `tests.reports.runs`, and is chosen."""
    finish(run, "edit", [Candidate(failure_id="i2t-1", index=0, key=EDIT_KEY, text=EDIT_TEXT)])
    finish(run, "select", [repaired(FAILED), scored("i2t-1", 0)])
