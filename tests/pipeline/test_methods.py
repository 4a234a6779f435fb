"""Every method on a very small world, from samples to scores: what it leaves, what it costs, that it resumes."""

import json
from pathlib import Path

import pytest

from repair.core.errors import ConfigError
from repair.core.synthesis import Sample, SampleKind
from repair.pipeline import stages_methods
from repair.pipeline.registries import METHODS
from repair.store.ledger import Ledger
from repair.store.tables import read_table
from tests.pipeline.tiny import run

OPEN = "{text_band=[-1.0, 1.0], min_fit=-1.0, min_image=-1.0, min_direction=-1.0"
OPTIONS = {
    "coco_cf": f"{OPEN}}}",
    "la_sc_cf": f"{OPEN}, refine=false}}",
    "la_sc": "{refine=false}",
    "alia": "{top_k=1000}",
}
N = 6


def method_run(folder: Path, name: str, *more: str) -> Path:
    options = [f"method.options={OPTIONS[name]}"] if name in OPTIONS else []
    outcome = run(folder, f"run.name={name}", f"method.name={name}", f"method.max_samples={N}", *options, *more)
    assert [stage["stage"] for stage in outcome["stages"]][-2:] == ["train", "eval"]
    return folder / name


def samples_of(path: Path) -> list[Sample]:
    return read_table(path / "round-0" / "samples.parquet", Sample)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("methods")


# Every kind of sample, builder and loss; the rest are made of the same parts (tests/methods).
COVERING = ("alia", "ce_clip", "cs_clip", "fp_as_hn", "fsc_clip", "la_sc_cf", "negclip", "simclr", "tripletclip")


def test_no_method_is_left_out() -> None:
    made = {name: METHODS.build(name) for name in METHODS.entries}
    covered = {type(builder) for name in COVERING for builder in made[name].builders}
    assert {type(builder) for method in made.values() for builder in method.builders} == covered


@pytest.mark.parametrize("name", COVERING)
def test_every_method_runs_within_its_budget(folder: Path, name: str) -> None:
    path = method_run(folder, name)
    samples = samples_of(path)
    used = [s for s in samples if s.rejected is None and s.kind is not SampleKind.NEIGHBOUR]
    assert 0 < len(used) <= N
    assert len({s.sample_id for s in samples}) == len(samples)
    facts = json.loads((path / "evaluation" / "round-0.json").read_text())
    assert facts["splits"]["test"]["n_images"] == 20
    for kind, truth in facts["truth"]["samples"].items():
        assert kind in {str(s.kind) for s in used}
        assert truth["n"] > 0
    rows = [json.loads(line) for line in (path / "round-0" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    assert all(row["n_images"] + row["n_texts"] <= 2 * (8 + 3 * 2) for row in rows)


def test_a_finished_method_does_nothing_again_and_a_bigger_budget_asks_only_for_more(folder: Path) -> None:
    path = method_run(folder, "laclip")
    before = [s for s in samples_of(path) if s.rejected is None]
    outcome = run(folder, "run.name=laclip", "method.name=laclip", f"method.max_samples={N}")
    assert all(stage["cached"] for stage in outcome["stages"])
    with Ledger.view(path / "ledger.sqlite") as ledger:
        n_before = sum(row.n_calls for row in ledger.usage())
    run(folder, "run.name=laclip", "method.name=laclip", f"method.max_samples={N + 3}", reuse=True)
    after = [s for s in samples_of(path) if s.rejected is None]
    assert after[: len(before)] == before
    with Ledger.view(path / "ledger.sqlite") as ledger:
        assert sum(row.n_calls for row in ledger.usage()) == n_before + len(after) - len(before)


def test_a_budget_of_calls_is_kept(folder: Path) -> None:
    name = "sugarcrepe"
    outcome = run(folder, "run.name=calls", f"method.name={name}", "method.max_calls=10")
    made = next(stage["summary"]["sugarcrepe"] for stage in outcome["stages"] if stage["stage"] == "samples")
    assert made["calls"] == 9
    assert made["anchors"] == 3


def test_fp_as_hn_trains_on_verified_failures(folder: Path) -> None:
    path = method_run(folder, "fp_as_hn")
    for sample in samples_of(path):
        assert sample.kind in (SampleKind.NEGATIVE_CAPTION, SampleKind.NEGATIVE_IMAGE)
        assert sample.how.startswith(("i2t", "t2i"))


def test_a_budget_of_failures_keeps_some_of_both_directions(folder: Path) -> None:
    """They are mined image to text first; the first ones of a drawn order are kept, as RePair's own budget draws."""
    method_run(folder, "fp_as_hn")
    used = [sample for sample in samples_of(folder / "fp_as_hn") if sample.rejected is None]
    assert {sample.how[:3] for sample in used} == {"i2t", "t2i"}


def test_neighbours_do_not_count_as_samples() -> None:
    def one(index: int, kind: SampleKind) -> Sample:
        return Sample(sample_id=f"{index}", builder="x", kind=kind, image_id="i", caption_id="c", index=index, how="")

    kinds = [SampleKind.NEIGHBOUR, SampleKind.NEGATIVE_CAPTION, SampleKind.NEIGHBOUR, SampleKind.NEGATIVE_CAPTION]
    held = stages_methods._within([one(index, kind) for index, kind in enumerate(kinds)], 1)
    assert [sample.rejected is None for sample in held] == [True, True, True, False]


def test_the_parts_of_a_combination_meet_on_the_same_captions(folder: Path) -> None:
    parts: dict[str, set[str]] = {}
    for sample in samples_of(method_run(folder, "la_sc")):
        parts.setdefault(sample.builder, set()).add(sample.caption_id)
    fewer, more = sorted(parts.values(), key=len)
    assert fewer <= more


def test_nearest_images_leave_the_image_itself_out() -> None:
    import numpy as np

    vectors = np.eye(4, dtype=np.float32)[[0, 1, 1, 2]]
    near = stages_methods._nearest(vectors, 2)
    assert near.shape == (4, 2)
    assert near[1, 0] == 2
    assert near[2, 0] == 1
    assert all(row not in near[row] for row in range(4))


def test_refused_before_any_work(folder: Path) -> None:
    for setting, message in (
        ("method.name=negclp", 'did you mean "negclip"'),
        ("method.options={neighbour=1}", 'did you mean "neighbours"'),
        ("method.rules=none", "needs a caption writer"),
        ("pipeline.rounds=2", "one round"),
        ("method.writer=nobody", "unknown caption writer"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(folder, "run.name=refused", "method.name=negclip", setting)
    with pytest.raises(ConfigError, match='unknown stage "grids" of method "negclip"'):
        run(folder, "run.name=refused", "method.name=negclip", until="grids")
    with pytest.raises(ConfigError, match="needs an image maker"):
        run(folder, "run.name=refused2", "method.name=tripletclip", "method.maker=none")


def test_released_samples_take_the_place_of_made_ones(folder: Path, tmp_path: Path) -> None:
    from repair.pipeline.sources import open_source
    from tests.pipeline.tiny import config

    pair = open_source(config(folder)).pairs("train")[0]
    released = {"0": {"filename": pair.image_id, "caption": pair.text, "negative_caption": "no such thing"}}
    (tmp_path / "add_obj.json").write_text(json.dumps(released))
    outcome = run(
        folder,
        "run.name=released",
        "method.name=sugarcrepe",
        f"method.released.sugarcrepe={tmp_path / 'add_obj.json'}",
    )
    (sample,) = samples_of(folder / "released")
    assert (sample.caption_id, sample.text) == (pair.caption_id, "no such thing")
    assert next(s for s in outcome["stages"] if s["stage"] == "samples")["summary"]["released"]["samples"] == 1
