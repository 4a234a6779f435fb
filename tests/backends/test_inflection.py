import doctest

import pytest

from repair.backends.lexical import inflection
from repair.backends.lexical.inflection import article, base_forms, plural, singular, verb_form


def test_examples_in_docstrings() -> None:
    result = doctest.testmod(inflection)
    assert result.attempted > 5
    assert not result.failed


@pytest.mark.parametrize(
    "one, many",
    [
        ("dog", "dogs"),
        ("bus", "buses"),
        ("child", "children"),
        ("baby", "babies"),
        ("toy", "toys"),
        ("knife", "knives"),
    ],
)
def test_number_goes_both_ways(one: str, many: str) -> None:
    assert plural(one) == many
    assert singular(many) == one


def test_plural_of_a_plural_is_itself() -> None:
    assert plural("men") == "men"


@pytest.mark.parametrize(
    "base, forms",
    [
        ("jump", "jumps jumping jumped"),
        ("skate", "skates skating skated"),
        ("hop", "hops hopping hopped"),
        ("play", "plays playing played"),
        ("catch", "catches catching caught"),
        ("open", "opens opening opened"),
        ("ski", "skis skiing skied"),
    ],
)
def test_verb_forms(base: str, forms: str) -> None:
    assert [verb_form(base, tag) for tag in ("VBZ", "VBG", "VBD")] == forms.split()


@pytest.mark.parametrize("form", ["swimming", "rides", "jumped", "catches", "hopping"])
def test_base_forms_hold_the_base(form: str) -> None:
    bases = {"swimming": "swim", "rides": "ride", "jumped": "jump", "catches": "catch", "hopping": "hop"}
    assert bases[form] in set(base_forms(form))


def test_article_follows_the_sound() -> None:
    assert [article(word) for word in ("apple", "dog", "uniform", "hour", "umbrella", "one-eyed")] == [
        "an", "a", "a", "an", "an", "a",
    ]  # fmt: skip
