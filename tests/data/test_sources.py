"""Each file format yields the same pairs; what is unusable is set aside with its reason, or too much of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repair.core.errors import ConfigError, DataError
from repair.core.identity import hash_bytes
from repair.core.records import Pair
from repair.core.registry import Registry
from repair.data.checks import check_images
from repair.data.coco import coco_source
from repair.data.csv import csv_source
from repair.data.folder import folder_source
from repair.data.jsonl import jsonl_source
from repair.data.karpathy import karpathy_source
from repair.data.rules import Rules
from repair.data.source import FileSource
from tests.data.files import encoded, picture, write_images, write_json_lines

LENIENT = Rules(max_bad_rate=1.0)
IMAGES = {"train/a.png": ["a red dog", "a dog"], "train/b.png": ["two cats"], "val/c.png": ["a man", "a tall man"]}


def split(image: str) -> str:
    return image.split("/")[0]


def write_jsonl(folder: Path) -> FileSource:
    rows = [{"image": name, "captions": captions, "split": split(name)} for name, captions in IMAGES.items()]
    return jsonl_source(path=write_json_lines(folder / "captions.jsonl", *rows))


def write_jsonl_by_caption(folder: Path) -> FileSource:
    rows = [
        {"filename": name, "caption": caption, "split": split(name)}
        for name, captions in IMAGES.items()
        for caption in captions
    ]
    return jsonl_source(path=write_json_lines(folder / "captions.jsonl", *rows))


def write_csv(folder: Path) -> FileSource:
    lines = [f'{name},"{caption}",{split(name)}' for name, captions in IMAGES.items() for caption in captions]
    (folder / "captions.csv").write_text("\n".join(["image,caption,split", *lines]), encoding="utf-8")
    return csv_source(path=folder / "captions.csv")


def write_tsv(folder: Path) -> FileSource:
    lines = [f"{split(name)}\t{caption}\t{name}" for name, captions in IMAGES.items() for caption in captions]
    text = "\r\n".join(["part\ttext\tfile", *lines])
    (folder / "captions.tsv").write_text(text, encoding="utf-8-sig", newline="")
    return csv_source(
        path=folder / "captions.tsv", image_column="file", caption_column="text", split_column="part", images=folder
    )


def write_karpathy(folder: Path) -> FileSource:
    images = [
        {
            "filepath": split(name),
            "filename": name.split("/")[1],
            "imgid": number,
            "split": "restval" if name == "train/b.png" else split(name),
            "sentences": [{"raw": caption, "tokens": caption.split()} for caption in captions],
        }
        for number, (name, captions) in enumerate(IMAGES.items())
    ]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    return karpathy_source(path=folder / "dataset_coco.json")


def write_coco(folder: Path) -> FileSource:
    paths = {}
    for name in ("train", "val"):
        own = {image: captions for image, captions in IMAGES.items() if split(image) == name}
        content = {
            "images": [{"id": n, "file_name": image.split("/")[1]} for n, image in enumerate(own)],
            "annotations": [
                {"id": 10 * n + k, "image_id": n, "caption": caption}
                for n, captions in enumerate(own.values())
                for k, caption in enumerate(captions)
            ][::-1],
        }
        paths[name] = folder / f"captions_{name}2017.json"
        paths[name].write_text(json.dumps(content))
    return coco_source(path=paths, images=folder, folders={"train": "train", "val": "val"})


def write_folder(folder: Path) -> FileSource:
    for name, captions in IMAGES.items():
        (folder / name).with_suffix(".txt").write_text("\n".join(captions) + "\n\n")
    return folder_source(path=folder, split_by_folder=True)


WRITERS = [write_jsonl, write_jsonl_by_caption, write_csv, write_tsv, write_karpathy, write_coco, write_folder]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_yields_the_same(tmp_path: Path, write: Callable[[Path], FileSource]) -> None:
    write_images(tmp_path, *IMAGES)
    source = write(tmp_path)
    assert source.splits() == ("train", "val")
    assert source.pairs("val") == [
        Pair(image_id="val/c.png", caption_id="val/c.png#0", text="a man", split="val"),
        Pair(image_id="val/c.png", caption_id="val/c.png#1", text="a tall man", split="val"),
    ]
    assert [pair.caption_id for pair in source.pairs("train")] == ["train/a.png#0", "train/a.png#1", "train/b.png#0"]
    assert source.set_aside == ()
    data = (tmp_path / "train/a.png").read_bytes()
    assert source.read_image("train/a.png") == data
    assert source.image_hash("train/a.png") == hash_bytes(data)
    assert source.fingerprint == write_jsonl(tmp_path).fingerprint
    with pytest.raises(ConfigError, match=r'has no split "test": Choices: train, val'):
        source.pairs("test")
    with pytest.raises(DataError, match=r'has no image "gone\.png"'):
        source.read_image("gone.png")


def test_fingerprint_follows_ids_texts_splits_and_pixels_not_places(tmp_path: Path) -> None:
    def made(name: str, *, text: str = "a dog", seed: int = 0, part: str = "train", image: str = "a.png") -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / image).write_bytes(encoded(picture(seed=seed)))
        row = {"image": image, "captions": [text], "split": part}
        return jsonl_source(path=write_json_lines(folder / "c.jsonl", row)).fingerprint

    first = made("first")
    assert made("elsewhere") == first
    others = {made("2", text="a cat"), made("3", seed=1), made("4", part="val"), made("5", image="b.png")}
    assert len(others | {first}) == 5


def source_of(folder: Path, *rows: object, rules: Rules = LENIENT) -> FileSource:
    return jsonl_source(path=write_json_lines(folder / "c.jsonl", *rows), rules=rules)


def reasons(source: FileSource) -> dict[str, str]:
    return {aside.item: aside.reason for aside in source.set_aside}


def test_bad_rows_are_set_aside_with_file_and_line(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    (tmp_path / "torn.png").write_bytes(encoded(picture((64, 64)))[:900])
    source = source_of(
        tmp_path,
        {"image": "a.png", "captions": ["a dog"]},
        '{"image": "b.png", "captions": ["a cat"]',
        "",
        ["b.png", "a cat"],
        {"picture": "b.png", "captions": ["a cat"]},
        {"image": "a.png", "captions": ["a second time"]},
        {"image": 7, "captions": ["a cat"]},
        {"image": "../c.jsonl", "captions": ["a cat"]},
        {"image": "/b.png", "captions": ["a cat"]},
        {"image": "gone.png", "captions": ["a cat"]},
        {"image": "torn.png", "captions": ["a cat"]},
        {"image": "b.png", "captions": []},
    )
    found = reasons(source)
    assert [pair.image_id for name in source.splits() for pair in source.pairs(name)] == ["a.png"]
    assert found.pop("torn.png").startswith("broken or cut short")
    assert found == {
        "c.jsonl line 2": "not JSON: Expecting ',' delimiter at column 41",
        "c.jsonl line 4": "expected a JSON object, found list",
        "c.jsonl line 5": 'no field "image" or "filename"; it has: picture, captions',
        "c.jsonl line 6": 'duplicate id "a.png", first at c.jsonl line 1',
        "c.jsonl line 7": "the image must be a file name, not 7",
        "c.jsonl line 8": "the image '../c.jsonl' must be a path below the image folder",
        "c.jsonl line 9": "the image '/b.png' must be a path below the image folder",
        "gone.png": "no such file",
        "b.png": "no caption",
    }


def test_bad_captions_are_set_aside_and_the_others_keep_their_ids(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    captions = ["  a  dog\n runs ", "", "   ", "x " * 101, "y" * 1001, None, "bell \x07", "a cat"]
    source = source_of(tmp_path, {"image": "a.png", "captions": captions}, {"image": "b.png", "captions": [""]})
    (name,) = source.splits()
    assert [(pair.caption_id, pair.text) for pair in source.pairs(name)] == [
        ("a.png#0", "a dog runs"),
        ("a.png#7", "a cat"),
    ]
    assert reasons(source) == {
        "b.png": "none of its captions can be used",
        "a.png#1": "empty caption",
        "a.png#2": "empty caption",
        "a.png#3": "caption of 101 words, more than rules.max_words = 100",
        "a.png#4": "caption of 1001 characters, more than rules.max_characters = 1000",
        "a.png#5": "a caption must be text, not None",
        "a.png#6": "caption with control characters",
        "b.png#0": "empty caption",
    }


def test_too_much_bad_stops(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(20)]
    write_images(tmp_path, *names[:-1])
    rows = [{"image": name, "captions": ["a dog"]} for name in names]
    assert len(source_of(tmp_path, *rows, rules=Rules(max_bad_rate=0.05)).set_aside) == 1
    (tmp_path / "0.png").write_bytes(b"")
    message = (
        r"c\.jsonl: 2 of 20 images cannot be used, more than rules\.max_bad_rate = 0\.05 of them; the first: 0\.png: "
    )
    with pytest.raises(DataError, match=message):
        source_of(tmp_path, *rows, rules=Rules(max_bad_rate=0.05))
    rows = [{"image": "1.png", "captions": ["a dog", ""]}]
    with pytest.raises(DataError, match="1 of 2 captions cannot be used"):
        source_of(tmp_path, *rows, rules=Rules())
    with pytest.raises(DataError, match="holds no usable image"):
        source_of(tmp_path, {"image": "gone.png", "captions": ["a dog"]})


def test_splits_by_hash_by_option_and_missing_ones(tmp_path: Path) -> None:
    names = [f"{n}.png" for n in range(40)]
    write_images(tmp_path, *names)
    rows = [{"image": name, "captions": ["a dog"]} for name in names]
    rules = Rules(max_bad_rate=1, split_rates={"train": 0.5, "test": 0.5})
    source = source_of(tmp_path, *rows, rules=rules)
    assert {name: len(source.pairs(name)) for name in source.splits()}.keys() == {"train", "test"}
    assert all(pair.split == rules.split_of(pair.image_id) for name in source.splits() for pair in source.pairs(name))
    fixed = jsonl_source(path=tmp_path / "c.jsonl", split="test")
    assert len(fixed.pairs("test")) == 40
    mixed = source_of(tmp_path, {**rows[0], "split": "val"}, rows[1], {**rows[2], "split": 3})
    assert mixed.splits() == ("val",)
    assert reasons(mixed) == {
        "1.png": "no split, although other images have one",
        "c.jsonl line 3": "the split must be a name, not 3",
    }


def test_an_image_in_two_splits(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    (tmp_path / "c.csv").write_text("image,caption,split\na.png,a dog,train\na.png,a cat,val\n")
    source = csv_source(path=tmp_path / "c.csv", rules=LENIENT)
    assert reasons(source) == {"c.csv line 3": 'image "a.png" is in split train at c.csv line 2, here in val'}


def test_tables(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    table = tmp_path / "c.csv"
    table.write_text('image,caption\na.png,"a dog, and\na cat"\na.png\na.png,x,y\n')
    source = csv_source(path=table, split="train", rules=LENIENT)
    assert [pair.text for pair in source.pairs("train")] == ["a dog, and a cat"]
    assert reasons(source) == {f"c.csv line {n}": "not 2 columns, as the header has" for n in (4, 5)}
    with pytest.raises(DataError, match=r'no column "captions": did you mean "caption"\?'):
        csv_source(path=table, caption_column="captions")
    table.write_text('image,caption\na.png,"never closed\n')
    with pytest.raises(DataError, match=r"c\.csv line 2: not a readable table"):
        csv_source(path=table)


@pytest.mark.parametrize("make", [karpathy_source, coco_source])
def test_json_files_that_are_none(tmp_path: Path, make: Callable[..., FileSource]) -> None:
    path = tmp_path / "data.json"
    for content, message in [
        ('{\n"images": [}', "line 2 column 12: not JSON"),
        ("[]", 'expected a JSON object with a list "images", found list'),
        ('{"annotations": []}', "found annotations"),
        ("", "is empty"),
        ("[" * 100_000, "nested too deeply"),
    ]:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            make(path=path)
    path.write_bytes(b'{"images":\n["\xff"]}')
    with pytest.raises(DataError, match=r"line 2: not UTF-8"):
        make(path=path)
    with pytest.raises(DataError, match=r"gone\.json does not exist"):
        make(path=tmp_path / "gone.json")
    with pytest.raises(DataError, match="is a folder, not a file"):
        make(path=tmp_path)


def test_karpathy_parts_that_are_none(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    whole = {"filename": "a.png", "filepath": "val2014", "split": "test", "sentences": [{"raw": "a dog"}, {}]}
    (tmp_path / "d.json").write_text(json.dumps({"images": [whole, 3, {"filename": "b.png"}]}))
    source = karpathy_source(path=tmp_path / "d.json", use_filepath=False, rules=LENIENT)
    assert len(source.pairs("test")) == 1
    assert set(reasons(source)) == {"d.json images[1]", "d.json images[2]", "a.png#1"}


def test_coco_parts_that_are_none(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    content = {
        "images": [{"id": 1, "file_name": "a.png"}, {"id": 2}, 5],
        "annotations": [{"image_id": 1, "id": 4, "caption": "a dog"}, {"image_id": 9, "caption": "lost"}, {"id": 3}],
    }
    (tmp_path / "d.json").write_text(json.dumps(content))
    source = coco_source(path=tmp_path / "d.json", split="test", rules=LENIENT)
    assert [pair.text for pair in source.pairs("test")] == ["a dog"]
    assert set(reasons(source)) == {
        "d.json images[1]",
        "d.json images[2]",
        "d.json image_id 9",
        "d.json annotations[2]",
    }


def test_folder_oddities(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "a.jpg", "b.png", "deep/c.png")
    for name, text in {"a": "a dog", "deep/c": "a cat", "lonely": "nothing"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    source = folder_source(path=tmp_path, split="train", rules=LENIENT)
    assert [pair.image_id for pair in source.pairs("train")] == ["a.jpg", "deep/c.png"]
    assert reasons(source) == {
        "a.png": "shares a.txt with a.jpg: give each its own name",
        "b.png": "no caption file b.txt beside it",
        "lonely.txt": "captions without an image beside them",
    }
    with pytest.raises(DataError, match="does not exist"):
        folder_source(path=tmp_path / "gone")


def test_images_that_change_or_vanish_after_loading(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "b.png")
    source = source_of(tmp_path, *[{"image": f"{name}.png", "captions": ["a dog"], "split": "train"} for name in "ab"])
    (tmp_path / "a.png").write_bytes(encoded(picture(seed=9)))
    (tmp_path / "b.png").unlink()
    with pytest.raises(DataError, match=r"a\.png has changed since"):
        source.read_image("a.png")
    seen: list[tuple[int, int]] = []
    bad = check_images(source, progress=lambda done, total: seen.append((done, total)))
    assert [aside.item for aside in bad] == ["a.png", "b.png"]
    assert seen == [(1, 2), (2, 2)]


def test_a_damaged_body_is_found_by_the_full_check_and_by_check_images(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    data = bytearray(encoded(picture((64, 64))))
    data[len(data) // 2] ^= 255
    (tmp_path / "b.png").write_bytes(data)
    rows = [{"image": f"{name}.png", "captions": ["a dog"], "split": "train"} for name in "ab"]
    assert set(reasons(source_of(tmp_path, *rows))) == {"b.png"}
    by_head = source_of(tmp_path, *rows, rules=Rules(check="header"))
    assert by_head.set_aside == ()
    assert [aside.item for aside in check_images(by_head, splits=["train"])] == ["b.png"]


def test_missing_image_folder(tmp_path: Path) -> None:
    path = write_json_lines(tmp_path / "c.jsonl", {"image": "a.png", "captions": ["a dog"]})
    with pytest.raises(DataError, match=r"the image folder .* does not exist: set the option images"):
        jsonl_source(path=path, images=tmp_path / "gone")


def test_by_name_with_options_as_a_config_file_has_them(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    path = write_json_lines(tmp_path / "c.jsonl", {"image": "a.png", "captions": ["a b c"]})
    sources = Registry("data source")
    sources.add("jsonl", "repair.data.jsonl:jsonl_source", "rows")
    options = {"path": str(path), "split": "train", "rules": {"max_words": 3}}
    assert len(sources.build("jsonl", options=options, cache=tmp_path, n_workers=1).pairs("train")) == 1
    with pytest.raises(DataError, match="none of its captions can be used"):
        sources.build("jsonl", options={**options, "rules": {"max_words": 2}}, cache=None)
    with pytest.raises(ConfigError, match='unknown rule "max_word": did you mean "max_words"'):
        sources.build("jsonl", options={**options, "rules": {"max_word": 2}})
    with pytest.raises(ConfigError, match='unknown option "image" of data source "jsonl": did you mean "images"'):
        sources.build("jsonl", options={**options, "image": "x"})
