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
    entity, relation, negative = import_released("cs_clip", tmp_path / "units.json", PAIRS).samples
    assert (entity.kind, entity.text, entity.foil) == (SampleKind.UNIT, "two cats", "two dogs")
    assert (relation.text, relation.foil) == ("a cat beside a cat", "a cat above a cat")
    assert (negative.kind, negative.caption_id, negative.text) == (SampleKind.NEGATIVE_CAPTION, "c2", "Two dogs")


@pytest.mark.parametrize(
    ("entities", "text"),
    [
        ({"a blue car": ["a green car"]}, "A red dog beside a green car."),
        ({"A red dog": ["a red cat"]}, "A red cat beside a blue car."),  # a small letter would give it away
        ({"ed do": ["og"], "cars": ["vans"], "red dog": ["red cat"]}, "A red cat beside a blue car."),  # whole words
        ({"a horse": ["a cow"]}, None),
        ({"red dog": ["Red dog", ""]}, None),
    ],
)
def test_the_negative_of_csclip_is_the_caption_with_a_foil(tmp_path, entities, text):
    row = {"original_caption": "A red dog beside a blue car.", "negative_entities": entities}
    (tmp_path / "units.json").write_text(json.dumps({"7": row}))
    samples = import_released("cs_clip", tmp_path / "units.json", PAIRS).samples
    assert [s.text for s in samples if s.kind is SampleKind.NEGATIVE_CAPTION] == ([] if text is None else [text])
    assert [(s.image_key, s.index) for s in samples] == [(None, index) for index in range(len(samples))]


def test_laclip(tmp_path):
    (tmp_path / "train.csv").write_text('photo_7.jpg,Two cats\nother.jpg,"Nothing, here"\n')
    (tmp_path / "chatgpt.txt").write_text("A pair of cats\nx\n")
    found = import_released("laclip", tmp_path / "chatgpt.txt", PAIRS)
    assert (found.n_rows, found.n_foreign) == (2, 1)
    assert (found.samples[0].kind, found.samples[0].text) == (SampleKind.POSITIVE_CAPTION, "A pair of cats")
    (tmp_path / "chatgpt.txt").write_text("A pair of cats\n")
    with pytest.raises(DataError, match="1 lines for 2"):
        import_released("laclip", tmp_path / "chatgpt.txt", PAIRS)


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0c", "\r"])
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
        ("coco_cf", "a.jsonl", '{"id": 1}', 'line 1: needs a text under "caption_0"'),
        ("cs_clip", "a.json", "3", "JSON list"),
        ("tripletclip", "a.tar", "no tar", "not a readable tar"),
        ("laclip", "a.txt", "x y", "needs the .csv"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, format, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        import_released(format, tmp_path / name, PAIRS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (None, "must be an object, not null"),
        ("Two cats", "must be an object, not a text"),
        ({"original_caption": None}, 'needs a text under "original_caption", not null'),
        ({"image_path": ["x"]}, 'needs a name under "image_path", not a list'),
        ({"negative_entities": []}, '"negative_entities" must be an object, not a list'),
        ({"negative_entities": {"x": None}}, 'the negatives of entity "x" must be a list, not null'),
        ({"negative_entities": {"x": "y"}}, 'the negatives of entity "x" must be a list, not a text'),
        ({"negative_entities": {"x": [3]}}, 'a negative of entity "x" must be a text, not a number'),
        ({"negative_entities": {"x": [{"negative": None}]}}, 'needs a text under "negative", not null'),
        ({"negative_entities": {"x": ["\ud83d"]}}, "half of a character"),
        ({"relations": {"subject": "x"}}, '"relations" must be a list, not an object'),
        ({"relations": ["x"]}, "a relation must be an object, not a text"),
        ({"relations": [{"negatives": "x"}]}, "the negatives of a relation must be a list, not a text"),
        ({"relations": [{"subject": "x", "negatives": ["y"]}]}, 'a relation: needs a text under "relation_type"'),
    ],
)
@pytest.mark.parametrize(("rows", "place"), [(lambda row: [row], "row 0"), (lambda row: {"id": row}, "row id")])
def test_a_row_of_csclip_of_the_wrong_type_is_told_with_its_place(tmp_path, row, message, rows, place):
    row = {"original_caption": "Two cats"} | row if isinstance(row, dict) else row
    (tmp_path / "units.json").write_text(json.dumps(rows(row)))
    with pytest.raises(DataError, match=f"units.json, {place}.*{message}"):
        import_released("cs_clip", tmp_path / "units.json", PAIRS)


COUNTERFACTUAL = {"id": 1, "caption_0": "Two cats", "caption_1": "Two dogs", "image_0": "0", "image_1": "1"}


@pytest.mark.parametrize(
    ("format", "name", "content", "message"),
    [
        ("negclip", "a.tsv", "title\tfilepath\tneg_caption\nTwo cats\n", 'line 2: needs a text under "filepath"'),
        ("negclip", "a.tsv", "", 'no column "title"; it has none'),
        (
            "negclip",
            "a.tsv",
            "title\tfilepath\tneg_caption\nTwo cats\tx\t[3]\n",
            "line 2: .* must be a text, not a num",
        ),
        ("negclip", "a.tsv", "title\tfilepath\tneg_caption\nTwo cats\tx\t{[]: 1}\n", "line 2: .* is not a list"),
        (
            "negclip",
            "a.tsv",
            "title\tfilepath\tneg_caption\tneg_image\nTwo cats\tx\t[]\t[False]\n",
            "line 2: neg_image names row False",
        ),
        ("negclip", "a.tsv", "title\tfilepath\tneg_caption\na\rb\tx\t[]\n", "line 2: not a table"),
        ("sugarcrepe", "a.json", '{"0": null}', "row 0: the row must be an object, not null"),
        (
            "sugarcrepe",
            "a.json",
            '{"0": {"caption": "x", "negative_caption": 3, "filename": "y"}}',
            'row 0: needs a text under "negative_caption", not a number',
        ),
        ("sugarcrepe", "a.json", "[" * 100_000, "not JSON"),
        ("coco_cf", "a.jsonl", "\n3", "line 2: the row must be an object, not a number"),
        ("coco_cf", "a.jsonl", json.dumps(COUNTERFACTUAL | {"caption_1": 3}), 'under "caption_1", not a number'),
        ("coco_cf", "a.jsonl", json.dumps(COUNTERFACTUAL | {"image_1": True}), 'under "image_1", not a truth value'),
        ("coco_cf", "a.jsonl", json.dumps(COUNTERFACTUAL | {"id": {}}), 'needs a name under "id", not an object'),
        ("coco_cf", "a.csv", "image_path,caption\nx.png\n", 'line 2: needs a text under "caption"'),
        ("coco_cf", "a.csv", "image_path,caption\nx.png,Two dogs, running\n", "line 2: has 3 columns, the header 2"),
        ("coco_cf", "a.csv", "image_path\nx.png\n", 'no column "caption"'),
    ],
)
def test_values_of_the_wrong_type_are_told_with_their_place(tmp_path, format, name, content, message):
    (tmp_path / name).write_bytes(content.encode())
    with pytest.raises(DataError, match=f"{name}.*{message}"):
        import_released(format, tmp_path / name, PAIRS)


def test_an_empty_text_makes_no_sample(tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps({"0": {"filename": "42.jpg", "caption": "A dog.", "negative_caption": " "}})
    )
    found = import_released("sugarcrepe", tmp_path / "a.json", PAIRS)
    assert (found.n_foreign, found.samples) == (0, ())


TWINS = [
    Pair(image_id="north/7.jpg", caption_id="n", text="A dog.", split="train"),
    Pair(image_id="south/7.jpg", caption_id="s", text="A dog.", split="train"),
    Pair(image_id="south/7.jpg", caption_id="t", text="A black cat", split="train"),
    Pair(image_id="9.jpg", caption_id="o", text="A bird", split="train"),
]


def owner(tmp_path, image, text):
    row = {"filename": image, "caption": text, "negative_caption": "x"}
    (tmp_path / "a.json").write_text(json.dumps({"5": row}))
    return [sample.caption_id for sample in import_released("sugarcrepe", tmp_path / "a.json", TWINS).samples]


@pytest.mark.parametrize(
    ("image", "text", "caption_ids"),
    [
        ("north/7.jpg", "A dog.", ["n"]),
        ("data\\images\\south\\7.png", "A dog.", ["s"]),
        ("7.jpg", "A black cat", ["t"]),  # the text decides
        ("9.jpg", "A bird", ["o"]),  # no row names the twins
        ("elsewhere.jpg", "A dog.", []),
    ],
)
def test_of_images_of_equal_name_the_path_decides_or_the_text(tmp_path, image, text, caption_ids):
    assert owner(tmp_path, image, text) == caption_ids


@pytest.mark.parametrize("image", ["7.jpg", "east/7.jpg", "COCO_train2014_000000000007.jpg"])
def test_a_name_of_two_images_is_refused(tmp_path, image):
    with pytest.raises(DataError, match=f'row 5: image "{image}" may be north/7.jpg or south/7.jpg'):
        owner(tmp_path, image, "A dog.")


def test_a_neighbour_whose_name_is_of_two_images_is_refused(tmp_path):
    path = tmp_path / "a.tsv"
    head = "title\tfilepath\tneg_caption\tneg_image\nA bird\t9.jpg\t[]\t[1]\n"
    path.write_text(head + "A black cat\t7.jpg\t[]\t[]\n")
    (near,) = import_released("negclip", path, TWINS).samples
    assert near.image_key == "south/7.jpg"
    path.write_text(head + "Something else\t7.jpg\t[]\t[]\n")
    with pytest.raises(DataError, match=r'line 2: image "7.jpg" may be north/7.jpg or south/7.jpg'):
        import_released("negclip", path, TWINS)


def test_refused(tmp_path):
    with pytest.raises(ConfigError, match='did you mean "negclip"'):
        import_released("negclp", tmp_path, PAIRS)
    with pytest.raises(DataError, match="no such file"):
        import_released("negclip", tmp_path / "none.tsv", PAIRS)
