import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from repair.core.errors import StoreError
from repair.core.records import Criterion, ErrorType, RepairStatus
from repair.reports.html import report_facts, write_report
from tests.reports.runs import Handmade, failure, rank, repaired, scored, told, verdict

HOSTILE = ("<script>alert(1)</script> & \"x\" 'y'", "<img src=x onerror=alert(1)>")
_VOID = {"meta", "link", "img", "br", "wbr", "hr", "input"}
_STAGES = ("mine", "verify", "instruct", "edit", "select", "link", "grids", "train", "eval")


class Page(HTMLParser):
    """Checks that tags are balanced, and keeps what a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "srcset", "data", "poster") or (name == "href" and tag != "a"):
                self.loads.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name == "id":
                self.ids.append(value or "")
            if name == "href" and tag == "a":
                self.targets.append(value or "")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def page(path: Path) -> Page:
    return Page(write_report(path).read_text(encoding="utf-8"))


@pytest.fixture
def photo_run(tmp_path: Path) -> Handmade:
    """Photos with hostile captions, no editor of images, evaluated twice; nothing trained."""
    made = Handmade(tmp_path, captions=HOSTILE)
    failures = [
        failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0"),
        failure("i2t-2", "train1.jpg", "train2.jpg#1", "train1.jpg#1"),
        failure("t2i-1", "train0.jpg#1", "train1.jpg", "train0.jpg"),
    ]
    made.stage("mine", failures)
    made.stage("verify", [verdict("i2t-1"), verdict("i2t-2", Criterion.BENIGN_MISMATCH), verdict("t2i-1")])
    made.stage("instruct", [told("i2t-1", ErrorType.ATTRIBUTE)])
    made.stage("edit")
    negative = repaired(failures[2], key=None)
    negative = type(negative)(
        **{f: getattr(negative, f) for f in negative.__slots__ if f not in ("status", "reason")},
        status=RepairStatus.NEGATIVE_ONLY,
        reason="no editor for this modality",
    )
    made.select([scored("i2t-1", 0), scored("i2t-1", 1, "no_op")], [repaired(failures[0]), negative])
    before = [rank(f"test{i}.jpg", 1 + i % 2) for i in range(4)] + [
        rank(f"test{i}.jpg#{k}", 2) for i in range(4) for k in (0, 1)
    ]
    after = [rank(f"test{i}.jpg", 1) for i in range(4)] + [
        rank(f"test{i}.jpg#{k}", 1 + k) for i in range(4) for k in (0, 1)
    ]
    made.evaluate(None, before)
    made.evaluate(0, after)
    return made


def test_a_finished_run_is_one_page_that_loads_nothing(world_run: Path) -> None:
    found = page(world_run)
    assert found.loads
    assert all(value.startswith("data:") for value in found.loads)
    assert "script" not in found.tags
    assert found.handlers == []
    text = (world_run / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(?i)https?://|@import|url\((?!data:)", text)
    assert len(found.ids) == len(set(found.ids))
    assert {target.removeprefix("#") for target in found.targets} <= set(found.ids)
    assert len(text) < 5_000_000
    for words in ("true R@1", "criterion 1", "per kept pair", "repaired_", "Learning rate", "the verifier: keep"):
        assert words in found.words
    assert "not finished" not in found.words


def test_the_same_folder_gives_the_same_bytes(world_run: Path) -> None:
    first = write_report(world_run).read_bytes(), (world_run / "report.json").read_bytes()
    assert (write_report(world_run).read_bytes(), (world_run / "report.json").read_bytes()) == first


def test_the_json_beside_it_holds_the_same_numbers(world_run: Path) -> None:
    write_report(world_run)
    assert json.loads((world_run / "report.json").read_text(encoding="utf-8")) == report_facts(world_run)


def test_hostile_captions_are_shown_and_never_run(photo_run: Handmade) -> None:
    found = page(photo_run.close())
    assert "script" not in found.tags
    assert found.handlers == []
    assert "<script>alert(1)</script>" in found.words
    assert "<img src=x onerror=alert(1)>" in found.words


def test_real_photos_have_no_truth_and_no_image_edits(photo_run: Handmade) -> None:
    found = page(photo_run.close())
    assert "true R@1" not in found.words
    assert "Against the truth" not in found.words
    assert "not own" in found.words  # unlabelled is not called wrong where truth is unknown
    assert "no editor for this modality is configured" in found.words
    assert "Kept as hard negative only" in found.words
    assert "validation split" in found.words
    assert "No call is on record" in found.words


@pytest.mark.parametrize("n_done", range(len(_STAGES)))
def test_a_run_that_stopped_after_any_stage_has_a_report(world_run: Path, tmp_path: Path, n_done: int) -> None:
    path = tmp_path / "run"
    shutil.copytree(world_run, path, ignore=shutil.ignore_patterns("round-1", "round-1*", "report.*"))
    for stage in _STAGES[n_done:]:
        (path / "round-0" / f"{stage}.json").unlink()
    found = page(path)
    assert "This run is not finished" in found.words
    assert f"round 0 {_STAGES[n_done]}" in found.words
    assert f"repair run {path}/config.toml" in found.words
    facts = json.loads((path / "report.json").read_text(encoding="utf-8"))
    assert {"round": 0, "stage": _STAGES[n_done]} in facts["run"]["missing"]
    assert facts["moves"] is None


def test_a_run_with_nothing_done(tmp_path: Path) -> None:
    found = page(Handmade(tmp_path).close())
    assert "Nothing has been evaluated yet" in found.words
    assert "Nothing has been mined yet" in found.words
    assert "fit" in found.words


def test_without_its_data_a_report_says_so_and_still_counts(photo_run: Handmade, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "photos")
    found = page(photo_run.close())
    assert "The data cannot be opened here" in found.words
    assert "without the data source there is no interval" in found.words
    assert "no picture" in found.words


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("verification.enabled=false", "every failure was kept unasked"),
        ("training.loss=vanilla", "This run trains without grids"),
        ("calls.plan=fused", "call plan fused"),
        ("report.n_failures=0", "Dropped by criterion 2"),
    ],
)
def test_ablations_are_named(tmp_path: Path, setting: str, said: str) -> None:
    made = Handmade(tmp_path, setting)
    made.stage("mine", [failure("i2t-1", "train0.jpg", "train1.jpg#0", "train0.jpg#0")])
    made.stage("verify", [verdict("i2t-1", Criterion.BENIGN_MISMATCH)])
    made.stage("grids")
    assert said in page(made.close()).words


def test_a_training_under_way_is_drawn_as_far_as_it_is(tmp_path: Path) -> None:
    made = Handmade(tmp_path)
    made.stage("mine")
    row = {"loss": 2.0, "global_loss": 1.0, "local_loss": 0.5, "lr": 1e-4, "logit_scale": 10.0, "n_pairs": 8}
    made.train([{"step": step, **row} for step in range(1, 700)], finished=False)
    path = made.close()
    with (path / "round-0" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 700, "lo')
    found = page(path)
    assert "699 of 1,000 steps (not finished)" in found.words
    text = (path / "report.html").read_text(encoding="utf-8")
    assert max(map(len, re.findall(r'd="([^"]*)" class="curve', text))) < 6000  # thinned


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not a run folder"):
        write_report(tmp_path)
