"""The report of another method than RePair: what it made by builder, what a kept sample cost, and examples."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from repair.core.identity import hash_bytes
from repair.core.synthesis import Sample, SampleKind
from repair.reports.facts import report_facts
from repair.reports.html import write_report
from repair.reports.samples import is_kept, sample_cards
from repair.reports.shown import Shower
from repair.reports.view import RunView
from repair.store.blobs import BlobStore
from tests.reports.benches import finish
from tests.reports.runs import Handmade, attempt, picture

CALLS = {"write": 3, "make": 3}


def sample(builder: str, kind: SampleKind, index: int, **fields: str | None) -> Sample:
    """Of the first caption of the first image."""
    caption = "train0.jpg#0"
    text, foil = fields.get("text"), fields.get("foil")
    return Sample(
        sample_id=f"{builder}:{caption}/{index}",
        builder=builder,
        kind=kind,
        image_id=caption.partition("#")[0],
        caption_id=caption,
        index=index,
        how=str(fields.pop("how", "replace_object")),
        text_key=None if text is None else hash_bytes(text.encode()),
        foil_key=None if foil is None else hash_bytes(foil.encode()),
        **{name: value for name, value in fields.items() if value is not None},  # type: ignore[arg-type]
    )


def method_run(folder: Path, name: str, samples: Sequence[Sample], *more: str, **summary: object) -> Handmade:
    made = Handmade(folder, f"method.name={name}", *more)
    finish(made.path, "samples", samples, **summary)
    return made


PAIR = SampleKind.PAIR
PICTURE = picture("blue")


@pytest.fixture
def counterfactuals(tmp_path: Path) -> Handmade:
    """Three candidates of one caption: one kept, two rejected; and two near originals."""
    made = hash_bytes(PICTURE)
    samples = [
        sample("counterfactuals", PAIR, 0, text="a red cat 0", image_key=made),
        sample("counterfactuals", PAIR, 1, text="a red cow 0", image_key=made, rejected="another candidate was chosen"),
        sample("counterfactuals", PAIR, 2, text="a dog", image_key="b2:gone", rejected="the image cannot be read"),
        sample("neighbours", SampleKind.NEIGHBOUR, 0, image_key="train1.jpg", how="nearest"),
    ]
    summary = {"counterfactuals": {"anchors": 1, "calls": 6, "failed_calls": 0}}
    run = method_run(tmp_path, "coco_cf", samples, **summary)
    run.calls(
        *(
            attempt(f"counterfactuals:train0.jpg#{caption}", task, key=f"{task}{caption}{i}", tokens=(10, 2))
            for task, n in CALLS.items()
            for caption in (0, 1)
            for i in range(n)
        ),
        attempt("i2t-1", "verify", key="of another method"),
    )
    with BlobStore.open(run.path / "blobs.sqlite") as blobs:
        blobs.put(PICTURE).result()
    return run


def test_what_was_kept_and_rejected_and_what_a_kept_sample_cost(counterfactuals: Handmade) -> None:
    facts = report_facts(counterfactuals.close())
    made = facts["samples"]
    assert (made["method"], made["n_kept"], made["n_neighbours"], made["done"]) == ("COCO-CF", 1, 1, True)
    assert made["tools"] == {"caption writer": "world", "image maker": "world"}
    assert made["truth"] is None
    assert made["builders"] == [
        {
            "builder": "counterfactuals",
            "n_anchors": 1,
            "n_candidates": 3,
            "n_kept": 1,
            "kinds": {"counterfactual_pair": 1},
            "rejected": {"another candidate was chosen": 1, "the image cannot be read": 1},
            "per_kept": {"calls": 12.0, "tokens": 144.0, "images": 0.0},
        }
    ]
    calls = facts["calls"]
    assert calls["directions"] == {}
    assert calls["n_foreign"] == 1
    (part,) = calls["builders"].values()
    assert part["n_pairs"] == 1
    assert {task: t["n_calls"] for task, t in part["tasks"].items()} == {"write": 6, "make": 6}
    assert part["total"]["per_pair"]["tokens_in"] == 120


def test_a_card_shows_the_anchor_and_what_differs_from_it(counterfactuals: Handmade) -> None:
    with RunView.open(counterfactuals.close()) as view:
        found = sample_cards(view, Shower.of(view))
    assert list(found) == ["counterfactuals"]
    (kept,), (chosen, unreadable) = found["counterfactuals"]["kept"], found["counterfactuals"]["rejected"]
    assert is_kept(kept.sample)
    assert kept.caption.text == "a red dog 0"
    assert kept.image.uri
    picture, caption = kept.made
    assert picture.change is not None
    assert picture.change.boxes == ()  # red to blue: all of it, so an outline would say nothing
    assert [(span.kind, span.text) for span in caption.spans if span.kind != "same"] == [
        ("deleted", "dog"),
        ("inserted", "cat"),
    ]
    assert {card.sample.rejected for card in (chosen, unreadable)} == {
        "another candidate was chosen",
        "the image cannot be read",
    }


def test_the_page_has_what_was_made_instead_of_repairs(counterfactuals: Handmade) -> None:
    page = write_report(counterfactuals.close()).read_text(encoding="utf-8")
    for words in ("What COCO-CF made", "method <b>COCO-CF</b>", "per kept sample", "the image cannot be read"):
        assert words in page
    for section in ("quality", "links", "gallery", "grids", "kept-edits"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page


def test_units_are_shown_with_their_foils(tmp_path: Path) -> None:
    unit = sample("half-truths", SampleKind.UNIT, 0, text="a red dog", foil="a blue dog", how="foil")
    with RunView.open(method_run(tmp_path, "cs_clip", [unit]).close()) as view:
        (card,) = sample_cards(view, Shower.of(view))["half-truths"]["kept"]
    part, foil = card.made
    assert part.text == "a red dog"
    assert [span.text for span in foil.spans if span.kind == "inserted"] == ["blue"]


def test_rules_cost_nothing(tmp_path: Path) -> None:
    swapped = sample("swap", SampleKind.NEGATIVE_CAPTION, 0, text="a dog red 0", how="swap")
    path = method_run(tmp_path, "negclip", [swapped], "method.rules=lexical").close()
    facts = report_facts(path)
    assert facts["samples"]["tools"] == {"rules": "lexical"}
    assert facts["samples"]["builders"][0]["per_kept"] == {"calls": 0.0, "tokens": 0.0, "images": 0.0}
    assert facts["calls"]["missing"] == []
    assert "asks nothing of models" in write_report(path).read_text(encoding="utf-8")


def test_unedited_failures_are_the_samples_of_a_method_that_mines(tmp_path: Path) -> None:
    fields = {"image_id": "train0.jpg", "caption_id": "train0.jpg#0", "builder": "failures"}
    samples = [
        Sample(sample_id="failures:train0.jpg#0/0", kind=SampleKind.NEGATIVE_CAPTION, index=0, how="i2t-1",
               text_key="train1.jpg#0", text="a red dog 1", **fields),
        Sample(sample_id="failures:train0.jpg#0/1", kind=SampleKind.NEGATIVE_IMAGE, index=1, how="t2i-1",
               image_key="train2.jpg", **fields),
    ]  # fmt: skip
    run = method_run(tmp_path, "fp_as_hn", samples)
    run.calls(
        attempt("i2t-1", "verify", key="k1"), attempt("i2t-2", "verify", key="k2"), attempt("t2i-1", "verify", key="k3")
    )
    path = run.close()
    facts = report_facts(path)
    assert {name: part["n_pairs"] for name, part in facts["calls"]["directions"].items()} == {
        "image_to_text": 1,
        "text_to_image": 1,
    }
    (builder,) = facts["samples"]["builders"]
    assert builder["per_kept"] == {"calls": 1.5, "tokens": 18.0, "images": 0.0}
    with RunView.open(path) as view:
        cards = sample_cards(view, Shower.of(view))["failures"]["kept"]
    for card in cards:
        (item,) = card.made
        assert item.role == "false positive"
        assert item.change is None
        assert item.spans == ()
    page = write_report(path).read_text(encoding="utf-8")
    assert 'id="quality"' in page
    assert 'id="links"' not in page


def test_vanilla_makes_nothing_and_an_unfinished_method_has_made_nothing_yet(tmp_path: Path) -> None:
    assert "makes no samples" in write_report(method_run(tmp_path / "a", "vanilla", []).close()).read_text(
        encoding="utf-8"
    )
    path = Handmade(tmp_path / "b", "method.name=negclip").close()
    assert report_facts(path)["samples"]["done"] is False
    assert "No sample has been made yet" in write_report(path).read_text(encoding="utf-8")
