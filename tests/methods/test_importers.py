"""What other projects released, read as they released it."""

import io
import json
import tarfile

import pytest
from PIL import Image

from repair.core.errors import ConfigError, DataError
from repair.core.identity import hash_bytes
from repair.core.records import Pair
from repair.core.synthesis import SampleKind
from repair.methods.importers import import_released

PAIRS = [
    Pair(image_id="42", caption_id="c0", text="A red dog beside a blue car.", split="train"),
    Pair(image_id="42", caption_id="c1", text="A dog.", split="train"),
    Pair(image_id="photo_7", caption_id="c2", text="Two cats", split="train"),
    Pair(image_id="photo_8", caption_id="c3", text="A dog.", split="train"),
]


def png(colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, format="PNG")
    return buffer.getvalue()


def test_negclip(tmp_path):
    path = tmp_path / "train_neg_clip.tsv"
    path.write_text(
        "\ttitle\tfilepath\tneg_caption\tneg_image\n"
        "0\tA red dog beside a blue car.\tCOCO_train2014_000000000042.jpg\t['A blue dog beside a red car .']\t[1, 2]\n"
        "1\ttwo cats\timages/photo_7.jpg\t[]\t[0]\n"
        "2\tSomething else\timages/other.jpg\t['x y']\t[0]\n"
    )
    found = import_released("negclip", path, PAIRS)
    assert (found.n_rows, found.n_foreign) == (3, 1)
    negative, near, other = found.samples
    assert (negative.kind, negative.caption_id, negative.text) == (
        SampleKind.NEGATIVE_CAPTION,
        "c0",
        "A blue dog beside a red car .",
    )
    assert (near.kind, near.image_id, near.image_key) == (SampleKind.NEIGHBOUR, "42", "photo_7")
    assert (other.image_id, other.image_key) == ("photo_7", "42")


def test_sugarcrepe_with_gaps_in_its_ids(tmp_path):
    rows = {
        "0": {"filename": "000000000042.jpg", "caption": "A dog.", "negative_caption": "A cat."},
        "7": {"filename": "1.jpg", "caption": "Unknown", "negative_caption": "x"},
    }
    (tmp_path / "swap_obj.json").write_text(json.dumps(rows))
    found = import_released("sugarcrepe", tmp_path, PAIRS)
    assert (found.n_rows, found.n_foreign) == (2, 1)
    assert found.samples[0].caption_id == "c1"
    assert found.samples[0].how == "swap_obj"


def test_a_text_of_two_captions_belongs_to_neither(tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps({"0": {"filename": "elsewhere.jpg", "caption": "A dog.", "negative_caption": "A cat."}})
    )
    assert import_released("sugarcrepe", tmp_path / "a.json", PAIRS).n_foreign == 1


def test_cococf(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "42_1.png").write_bytes(png("blue"))
    (tmp_path / "examples.jsonl").write_text(
        json.dumps({"id": 1, "caption_0": "two cats", "caption_1": "Two dogs", "image_0": "42_0", "image_1": "42_1"})
    )
    found = import_released("coco_cf", tmp_path / "examples.jsonl", PAIRS)
    (sample,) = found.samples
    assert (sample.kind, sample.caption_id, sample.text) == (SampleKind.PAIR, "c2", "Two dogs")
    assert sample.image_key == hash_bytes(png("blue"))
    assert found.images[sample.image_key]() == png("blue")
    (tmp_path / "train.csv").write_text("image_path,caption\nimages/42_1.png,Two dogs\n")
    (pair,) = import_released("coco_cf", tmp_path / "train.csv", PAIRS).samples
    assert pair.image_key == sample.image_key


def test_csclip(tmp_path):
    row = {
        "sample_id": 3,
        "original_caption": "Two cats",
        "image_path": "x/photo_7.jpg",
        "entities": ["two cats"],
        "negative_entities": {"two cats": [{"negative": "two dogs", "change_type": "object"}]},
        "relations": [
            {"subject": "a cat", "relation_type": "beside", "object": "a cat", "negatives": ["a cat above a cat"]}
        ],
    }
    (tmp_path / "units.json").write_text(json.dumps([row]))
    entity, relation = import_released("cs_clip", tmp_path / "units.json", PAIRS).samples
    assert (entity.kind, entity.text, entity.foil) == (SampleKind.UNIT, "two cats", "two dogs")
    assert (relation.text, relation.foil) == ("a cat beside a cat", "a cat above a cat")


def test_laclip(tmp_path):
    (tmp_path / "train.csv").write_text('photo_7.jpg,Two cats\nother.jpg,"Nothing, here"\n')
    (tmp_path / "chatgpt.txt").write_text("A pair of cats\nx\n")
    found = import_released("laclip", tmp_path / "chatgpt.txt", PAIRS)
    assert (found.n_rows, found.n_foreign) == (2, 1)
    assert (found.samples[0].kind, found.samples[0].text) == (SampleKind.POSITIVE_CAPTION, "A pair of cats")
    (tmp_path / "chatgpt.txt").write_text("A pair of cats\n")
    with pytest.raises(DataError, match="1 lines for 2"):
        import_released("laclip", tmp_path / "chatgpt.txt", PAIRS)


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0c"])
def test_only_line_feeds_end_a_line(tmp_path, odd):
    (tmp_path / "train.csv").write_text("photo_7.jpg,Two cats\nphoto_7.jpg,Two cats\n", encoding="utf-8")
    (tmp_path / "chatgpt.txt").write_text(f"A pair{odd}of cats\r\nA couple of cats\r\n", encoding="utf-8")
    assert import_released("laclip", tmp_path / "chatgpt.txt", PAIRS).n_rows == 2
    row = {"id": 1, "caption_0": "a", "caption_1": f"Two{odd}dogs", "image_0": "0", "image_1": "1"}
    (tmp_path / "examples.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
    assert import_released("coco_cf", tmp_path / "examples.jsonl", PAIRS).n_foreign == 1


@pytest.mark.parametrize("ending", ["", ".bin"])
def test_tripletclip(tmp_path, ending):
    with tarfile.open(tmp_path / "shard-0.tar", "w") as tar:
        for name, data in (
            ("000.caption", b"Two cats"),
            ("000.neg_caption", b"Two  dogs"),
            ("000.image", png("red")),
            ("000.neg_image", png("blue")),
        ):
            member = tarfile.TarInfo(name + ending)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    found = import_released("tripletclip", tmp_path, PAIRS)
    (sample,) = found.samples
    assert (sample.kind, sample.caption_id, sample.text) == (SampleKind.PAIR, "c2", "Two dogs")
    assert found.images[str(sample.image_key)]() == png("blue")


@pytest.mark.parametrize(
    ("format", "name", "content", "message"),
    [
        ("negclip", "a.tsv", "title\tfilepath\nx\ty\n", 'no column "neg_caption"'),
        (
            "negclip",
            "a.tsv",
            "title\tfilepath\tneg_caption\nTwo cats\tphoto_7.jpg\tboom(\n",
            "line 2: .* is not a list",
        ),
        ("sugarcrepe", "a.json", "[]", "JSON object"),
        ("sugarcrepe", "a.json", '{"0": {"caption": "x"}}', 'row 0: needs a text under "negative_caption"'),
        ("sugarcrepe", "a.json", "{", "not JSON"),
        ("coco_cf", "a.jsonl", '{"id": 1}', 'line 1: needs "caption_0"'),
        ("cs_clip", "a.json", "3", "JSON list"),
        ("tripletclip", "a.tar", "no tar", "not a readable tar"),
        ("laclip", "a.txt", "x y", "needs the .csv"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, format, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        import_released(format, tmp_path / name, PAIRS)


def test_refused(tmp_path):
    with pytest.raises(ConfigError, match='did you mean "negclip"'):
        import_released("negclp", tmp_path, PAIRS)
    with pytest.raises(DataError, match="no such file"):
        import_released("negclip", tmp_path / "none.tsv", PAIRS)
