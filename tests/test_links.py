"""Links against hand-made repairs."""

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repair.core.errors import DataError
from repair.core.records import Direction, LinkKind, Modality, Repair, RepairStatus
from repair.links import build_links

TEXTS = {f"t{n}": f"text {n}" for n in range(8)}


def repair(name, query, fp, *, status=RepairStatus.REPAIRED, edit="b2:edit"):
    asks_image = query.startswith("i")
    repaired = status is RepairStatus.REPAIRED
    return Repair(
        failure_id=name,
        direction=Direction.IMAGE_TO_TEXT if asks_image else Direction.TEXT_TO_IMAGE,
        query_id=query,
        false_positive_id=fp,
        ground_truth_id="t0" if asks_image else "i0",
        status=status,
        reason="",
        candidate_index=0 if repaired else None,
        key=edit if repaired else None,
        text=f"text of {edit}" if repaired and asks_image else None,
        gain=0.1 if repaired else None,
        closeness=0.9 if repaired else None,
        n_candidates=3,
        n_valid=1,
    )


def rows(links):
    return [(k.anchor_key, str(k.anchor_modality), str(k.kind), k.target_key, k.target_text) for k in links]


def test_an_image_to_text_repair_gives_three_links():
    found = build_links([repair("f", "i1", "t2")], texts=TEXTS)
    assert rows(found.links) == [
        ("i1", "image", "positive", "b2:edit", "text of b2:edit"),
        ("i1", "image", "negative", "t2", "text 2"),
        ("t2", "text", "negative", "i1", None),
    ]


def test_a_text_to_image_repair_gives_three_links():
    found = build_links([repair("f", "t1", "i2")], texts=TEXTS)
    assert rows(found.links) == [
        ("i2", "image", "negative", "t1", "text 1"),
        ("t1", "text", "positive", "b2:edit", None),
        ("t1", "text", "negative", "i2", None),
    ]


@pytest.mark.parametrize("status", [RepairStatus.UNREPAIRED, RepairStatus.NEGATIVE_ONLY, RepairStatus.FAILED])
def test_without_an_edit_only_the_negatives_and_only_if_wanted(status):
    repairs = [repair("f", "t1", "i2", status=status), repair("g", "t3", "i4")]
    found = build_links(repairs, texts=TEXTS)
    assert [k.kind for k in found.links if k.failure_id == "f"] == [LinkKind.NEGATIVE] * 2
    strict = build_links(repairs, texts=TEXTS, unrepaired_negatives=False)
    assert {k.failure_id for k in strict.links} == {"g"}
    assert (found.summary.n_linked, strict.summary.n_linked, strict.summary.n_repairs) == (2, 1, 2)


def test_caps_count_distinct_targets_and_take_repaired_failures_first():
    unrepaired = [repair(f"u{n}", "i1", f"t{n}", status=RepairStatus.UNREPAIRED) for n in range(4)]
    repaired = [repair("r", "i1", "t5", edit="b2:e"), repair("s", "t5", "i1", edit="b2:x")]
    found = build_links([*unrepaired, *repaired], texts=TEXTS, max_negatives=2)
    negatives = [k for k in found.links if k.anchor_key == "i1" and k.kind is LinkKind.NEGATIVE]
    assert {k.failure_id for k in negatives if k.target_key == "t5"} == {"r", "s"}
    assert len({k.target_key for k in negatives}) == 2
    assert found.summary.n_dropped == 3
    by_anchor = {(d.anchor_modality, d.kind): d for d in found.summary.distributions}
    assert by_anchor[Modality.IMAGE, LinkKind.NEGATIVE].histogram == ((2, 1),)
    assert by_anchor[Modality.TEXT, LinkKind.NEGATIVE].n_anchors == 5


def test_positives_are_capped_apart_from_negatives():
    repairs = [repair(f"f{n}", "i1", f"t{n}", edit=f"b2:{n}") for n in range(5)]
    found = build_links(repairs, texts=TEXTS, max_positives=2, max_negatives=None)
    counts = {(d.anchor_modality, d.kind): (d.n_links, d.max, d.mean) for d in found.summary.distributions}
    assert counts == {
        (Modality.IMAGE, LinkKind.POSITIVE): (2, 2, 2.0),
        (Modality.IMAGE, LinkKind.NEGATIVE): (5, 5, 5.0),
        (Modality.TEXT, LinkKind.POSITIVE): (0, 0, 0.0),
        (Modality.TEXT, LinkKind.NEGATIVE): (5, 1, 1.0),
    }


def test_broken_repairs_are_refused():
    with pytest.raises(DataError, match="no text for caption t99"):
        build_links([repair("f", "i1", "t99")], texts=TEXTS)
    with pytest.raises(DataError, match="without its edit"):
        build_links([repair("f", "i1", "t1", edit=None)], texts=TEXTS)


PAIRS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 7), st.sampled_from(list(RepairStatus))), max_size=20
)


@given(PAIRS, st.integers(1, 4), st.integers(0, 3))
def test_any_order_gives_the_same_links_and_caps_hold(pairs, cap, seed):
    repairs = [
        repair(f"f{n}", *((f"i{i}", f"t{t}") if forward else (f"t{t}", f"i{i}")), status=status, edit=f"b2:{n}")
        for n, (forward, i, t, status) in enumerate(pairs)
    ]
    found = build_links(repairs, texts=TEXTS, max_positives=cap, max_negatives=cap, seed=seed)
    shuffled = random.Random(seed).sample(repairs, len(repairs))
    assert build_links(shuffled, texts=TEXTS, max_positives=cap, max_negatives=cap, seed=seed) == found
    targets = defaultdict(set)
    for link in found.links:
        targets[link.anchor_modality, link.anchor_key, link.kind].add(link.target_key)
    assert all(len(kept) <= cap for kept in targets.values())
    everything = build_links(repairs, texts=TEXTS, max_positives=None, max_negatives=None, seed=seed)
    assert set(found.links) <= set(everything.links)
    assert found.summary.n_dropped == len(everything.links) - len(found.links)


def test_a_full_anchor_still_takes_another_link_to_a_target_it_has():
    repairs = [repair("r", "i1", "t5", edit="b2:e"), repair("s", "t5", "i1", edit="b2:x")]
    found = build_links(repairs, texts=TEXTS, max_positives=1, max_negatives=1)
    assert found.summary.n_dropped == 0
    assert len(found.links) == 6
