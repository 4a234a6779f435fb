"""Batches and losses of other methods: what enters, what is encoded, what is masked."""

import dataclasses

import numpy as np
import pytest
import torch

from repair.core.composition import Composition
from repair.core.errors import ConfigError, TrainingError
from repair.core.identity import derive_rng
from repair.core.synthesis import Sample, SampleKind
from repair.numerics.losses import contrastive_loss
from repair.numerics.method_losses import asymmetric_loss
from repair.training.compositions.batches import ComposedBatches
from repair.training.compositions.index import matching_pairs
from repair.training.loop import Recipe, Training
from repair.training.matching import MatchTable
from repair.training.objective import batch_loss
from repair.training.prepared import Prepared
from tests.training import tiny

K = SampleKind
PAIRS = tiny.pairs()
OWN = {f"i{n}": [f"t{n}.{c}" for c in range(tiny.N_CAPTIONS)] for n in range(tiny.N_IMAGES)}


def sample(kind, n, index=0, *, how="swap", caption=0, **content):
    caption_id = f"t{n}.{caption}"
    return Sample(
        sample_id=f"x:{caption_id}/{kind}{index}",
        builder="x",
        kind=kind,
        image_id=f"i{n}",
        caption_id=caption_id,
        index=index,
        how=how,
        **content,
    )


def everything():
    """Of each even image every kind of sample; odd ones have none but neighbours."""
    out = []
    for n in range(tiny.N_IMAGES):
        near = (n + 1) % tiny.N_IMAGES
        out.append(sample(K.NEIGHBOUR, n, image_key=f"i{near}"))
        if n % 2:
            continue
        out += [
            sample(K.NEGATIVE_CAPTION, n, k, how=f"type{k}", text_key=f"neg{n}.{k}", text=f"no {n} {k}") for k in (0, 1)
        ]
        out.append(sample(K.POSITIVE_CAPTION, n, text_key=f"pos{n}", text=f"yes {n}"))
        out += [sample(K.POSITIVE_IMAGE, n, k, image_key=f"view{n}.{k}") for k in (0, 1)]
        out.append(sample(K.NEGATIVE_IMAGE, n, image_key=f"bad{n}"))
        out.append(sample(K.PAIR, n, image_key=f"cf{n}", text_key=f"cft{n}", text=f"cf {n}"))
        out += [
            sample(K.UNIT, n, k, text_key=f"u{n}.{k}", text=f"u {n} {k}", foil_key=f"f{n}.{k}", foil=f"f {n} {k}")
            for k in (0, 1)
        ]
    return out


def table(samples):
    known = [(p.image_id, p.caption_id) for p in PAIRS] + matching_pairs(samples, OWN)
    return MatchTable(known, texts={p.caption_id: p.text for p in PAIRS})


def batches(composition, *, samples=None, n_items=24, seed=0):
    samples = everything() if samples is None else samples
    return ComposedBatches(PAIRS, samples, composition, matches=table(samples), n_items=n_items, seed=seed)


def pairs_of(batch):
    rows = zip(batch.pair_images, batch.pair_texts, strict=True)
    return [(batch.image_keys[image], batch.text_keys[text]) for image, text in rows]


METHODS = {
    "vanilla": Composition(),
    "negclip": Composition(neighbours=True, negatives=1),
    "sugarcrepe": Composition(negatives=1),
    "laclip": Composition(rewrites=True),
    "simclr": Composition(views=True, terms=(("views", 1.0),)),
    "tripletclip": Composition(pairs="triplet"),
    "alia": Composition(edited_images=True),
    "coco_cf": Composition(pairs="pooled"),
    "coco_cf together": Composition(pairs="together"),
    "cs_clip": Composition(negatives=1, units=2, terms=(("units", 0.5),)),
    "fsc_clip": Composition(negatives=2, columns=False, terms=(("focal", 0.5),)),
    "ce_clip": Composition(negatives=2, types=("type0", "type1"), terms=(("ranked", 0.2), ("intra", 0.3))),
    "fp_as_hn": Composition(negatives=1, negative_images=1),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_batch_is_a_function_of_the_step_and_keeps_to_its_budget(name):
    source = batches(METHODS[name])
    for step in (0, 1, 5):
        batch, again = source(step), batches(METHODS[name])(step)
        assert batch.image_keys == again.image_keys
        assert batch.text_keys == again.text_keys
        assert len(batch.pair_images) >= 2
        assert len(batch.image_keys) + len(batch.text_keys) <= 24
        assert len(set(batch.image_keys)) == len(batch.image_keys)
        images, texts = source.keys(9)
        assert set(batch.image_keys) <= images
        assert set(batch.text_keys) <= texts


@pytest.mark.parametrize("name", METHODS)
def test_a_row_costs_what_its_composition_says(name):
    """Of images that have everything, one row after the other costs at most `row_images + row_texts`."""
    composition = METHODS[name]
    per_row = composition.row_images + composition.row_texts
    batch = batches(composition, n_items=24)(0)
    n_rows = len(batch.pair_images) // (2 if composition.neighbours or composition.pairs == "together" else 1)
    assert n_rows >= 24 // per_row - 1
    if name in ("vanilla", "laclip", "alia"):
        assert len(batch.pair_images) == 12


def test_vanilla_is_dealt_the_same_pairs_as_the_pipelines_vanilla():
    from repair.training.batches import Batches

    plain = Batches(PAIRS, (), matches=table([]), loss="vanilla", n_steps=3, batch_pairs=6, grids_per_step=2, seed=3)
    composed = batches(Composition(), samples=[], n_items=24, seed=3)
    for step in range(5):
        assert plain(step).image_keys == composed(step).image_keys
        assert plain(step).text_keys == composed(step).text_keys
        np.testing.assert_array_equal(plain(step).pair_matches, composed(step).pair_matches)


def test_rewrites_take_the_place_of_captions_and_are_drawn_alike():
    source = batches(METHODS["laclip"])
    texts = [key for step in range(400) for key in source(step).text_keys if key in ("pos4", "t4.0", "t4.1")]
    of_its_own = [key for key in texts if key != "t4.1"]
    assert 0.35 < texts.count("t4.1") / len(texts) < 0.65  # a caption without samples is drawn as often as one with
    assert 0.35 < of_its_own.count("pos4") / len(of_its_own) < 0.65


@pytest.mark.parametrize("name", ["sugarcrepe", "simclr", "tripletclip", "cs_clip", "fsc_clip", "ce_clip", "fp_as_hn"])
def test_a_method_is_dealt_vanillas_pairs_whichever_captions_have_samples(name):
    vanilla, source = batches(METHODS["vanilla"], samples=[]), batches(METHODS[name])
    for step in range(5):
        mine = pairs_of(source(step))
        assert mine == pairs_of(vanilla(step))[: len(mine)]


def test_negatives_are_columns_and_never_rows():
    batch = batches(METHODS["negclip"])(0)
    columns = {batch.text_keys[i] for i in batch.more_texts}
    rows = {batch.text_keys[i] for i in batch.pair_texts}
    assert columns
    assert all(key.startswith("neg") for key in columns)
    assert not any(key.startswith("neg") for key in rows)
    near = {batch.image_keys[i] for i in batch.pair_images}
    assert any(f"i{(int(key[1:]) + 1) % 24}" in near for key in near)


def test_types_keep_their_places():
    batch = batches(METHODS["ce_clip"])(0)
    assert (batch.negatives >= 0).any()
    for row in batch.negatives:
        for place, key in enumerate(row):
            assert key < 0 or batch.text_keys[key].endswith(f".{place}")


def test_a_negative_in_the_words_of_a_true_caption_is_masked():
    samples = [sample(K.NEGATIVE_CAPTION, 0, text_key="same", text="caption 1 of 0", caption=c) for c in (0, 1)]
    known = MatchTable(
        [(p.image_id, p.caption_id) for p in PAIRS],
        texts={p.caption_id: p.text for p in PAIRS} | {"same": "caption 1 of 0"},
    )
    source = ComposedBatches(PAIRS, samples, Composition(negatives=1), matches=known, n_items=48, seed=0)
    batch = source(0)
    row = [batch.image_keys[i] for i in batch.pair_images].index("i0")
    assert batch.negatives[row, 0] == -1
    assert batch.more_text_matches[row, 0]
    assert not np.delete(batch.more_text_matches[:, 0], row).any()


def test_pairs_meet_only_where_they_are_kept_together():
    together, apart = batches(METHODS["coco_cf together"], n_items=20), batches(METHODS["coco_cf"], n_items=20)
    met: dict[str, list[bool]] = {"together": [], "apart": []}
    for step in range(30):
        for name, source in (("together", together), ("apart", apart)):
            keys = set(source(step).image_keys)
            met[name] += [f"i{key[2:]}" in keys for key in keys if key.startswith("cf")]
    assert all(met["together"])
    assert 0 < sum(met["apart"]) < len(met["apart"]) / 2


def test_rejected_samples_never_train():
    bad = [dataclasses.replace(s, rejected="no") for s in everything() if s.kind is K.NEGATIVE_CAPTION]
    assert not len(batches(METHODS["sugarcrepe"], samples=bad)(0).more_texts)


def items(source):
    """Prepared rows for every key, drawn by name."""

    def rows(keys, dim):
        return np.stack([derive_rng(0, k).normal(size=dim) for k in keys]).astype(np.float32)

    images, texts = (sorted(keys) for keys in source.keys(1))
    return (
        Prepared((images, rows(images, tiny.DIM_IMAGE)), what="image"),
        Prepared((texts, rows(texts, tiny.DIM_TEXT)), what="text"),
    )


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_is_finite_and_reaches_everything_encoded(name):
    source, module = batches(METHODS[name]), tiny.TinyEncoder().module
    images, texts = items(source)
    batch = source(0)
    inputs = images.take(batch.image_keys), texts.take(batch.text_keys)
    parts = batch_loss(module, *inputs, batch, local_weight=1.0)
    assert module.n_encoded == [len(batch.image_keys), len(batch.text_keys)]
    assert torch.isfinite(parts.total)
    assert (parts.local_loss is not None) == bool(METHODS[name].terms)
    z_images, z_texts = module.image(inputs[0]).detach(), module.text(inputs[1]).detach()
    z_images.requires_grad_(True)
    z_texts.requires_grad_(True)
    from repair.training.compositions.objective import composed_loss

    main, terms = composed_loss(z_images, z_texts, torch.tensor(5.0), batch)
    total = main if terms is None else main + terms
    by_image, by_text = torch.autograd.grad(total, (z_images, z_texts))
    assert (by_image.abs().sum(dim=1) > 0).all()
    assert (by_text.abs().sum(dim=1) > 0).all()


def test_the_batch_loss_is_the_published_one():
    """Vanilla is CLIP; SugarCrepe's is NegCLIP's text part, B×2B and B×B."""
    module = tiny.TinyEncoder().module
    module.requires_grad_(False)
    for name in ("vanilla", "sugarcrepe"):
        source = batches(METHODS[name])
        images, texts = items(source)
        batch = source(0)
        z_images, z_texts = module.image(images.take(batch.image_keys)), module.text(texts.take(batch.text_keys))
        rows = z_images[batch.pair_images], z_texts[batch.pair_texts]
        scale, matches = module.log_scale.exp(), torch.from_numpy(batch.pair_matches)
        expected = contrastive_loss(*rows, scale, matches=matches)
        if name == "sugarcrepe":
            expected = asymmetric_loss(*rows, scale, matches=matches, more_texts=z_texts[batch.more_texts])
        parts = batch_loss(module, images.take(batch.image_keys), texts.take(batch.text_keys), batch, local_weight=1.0)
        torch.testing.assert_close(parts.total, expected)


def test_training_runs_resumes_and_knows_its_batches(tmp_path):
    source = batches(METHODS["negclip"])
    images, texts = items(source)
    data = dataclasses.replace(tiny.data(6, 1), images=images, texts=texts, batches=source, grids=())
    recipe = Recipe(n_steps=6, batch_pairs=6, grids_per_step=2, lr=1e-3, checkpoint_every=2)
    whole = Training(tiny.TinyEncoder(), data, recipe)
    rows = list(whole.run())
    assert all(row.n_pairs == 12 for row in rows)
    encoder = tiny.TinyEncoder()
    first = Training(encoder, data, recipe, folder=tmp_path)
    for row in first.run():
        if row.step == 3:
            break
    resumed = Training(tiny.TinyEncoder(), data, recipe, folder=tmp_path)
    assert resumed.step == 2
    list(resumed.run())
    assert resumed.encoder.fingerprint() == whole.encoder.fingerprint()


def test_refused():
    with pytest.raises(TrainingError, match="distinct images"):
        batches(Composition(), n_items=200)
    with pytest.raises(ConfigError, match="needs items"):
        Composition(terms=(("views", 1.0),))
    with pytest.raises(ConfigError, match="types"):
        Composition(negatives=1, types=("a", "b"))
