"""`repair eval --model` and `repair compare` from the command line, on real encoders, pictures and files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from repair.cli import app
from repair.core.errors import ConfigError, DataError
from repair.core.progress import Silent
from repair.evaluation.document import read_results
from repair.pipeline.embedder import open_model
from repair.pipeline.judging import judge
from repair.pipeline.opening import chosen_split, open_data
from repair.pipeline.registries import SUITES
from repair.pipeline.suites import open_suite

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
UNTRAINED = "small(checkpoint='none')"
WORLD = 'world(n=2, source={"n_test": 12})'


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Eight small pictures with two captions each, in two splits."""
    folder = tmp_path_factory.mktemp("photos")
    rows = []
    for k in range(8):
        picture = np.random.default_rng(k).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / f"{k}.png")
        split = "test" if k < 5 else "train"
        rows.append({"image": f"{k}.png", "captions": [f"a red dog number {k}", f"a tree {k}"], "split": split})
    (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(cache, **options):
    given = {"models": [UNTRAINED], "cache": cache, "n_bootstrap": 20, "progress": Silent(), **options}
    return judge(**given).to_json()


def test_world_retrieval_and_comparison_from_the_command_line(photos, cache, tmp_path):
    cli = CliRunner()
    arguments = ["eval", "--model", "small(checkpoint='none')", "--model", "small", "--suite", WORLD]
    arguments += ["--suite", "retrieval", "--data", str(photos / "captions.jsonl"), "--out", str(tmp_path)]
    arguments += ["--n-bootstrap", "20", "--cache", str(cache), "--export", "clip-benchmark", "--json"]
    done = cli.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    table = json.loads(done.stdout)
    assert json.loads((tmp_path / "table.json").read_text()) == {k: v for k, v in table.items() if k != "files"}
    document, outcomes = read_results(tmp_path / "B")
    world, retrieval = document.suites
    assert world.facts["n_texts_cut"] == 0
    assert {score.group for score in world.scores} >= {"object", "relation", "count", "mean of error types"}
    assert (retrieval.facts["split"], retrieval.facts["n_images"], retrieval.facts["n_captions"]) == ("test", 5, 10)
    assert len([outcome for outcome in outcomes if outcome.suite == "retrieval"]) == 15
    assert (tmp_path / "B" / "world-texts.jsonl").is_file()
    exported = json.loads((tmp_path / "B" / "retrieval_none_small_en_zeroshot_retrieval.json").read_text())
    assert exported["metrics"]["image_retrieval_recall@1"] == retrieval.score("text_to_image", "R@1").value
    with pytest.raises(ConfigError, match=r"holds several models: name one of .*A, .*B"):
        cli.invoke(app, ["compare", str(tmp_path), str(tmp_path / "A")], catch_exceptions=False)
    page = tmp_path / "page.html"
    paths = [str(tmp_path / "A"), str(tmp_path / "B")]
    done = cli.invoke(app, ["compare", *paths, "--page", str(page), "--n-bootstrap", "20", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {one["suite"] for one in found["comparisons"]} == {"world", "retrieval"}
    by_name = {(one["suite"], one["group"], one["metric"]): one for one in found["comparisons"]}
    assert len(table["tests"]) == len(by_name)
    for one in table["tests"]:  # the same tests, whichever command makes them
        wanted = by_name[one["suite"], one["group"], one["metric"]]
        assert (one["a"], one["b"]) == ("A", "B")
        assert all(one[key] == wanted[key] for key in ("before", "after", "difference", "counts", "p_mcnemar"))
    text = page.read_text()
    assert "data:image/" in text
    assert "no picture" not in text


def test_seeds_are_combined_in_the_table(cache, tmp_path):
    """Two untrained seeds of A beside two of B; each seed keeps its results, and the text says ±."""
    a, b = (",".join(f'small(checkpoint="none", image_size={size}, seed={k})' for k in range(2)) for size in (32, 40))
    judged = judge(
        models=[a, b], suites=[WORLD], out=tmp_path, cache=cache, n_bootstrap=20, progress=Silent()
    )  # fmt: skip
    assert [len(column.documents) for column in judged.columns] == [2, 2]
    row = judged.table.rows[0]
    values = [document.suites[0].scores[0].value for document in judged.columns[0].documents]
    assert (row.cells[0].n_seeds, row.cells[0].value) == (2, pytest.approx(np.mean(values)))
    assert row.cells[0].sd == pytest.approx(np.std(values, ddof=1))
    assert judged.table.tests[0].seeds["n"] == 2
    assert read_results(tmp_path / "B-2")[0] == judged.columns[1].documents[1]
    text = "\n".join(judged.lines())
    assert " ± " in text
    assert "over 2 seeds" in text
    assert "paired t-test" in text


def test_eval_says_which_of_its_two_uses_is_meant():
    for arguments in (["eval"], ["eval", "x.toml", "--model", "small"]):
        with pytest.raises(ConfigError, match="give a CONFIG"):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
    with pytest.raises(ConfigError, match="--suite goes with --model"):
        CliRunner().invoke(app, ["eval", "x.toml", "--suite", "world"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suites": []}, "name at least one suite"),
        ({"suites": ["wrld"]}, 'did you mean "world"'),
        ({"suites": ["sugarcrepe"]}, 'suite "sugarcrepe" needs --data'),
        ({"suites": ["world", "world"]}, "named twice"),
        ({"suites": ["world"], "data": ["a", "b"]}, "2 times --data for 1 suites"),
        ({"suites": ["world"], "export": "csv"}, "the one there is is clip-benchmark"),
        ({"suites": ["world"], "export": "clip-benchmark"}, "--export needs --out"),
        ({"suites": ["world"], "reference": "small"}, "go together"),
        ({"suites": ["world(n=0)"]}, "n must be at least 1"),
        ({"suites": ["world(m=3)"]}, 'unknown option "m"'),
        ({"suites": [WORLD], "models": ["smal"]}, 'did you mean "small"'),
        ({"suites": [WORLD], "models": []}, "at least one model"),
        ({"suites": [WORLD], "models": [" ,"]}, "names no model"),
        ({"suites": [WORLD], "models": ["small", "small"]}, '"small" is named twice'),
        ({"suites": [WORLD], "models": ["small", "smal"]}, 'did you mean "small"'),
        ({"suites": [WORLD], "models": ["small"] * 27}, "at most 26"),
        ({"suites": [WORLD], "out": Path(__file__)}, "is no folder"),
        ({"suites": [WORLD], "out": Path(__file__) / "x"}, "is no folder"),
        ({"suites": [WORLD], "models": ["runs/nope"]}, 'no run at "runs/nope"'),
        ({"suites": [WORLD], "models": ["small@base"]}, 'no run at "small"'),
        ({"suites": ["flickr8k(n_images=9)"], "data": ["x.jsonl"]}, "is a published split, whole"),
        ({"suites": ["coco_1k(n_folds=1)"], "data": ["x.jsonl"]}, "is a published split, whole"),
        ({"suites": ["retrieval(n_folds=0)"], "data": ["x.jsonl"]}, "must be at least 1"),
        ({"suites": ['retrieval(name="../x")'], "data": ["world(n_test=2)"]}, "as files are called after it"),
        ({"suites": [WORLD, "world(n=3)"]}, 'are both called "world" in the results'),
    ],
)
def test_options_that_do_not_fit(cache, options, message):
    with pytest.raises(ConfigError, match=message):
        run(cache, **options)


def test_splits_are_never_mixed_silently(photos, cache, tmp_path):
    source, place = open_data(str(photos / "captions.jsonl"), images=None, any_bad=False, cache=cache, n_workers=1)
    assert place == {"kind": "folder", "root": str(photos)}
    assert chosen_split(source, None) == "test"
    with pytest.raises(ConfigError, match="the data have the splits test, train: choose one"):
        chosen_split(source, None, usual="val")
    again = json.loads((photos / "captions.jsonl").read_text().splitlines()[0])
    rows = [again | {"image": "copy.png", "split": "train"}, again]
    (tmp_path / "copy.png").write_bytes((photos / "0.png").read_bytes())
    (tmp_path / "0.png").write_bytes((photos / "0.png").read_bytes())
    (tmp_path / "mixed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"images": None, "split": "test", "cache": cache, "n_workers": 1}
    with pytest.raises(DataError, match='1 of its 1 images are in split "train"'):
        open_suite("retrieval", data=str(tmp_path / "mixed.jsonl"), **options)
    allowed = open_suite("retrieval(allow_mixed=True)", data=str(tmp_path / "mixed.jsonl"), **options)
    assert allowed.suite.facts["n_images_in_other_splits"] == 1


def test_missing_photos_of_a_caption_set(photos, cache, tmp_path):
    rows = (photos / "captions.jsonl").read_text()
    (tmp_path / "captions.jsonl").write_text(rows)
    for k in range(7):
        (tmp_path / f"{k}.png").write_bytes((photos / f"{k}.png").read_bytes())
    (tmp_path / "3.png").unlink()
    options = {"suites": ["retrieval"], "data": [str(tmp_path / "captions.jsonl")]}
    with pytest.raises(DataError, match="cannot be used"):
        run(cache, **options)
    found = run(cache, **options, allow_missing=True)["suites"][0]
    assert (found["partial"], found["missing"]["n_images"], found["facts"]["n_images"]) == (True, 1, 4)
    assert found["missing"]["problems"] == ["1 images cannot be used, e.g. 3.png: no such file"]  # 7.png is of train


def test_a_broken_picture_is_a_missing_one(photos, cache, tmp_path):
    """In a folder of pictures as in a data set: refused and named, or left out and the result called partial."""
    for k in range(4):
        folder = tmp_path / ("cat" if k % 2 else "dog")
        folder.mkdir(exist_ok=True)
        (folder / f"{k}.png").write_bytes((photos / f"{k}.png").read_bytes()[: -200 if k == 3 else None])
    options = {"suites": ["zeroshot"], "data": [str(tmp_path)]}
    with pytest.raises(DataError, match=r"1 images are missing or cannot be read \(cat/3.png\)"):
        run(cache, **options)
    found = run(cache, **options, allow_missing=True)["suites"][0]
    assert (found["partial"], found["n_run"], found["missing"]["images"]) == (True, 3, ["cat/3.png"])


def test_a_model_whose_vectors_are_not_numbers(photos, cache, tmp_path):
    encoder = open_model(UNTRAINED)
    with torch.no_grad():
        for weight in encoder.module.parameters():
            weight.fill_(float("nan"))
    encoder.save(str(tmp_path), facts={})
    with pytest.raises(DataError, match=r'encoder small: 5 of 5 image vectors hold NaN.*of image "0.png"'):
        run(tmp_path, models=[f"small:{tmp_path}"], suites=["retrieval"], data=[str(photos / "captions.jsonl")])


def test_classes_and_drift(photos, cache, tmp_path):
    for k in range(8):
        folder = tmp_path / ("red_dog" if k % 2 else "tree")
        folder.mkdir(exist_ok=True)
        (folder / f"{k}.png").write_bytes((photos / f"{k}.png").read_bytes())
    (tmp_path / "names.json").write_text('{"tree": "green tree"}')
    spec = f'zeroshot(names="{tmp_path / "names.json"}")'
    bad = f'zeroshot(names="{photos / "captions.jsonl"}")'
    with pytest.raises(DataError, match="not valid JSON"):
        run(cache, suites=[bad], data=[str(tmp_path)])
    found = run(cache, suites=[spec], data=[str(tmp_path)])["suites"][0]
    assert found["facts"]["classes"] == {"red_dog": "red dog", "tree": "green tree"}
    options = {"suites": ["drift"], "data": [str(photos / "captions.jsonl")], "reference": UNTRAINED}
    same = run(cache, **options)["suites"][0]
    assert [score["value"] for score in same["scores"] if score["metric"] == "cosine"] == pytest.approx([1.0, 1.0])
    other = run(cache, models=["small(checkpoint='none', seed=1)"], **options)["suites"][0]
    assert all(score["value"] < 0.9 for score in other["scores"] if score["metric"] == "cosine")


def test_coco_and_karpathy_files_are_told_apart(tmp_path):
    from repair.pipeline.opening import _is_coco

    for name, content, coco in (
        ("k.json", {"images": [{"filename": "a", "sentences": []}]}, False),
        ("c.json", {"images": [{"id": 1, "file_name": "a"}], "annotations": []}, True),
    ):
        (tmp_path / name).write_text(json.dumps(content))
        assert _is_coco(tmp_path / name) is coco
    with pytest.raises(ConfigError, match="cannot tell its format"):
        open_data("x.txt", images=None, any_bad=False, cache=tmp_path, n_workers=1)


def test_eccv_reads_karpathys_ids(photos, tmp_path):
    images = []
    for k in range(3):
        (tmp_path / f"{k}.png").write_bytes((photos / f"{k}.png").read_bytes())
        sentences = [{"raw": f"caption {k} {j}", "sentid": 100 * k + j} for j in range(5)]
        images.append({"filename": f"{k}.png", "cocoid": 7 + k, "split": "test", "sentences": sentences})
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"images": images}))
    (tmp_path / "eccv_image_to_caption.json").write_text('{"7": [0, 101], "9": [200]}')
    (tmp_path / "eccv_caption_to_image.json").write_text('{"101": [7, 8]}')
    options = {"images": None, "split": None, "cache": tmp_path, "n_workers": 1}
    suite = open_suite(f'eccv(positives="{tmp_path}")', data=str(tmp_path / "dataset_coco.json"), **options)
    data = [str(tmp_path / "dataset_coco.json")]
    found = run(tmp_path / "cache", suites=[f'eccv(positives="{tmp_path}")'], data=data, allow_missing=True)["suites"][
        0
    ]
    assert suite.name == "eccv"
    assert found["facts"]["n_queries"] == {"image_to_text": 2, "text_to_image": 1}
    assert found["partial"]  # three images are not COCO 5k


def test_every_suite_says_what_it_is():
    for name, entry in SUITES.entries.items():
        assert name.isidentifier()
        assert entry.summary
        SUITES._load(name)


@pytest.mark.data
@pytest.mark.skipif(not (SHARED / "sugarcrepe").is_dir(), reason=f"no SugarCrepe at {SHARED}")
def test_sugarcrepe_on_the_photos_at_hand(cache):
    """7,511 items, 134 of them on the 32 COCO photos that are in coco_mini."""
    options = {"split": None, "cache": cache, "n_workers": 1}
    images = SHARED / "coco_mini" / "images_val2017"
    runnable = open_suite("sugarcrepe", data=str(SHARED / "sugarcrepe"), images=images, **options)
    suite = runnable.suite
    assert len(suite.items) == 7511
    assert suite.problems == ()
    assert suite.facts["version"] == "245 items of swap_obj (current)"
    gone = set(runnable.pictures.missing(item.images[0] for item in suite.items))
    n_run = sum(item.images[0] not in gone for item in suite.items)
    assert n_run == 134
