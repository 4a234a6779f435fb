import pytest

from repair.backends.lexical.parsing import analyse
from repair.backends.lexical.splicing import Change, splice


@pytest.mark.parametrize(
    "text, changes, after",
    [
        ("A man runs .", [Change(1, 1, "woman")], "A woman runs ."),
        ("A man runs .", [Change(1, 1, "old man")], "An old man runs ."),
        ("An old man runs .", [Change(1, 1, "")], "A man runs ."),
        ("A man eats a red apple .", [Change(4, 4, "")], "A man eats an apple ."),
        ("Two men, in hats, run.", [Change(0, 1, "a man")], "A man, in hats, run."),
        ("A man and a dog run .", [Change(2, 4, "")], "A man run ."),
        ("A man in red runs", [Change(0, 3, "a dog"), Change(4, 4, "sits")], "A dog sits"),
        ("a man runs", [Change(0, 1, "Two men")], "Two men runs"),
        ("A man  runs ,  fast .", [Change(1, 1, "boy")], "A boy  runs ,  fast ."),
    ],
)
def test_only_the_changes_change(text: str, changes: list[Change], after: str) -> None:
    assert splice(analyse(text), changes) == after


def test_no_change_is_the_caption_itself() -> None:
    text = "A  man , with an umbrella , walks !"
    assert splice(analyse(text), []) == text


def test_overlapping_changes_are_refused() -> None:
    assert splice(analyse("A man runs ."), [Change(0, 1, "he"), Change(1, 2, "walks")]) is None


def test_nothing_left_is_refused() -> None:
    assert splice(analyse("A man runs ."), [Change(0, 2, "")]) is None
