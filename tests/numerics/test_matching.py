import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.core.errors import DataError
from repair.numerics.matching import image_classes, matching_pairs


def brute_force(owner, texts, n_images, twins, extra):
    """The rules, pair by pair."""
    near = list(range(n_images))
    for _ in range(n_images):  # a chain is at most so long
        for i, j in twins:
            near[i] = near[j] = min(near[i], near[j])
    labelled = {(image, caption) for caption, image in enumerate(owner)} | set(extra)
    table = np.zeros((n_images, len(texts)), dtype=bool)
    for image in range(n_images):
        for caption in range(len(texts)):
            table[image, caption] = any(near[i] == near[image] and texts[c] == texts[caption] for i, c in labelled)
    return table


@settings(max_examples=80, deadline=None)
@given(data=st.data(), n_images=st.integers(1, 6), n_captions=st.integers(0, 9))
def test_matching_equals_the_rules_pair_by_pair(data, n_images, n_captions):
    index = st.integers(0, n_images - 1)
    owner = data.draw(st.lists(index, min_size=n_captions, max_size=n_captions))
    texts = data.draw(st.lists(st.sampled_from("abcdef"), min_size=n_captions, max_size=n_captions))
    twins = data.draw(st.lists(st.tuples(index, index), max_size=4))
    captions = st.integers(0, max(n_captions - 1, 0))
    extra = data.draw(st.lists(st.tuples(index, captions), max_size=3)) if n_captions else []
    owners = np.array(owner, dtype=int)
    found = matching_pairs(owners, texts, n_images=n_images, near_duplicates=twins, extra_positives=extra)
    assert (found.pairs.toarray() == brute_force(owner, texts, n_images, twins, extra)).all()
    assert (found.truth.toarray() == brute_force(owner, list(range(n_captions)), n_images, [], [])).all()
    assert found.pairs.nnz == found.n_own + found.n_extra + found.n_near_duplicate + found.n_identical_caption


def test_captions_that_read_the_same():
    found = matching_pairs([0, 1, 2], ["A dog  runs.", "a dog runs", "A dog run"], n_images=3)
    assert found.pairs.toarray().tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert found.n_identical_caption == 2


def test_near_duplicates_are_classes():
    assert image_classes([(4, 2), (2, 0)], 5).tolist() == [0, 1, 0, 3, 0]
    assert image_classes(np.zeros((0, 2), dtype=int), 3).tolist() == [0, 1, 2]


def test_many_identical_captions_do_not_overflow():
    """256 captions of each image read the same: 256 ways to reach a pair, which a byte would count as none."""
    found = matching_pairs([0] * 256 + [1] * 256, ["same"] * 512, n_images=2)
    assert found.pairs.toarray().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"owner": [0]}, "owner: .* for 2 captions"),
        ({"owner": [0, 5]}, "owner: must be indices from 0 to 1"),
        ({"owner": [0.0, 1.0]}, "owner: must be indices"),
        ({"near_duplicates": [(0, 2)]}, "near_duplicates: must be indices from 0 to 1"),
        ({"extra_positives": [(0, 2)]}, r"extra_positives \(captions\): must be indices from 0 to 1"),
        ({"extra_positives": [(-1, 0)]}, r"extra_positives \(images\)"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(DataError, match=message):
        matching_pairs(**{"owner": [0, 1], "texts": ["a", "b"], "n_images": 2, **arguments})
