import doctest

import pytest

from repair.reports import pictures, wording
from repair.reports.wording import gain_interval, money, probability, reading, score, score_interval


def facts(before: float, after: float | None, low: float | None = None, high: float | None = None) -> dict:
    if after is None:
        return {"before": {"value": before}, "after": None, "difference": None}
    difference = {"value": after - before, "low": low, "high": high, "p_value": 0.04}
    return {"before": {"value": before}, "after": {"value": after}, "difference": difference}


@pytest.mark.parametrize("module", [pictures, wording])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.01, 0.03, "includes 0: this run alone does not show a change"),
        (0.0, 0.03, "includes 0"),
        (0.001, 0.03, "the trained model is better"),
        (-0.03, -0.001, "the trained model is worse"),
        (None, None, "there is no interval"),
    ],
)
def test_a_sentence_claims_no_more_than_the_interval(low: float | None, high: float | None, said: str) -> None:
    text = reading("image_to_text", {"R@1": facts(0.4, 0.41, low, high), "MRR": facts(0.5, 0.6, 0.01, 0.2)}, 0.95)
    assert said in text
    assert "40.00 → 41.00 (+1.00 points" in text


def test_other_clear_differences_are_not_kept_quiet() -> None:
    metrics = {
        "R@1": facts(0.4, 0.41, -0.01, 0.03),
        "R@5": facts(0.6, 0.55, -0.06, -0.04),
        "R@10": facts(0.7, 0.7, -0.01, 0.01),
    }
    assert reading("text_to_image", metrics, 0.95).endswith("Also clear of 0: R@5 −5.00.")
    assert reading("text_to_image", {"R@1": facts(0.4, None)}, 0.95).endswith("R@1 is 40.00 before training.")


def test_numbers_as_tables_print_them() -> None:
    assert score("R@1", 0.41234) == "41.23"
    assert score("MRR", 0.41234) == "0.4123"
    assert score_interval("R@5", 0.4, 0.5) == "40.0 – 50.0"
    assert score_interval("R@5", None, None) == ""
    assert gain_interval("R@1", -0.0004, 0.012) == "0.0 to +1.2"
    assert gain_interval("MRR", -0.01, 0.012) == "−0.010 to +0.012"
    assert probability(0.0004) == "< 0.001"
    assert probability(0.03) == "0.030"
    assert money(0.0, 0, 3) == "0.0000 USD"
