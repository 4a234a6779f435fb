"""What went wrong in kept edits: counted as the source judges each, and shown with an example of each class."""

import shutil
from pathlib import Path

import pytest

from repair.core.ports import EditTruth
from repair.core.progress import Silent
from repair.core.records import Direction, Repair, RepairStatus, Shortfall
from repair.reports import kept_edits
from repair.reports.facts import report_facts
from repair.reports.html import write_report
from repair.reports.kept_edits import kept_edits_facts, wrong_edits
from repair.reports.shown import Shower
from repair.reports.view import RunView
from tests.reports.runs import Handmade, failure, repaired, scored


def judged_one_by_one(view: RunView, repair: Repair) -> Shortfall | None:
    source, captions = view.source, view.captions(view.config.data.train_split)
    assert isinstance(source, EditTruth)
    if repair.direction is Direction.IMAGE_TO_TEXT:
        said = captions[repair.false_positive_id].text
        return source.text_shortfall(source.read_image(repair.query_id), said, str(repair.text))
    assert view.blobs is not None
    before, after = source.read_image(repair.false_positive_id), view.blobs.get(str(repair.key))
    assert after is not None
    return source.image_shortfall(captions[repair.query_id].text, before, after)


def test_counts_and_examples_are_as_the_source_judges(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        facts = kept_edits_facts(view, Silent())
        assert facts is not None
        assert facts["error"] is None
        assert [entry["round"] for entry in facts["rounds"]] == [0, 1]
        for entry in facts["rounds"]:
            kept = [one for one in view.table(entry["round"], Repair) if one.status is RepairStatus.REPAIRED]
            expected = {one.failure_id: (one.direction, judged_one_by_one(view, one)) for one in kept}
            assert entry["n_kept"] == entry["n_judged"] == entry["n_known"] == len(kept) > 0
            wrong = [shortfall for _, shortfall in expected.values() if shortfall is not None]
            assert entry["n_wrong"] == len(wrong) > 0
            for kind, values in entry["classes"].items():
                own = [direction for direction, shortfall in expected.values() if shortfall == kind]
                assert values["n"] == len(own)
                assert values["by_direction"] == {str(side): own.count(side) for side in Direction}
                assert values["share_of_wrong"] == len(own) / len(wrong)
                assert values["share_of_known"] == len(own) / len(kept)
                assert [expected[one] for one in values["examples"]] == [(s, kind) for s in Direction if s in own]


def test_an_example_shows_what_was_changed_and_for_what(world_run: Path) -> None:
    with RunView.open(world_run) as view:
        facts = kept_edits_facts(view, Silent())
        assert facts is not None
        found = wrong_edits(view, Shower.of(view), facts)
    classes = {kind for entry in facts["rounds"] for kind, values in entry["classes"].items() if values["n"]}
    assert set(found) == classes
    for cards in found.values():
        assert 1 <= len(cards) <= 2
        for card in cards:
            edited_image = card.repair.direction is Direction.TEXT_TO_IMAGE
            assert card.edit.is_image == card.false_positive.is_image == edited_image
            assert card.edit.edited
            assert card.edit.change if edited_image else card.edit.spans
            assert card.query.text if edited_image else card.query.uri
            assert card.instruction


def test_the_page_has_the_section(world_run: Path) -> None:
    page = write_report(world_run).read_text(encoding="utf-8")
    for words in ("What went wrong in kept edits", "kept edit</figcaption>", "Scaffold drift:", "share of wrong"):
        assert words in page


def test_of_very_many_edits_a_draw_is_judged(world_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_edits, "_MOST", 3)
    with RunView.open(world_run) as view:
        facts = kept_edits_facts(view, Silent())
    assert facts is not None
    assert [entry["n_judged"] for entry in facts["rounds"]] == [3, 3]
    assert all(entry["n_kept"] > 3 for entry in facts["rounds"])


def test_edited_images_that_are_gone_are_named(world_run: Path, tmp_path: Path) -> None:
    shutil.copytree(world_run, tmp_path / "run", ignore=shutil.ignore_patterns("blobs.*"))
    facts = report_facts(tmp_path / "run")["kept_edits"]
    assert facts["rounds"] == []
    assert f"is gone: there is no blobs.sqlite in {tmp_path}/run" in facts["error"]
    assert "Kept edits cannot be judged" in write_report(tmp_path / "run").read_text(encoding="utf-8")


def test_where_truth_is_unknown_there_is_no_such_section(tmp_path: Path) -> None:
    made = Handmade(tmp_path)
    failed = failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0")
    made.stage("mine", [failed])
    made.select([scored("i2t-1", 0)], [repaired(failed)])
    path = made.close()
    assert report_facts(path)["kept_edits"] is None
    assert "What went wrong in kept edits" not in write_report(path).read_text(encoding="utf-8")
