"""--dry-run: what is counted is exact, what is assumed says so, and nothing is written."""

from pathlib import Path
from typing import Any

import pytest

from repair.core.errors import ConfigError
from repair.pipeline.forecast import forecast, forecast_lines
from repair.pipeline.run import stages_until
from repair.store.ledger import Ledger
from tests.pipeline.tiny import config, run

PRICES = "calls.prices={world={input=1.0, output=2.0, image=0.01}}"


def look(folder: Path, *more: str, until: str | None = None) -> dict[str, Any]:
    settings = config(folder, *more)
    return forecast(settings, stages=stages_until(settings, until))


def calls(found: dict[str, Any]) -> dict[str, int]:
    return {row["task"]: row["calls"] for row in found["tasks"]}


def test_before_anything_has_run_every_number_is_an_assumption_that_is_named(tmp_path: Path) -> None:
    found = look(tmp_path, PRICES, "mining.max_failures=100", "calls.concurrency=10")
    assert calls(found) == {"verify": 200, "instruct": 160, "edit_text": 240, "edit_image": 240}
    assert not list(tmp_path.iterdir())
    for row in found["tasks"]:
        assert any("assumed" in reason for reason in row["because"])
        assert any('calls.prices."world"' in reason for reason in row["because"])
    verify = found["tasks"][0]
    assert verify["usd"] == pytest.approx((200 * 700 * 1.0 + 200 * 60 * 2.0) * 1e-6)
    assert found["total"]["usd"] == pytest.approx(sum(row["usd"] for row in found["tasks"]))
    lines = forecast_lines(found)
    assert lines[-2].startswith("total: 840 calls, ")

    fused = look(tmp_path, "calls.plan=fused", "mining.max_failures=100", "pipeline.rounds=2")
    assert calls(fused) == {"plan": 400, "edit_image": 256}
    assert fused["total"]["unpriced"] == ["edit_image", "plan"]
    assert "price unknown" in "\n".join(forecast_lines(fused))
    assert calls(look(tmp_path, until="verify")) == {"verify": 24}
    checks = look(tmp_path, "selection.verify_candidates=true", "grids.verify_cells=true", "editing.image_editor=none")
    assert set(calls(checks)) == {"verify", "instruct", "edit_text", "verify_candidate", "verify_cell"}
    fused = look(tmp_path, "calls.plan=fused", "selection.verify_candidates=true", until="edit")  # as they are drawn
    assert [(row["stage"], row["task"]) for row in fused["tasks"]][1:] == [
        ("edit", "edit_image"),
        ("edit", "verify_candidate"),
    ]


def test_a_run_is_forecast_from_its_own_tables_and_ledger(tmp_path: Path) -> None:
    run(tmp_path, until="verify")
    before = (tmp_path / "run" / "ledger.sqlite").read_bytes()
    found = look(tmp_path)
    assert (tmp_path / "run" / "ledger.sqlite").read_bytes() == before
    rows = {row["task"]: row for row in found["tasks"]}
    assert (rows["verify"]["calls"], rows["verify"]["made"]) == (0, 24)
    assert "kept: counted in round 0" in rows["edit_text"]["because"]

    run(tmp_path, until="select")
    with Ledger.view(tmp_path / "run" / "ledger.sqlite") as ledger:
        made = {row.task: row.n_calls for row in ledger.usage()}
    assert {task: rows[task]["calls"] for task in rows if task != "verify"} == {
        task: n for task, n in made.items() if task != "verify"
    }
    done = look(tmp_path)
    assert set(calls(done).values()) == {0}
    assert any("the mean of" in reason for row in done["tasks"] for reason in row["because"])


def test_what_would_stop_a_run_stops_its_forecast(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='unknown part "inpt"'):
        look(tmp_path, "calls.prices={world={inpt=1}}")
    with pytest.raises(ConfigError, match='unknown option "noop_rte"'):
        look(tmp_path, "editing.image_options={noop_rte=0.1}")
