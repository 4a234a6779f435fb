import errno
import os
from pathlib import Path
from typing import Any

import pytest

from repair.core.errors import RunLocked, RunMismatch, StoreError
from repair.core.records import Pair
from repair.store import files
from repair.store.run_folder import RunFolder
from repair.store.tables import write_table

SETTINGS: dict[str, Any] = {"mining.strategy": "top_k", "mining.k": 50, "training.lr": 1e-5, "grids.shape": [3, 3]}


def open_run(path: Path, *, fingerprint: str = "b2:1", settings: Any = SETTINGS, **more: Any) -> RunFolder:
    return RunFolder.open(path, config_toml="a = 1\n", fingerprint=fingerprint, settings=settings, **more)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def finish(run: RunFolder, *, key: str = "k1", n_rows: int = 3) -> Path:
    path = run.folder(0) / "failures.parquet"
    rows = [Pair(image_id="i", caption_id=str(index), text="a dog", split="train") for index in range(n_rows)]
    write_table(path, rows, Pair)
    run.finish_stage(0, "mine", key, outputs=[path], summary={"n": n_rows})
    return path


def test_a_run_is_created_and_reopened(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "first"
    with open_run(path, versions={"repair": "0.1.0"}) as run:
        assert (run.name, run.fingerprint) == ("first", "b2:1")
        manifest = dict(run.manifest)
        assert run.config_path.read_text() == "a = 1\n"
        assert run.folder(2) == path / "round-2"
        assert run.holder() is not None
    before = contents(path)
    with open_run(path, settings={**SETTINGS, "grids.shape": (3, 3)}, versions={"repair": "0.2.0"}) as run:
        assert dict(run.manifest) == manifest
    assert contents(path) == before
    assert RunFolder.view(path).holder() is None


def test_one_writer_any_number_of_readers(tmp_path: Path) -> None:
    with open_run(tmp_path / "run"):
        with pytest.raises(RunLocked, match=f"process {os.getpid()} on"):
            open_run(tmp_path / "run")
        view = RunFolder.view(tmp_path / "run")
        assert view.holder() is not None
        with pytest.raises(StoreError, match="for reading only"):
            view.finish_stage(0, "mine", "k", outputs=[], summary={})
    open_run(tmp_path / "run").close()


def test_another_configuration_is_refused_with_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "run"
    open_run(path).close()
    before = contents(path)
    other = {**SETTINGS, "mining.k": 20, "new.one": True}
    del other["training.lr"]
    with pytest.raises(RunMismatch) as caught:
        open_run(path, fingerprint="b2:2", settings=other)
    line = str(caught.value)
    for part in (
        "mining.k 50 -> 20",
        "training.lr 1e-05 -> (not set)",
        "new.one (not set) -> True",
        "--run",
        "--reuse",
    ):
        assert part in line
    assert "mining.strategy" not in line
    assert "\n" not in line
    assert contents(path) == before
    open_run(path).close()  # the refusal has not kept the lock


def test_only_the_first_five_differences_are_shown(tmp_path: Path) -> None:
    open_run(tmp_path / "run", settings={f"s{i}": 0 for i in range(8)}).close()
    with pytest.raises(RunMismatch, match=r"s4 0 -> 1 and 3 more\)"):
        open_run(tmp_path / "run", fingerprint="b2:2", settings={f"s{i}": 1 for i in range(8)})
    with pytest.raises(RunMismatch, match="other data or another version"):
        open_run(tmp_path / "run", fingerprint="b2:2", settings={f"s{i}": 0 for i in range(8)})


def test_reuse_takes_the_new_configuration_and_remembers_the_old(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with open_run(path) as run:
        finish(run)
    with open_run(path, fingerprint="b2:2", settings={"mining.k": 1}, reuse=True) as run:
        assert run.stage_done(0, "mine", "k1") is not None
    assert RunFolder.view(path).manifest["earlier"] == ["b2:1"]
    open_run(path, fingerprint="b2:2", settings={"mining.k": 1}).close()
    with pytest.raises(RunMismatch):
        open_run(path)


def test_foreign_folders_and_damaged_manifests_are_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.toml").write_text("precious")
    with pytest.raises(StoreError, match=r"not a run folder and not empty \(it holds config.toml\)"):
        open_run(tmp_path / "mine")
    assert contents(tmp_path / "mine") == {"config.toml": b"precious"}
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file"):
        open_run(tmp_path / "file")
    open_run(tmp_path / "run").close()
    manifest = (tmp_path / "run" / "run.json").read_bytes()
    for damaged in (
        manifest[: len(manifest) // 2],
        b"[]",
        b'{"name": "npm"}',
        manifest.replace(b'"format": 1', b'"format": 9'),
    ):
        (tmp_path / "run" / "run.json").write_bytes(damaged)
        with pytest.raises(StoreError, match=r"run\.json"):
            open_run(tmp_path / "run")
        with pytest.raises(StoreError, match=r"run\.json"):
            RunFolder.view(tmp_path / "run")
    with pytest.raises(StoreError, match="not a run folder"):
        RunFolder.view(tmp_path)


def test_a_process_that_died_while_creating_or_writing_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "lock").write_text("")
    (path / ".run.json.0123.tmp").write_text("{")
    with open_run(path) as run:
        finish(run)
    (path / "round-0" / ".verdicts.parquet.0123.tmp").write_text("half")
    open_run(path).close()
    assert sorted(contents(path)) == [
        "config.toml",
        "lock",
        "round-0/failures.parquet",
        "round-0/mine.json",
        "run.json",
    ]


def test_a_stage_is_done_for_its_key_while_its_outputs_are_whole(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        assert run.stage_done(0, "mine", "k1") is None
        path = finish(run)
        state = run.stage_done(0, "mine", "k1")
        assert state is not None
        assert state.summary == {"n": 3}
        assert set(state.outputs) == {"round-0/failures.parquet"}
        assert run.stage_done(0, "mine", "k2") is None
        assert run.stage_done(1, "mine", "k1") is None
        assert run.stage_done(0, "verify", "k1") is None
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        assert run.stage_done(0, "mine", "k1") is None
        path.write_bytes(whole)
        assert run.stage_done(0, "mine", "k1") is not None
        path.unlink()
        assert run.stage_done(0, "mine", "k1") is None


def test_a_torn_state_means_not_done(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        finish(run)
        state = run.folder(0) / "mine.json"
        whole = state.read_bytes()
        for length in range(0, len(whole) - 1, 7):
            state.write_bytes(whole[:length])
            assert run.stage_done(0, "mine", "k1") is None
        # a state copied from elsewhere
        state.with_name("verify.json").write_bytes(whole)
        assert run.stage_done(0, "verify", "k1") is None


def test_folders_are_outputs_too(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        checkpoint = run.folder(0) / "checkpoint"
        files.write_bytes(checkpoint / "weights", b"1")
        run.finish_stage(0, "train", "k", outputs=[checkpoint], summary={})
        assert run.stage_done(0, "train", "k") is not None
        files.write_bytes(checkpoint / "weights", b"2")
        assert run.stage_done(0, "train", "k") is None


def test_outputs_must_exist_inside_the_run(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        with pytest.raises(StoreError, match=r"absent\.parquet"):
            run.finish_stage(0, "mine", "k", outputs=[run.folder(0) / "absent.parquet"], summary={})
        (tmp_path / "outside").write_text("")
        with pytest.raises(StoreError, match="not inside the run folder"):
            run.finish_stage(0, "mine", "k", outputs=[tmp_path / "outside"], summary={})
        assert run.states() == []


def test_states_are_listed_base_first_then_by_round(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        for order, (number, stage) in enumerate(
            [(10, "mine"), (0, "verify"), (0, "mine"), (None, "base"), (2, "mine")]
        ):
            run.finish_stage(number, stage, "k", outputs=[], summary={})
            os.utime(run.folder(number) / f"{stage}.json", (order, order))
        files.write_json(run.folder(0) / "facts.json", {"not": "a state"})
    view = RunFolder.view(tmp_path / "run")
    found = [(state.round, state.stage) for state in view.states()]
    assert found == [(None, "base"), (0, "verify"), (0, "mine"), (2, "mine"), (10, "mine")]
    assert view.finished_s(view.states()[1]) == 1
    assert all(view.intact(state) for state in view.states())


def test_a_full_disk_leaves_no_half_made_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fsync", full)
        with pytest.raises(StoreError, match="disk is full"):
            open_run(tmp_path / "run")
    open_run(tmp_path / "run").close()
