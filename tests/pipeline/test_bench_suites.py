"""Suites beside a bench: what is there of the same weights and suites is kept, anything else is done again."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repair.core.errors import ConfigError
from repair.core.progress import Silent
from repair.evaluation.document import Document, Missing, Score, SuiteResult, write_results
from repair.pipeline.bench_suites import Suites, checked_suites, judge_runs, open_suites
from repair.pipeline.suites import open_suite
from repair.store.files import write_json
from tests.pipeline.tiny import config

PARTS = ("mean", "object")


@dataclass
class Counting:
    """In place of a judging session: every model's score is the number of models before it."""

    opened: dict[str, Any] = field(default_factory=lambda: {"world": SimpleNamespace(fingerprint="b2:one")})
    uncertainty: dict[str, Any] = field(default_factory=lambda: {"n_resamples": 20})
    models: list[str] = field(default_factory=list)

    def results(self, model: str) -> tuple[Document, list[Any]]:
        scores = [Score(group=part, metric="accuracy", value=len(self.models), n=2) for part in PARTS]
        self.models.append(model)
        suite = SuiteResult(
            suite="world", kind="choice", partial=False, n_items=2, n_run=2, missing=Missing(),
            headline="mean / accuracy", facts={}, pictures={}, scores=scores,
        )  # fmt: skip
        return Document(schema="repair-evaluation/1", model={}, settings={}, versions={}, suites=[suite]), []

    def write(self, document: Document, rows: list[Any], *, out: Path) -> None:
        write_results(out, document, rows)


def runs(folder: Path, weights: dict[str, str]) -> dict[str, list[Any]]:
    """Two variants of two seeds; `weights` of some run, else of its name."""
    found: dict[str, list[Any]] = {}
    for variant in ("repair", "vanilla"):
        for seed in (0, 1):
            made = config(folder, f"run.name={variant}-{seed}")
            for name in ("base", "round-0"):
                encoder = weights.get(f"{variant}-{seed}", f"{variant}-{seed}") if name == "round-0" else "b2:base"
                write_json(made.run_path() / "evaluation" / f"{name}.json", {"encoder": encoder})
            found.setdefault(variant, []).append(made)
    return found


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    def judged(session: Counting, **weights: str) -> list[dict[str, Any]]:
        made = runs(tmp_path, {name.replace("_", "-"): value for name, value in weights.items()})
        return judge_runs(session, made, folder=tmp_path, progress=Silent())  # type: ignore[arg-type]

    first = Counting()
    (found,) = judged(first)
    names = [f"{tmp_path}/{name}" for name in ("repair-0@base", "repair-0", "repair-1", "vanilla-0", "vanilla-1")]
    assert first.models == names  # the first weights of both seeds are the same
    assert found["scores"] == ["mean / accuracy", "object / accuracy"]
    assert found["headline"] == "mean / accuracy"
    assert found["seeds"]["base"]["mean / accuracy"] == [0, 0]
    assert found["seeds"]["vanilla"]["object / accuracy"] == [3, 4]

    again = Counting()
    assert judged(again) == [found]
    assert again.models == []

    trained_anew = Counting()
    judged(trained_anew, vanilla_0="other")
    assert trained_anew.models == [f"{tmp_path}/vanilla-0"]

    another_suite = Counting(opened={"world": SimpleNamespace(fingerprint="b2:two")})
    judged(another_suite, vanilla_0="other")
    assert another_suite.models == names


def test_a_result_cut_short_is_done_again(tmp_path: Path) -> None:
    made = runs(tmp_path, {})
    judge_runs(Counting(), made, folder=tmp_path, progress=Silent())  # type: ignore[arg-type]
    (tmp_path / "suites" / "repair-1" / "asked.json").unlink()
    again = Counting()
    judge_runs(again, made, folder=tmp_path, progress=Silent())  # type: ignore[arg-type]
    assert again.models == [f"{tmp_path}/repair-1"]


def test_suites_of_equal_items_have_one_fingerprint(tmp_path: Path) -> None:
    def fingerprint(spec: str) -> str:
        return open_suite(spec, data=None, images=None, split=None, cache=tmp_path, n_workers=1).fingerprint

    small = 'world(n=2, source={"n_test": 12})'
    assert fingerprint(small) == fingerprint('world(source={"n_test": 12}, n=2)')
    assert fingerprint(small) != fingerprint('world(n=2, seed=1, source={"n_test": 12})')
    assert fingerprint(small) != fingerprint('world_pairs(n=2, source={"n_test": 12})')


def test_wrong_options_and_missing_data_are_refused_when_opened(tmp_path: Path) -> None:
    for suites, message in (
        (Suites(("world(m=2)",), ()), 'unknown option "m"'),
        (Suites(("sugarcrepe",), ()), "in a bench --data is bench.suite_data"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_suites(suites, config(tmp_path), where="b.toml", progress=Silent())
    assert checked_suites(["sugarcrepe"], ["x"], where="b") == Suites(("sugarcrepe",), ("x",))
