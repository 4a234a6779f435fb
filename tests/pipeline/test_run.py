import json
from pathlib import Path

import pytest

from repair.core.calls import CallOutcome
from repair.core.errors import ConfigError, RunMismatch
from repair.core.records import Candidate, Direction, Failure, Grid, Link, LinkKind, Repair, RepairStatus, Verdict
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.pipeline.tiny import run, table_bytes


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(folder)
    return folder / "run"


def calls_by_task(run_folder: Path) -> dict[str, int]:
    with Ledger.view(run_folder / "ledger.sqlite") as ledger:
        counts: dict[str, int] = {}
        for row in ledger.usage():
            assert row.outcome is CallOutcome.DONE
            counts[row.task] = counts.get(row.task, 0) + row.n_calls
        return counts


def test_every_stage_leaves_what_the_next_one_reads(finished: Path) -> None:
    place = finished / "round-0"
    failures = {f.failure_id: f for f in read_table(place / "failures.parquet", Failure)}
    verdicts = read_table(place / "verdicts.parquet", Verdict)
    candidates = read_table(place / "candidates.parquet", Candidate)
    repairs = read_table(place / "repairs.parquet", Repair)
    links = read_table(place / "links.parquet", Link)
    grids = read_table(place / "grids.parquet", Grid)
    assert {f.direction for f in failures.values()} == set(Direction)
    assert [v.failure_id for v in verdicts] == list(failures)
    kept = [v.failure_id for v in verdicts if v.keep]
    assert [r.failure_id for r in repairs] == kept
    assert {c.failure_id for c in candidates} == set(kept)
    assert len(candidates) == 3 * len(kept)
    repaired = {r.failure_id for r in repairs if r.status is RepairStatus.REPAIRED}
    assert repaired
    assert {link.failure_id for link in links if link.kind is LinkKind.POSITIVE} == repaired
    assert len(grids) == 4 * 2
    for name in ("base", "round-0"):
        facts = json.loads((finished / "evaluation" / f"{name}.json").read_text())
        assert facts["splits"]["test"]["n_images"] == 20
        assert facts["splits"]["test"]["text_to_image"]["n_queries"] == 100


def test_a_finished_run_does_nothing_again(finished: Path) -> None:
    before, calls = table_bytes(finished), calls_by_task(finished)
    outcome = run(finished.parent)
    assert all(stage["cached"] for stage in outcome["stages"])
    assert len(outcome["stages"]) == 11
    assert table_bytes(finished) == before
    assert calls_by_task(finished) == calls


def test_results_do_not_depend_on_workers_or_concurrency(finished: Path, tmp_path: Path) -> None:
    run(tmp_path, "run.n_workers=3", "calls.concurrency=1")
    assert table_bytes(tmp_path / "run") == table_bytes(finished)


def test_another_seed_gives_other_results(finished: Path, tmp_path: Path) -> None:
    run(tmp_path, "run.seed=1")
    other, same = table_bytes(tmp_path / "run"), table_bytes(finished)
    assert other["grids"] != same["grids"]
    assert other["weights"] != same["weights"]


def test_staged_plan_counts_its_calls_as_the_paper_does(finished: Path) -> None:
    verdicts = read_table(finished / "round-0" / "verdicts.parquet", Verdict)
    kept = sum(v.keep for v in verdicts)
    by_direction = {d: sum(v.keep and v.failure_id.startswith(d.short) for v in verdicts) for d in Direction}
    counts = calls_by_task(finished)
    assert counts["verify"] == len(verdicts)
    assert counts["instruct"] == kept
    assert counts["edit_text"] == 3 * by_direction[Direction.IMAGE_TO_TEXT]
    assert counts["edit_image"] == 3 * by_direction[Direction.TEXT_TO_IMAGE]


def test_fused_plan_asks_once_and_draws_images_lazily(finished: Path, tmp_path: Path) -> None:
    run(tmp_path, "calls.plan=fused", until="select")
    place = tmp_path / "run" / "round-0"
    verdicts = read_table(place / "verdicts.parquet", Verdict)
    images = sum(v.keep and v.failure_id.startswith("t2i") for v in verdicts)
    counts = calls_by_task(tmp_path / "run")
    assert set(counts) == {"plan", "edit_image"}
    assert counts["plan"] == len(verdicts)
    assert images <= counts["edit_image"] < 3 * images
    repaired = [r for r in read_table(place / "repairs.parquet", Repair) if r.status is RepairStatus.REPAIRED]
    assert {r.direction for r in repaired} == set(Direction)


def test_without_image_editor_failures_become_hard_negatives(tmp_path: Path) -> None:
    outcome = run(tmp_path, "editing.image_editor=none")
    place = tmp_path / "run" / "round-0"
    repairs = [r for r in read_table(place / "repairs.parquet", Repair) if r.direction is Direction.TEXT_TO_IMAGE]
    assert repairs
    assert {r.status for r in repairs} == {RepairStatus.NEGATIVE_ONLY}
    ids = {r.failure_id for r in repairs}
    kinds = {link.kind for link in read_table(place / "links.parquet", Link) if link.failure_id in ids}
    assert kinds == {LinkKind.NEGATIVE}
    instruct = next(stage for stage in outcome["stages"] if stage["stage"] == "instruct")
    assert instruct["summary"]["without_editor"] == len(repairs)


@pytest.mark.parametrize(
    "setting",
    [
        "mining.strategy=random",
        "mining.strategy=outranking",
        "grids.use_edits=false",
        "verification.enabled=false",
        "selection.rule=first",
        "training.loss=full_matrix",
        "training.loss=vanilla",
        "grids.verify_cells=true",
        "selection.verify_candidates=true",
    ],
)
def test_every_switch_runs_to_the_end_and_changes_the_weights(setting: str, finished: Path, tmp_path: Path) -> None:
    run(tmp_path, setting, f"run.calls={tmp_path}/calls")
    assert table_bytes(tmp_path / "run")["weights"] != table_bytes(finished)["weights"]


def test_the_best_mix_of_start_and_trained_is_chosen_on_val(finished: Path, tmp_path: Path) -> None:
    mixes = [1.0, 0.0, 0.5]
    run(tmp_path, "training.wise_ft=best", f"training.wise_ft_curve={mixes}", f"run.calls={tmp_path}/calls")
    summary = json.loads((tmp_path / "run" / "round-0" / "train.json").read_text())["summary"]
    curve = dict(summary["wise_ft_curve"])
    assert list(curve) == mixes
    assert summary["wise_ft"] == min(share for share, score in curve.items() if score == max(curve.values()))
    scores = json.loads((tmp_path / "run" / "evaluation" / "round-0.json").read_text())["splits"]["val"]
    val = [scores[str(direction)]["metrics"]["R@1"]["value"] for direction in Direction]
    assert sum(val) / 2 == pytest.approx(max(curve.values()))


def test_two_rounds_mine_with_the_new_model_and_keep_all_repairs(tmp_path: Path) -> None:
    run(tmp_path, "pipeline.rounds=2")
    first, second = (
        {r.failure_id for r in read_table(tmp_path / "run" / f"round-{r}" / "repairs.parquet", Repair) if r.key}
        for r in (0, 1)
    )
    linked = {
        link.failure_id
        for link in read_table(tmp_path / "run" / "round-1" / "links.parquet", Link)
        if link.kind is LinkKind.POSITIVE
    }
    assert linked == first | second
    assert (tmp_path / "run" / "evaluation" / "round-1.json").exists()


def test_a_run_folder_of_another_config_is_refused_and_can_be_reused(tmp_path: Path) -> None:
    run(tmp_path, until="select")
    with pytest.raises(RunMismatch, match=r"training\.lr 0\.0001 -> 0\.002.*--reuse"):
        run(tmp_path, "training.lr=2e-3", until="select")
    outcome = run(tmp_path, "training.lr=2e-3", reuse=True)
    cached = {stage["stage"]: stage["cached"] for stage in outcome["stages"] if stage["round"] == 0}
    assert cached == {
        "mine": True, "verify": True, "instruct": True, "edit": True, "select": True,
        "link": False, "grids": False, "train": False, "eval": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.name=smal", 'unknown encoder "smal": did you mean "small"'),
        ("data.source=wrld", 'unknown data source "wrld": did you mean "world"'),
        ("verification.verifier=wrld", 'unknown verifier "wrld": did you mean "world"'),
        ("editing.image_editor=paint", 'unknown image editor "paint": Choices: diffusion, image_edits, replay, world'),
        ("calls.planner=x", 'unknown planner "x"'),
    ],
)
def test_a_name_that_does_not_exist_is_refused_before_anything_is_written(
    setting: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, setting)
    assert not list(tmp_path.iterdir())


def test_a_wrong_option_of_a_late_backend_is_refused_before_any_stage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='unknown option "noop_rte" of image editor "world"'):
        run(tmp_path, "editing.image_options={noop_rte=0.1}")
    assert not list((tmp_path / "run").glob("*/*.json"))


def test_a_cap_of_money_without_a_price_is_refused_before_any_stage(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'calls is unknown: set calls\.prices\."world"'):
        run(tmp_path, "calls.max_usd=1")
    assert not list((tmp_path / "run").glob("round-*"))


def test_a_damaged_output_is_made_again(tmp_path: Path) -> None:
    run(tmp_path, until="link")
    path = tmp_path / "run" / "round-0" / "verdicts.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    outcome = run(tmp_path, until="link")
    cached = {stage["stage"]: stage["cached"] for stage in outcome["stages"] if stage["round"] == 0}
    assert not cached["verify"]
    assert all(done for name, done in cached.items() if name != "verify")
    assert path.read_bytes() == whole
