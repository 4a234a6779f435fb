"""What is exported, read back by those it is for."""

import ast
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pandas
import pytest
from PIL import Image

from repair.core.errors import ConfigError, DataError
from repair.core.records import Grid
from repair.pipeline.export import export
from repair.pipeline.formats import FORMATS
from repair.pipeline.material import Material, true_pairs
from repair.pipeline.sweep import PAPER_RATES, parse_values, plan

COLOURS = ["red", "green", "blue", "yellow", "black", "white", "purple", "orange"]


def grid(step: int, *items: int) -> Grid:
    keys = [("b2:" + "0" * 31 + str(n)) if n == 7 else f"img {n}" for n in items]
    return Grid(
        step=step,
        index=0,
        images=tuple(keys),
        texts=tuple(f"t{n}" for n in items),
        n_synthetic=1,  # type: ignore[arg-type]
    )


def picture(key: str, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), COLOURS[int(key[-1])]).save(stream, kind)
    return stream.getvalue()


def material() -> Material:
    grids = (grid(0, 0, 1, 2), grid(1, 3, 4, 5), grid(2, 0, 6, 7))
    texts = {f"t{n}": f"a {colour}\tsquare, it's\n{n}" for n, colour in enumerate(COLOURS)}
    texts["t3"] = '"stop" says a yellow square'  # a quotation mark first, and
    texts["t5"] = '"a white square'  # one that never ends
    return Material(
        config=None,  # type: ignore[arg-type]
        folder=None,  # type: ignore[arg-type]
        round=0,
        grids=grids,
        pairs=true_pairs(grids, texts),
        texts=texts,
        read=lambda key: picture(key, "JPEG" if key.endswith("1") else "PNG"),
    )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    places = {}
    for name, write in FORMATS.items():
        places[name] = tmp_path_factory.mktemp(name)
        counts = write(material(), places[name])
        assert all(count > 0 for count in counts.values())
    return places


def test_pairs_are_the_diagonals_with_what_stands_beside_them() -> None:
    pairs = material().pairs
    assert [pair.caption for pair in pairs] == [f"t{n}" for n in range(8)]
    assert pairs[0].false_captions == ("t1", "t2", "t6", "t7")
    assert pairs[0].false_pairs == (1, 2, 6, 7)
    assert pairs[4].false_captions == ("t3", "t5")


def test_open_clip_reads_its_csv(exported: Mapping[str, Path]) -> None:
    place = exported["open-clip"]
    rows = pandas.read_csv(place / "pairs.csv", sep="\t").to_dict("records")  # as its training code does
    assert [row["title"] for row in rows] == [" ".join(pair.text.split()) for pair in material().pairs]
    for row in rows:
        with Image.open(place / row["filepath"]) as picture:
            assert picture.size == (40, 30)
    assert rows[1]["filepath"].endswith(".jpg")


def test_negclip_reads_its_tsv(exported: Mapping[str, Path]) -> None:
    """Its training code evaluates both list columns as Python literals."""
    place = exported["negclip"]
    literal = {"neg_caption": ast.literal_eval, "neg_image": ast.literal_eval}
    rows = pandas.read_csv(place / "pairs.tsv", sep="\t", converters=literal).to_dict("records")
    assert [row["title"] for row in rows] == [" ".join(pair.text.split()) for pair in material().pairs]
    assert list(rows[0]) == ["index", "title", "filepath", "neg_caption", "neg_image"]
    for number, row in enumerate(rows):
        assert int(row["index"]) == number
        captions, images = row["neg_caption"], row["neg_image"]
        assert row["title"] not in captions
        assert captions == [rows[place]["title"] for place in images]
        assert number not in images


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_webdataset_reads_its_tars(exported: Mapping[str, Path]) -> None:
    webdataset = pytest.importorskip("webdataset")
    place = exported["webdataset"]
    pairs = list(webdataset.WebDataset(str(place / "pairs-000000.tar"), shardshuffle=False))
    assert [sample["txt"].decode() for sample in pairs] == [pair.text for pair in material().pairs]
    assert json.loads(pairs[4]["json"])["false_captions"] == [material().texts["t3"], material().texts["t5"]]
    assert Image.open(io.BytesIO(pairs[1]["jpg"])).size == (40, 30)
    grids = list(webdataset.WebDataset(str(place / "grids-000000.tar"), shardshuffle=False))
    assert len(grids) == 3
    assert grids[1]["2.txt"].decode() == material().texts["t5"]
    assert Image.open(io.BytesIO(grids[1]["0.png"])).size == (40, 30)


def test_equal_material_is_equal_bytes(exported: Mapping[str, Path], tmp_path: Path) -> None:
    FORMATS["webdataset"](material(), tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (exported["webdataset"] / path.name).read_bytes()


def test_datasets_loads_its_folder(
    exported: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    place = str(exported["datasets"])
    grids = datasets.load_dataset(place, "grids", split="train", cache_dir=str(tmp_path))
    assert grids.features["images"] == datasets.List(datasets.Image())
    assert grids[0]["images"][1].size == (40, 30)
    assert grids[0]["captions"] == [material().texts[f"t{n}"] for n in range(3)]
    assert grids[2]["image_keys"] == list(material().grids[2].images)
    pairs = datasets.load_dataset(place, "pairs", split="train", cache_dir=str(tmp_path))
    assert len(pairs) == 8
    assert pairs[3]["image"].convert("RGB").getpixel((0, 0)) == (255, 255, 0)


def test_triplets(exported: Mapping[str, Path]) -> None:
    place = exported["triplets"]
    by_image = [json.loads(line) for line in (place / "image-anchors.jsonl").read_text().splitlines()]
    assert len(by_image) == 3 * 3 * 2
    assert {tuple(row) for row in by_image} == {("anchor", "positive", "negative")}
    by_caption = [json.loads(line) for line in (place / "caption-anchors.jsonl").read_text().splitlines()]
    for row in by_caption:
        assert (place / row["positive"]).is_file()
        assert (place / row["negative"]).is_file()
        assert row["positive"] != row["negative"]


def test_an_image_of_no_known_kind_is_named(tmp_path: Path) -> None:
    broken = Material(**{name: getattr(material(), name) for name in Material.__slots__} | {"read": lambda key: b"?"})
    with pytest.raises(DataError, match="image img 0 is of no kind that can be exported; kinds: PNG"):
        FORMATS["open-clip"](broken, tmp_path)


def test_exports_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='unknown export "tripletts": did you mean "triplets"'):
        export(tmp_path, "tripletts", tmp_path / "out", round=None, force=False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    with pytest.raises(ConfigError, match="exists: name another folder, or --force"):
        export(tmp_path, "triplets", tmp_path / "out", round=None, force=False)
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"
    for out in (tmp_path, tmp_path.parent, tmp_path / "round-0"):
        with pytest.raises(ConfigError, match=r"would replace the run .*: name a folder outside"):
            export(tmp_path, "triplets", out, round=None, force=True)


def test_a_sweep_is_one_setting_over_values(tmp_path: Path) -> None:
    name, choices = parse_values(PAPER_RATES)
    assert (name, choices) == ("training.lr", ["1e-5", "5e-6", "2e-6", "1e-6"])  # the paper's grid
    file = tmp_path / "mine.toml"
    file.write_text(f'[run]\nfolder = "{tmp_path}"\n')
    folder, configs = plan(file, ["training.n_steps=3"], name, choices)
    assert folder == tmp_path / "mine-sweep"
    assert [config.training.lr for config in configs.values()] == [1e-5, 5e-6, 2e-6, 1e-6]
    assert len({config.run_path() for config in configs.values()}) == 4
    assert {config.run.calls for config in configs.values()} == {str(folder / "calls")}
    assert {config.training.n_steps for config in configs.values()} == {3}


@pytest.mark.parametrize("values", ["training.lr", "lr=1,2", "training.lr=1", "training.lr=1,1", "training.lr="])
def test_a_sweep_over_nothing_is_refused(values: str) -> None:
    with pytest.raises(ConfigError, match="two values or more"):
        parse_values(values)


def test_a_sweep_over_where_runs_lie_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"settings of \[run\] cannot be swept"):
        parse_values("run.name=a,b")
