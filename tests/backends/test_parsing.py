import pytest

from repair.backends.lexical import parsing
from repair.backends.lexical.parsing import MAX_WORDS, analyse, parser_fingerprint, warm


def nouns(text: str) -> list[str]:
    return [thing.noun for thing in analyse(text).things]


def test_things_with_numbers_and_attributes() -> None:
    shirt = analyse("Three kids wearing red and white shirts play soccer .").things[1]
    kids = analyse("Three kids wearing red and white shirts play soccer .").things[0]
    assert (kids.noun, kids.low, kids.high, kids.is_counted, kids.is_subject) == ("kid", 3, 3, True, True)
    assert [trait.attribute.value for trait in shirt.traits] == ["red", "white"]
    assert (shirt.noun, shirt.low, shirt.high, shirt.is_subject) == ("shirt", 2, None, False)


def test_a_group_of_people_is_people() -> None:
    thing = analyse("A group of people stand on a bridge .").things[0]
    assert (thing.noun, thing.low, thing.high) == ("people", 4, None)


def test_a_pair_of_trousers_is_not_two() -> None:
    assert all(not thing.is_counted for thing in analyse("A man wears a pair of jeans .").things)


def test_names_of_several_words() -> None:
    assert "ice_cream" in nouns("A girl eats ice cream .")
    assert "tennis_ball" in nouns("A dog chases a tennis ball .")


def test_actions_know_their_doer() -> None:
    found = analyse("A dog is jogging while a man sits on a bench .")
    doers = {action.verb: found.things[action.doer].noun for action in found.actions if action.doer is not None}
    assert doers == {"run": "dog", "sit": "man"}


def test_front_of_belongs_to_the_preposition() -> None:
    found = analyse("A man stands in front of a brick house .")
    assert [(r.preposition, found.things[r.target].noun) for r in found.relations] == [("in_front_of", "house")]


@pytest.mark.parametrize(
    "text",
    [
        "A brown dog swimming in a river",
        "Three ponies race .",
        "A kid playing in a pool .",
        "Two dogs jog in the snow .",
        "A man in a red shirt rides .",
        "A dog and a cat run .",
    ],
)
def test_a_verb_is_not_taken_for_the_noun(text: str) -> None:
    found = analyse(text)
    assert len(found.actions) == 1
    assert found.actions[0].doer == 0
    assert found.things[0].is_subject


def test_one_by_one_equals_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"A {colour} dog {verb} in the {place} ." for colour in ("red", "tan") for verb in ("runs", "sits")
             for place in ("snow", "old park", "water near a boat")]  # fmt: skip
    monkeypatch.setattr(parsing, "_memory", parsing._Memory(100))
    single = [analyse(text) for text in texts]
    monkeypatch.setattr(parsing, "_memory", parsing._Memory(100))
    assert warm([*texts, *texts]) == len(texts)
    assert warm(texts) == 0
    assert [analyse(text) for text in texts] == single


def test_memory_is_bounded_and_forgets_the_least_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_memory", parsing._Memory(2))
    warm(["A cat .", "A dog ."])
    analyse("A cat .")
    warm(["A cow ."])
    assert warm(["A cat ."]) == 0
    assert warm(["A dog ."]) == 1


def test_only_the_first_words_of_a_long_text_are_read() -> None:
    found = analyse("A camel runs . " * 1000)
    assert len(found.tokens) == MAX_WORDS
    assert found.phrase(0, 3) == "A camel runs ."


def test_fingerprint_names_versions_and_lexicon() -> None:
    assert set(parser_fingerprint()) == {"spacy", "model", "lexicon"}


def test_missing_pipeline_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from repair.core.errors import MissingDependency

    monkeypatch.setattr(parsing, "MODEL", "no_such_pipeline")
    with pytest.raises(MissingDependency, match=r"no_such_pipeline.*pip install .*\[lexical\]"):
        parser_fingerprint()
