"""One behaviour of the editor a case. The captions are ours."""

import pytest

from repair.backends.lexical.rewriting import rewrites
from repair.core.texts import folded
from tests.backends.cases import BLUE_SHIRT, TWO_DOGS

ONE_DOG = ("A white dog sleeps on a couch .", "A dog lies on a brown couch .")
ORANGE = ("A boy with a book is on an orange couch .", "A boy sits on a couch and reads .")
GIRL = ("A young girl jumps over a puddle in the street .", "A girl in a pink coat leaps over a puddle .")


def best(text: str, captions: tuple[str, ...]) -> str:
    return rewrites(text, captions)[0].text


@pytest.mark.parametrize(
    "behaviour, text, captions, after",
    [
        ("colour", "A man in a red shirt rides a bicycle .", BLUE_SHIRT, "A man in a blue shirt rides a bicycle ."),
        ("object", "A woman rides a bicycle .", BLUE_SHIRT, "A man rides a bicycle ."),
        ("number", "Three dogs rush through the snow .", TWO_DOGS, "Two dogs rush through the snow ."),
        ("number, verb agrees", "A dog rushes through the snow .", TWO_DOGS, "Two dogs rush through the snow ."),
        ("number, singular", "Two dogs are on a couch .", ONE_DOG, "A dog is on a couch ."),
        ("action, form kept", "Two dogs are sitting in the snow .", TWO_DOGS, "Two dogs are running in the snow ."),
        ("kind and pronoun", "A boy jumps over his puddle .", GIRL, "A girl jumps over her puddle ."),
        ("hallucination", "Two dogs run in the snow with a frisbee .", TWO_DOGS, "Two dogs run in the snow ."),
        ("place", "Two dogs run on a beach .", TWO_DOGS, "Two dogs run across a field ."),
        ("article", "A boy sits on a blue couch .", ORANGE, "A boy sits on an orange couch ."),
        ("attribute dropped", "A man rides a green bicycle .", BLUE_SHIRT, "A man rides a bicycle ."),
    ],
)
def test_behaviours(behaviour: str, text: str, captions: tuple[str, ...], after: str) -> None:
    assert best(text, captions) == after


def test_relation() -> None:
    captions = ("A black cat sleeps on a table .", "A cat naps on a wooden table .")
    assert best("A cat sleeps under a wooden table .", captions) == "A cat sleeps on a wooden table ."


def test_an_becomes_a() -> None:
    captions = ("A toddler eats a banana at a table .", "A small child eats fruit .")
    assert best("An adult eats a banana .", captions) == "A toddler eats a banana ."


def test_the_rest_stays_word_for_word() -> None:
    after = best("A man in a RED shirt rides  a bicycle !", BLUE_SHIRT)
    assert after == "A man in a blue shirt rides  a bicycle !"


def test_never_a_copy_of_a_ground_truth_or_of_itself() -> None:
    captions = ("A camel runs .",)
    texts = ["A cat runs .", "A dog sits .", "A camel runs .", "Two dogs run ."]
    barred = {folded(caption) for caption in captions}
    for text in texts:
        for rewrite in rewrites(text, captions):
            assert folded(rewrite.text) not in barred | {folded(text)}


def test_no_rewrite_of_a_caption_that_only_a_copy_would_mend() -> None:
    assert rewrites("A cat runs .", ("A camel runs .",)) == []


def test_rewrites_are_distinct_ordered_and_equal_at_every_call() -> None:
    found = rewrites("A woman in a red hat sits on a bench .", BLUE_SHIRT)
    assert len({folded(rewrite.text) for rewrite in found}) == len(found) >= 3
    assert [(r.n_wrong, r.cost) for r in found] == sorted((r.n_wrong, r.cost) for r in found)
    assert rewrites("A woman in a red hat sits on a bench .", BLUE_SHIRT) == found


def test_the_first_ground_truth_is_the_first_source() -> None:
    one, other = "A boy runs on the grass near a house .", "A child runs on the grass near a tree ."
    assert best("A woman runs on the grass .", (one, other)) == "A boy runs on the grass ."
    assert best("A woman runs on the grass .", (other, one)) == "A child runs on the grass ."


@pytest.mark.parametrize(
    "text, captions, after",
    [
        # a bare plural verb follows its subject into the singular
        ("A man and a boy hang on the bars .", ("A man hangs on some bars .", "A man swings on bars ."),
         "A man hangs on the bars ."),
        # so does the verb of a pronoun
        ("A woman sleeps on a couch while she reads .", ("Two men sleep on a couch .", "Two men read on a couch ."),
         "Two men sleep on a couch while they read ."),
        # a compound that nobody mentions goes alone
        ("A girl holds a tunnel toy .", ("A girl with a toy .", "A girl is holding a toy ."), "A girl holds a toy ."),
        # what hangs on a dropped phrase only loosely stays
        ("A dog in a vest running on a hill .", ("A dog runs up a hill .", "A dog on a hill ."),
         "A dog running on a hill ."),
    ],
)  # fmt: skip
def test_what_follows_from_a_change(text: str, captions: tuple[str, ...], after: str) -> None:
    assert best(text, captions) == after
