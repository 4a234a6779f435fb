"""What each method asks for and what it keeps, over the drawn world, whose truth is known."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest

from repair.core.composition import Composition
from repair.core.errors import ConfigError
from repair.core.synthesis import Change, SampleKind
from repair.methods import recipes
from repair.methods.builders import FAMILIES, _is_relation, _unlike_own, shuffled_bigrams
from repair.methods.method import Measure
from repair.methods.plausibility import TextModel
from repair.methods.quality import OTHER_CHOSEN, refine_adversarially
from repair.methods.views import ViewOptions, contradictions, view_of
from repair.pipeline.measures import _cosine
from repair.pipeline.registries import METHODS
from repair.world.changes import units_of
from repair.world.parsing import parse_said
from tests.methods.support import PAIRS, SOURCE, WorldTools, anchor, built, measures

K = SampleKind


def holds(image_id, text):
    return SOURCE.holds(SOURCE.read_image(image_id), text)


def builder(name, **options):
    (only,) = METHODS.build(name, options=options).builders
    return only


def kept(samples):
    return [sample for sample in samples if sample.rejected is None]


@pytest.mark.parametrize("name", sorted(METHODS.entries))
def test_every_method_is_made_by_name_and_says_what_it_is(name):
    method = METHODS.build(name)
    assert method.title
    assert (method.composition is None) == method.is_repair
    for part in method.builders:
        assert (part.n_calls > 0) == bool(part.written or part.makes)
        assert not (part.measured and not part.makes)
    used = {"T⁻": ("negatives", "pairs", "units"), "T⁺": ("rewrites", "units"), "I⁺": ("views", "edited_images")}
    for kind in set(method.types) & set(used):
        if not method.is_repair:
            assert any(getattr(method.composition, field) not in (0, False, "none") for field in used[kind])


def test_options_are_checked():
    with pytest.raises(ConfigError, match='did you mean "together"'):
        METHODS.build("coco_cf", options={"togther": True})


def test_negclip_swaps_without_a_call():
    samples, tools = built(builder("negclip"), row=2)
    assert all(kind == "rule" for kind, *_ in tools.asked)
    for sample in samples:
        assert sample.kind is K.NEGATIVE_CAPTION
        assert not holds(sample.image_id, sample.text)


@pytest.mark.parametrize("name", ["negclip", "fsc_clip", "ce_clip"])
def test_a_rule_that_gave_the_caption_back_made_no_negative(name):
    class Idle(WorldTools):
        async def rule(self, task, index=0):
            return (f" {task.text.upper()} .",)

    part = builder(name)
    samples = asyncio.run(part.build(anchor(), Idle(), ()))
    by_rule = [sample for sample in samples if sample.how != "shuffle"]
    assert len(by_rule) == len(part.ruled)
    assert {sample.rejected for sample in by_rule} == {"reads like a caption of the image"}


def test_sugarcrepe_asks_for_one_of_each_family_and_keeps_one():
    part = builder("sugarcrepe", refine=False)
    for row in range(0, 20, 5):
        samples, tools = built(part, row=row)
        assert [kind for kind, *_ in tools.asked] == ["write"] * 3
        for (_, change, _), family in zip(tools.asked, FAMILIES, strict=True):
            assert Change(change) in family
        chosen = part.choose(samples, measures(samples, plausibility_gap=0.1, grammar_gap=0.0), seed=0)
        assert len(kept(chosen)) == 1
        assert {sample.rejected for sample in chosen} <= {None, OTHER_CHOSEN}


def test_sugarcrepe_takes_the_one_text_gives_away_least():
    part = builder("sugarcrepe", refine=False)
    samples, _ = built(part)
    found = {s.sample_id: Measure(plausibility_gap=0.5 - 0.2 * k, grammar_gap=0.0) for k, s in enumerate(samples)}
    assert kept(part.choose(samples, found, seed=0)) == [samples[-1]]


def test_a_negative_that_reads_like_a_caption_of_the_image_is_dropped():
    part = builder("sugarcrepe", refine=False)
    samples, _ = built(part)
    own = replace(samples[0], text=anchor().text.upper(), text_key="k")
    assert _unlike_own([own], anchor())[0].rejected == "reads like a caption of the image"


def test_refinement_leaves_nothing_to_a_text_only_model():
    rng = np.random.default_rng(0)
    gaps = np.clip(rng.normal(0.25, 0.35, size=(4000, 2)), -1, 1)
    gaps[:50, 0] = 0.0
    gaps[:5] = 0.0
    rows = refine_adversarially(gaps, seed=0)
    assert rows == refine_adversarially(gaps, seed=0)
    left = gaps[rows]
    for axis in (0, 1):
        right = (left[:, axis] > 0).mean() / max((left[:, axis] != 0).mean(), 1e-9)
        assert (gaps[:, axis] > 0).mean() > 0.7
        assert abs(right - 0.5) < 0.02
    assert set(range(5)) <= set(rows)
    cells, mirrored = _histogram(left), _histogram(-left)
    assert (cells == mirrored).all()


def _histogram(gaps):
    inside = gaps[(gaps != 0).all(axis=1)]
    return np.histogram2d(inside[:, 0], inside[:, 1], bins=50, range=[[-1, 1], [-1, 1]])[0]


def test_laclip_rewrites_and_keeps_what_is_more_than_a_word():
    samples, tools = built(builder("laclip", n_rewrites=2))
    assert [(s.kind, holds(s.image_id, s.text)) for s in samples] == [(K.POSITIVE_CAPTION, True)] * 2
    assert [index for _, _, index in tools.asked] == [0, 1]


def test_simclr_makes_two_views_of_an_image_and_knows_what_they_contradict():
    samples, tools = built(builder("simclr"))
    assert [s.kind for s in samples] == [K.POSITIVE_IMAGE] * 2
    assert samples[0].image_key != samples[1].image_key
    assert set(tools.pictures) == {s.image_key for s in samples}
    assert "colour" in samples[0].how  # the world's captions name colours
    careful, _ = built(builder("simclr", careful=True))
    assert careful[0].how == "view"


def test_contradictions_of_views():
    options = ViewOptions()
    assert contradictions("A dog left of a red car", options) == ("flip", "colour")
    assert contradictions("A dog leaps", options) == ()
    assert contradictions("A red car", ViewOptions(jitter_rate=0, grey_rate=0)) == ()
    assert contradictions("on the Right", ViewOptions(flip_rate=0)) == ()


def test_a_view_keeps_the_size_and_is_drawn_by_its_seed():
    import io

    from PIL import Image

    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))
    views = {view_of(image, np.random.default_rng(seed), ViewOptions()) for seed in range(8)}
    assert len(views) == 8
    assert view_of(image, np.random.default_rng(3), ViewOptions()) in views
    assert all(Image.open(io.BytesIO(view)).size == (60, 40) for view in views)
    none = ViewOptions(crop=1.0, jitter_rate=0, grey_rate=0, blur_rate=0, flip_rate=0)
    plain = Image.open(io.BytesIO(view_of(image, np.random.default_rng(0), none)))
    assert np.abs(np.asarray(plain).astype(int) - np.asarray(image).astype(int)).max() <= 1


def test_tripletclip_draws_the_negative_caption():
    samples, tools = built(builder("tripletclip"))
    (sample,) = samples
    assert sample.kind is K.PAIR
    assert SOURCE.holds(tools.pictures[sample.image_key], sample.text)
    assert not holds(sample.image_id, sample.text)


def test_alia_asks_for_domains_once_and_filters_what_is_unchanged_or_destroyed():
    part = builder("alia")
    samples, tools = built(part)
    assert [kind for kind, *_ in tools.asked] == ["write", "make", "make", "make"]
    fine = Measure(fit=0.5, generic=0.1, own_rank=2, margin=-0.1)
    found = measures(samples, fit=0.5, generic=0.1, own_rank=2, margin=-0.1)
    usable = kept(samples)
    found[usable[0].sample_id] = replace(fine, own_rank=50)
    if len(usable) > 1:
        found[usable[1].sample_id] = replace(fine, generic=0.9)
    chosen = {s.sample_id: s.rejected for s in part.choose(samples, found, seed=0)}
    assert "meaning destroyed" in chosen[usable[0].sample_id]
    if len(usable) > 1:
        assert "generic" in chosen[usable[1].sample_id]
    assert list(chosen.values()).count(None) == (len(usable) > 2)


def test_alia_drops_what_stands_first_by_more_than_usual():
    part = builder("alia")
    samples = [s for row in range(0, 20, 5) for s in kept(built(part, row=row)[0])][:4]
    found = {
        s.sample_id: Measure(fit=0.5, generic=0.1, own_rank=1, margin=margin)
        for s, margin in zip(samples, (0.1, 0.1, 0.1, 0.9), strict=True)
    }
    assert "hardly changed" in part.choose(samples, found, seed=0)[-1].rejected


def test_coco_cf_keeps_one_pair_within_its_bands():
    part = builder("coco_cf")
    samples, tools = built(part)
    assert [kind for kind, *_ in tools.asked] == ["write", "make"] * 3
    for sample in samples:
        assert SOURCE.holds(tools.pictures[sample.image_key], sample.text)
    fine = Measure(text_cosine=0.85, fit=0.5, image_cosine=0.9, direction=0.5, plausibility_gap=0.0)
    found = {s.sample_id: replace(fine, plausibility_gap=0.1 * k) for k, s in enumerate(samples)}
    assert kept(part.choose(samples, found, seed=0)) == [samples[0]]
    for field, value in (
        ("text_cosine", 0.8),
        ("text_cosine", 0.92),
        ("fit", 0.2),
        ("image_cosine", 0.7),
        ("direction", 0.1),
    ):
        bad = {s.sample_id: replace(fine, **{field: value}) for s in samples}
        assert not kept(part.choose(samples, bad, seed=0))


@pytest.mark.parametrize("name", ["alia", "coco_cf"])
def test_an_image_that_came_back_unchanged_is_dropped(name):
    class Idle(WorldTools):
        async def make(self, task, index=0):
            return await self.keep(task.source.read())

    part, tools = builder(name), Idle()

    async def run():
        return await part.build(anchor(), tools, await part.prepare(tools, ["a red cube"]))

    samples = asyncio.run(run())
    assert samples
    assert {sample.rejected for sample in samples} == {"the image came back unchanged"}


def test_what_did_not_change_has_no_direction_to_share():
    still, moved = np.zeros(3, dtype=np.float32), np.array([1, 2, 2], dtype=np.float32)
    assert _cosine(still, moved) == _cosine(moved, still) == 0.0
    assert _cosine(moved, 2 * moved) == pytest.approx(1)
    assert _cosine(None, moved) is None
    part = builder("coco_cf")
    samples, _ = built(part)
    fine = {"text_cosine": 0.85, "fit": 0.5, "image_cosine": 1.0, "plausibility_gap": 0.0}
    unmoved = measures(samples, **fine, direction=_cosine(still, moved))
    reasons = {sample.rejected for sample in part.choose(samples, unmoved, seed=0)}
    assert reasons == {"text and image did not change alike"}


@pytest.mark.parametrize(
    ("unit", "others", "is_relation"),
    [
        ("a dog beside a car", ("a dog", "a car"), True),
        ("A Dog beside a car.", ("a dog", "a car"), True),
        ("a man beside a man", ("a man",), True),
        ("a dog", ("a car", "a dog beside a car"), False),
        ("a brown dog that barks at night", ("a brown dog",), False),
        ("a small dog that runs", ("dog", "a small dog"), False),
        ("a dog beside a car under a tree", ("a dog beside a car", "a tree"), True),
    ],
)
def test_a_relation_is_between_two_of_the_entities(unit, others, is_relation):
    assert _is_relation(unit, (*others, unit)) == is_relation


def test_in_the_world_exactly_the_relations_are_taken_for_relations():
    for pair in PAIRS:
        claim, units = parse_said(pair.text).claim, units_of(pair.text)
        n_relations = sum(relation is not None for relation in claim.relations)
        assert [_is_relation(unit, units) for unit in units] == [False] * len(claim.phrases) + [True] * n_relations


def test_cs_clip_makes_units_with_foils_and_a_negative_caption():
    samples, tools = built(builder("cs_clip"))
    units = [s for s in samples if s.kind is K.UNIT]
    assert len(units) >= 2
    for sample in units:
        assert holds(sample.image_id, sample.text)
        assert not holds(sample.image_id, sample.foil)
    n_entities = sum(1 for _, change, _ in tools.asked if change == "foil")
    assert len(tools.asked) == 1 + n_entities


def test_fsc_clip_shuffles_pairs_of_words():
    text = "one two three four five"
    shuffled = {shuffled_bigrams(text, seed=seed) for seed in range(20)}
    assert all(sorted(other.split()) == sorted(text.split()) for other in shuffled)
    assert len(shuffled) > 3
    samples, _ = built(builder("fsc_clip"))
    assert {s.how for s in samples} <= {"swap", "replace_object", "shuffle"}
    assert any(s.how == "shuffle" for s in samples)


def test_ce_clip_has_a_negative_for_each_type():
    types = METHODS.build("ce_clip").composition.types
    samples, _ = built(builder("ce_clip"))
    assert {s.how for s in samples} <= set(types)
    assert len(samples) >= 3


@pytest.mark.parametrize("name", ["sugarcrepe", "laclip", "tripletclip", "alia", "coco_cf", "cs_clip"])
def test_a_failed_call_costs_the_sample_and_nothing_else(name):
    assert built(builder(name), broken=("write",))[0] == []
    if name in ("tripletclip", "alia", "coco_cf"):
        assert built(builder(name), broken=("make",))[0] == []


@pytest.mark.parametrize("name", sorted(METHODS.entries))
def test_the_same_anchor_and_seed_give_the_same_samples(name):
    for part in METHODS.build(name).builders:
        first, again, other = (built(part, row=3, seed=seed)[0] for seed in (1, 1, 2))
        assert first == again
        assert [s.sample_id for s in first] == sorted(
            {s.sample_id for s in first}, key=[s.sample_id for s in first].index
        )
        assert first != other or len(first) < 2


def test_combinations_are_the_union_of_their_parts():
    parts = [b.name for b in recipes.la_sc_cf().builders]
    assert parts == ["rewrite", "sugarcrepe", "counterfactuals"]
    assert [b.name for b in recipes.la_sc_al().builders] == ["rewrite", "sugarcrepe", "domains"]
    assert recipes.la_sc_cf().composition.pairs == "together"


def test_false_positives_of_one_kind_can_be_left_out_of_the_batch():
    both, captions, neither = (
        METHODS.build("fp_as_hn", options=options).composition
        for options in ({}, {"images": False}, {"captions": False, "images": False})
    )
    assert both == Composition(negatives=1, negative_images=1)
    assert captions == Composition(negatives=1)
    assert neither == Composition()
    assert METHODS.build("fp_as_hn", options={"images": False}).types == ("T⁻",)


def test_what_captions_are_like_is_told_by_their_counts():
    texts = [pair.text for pair in PAIRS]
    model = TextModel(texts)
    words = texts[0].split()
    assert model.plausibility(texts[0]) > model.plausibility(" ".join(reversed(words)))
    assert model.grammar(texts[0]) > model.grammar(" ".join(reversed(words)))
    assert model.gaps(texts[0], texts[0]) == (0.0, 0.0)
    assert all(-1 <= gap <= 1 for gap in model.gaps(texts[0], "zzz zzz zzz"))


def test_a_caption_is_scored_as_if_it_had_not_been_counted():
    texts = [f"A dog sees thing{i} near the red house." for i in range(20)]
    other = "A dog sees thing20 near the red house."
    assert TextModel(texts).gaps(texts[3], other) == (0.0, 0.0)


def test_leaving_a_caption_out_is_counting_all_but_that_one():
    texts = [pair.text for pair in PAIRS]
    model, other = TextModel(texts), "A green cone left of a shiny dog."
    for row in (0, 7, 20):
        held = TextModel([*texts[:row], *texts[row + 1 :]])
        gap = math.tanh(held.plausibility(texts[row]) - held.plausibility(other))
        assert model.gaps(texts[row], other)[0] == pytest.approx(gap, abs=1e-12)
    twice = TextModel([*texts, texts[0]])  # the same caption of another image stays
    gap = math.tanh(model.plausibility(texts[0]) - model.plausibility(other))
    assert twice.gaps(texts[0], other)[0] == pytest.approx(gap, abs=1e-12)


def test_a_text_that_was_never_counted_takes_nothing_below_none():
    model = TextModel(["A dog runs."])
    assert all(-1 <= gap <= 1 for gap in model.gaps("A cat sleeps on a dog on a dog.", "A dog runs."))
    assert TextModel(["A dog runs."]).gaps("A dog runs.", "A cat runs.") == (0.0, 0.0)  # nothing is left
