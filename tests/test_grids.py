"""Grids from hand-made links, and the rules no grid may break on random ones."""

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair.core.errors import DataError, TrainingError
from repair.core.records import Direction, LinkKind, Modality, Pair, Repair, RepairStatus
from repair.grids import assumed_cells, off_diagonal, sample_grids
from repair.links import build_links


def pairs_of(n_images, n_captions=2):
    return [
        Pair(image_id=f"i{i}", caption_id=f"t{i}.{c}", text=f"caption {c} of {i}", split="train")
        for i in range(n_images)
        for c in range(n_captions)
    ]


def repair(name, query, fp, *, edit=None, text=None):
    """`edit`: its key, none for an unrepaired failure."""
    asks_image = query.startswith("i")
    return Repair(
        failure_id=name,
        direction=Direction.IMAGE_TO_TEXT if asks_image else Direction.TEXT_TO_IMAGE,
        query_id=query,
        false_positive_id=fp,
        ground_truth_id="",
        status=RepairStatus.REPAIRED if edit else RepairStatus.UNREPAIRED,
        reason="",
        candidate_index=0 if edit else None,
        key=edit,
        text=(text or f"text of {edit}") if edit and asks_image else None,
        gain=None,
        closeness=None,
        n_candidates=1,
        n_valid=1,
    )


def never(image, text):
    return False


def links_of(repairs, pairs, **options):
    texts = {pair.caption_id: pair.text for pair in pairs}
    return build_links(repairs, texts=texts, max_positives=None, max_negatives=None, **options).links


def draw(repairs, pairs, *, n_steps=1, grids_per_step=1, matches=never, seed=0, **options):
    sample = sample_grids(
        links_of(repairs, pairs), pairs, matches=matches, n_steps=n_steps, grids_per_step=grids_per_step, seed=seed,
        **options,
    )  # fmt: skip
    return sample.grids, sample.summary


# ------------------------------------------------------------------------------------- one failure at a time


def test_the_grid_of_the_design_with_all_four_links():
    """Anchor (i0, t0.0): t0.0 has hard negative i1, i0 has hard negative t2.0; both were repaired."""
    pairs = pairs_of(3, 1)
    repairs = [
        repair("a", "t0.0", "i1", edit="E1"),  # t0.0 came back with i1
        repair("b", "i0", "t2.0", edit="e2"),  # i0 came back with t2.0
        repair("c", "i1", "t0.0", edit="fits i1"),  # an edit of t0.0 that fits i1
        repair("d", "t2.0", "i0", edit="fits t2"),  # an edit of i0 that fits t2.0
    ]
    grids, _ = draw(repairs, pairs, n_steps=8, anchor_synthetic_rate=0.0)
    whole = [grid for grid in grids if (grid.images[0], grid.texts[0]) == ("i0", "t0.0")]
    assert whole
    for grid in whole:
        assert grid.images == ("i0", "i1", "fits t2")
        assert grid.texts == ("t0.0", "fits i1", "t2.0")
        assert grid.n_synthetic == 2


def test_an_image_to_text_repair_from_its_two_sides():
    """i0 came back with t1.0, repaired by e. From the image: (i0, own caption or e) against t1.0. From the caption:
    (i1, t1.0) against i0, whose repaired caption is e: the edit meets the caption it was made of."""
    pairs = pairs_of(4, 1)
    grids, summary = draw([repair("f", "i0", "t1.0", edit="e")], pairs, n_steps=20, anchor_synthetic_rate=0.5)
    seen = Counter((grid.images[0], grid.texts[0]) for grid in grids)
    assert set(seen) == {("i0", "t0.0"), ("i0", "e"), ("i1", "t1.0")}
    assert seen["i1", "t1.0"] == 10  # the sides take turns
    for grid in grids:
        if grid.images[0] == "i0":
            assert grid.texts[2] == "t1.0"
            assert grid.images[2] == "i1"
        else:
            assert (grid.images[1], grid.texts[1]) == ("i0", "e")
    assert summary.anchors == {"image": 10, "text": 10}
    assert summary.n_synthetic_anchors == seen["i0", "e"]
    assert summary.n_repairs_used == 1
    assert summary.mean_uses == 20 - seen["i0", "t0.0"]


def test_a_text_to_image_repair_from_its_two_sides():
    pairs = pairs_of(4, 1)
    grids, _ = draw([repair("f", "t0.0", "i1", edit="E")], pairs, n_steps=20, anchor_synthetic_rate=1.0)
    for grid in grids:
        if grid.texts[0] == "t0.0":
            assert (grid.images[0], grid.images[1], grid.texts[1]) == ("E", "i1", "t1.0")
        else:
            assert (grid.images[0], grid.texts[0]) == ("i1", "t1.0")
            assert (grid.images[2], grid.texts[2]) == ("E", "t0.0")
    assert {grid.texts[0] for grid in grids} == {"t0.0", "t1.0"}


def test_rate_zero_and_one_of_synthetic_anchors():
    pairs = pairs_of(4, 1)
    repairs = [repair("f", "i0", "t1.0", edit="e"), repair("g", "t2.0", "i3", edit="E")]
    assert draw(repairs, pairs, n_steps=20, anchor_synthetic_rate=0.0)[1].n_synthetic_anchors == 0
    assert draw(repairs, pairs, n_steps=20, anchor_synthetic_rate=1.0)[1].n_synthetic_anchors == 10


def test_without_edits_only_originals_stand_in_the_grids_and_the_failures_are_the_same():
    pairs = pairs_of(6, 2)
    repairs = [repair("f", "i0", "t1.0", edit="e"), repair("g", "t2.0", "i3", edit="E"), repair("h", "i4", "t5.1")]
    grids, summary = draw(repairs, pairs, n_steps=6, use_edits=False)
    originals = {p.image_id for p in pairs} | {p.caption_id for p in pairs}
    assert all(set(grid.images + grid.texts) <= originals and grid.n_synthetic == 0 for grid in grids)
    assert summary.fits == {"own": 12}
    assert summary.n_failures_used == 3
    assert draw(repairs, pairs, n_steps=6)[1].fits != summary.fits
    with_edits = draw(repairs, pairs, n_steps=6, max_samples=1)[0]
    without = draw(repairs, pairs, n_steps=6, max_samples=1, use_edits=False)[0]
    assert {_hard(g) for g in with_edits} == {_hard(g) for g in without}


def _hard(grid):
    """The failure's own pair is one of the two verified cells of the anchor."""
    return frozenset(
        {(grid.images[0], grid.texts[2]), (grid.images[1], grid.texts[0])} & {("i0", "t1.0"), ("i3", "t2.0")}
    )


# ------------------------------------------------------------------------------------------------- fallbacks


@pytest.mark.parametrize(
    ("others", "fill"),
    [
        ([repair("x", "t0.0", "i2")], "verified"),
        ([repair("x", "t0.1", "i2")], "sibling"),
        ([repair("x", "i2", "t1.0")], "cousin"),
        ([], "random"),
    ],
)
def test_the_third_pair_falls_back_in_order(others, fill):
    """Failure f: i0 came back with t1.0. From its image a hard-negative image is wanted beside it."""
    pairs = pairs_of(5, 2)
    grids, _ = draw([repair("f", "i0", "t1.0", edit="e"), *others], pairs, n_steps=24, anchor_synthetic_rate=0.0)
    from_image = [g for g in grids if g.images[0] == "i0" and g.texts[2] == "t1.0"]
    assert from_image
    thirds = {g.images[1] for g in from_image}
    if fill == "random":
        assert thirds == {"i2", "i3", "i4"}
    else:
        assert thirds == {"i2"}
    if fill == "verified":  # the caption that has a hard-negative image is preferred for the anchor
        assert {g.texts[0] for g in from_image} == {"t0.0"}


def test_fills_are_counted():
    pairs = pairs_of(5, 2)
    _, summary = draw([repair("f", "i0", "t1.0", edit="e")], pairs, n_steps=10)
    assert summary.fills == {"verified": 0, "sibling": 0, "cousin": 0, "random": 10}


def test_own_items_stand_in_where_there_is_no_edit():
    pairs = pairs_of(5, 1)
    grids, summary = draw([repair("f", "i0", "t1.0")], pairs, n_steps=10)
    assert summary.fits == {"own": 20}
    assert (summary.n_repairs, summary.mean_uses) == (0, 0.0)
    for grid in grids:
        assert "i0" in grid.images
        assert "t1.0" in grid.texts


# ------------------------------------------------------------------------------------------------- refusals


def test_a_failure_whose_pair_is_known_to_match_is_refused():
    pairs = pairs_of(5, 1)
    repairs = [repair("f", "i0", "t1.0", edit="e"), repair("g", "i2", "t3.0", edit="e2")]
    grids, summary = draw(repairs, pairs, n_steps=4, matches=lambda i, t: (i, t) == ("i0", "t1.0"))
    assert all(("i0", "t1.0") not in off_diagonal(grid) for grid in grids)
    assert summary.refusals["pair_matches"] >= 3
    assert summary.n_failures_used == 1


def test_an_edit_that_says_what_the_false_positive_says_is_refused():
    """Selection without checks can leave such a copy; it may not be positive and negative at once."""
    pairs = pairs_of(4, 1)
    repairs = [repair("f", "i0", "t1.0", edit="copy", text="Caption 0 of 1."), repair("g", "i2", "t3.0", edit="e")]
    assert draw(repairs, pairs, n_steps=4)[1].refusals["pair_matches"] >= 3


def test_equal_captions_of_other_images_never_stand_off_the_diagonal():
    pairs = [*pairs_of(4, 1), Pair(image_id="i4", caption_id="t4.0", text="CAPTION 0 of 0", split="train")]
    grids, _ = draw([repair("f", "i4", "t1.0", edit="e")], pairs, n_steps=40)
    for grid in grids:
        assert not ({"i0", "i4"} <= set(grid.images) and {"t0.0", "t4.0"} & set(grid.texts))


def test_near_duplicates_by_predicate_are_kept_out():
    pairs = pairs_of(4, 1)
    twins = {"i0": "i2", "i2": "i0"}

    def matches(image, text):
        return text == f"t{twins.get(image, image)[1:]}.0"

    grids, _ = draw([repair("f", "i0", "t1.0")], pairs, n_steps=20, matches=matches)
    assert all(not {"i0", "i2"} <= set(grid.images) for grid in grids)


def test_nothing_to_build_is_an_error_that_says_why():
    pairs = pairs_of(2, 1)
    with pytest.raises(TrainingError, match="no links"):
        draw([], pairs)
    with pytest.raises(TrainingError, match="nothing_left 1"):
        draw([repair("f", "i0", "t1.0")], pairs)
    with pytest.raises(TrainingError, match="cell_matches 1"):
        draw([repair("f", "i0", "t1.0")], pairs_of(3, 1), matches=lambda i, t: i == "i2")
    assert draw([], pairs, n_steps=0)[0] == ()


def test_links_of_another_split_are_refused():
    with pytest.raises(DataError, match="i7 is not in the split"):
        sample_grids(
            build_links([repair("f", "i7", "t1.0")], texts={"t1.0": "x"}).links, pairs_of(3), matches=never, n_steps=1,
            grids_per_step=1, seed=0,
        )  # fmt: skip


# ------------------------------------------------------------------------------------- evenness, caps, budgets


def crowd(n_images=30, n_failures=120, seed=0, edit_rate=0.7):
    rng = random.Random(seed)
    pairs = pairs_of(n_images, 2)
    repairs = []
    for n in range(n_failures):
        image, caption = rng.randrange(n_images), rng.randrange(n_images)
        if image == caption:
            continue
        ids = (f"i{image}", f"t{caption}.{rng.randrange(2)}")
        edit = f"edit{n}" if rng.random() < edit_rate else None
        repairs.append(repair(f"f{n}", *(ids if rng.random() < 0.5 else ids[::-1]), edit=edit))
    return repairs, pairs


def test_an_epoch_passes_over_every_failure_once():
    repairs, pairs = crowd()
    n = len(repairs)
    for n_epochs in (1, 2, 3):
        _, summary = draw(repairs, pairs, n_steps=n_epochs * n, max_per_item=None)
        assert summary.refusals == {}
        assert (summary.n_failures, summary.n_failures_used, summary.n_epochs) == (n, n, float(n_epochs))
    _, half = draw(repairs, pairs, n_steps=n // 2, max_per_item=None)
    assert half.n_failures_used == n // 2


def test_each_repair_is_seen_in_every_second_epoch_at_least():
    """From one of its two sides a repair's edit always stands in the grid."""
    repairs, pairs = crowd()
    grids, summary = draw(repairs, pairs, n_steps=2 * len(repairs), max_per_item=None, anchor_synthetic_rate=0.0)
    on_diagonal = {pair for grid in grids for pair in zip(grid.images, grid.texts, strict=True)}
    assert summary.n_repairs_used == summary.n_repairs
    for item in repairs:
        if item.key is not None:
            pair = (item.query_id, item.key)
            assert (pair if item.direction is Direction.IMAGE_TO_TEXT else pair[::-1]) in on_diagonal
    assert summary.mean_uses >= 1


def test_caps_hold_in_every_epoch_and_refusals_are_counted():
    repairs, pairs = crowd(n_failures=200)
    cap = 12
    grids, summary = draw(repairs, pairs, n_steps=150, max_per_item=cap)
    # One epoch: 150 grids are fewer than the failures passed over.
    assert summary.n_epochs <= 1.0
    uses = Counter(key for grid in grids for key in grid.images + grid.texts)
    assert max(uses.values()) == summary.max_item_uses <= cap
    tight = draw(repairs, pairs, n_steps=20, max_per_item=3)[1]
    assert tight.refusals["item_cap"] > 0
    assert tight.max_item_uses <= 3


def test_more_steps_only_add():
    repairs, pairs = crowd()
    grids = [(g.images, g.texts) for g in draw(repairs, pairs, n_steps=100, grids_per_step=4)[0]]
    assert [(g.images, g.texts) for g in draw(repairs, pairs, n_steps=37, grids_per_step=4)[0]] == grids[: 37 * 4]
    assert [(g.images, g.texts) for g in draw(repairs, pairs, n_steps=50, grids_per_step=8)[0]] == grids
    assert [(g.step, g.index) for g in draw(repairs, pairs, n_steps=2, grids_per_step=2)[0]] == [
        (0, 0), (0, 1), (1, 0), (1, 1),
    ]  # fmt: skip


def test_epochs_differ_and_seeds_differ():
    repairs, pairs = crowd()
    grids = [(g.images, g.texts) for g in draw(repairs, pairs, n_steps=2 * len(repairs), max_per_item=None)[0]]
    assert grids[: len(repairs)] != grids[len(repairs) :]
    assert grids != [
        (g.images, g.texts) for g in draw(repairs, pairs, n_steps=2 * len(repairs), max_per_item=None, seed=1)[0]
    ]


def test_budgets_count_repairs_and_are_nested():
    repairs, pairs = crowd()
    failure_of = {r.key: r.failure_id for r in repairs if r.key}
    n_repaired = len(failure_of)
    previous = set()
    for budget in (5, 20, 50, n_repaired):
        grids, summary = draw(repairs, pairs, n_steps=8 * budget, max_samples=budget, max_per_item=None)
        used = {failure_of[key] for grid in grids for key in grid.images + grid.texts if key in failure_of}
        assert summary.n_repairs == budget
        assert previous <= used
        assert len(used) <= budget
        previous = used
    for enough in (n_repaired, n_repaired + 3):  # nothing is left out, not even failures without an edit
        assert draw(repairs, pairs, max_samples=enough) == draw(repairs, pairs)


def test_where_nothing_is_repaired_a_budget_counts_failures():
    repairs, pairs = crowd()
    bare = [one for one in repairs if one.status is not RepairStatus.REPAIRED]
    assert len(bare) > 2
    assert draw(bare, pairs, max_samples=2)[1].n_failures == 2


def test_links_beyond_the_budget_fill_no_grid():
    repairs, pairs = crowd()
    grids, _ = draw(repairs, pairs, n_steps=40, max_samples=1)
    assert len({key for grid in grids for key in grid.images + grid.texts if key.startswith("edit")}) == 1


# ---------------------------------------------------------------------------------- the rules, on random links

FAILURES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 6), st.integers(0, 6), st.integers(0, 1), st.integers(0, 3)), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(
    FAILURES,
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=6),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.sampled_from([None, 4]),
    st.integers(0, 100),
)
def test_no_grid_breaks_a_rule(rows, judged, rate, use_edits, cap, seed):
    pairs = pairs_of(7, 2)
    repairs = []
    for n, (forward, image, caption, which, edit) in enumerate(rows):
        ids = (f"i{image}", f"t{caption}.{which}")
        # Edits repeat, so that the same edited caption fits several images.
        repairs.append(
            repair(f"f{n}", *(ids if forward else ids[::-1]), edit=f"{'e' if forward else 'E'}{edit}" * bool(edit))
        )
    true = {(p.image_id, p.caption_id) for p in pairs} | {(f"i{a}", f"t{b}.{c}") for a, b in judged for c in (0, 1)}
    diagonal = {(p.image_id, p.caption_id) for p in pairs}
    for item in repairs:
        if item.key:
            pair = (item.query_id, item.key)
            diagonal.add(pair if item.direction is Direction.IMAGE_TO_TEXT else pair[::-1])
    links = links_of(repairs, pairs)
    shuffled = random.Random(seed).sample(links, len(links))
    options = {
        "matches": lambda i, t: (i, t) in true, "n_steps": 6, "grids_per_step": 3, "seed": seed, "use_edits": use_edits,
        "anchor_synthetic_rate": rate, "max_per_item": cap,
    }  # fmt: skip
    try:
        sample = sample_grids(links, pairs, **options)
    except TrainingError:
        return
    assert sample_grids(shuffled, pairs, **options) == sample
    negatives = {
        (k.anchor_key, k.target_key) if k.anchor_modality is Modality.IMAGE else (k.target_key, k.anchor_key)
        for k in links
        if k.kind is LinkKind.NEGATIVE
    }
    for grid in sample.grids:
        assert len(set(grid.images)) == len(set(grid.texts)) == 3
        assert set(zip(grid.images, grid.texts, strict=True)) <= diagonal
        assert not set(off_diagonal(grid)) & (true | diagonal)
        # At least one of the two cells beside the anchor was verified, from its own failure.
        assert negatives & {(grid.images[0], grid.texts[2]), (grid.images[1], grid.texts[0])}
        assert use_edits or grid.n_synthetic == 0
        assert grid.n_synthetic == sum(key[0] in "eE" for key in grid.images + grid.texts)
    summary = sample.summary
    assert summary.n_grids == len(sample.grids) == 18
    assert sum(summary.anchors.values()) == sum(summary.fills.values()) == sum(summary.fits.values()) / 2 == 18
    assert cap is None or summary.max_item_uses <= cap


def test_assumed_cells_are_those_no_link_vouches_for():
    pairs = pairs_of(4, 1)
    repairs = [repair("f", "i0", "t1.0", edit="e")]
    grids, _ = draw(repairs, pairs, n_steps=3)
    cells = assumed_cells(grids, links_of(repairs, pairs))
    everything = defaultdict(int)
    for grid in grids:
        for pair in off_diagonal(grid):
            everything[pair] += 1
    assert set(cells) == set(everything) - {("i0", "t1.0")}
    assert cells == sorted(cells)
