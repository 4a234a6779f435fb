import pytest

from repair.backends.lexical.lexicon import Match, lexicon


@pytest.mark.parametrize(
    "claim, seen, match",
    [
        ("dog", "dog", Match.SAME),
        ("dog", "poodle", Match.BROADER),
        ("poodle", "dog", Match.NARROWER),
        ("dog", "cat", Match.EXCLUDED),
        ("dog", "guitar", Match.UNRELATED),
        ("man", "woman", Match.EXCLUDED),
        ("man", "boy", Match.EXCLUDED),
        ("man", "person", Match.NARROWER),
        ("person", "man", Match.BROADER),
        ("child", "girl", Match.BROADER),
        ("hand", "face", Match.UNRELATED),  # seen side by side
    ],
)
def test_relations_of_nouns(claim: str, seen: str, match: Match) -> None:
    assert lexicon().relate(claim, seen) is match


def test_synonyms_are_one_name() -> None:
    words = lexicon()
    assert words.noun("bike") == words.noun("bicycle")
    assert words.relate(words.noun("motorbike"), words.noun("bike")) is Match.EXCLUDED


def test_actions_exclude_each_other_unless_they_go_together() -> None:
    words = lexicon()
    assert words.verbs_exclude("sit", "run")
    assert not words.verbs_exclude("run", "jump")
    assert not words.verbs_exclude("run", "smile")


def test_attributes_have_kinds_and_near_values() -> None:
    words = lexicon()
    assert [a.kind for a in words.attributes("little")] == ["size", "age"]
    assert words.are_near("brown", "yellow")
    assert not words.are_near("red", "blue")


def test_every_entry_is_a_single_lower_case_word_and_trees_end() -> None:
    words = lexicon()
    for name in (*words.synonyms, *words.people, *words.verbs):
        assert name == name.lower()
        assert " " not in name
    for name in words.kinds_of:
        kinds = words.kinds(name)
        assert len(kinds) == len(set(kinds))


def test_fingerprint_is_a_content_hash() -> None:
    assert lexicon().fingerprint.startswith("b2:")
