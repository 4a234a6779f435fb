"""Limits on captions, and the split of an image whose data names none."""

from collections import Counter

import pytest
from pydantic import ValidationError

from repair.data.rules import Rules


def test_captions() -> None:
    rules = Rules(max_words=3, max_characters=12)
    assert rules.caption_problem("a red dog") is None
    assert rules.caption_problem("") == "empty caption"
    assert rules.caption_problem("a b c d") == "caption of 4 words, more than rules.max_words = 3"
    assert rules.caption_problem("abcdefghijklm") == "caption of 13 characters, more than rules.max_characters = 12"


def test_split_rates_are_met_and_nothing_moves_when_images_are_added() -> None:
    rules = Rules()
    ids = [f"photos/{n}.jpg" for n in range(4000)]
    counts = Counter(map(rules.split_of, ids))
    assert abs(counts["train"] / 4000 - 0.9) < 0.02
    assert abs(counts["val"] / 4000 - 0.05) < 0.015
    assert rules.split_of(ids[7]) == Rules().split_of(ids[7])
    other = Rules(split_seed=1)
    assert [rules.split_of(i) for i in ids] != [other.split_of(i) for i in ids]


def test_a_split_of_rate_zero_stays_empty() -> None:
    rules = Rules(split_rates={"none": 0.0, "all": 1.0, "nor": 0.0})
    assert {rules.split_of(str(n)) for n in range(500)} == {"all"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_word": 3}, 'unknown rule "max_word": did you mean "max_words"'),
        ({"max_bad_rate": 2}, "less than or equal to 1"),
        ({"split_rates": {"train": 0.5}}, "split_rates must add up to 1, not 0.5"),
        ({"check": "none"}, "'full' or 'header'"),
    ],
)
def test_wrong_rules(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Rules.model_validate(wrong)
    assert message in str(caught.value)
