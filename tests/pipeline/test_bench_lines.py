"""The bench's table: differences with intervals, and the paper's beside those to the last reference."""

from typing import Any

import pytest

from repair.pipeline.bench_lines import bench_lines


def difference(mean: float, spread: float | None) -> dict[str, Any]:
    low, high = (None, None) if spread is None else (mean - spread, mean + spread)
    return {"mean": mean, "low": low, "high": high}


def table(mean: float, spread: float | None, paper: Any) -> dict[str, Any]:
    metrics = ("i2t R@1", "t2i R@1", "mean R@1", "mean true R@1")
    scores = dict.fromkeys(metrics, 0.5)
    found = {name: difference(mean, spread) for name in metrics}
    return {
        "bench": "tiny",
        "split": "test",
        "seeds": [0, 1],
        "references": ["vanilla", "repair"],
        "rows": [
            {"variant": "vanilla", "mean": scores, "differences": {"repair": found}, "paper": paper},
            {"variant": "repair", "mean": scores, "differences": {"vanilla": found}, "paper": None},
        ],
    }


@pytest.mark.parametrize(
    ("mean", "spread", "paper", "ends"),
    [
        (-0.02, 0.01, [-2.10, -1.96], "| -2.00 [-3.00, -1.00] | -2.10 / -1.96 | as in the paper |"),
        (-0.02, 0.03, -2.03, "| -2.00 [-5.00, +1.00] | -2.03 | as in the paper, open |"),
        (0.02, 0.01, [-2.10, 0.30], "| +2.00 [+1.00, +3.00] | -2.10 / +0.30 | opposite |"),
        (0.02, None, -1.0, "| +2.00 | -1.00 | opposite, one seed |"),
        (0.02, None, None, "| +2.00 |"),  # no column for it then
        (0.0, 0.03, -1.0, "| +0.00 [-3.00, +3.00] | -1.00 | no difference, open |"),
        (0.0, None, -1.0, "| +0.00 | -1.00 | no difference, one seed |"),
        (-0.02, 0.01, 0.0, "| -2.00 [-3.00, -1.00] | +0.00 | none in the paper |"),
        (-0.02, 0.0, -1.0, "| -2.00 [-2.00, -2.00] | -1.00 | as in the paper, open, zero variance |"),
    ],
)
def test_sign_beside_the_paper(mean: float, spread: float | None, paper: Any, ends: str) -> None:
    lines = bench_lines(table(mean, spread, paper))
    _, row = [line for line in lines if line.startswith("| vanilla |")]  # its scores, then its difference to repair
    assert row.endswith(ends)


def test_the_paper_stands_beside_the_last_reference_only() -> None:
    lines = bench_lines(table(-0.02, 0.01, -2.0))
    heads = [line for line in lines if line.startswith("| minus")]
    assert [("paper" in head) for head in heads] == [False, True]


def test_one_seed_is_told_in_the_singular() -> None:
    assert bench_lines(table(-0.02, 0.01, -2.0))[0] == "tiny: test split, seeds 0, 1"
    assert bench_lines({**table(-0.02, None, -2.0), "seeds": [1]})[0] == "tiny: test split, seed 1"


@pytest.mark.parametrize(
    ("scores", "line"),
    [
        ({}, "learning rates: repair 0.0001"),
        ({"0.0001": 0.5, "0.001": 0.4}, "learning rates, chosen on val: repair 0.0001"),
    ],
)
def test_rates_are_called_chosen_only_where_there_was_a_choice(scores: dict[str, float], line: str) -> None:
    equal = {"match": "steps", "budget_of": "repair", "budgets": {}, "lr": {"repair": 1e-4}, "val": {"repair": scores}}
    assert line in bench_lines({**table(-0.02, 0.01, -2.0), "equal": equal})
