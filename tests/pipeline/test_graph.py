"""A stage's key covers what it reads: every table and every weight a stage opens belongs to a stage it declares."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from repair.pipeline import stages_repair
from repair.pipeline.graph import Stage
from repair.pipeline.run import BASE, ROUND, _Executor
from repair.pipeline.workbench import Workbench
from tests.pipeline.tiny import run

_MADE_BY = {
    "failures": "mine", "verdicts": "verify", "instructions": "instruct", "candidates": "edit", "scored": "select",
    "repairs": "select", "links": "link", "grids": "grids",
}  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        ("training.eval_every=2", "training.keep=best", "grids.verify_cells=true", "selection.verify_candidates=true"),
        ("calls.plan=fused", "pipeline.train_from=previous"),
    ],
)
def test_every_read_is_declared(settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[tuple[Stage, int | None]] = []
    reads: dict[tuple[str, int | None], set[tuple[str, int | None]]] = defaultdict(set)
    run_stage, read, load = _Executor.run, stages_repair.read_table, Workbench.encoder_after

    def running(self: _Executor, stage: Stage, round: int | None) -> None:
        current.append((stage, round))
        run_stage(self, stage, round)

    def reading(path: Path, record_type: Any) -> Any:
        stage, round = current[-1]
        made_by = (_MADE_BY[path.stem], int(path.parent.name.removeprefix("round-")))
        reads[stage.name, round].add(made_by)
        return read(path, record_type)

    def loading(self: Workbench, after: int | None) -> Any:
        stage, round = current[-1]
        reads[stage.name, round].add(("fit", None) if after is None else ("train", after))
        return load(self, after)

    monkeypatch.setattr(_Executor, "run", running)
    monkeypatch.setattr(stages_repair, "read_table", reading)
    monkeypatch.setattr(Workbench, "encoder_after", loading)
    run(tmp_path, "pipeline.rounds=2", *settings)

    assert len(reads) >= 15
    for stage, round in current:
        declared = {(name, None) for name in stage.base} | {(name, round) for name in stage.inputs}
        declared |= {(name, r) for name in stage.earlier for r in range(round or 0)}
        undeclared = reads[stage.name, round] - declared - {(stage.name, round)}
        assert not undeclared, f"{stage.name} of round {round} reads {sorted(map(str, undeclared))} undeclared"


def test_stages_read_only_stages_before_them() -> None:
    names = [stage.name for stage in ROUND]
    for place, stage in enumerate(ROUND):
        assert set(stage.inputs) <= set(names[:place])
        assert set(stage.base) <= {stage.name for stage in BASE}
