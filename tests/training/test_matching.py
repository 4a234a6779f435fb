import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repair.core.texts import folded
from repair.training.matching import MatchTable


def test_equal_captions_and_duplicate_images_share_what_they_match():
    texts = {k: folded(v) for k, v in {"a": "A dog.", "b": "a  dog", "c": "a cat", "edit": "A CAT"}.items()}
    table = MatchTable([("i1", "a"), ("i2", "c")], texts=texts, twins={"i3": "i1", "i1": "i1"})
    assert table("i1", "b")
    assert table("i3", "a")
    assert table("i2", "edit")
    assert not table("i1", "c")
    assert not table("i1", "unknown")
    assert not table("unknown", "a")


def test_a_name_is_not_a_key():
    """A caption whose id is the text of another is still another caption."""
    table = MatchTable([("i1", "a dog"), ("i2", "x")], texts={"x": "a dog"})
    assert table("i1", "a dog")
    assert not table("i1", "x")


def test_an_empty_table_matches_nothing():
    assert not MatchTable([]).mask(["i"], ["t"]).any()


KEYS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=10)


@given(
    KEYS, st.dictionaries(st.integers(0, 5), st.integers(0, 2)), st.dictionaries(st.integers(0, 5), st.integers(0, 2))
)
def test_mask_and_call_equal_the_closure(known, twins, texts):
    table = MatchTable(
        [(f"i{i}", f"t{t}") for i, t in known],
        texts={f"t{k}": str(v) for k, v in texts.items()},
        twins={f"i{k}": str(v) for k, v in twins.items()},
    )

    def same(named, a, b):
        return a == b or (a in named and b in named and named[a] == named[b])

    expected = np.array(
        [[any(same(twins, i, a) and same(texts, t, b) for a, b in known) for t in range(6)] for i in range(6)]
    )
    images, captions = [f"i{n}" for n in range(6)], [f"t{n}" for n in range(6)]
    np.testing.assert_array_equal(table.mask(images, captions), expected)
    np.testing.assert_array_equal([[table(i, t) for t in captions] for i in images], expected)
