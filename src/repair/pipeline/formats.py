"""Grids and pairs in the formats other training code reads. One function a format: material in, a folder filled."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, UnidentifiedImageError

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.pipeline.material import Material

_SHARD = 1000  # samples a tar file
_ENDINGS = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp", "GIF": "gif", "BMP": "bmp"}
_IMAGES = "images"


def open_clip_csv(material: Material, folder: Path) -> dict[str, int]:
    """`pairs.csv` for open_clip_train's `--dataset-type csv`: tab-separated filepath and title. Pairs only."""
    paths = _write_images(material, folder)
    rows = [[paths[pair.image], _flat(pair.text)] for pair in material.pairs]
    _write_table(folder / "pairs.csv", ["filepath", "title"], rows)
    return {"pairs": len(rows), "images": len(paths)}


def negclip_tsv(material: Material, folder: Path) -> dict[str, int]:
    """`pairs.tsv` as NegCLIP's training reads it: neg_caption a list of captions that are false of the row's image,
    neg_image a list of rows whose image is false of the row's caption."""
    paths = _write_images(material, folder)
    rows = []
    for number, pair in enumerate(material.pairs):
        false = [_flat(material.texts[key]) for key in pair.false_captions]
        rows.append([str(number), _flat(pair.text), paths[pair.image], repr(false), repr(list(pair.false_pairs))])
    _write_table(folder / "pairs.tsv", ["index", "title", "filepath", "neg_caption", "neg_image"], rows)
    return {"pairs": len(material.pairs), "images": len(paths)}


def webdataset_tar(material: Material, folder: Path) -> dict[str, int]:
    """`pairs-NNNNNN.tar` (image, txt, json with the false captions) and `grids-NNNNNN.tar` (0 … 2, each image and txt;
    image r fits text r and no other). Equal runs give equal bytes."""
    pairs = (_pair_files(material, number) for number in range(len(material.pairs)))
    grids = (_grid_files(material, number) for number in range(len(material.grids)))
    n_shards = _write_shards(folder, "pairs", pairs) + _write_shards(folder, "grids", grids)
    return {"pairs": len(material.pairs), "grids": len(material.grids), "shards": n_shards}


def datasets_folder(material: Material, folder: Path) -> dict[str, int]:
    """A folder for `datasets.load_dataset(FOLDER, "grids")` or `"pairs"`: Parquet files with images inside."""
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    text, keys = (
        {"dtype": "string", "_type": "Value"},
        {"feature": {"dtype": "string", "_type": "Value"}, "_type": "List"},
    )

    def cell(key: str) -> dict[str, Any]:
        data = material.read(key)
        return {"bytes": data, "path": f"{_stem(key)}.{_ending(data, key)}"}

    grids: dict[str, tuple[pa.DataType, Any, list[Any]]] = {
        "images": (pa.list_(image), {"feature": {"_type": "Image"}, "_type": "List"}, []),
        "captions": (pa.list_(pa.string()), keys, []),
        "image_keys": (pa.list_(pa.string()), keys, []),
        "caption_keys": (pa.list_(pa.string()), keys, []),
        "n_synthetic": (pa.int64(), {"dtype": "int64", "_type": "Value"}, []),
    }
    for grid in material.grids:
        row = ([cell(key) for key in grid.images], [material.texts[key] for key in grid.texts], list(grid.images))
        for column, value in zip(grids.values(), (*row, list(grid.texts), grid.n_synthetic), strict=True):
            column[2].append(value)
    pairs: dict[str, tuple[pa.DataType, Any, list[Any]]] = {
        "image": (image, {"_type": "Image"}, [cell(pair.image) for pair in material.pairs]),
        "caption": (pa.string(), text, [pair.text for pair in material.pairs]),
        "false_captions": (
            pa.list_(pa.string()),
            keys,
            [[material.texts[key] for key in pair.false_captions] for pair in material.pairs],
        ),
    }
    for name, columns in (("grids", grids), ("pairs", pairs)):
        features = {column: feature for column, (_, feature, _) in columns.items()}
        schema = pa.schema(
            [(column, kind) for column, (kind, _, _) in columns.items()],
            metadata={"huggingface": json.dumps({"info": {"features": features}})},
        )
        table = pa.table({column: values for column, (_, _, values) in columns.items()}, schema=schema)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=100)
    configs = "".join(f"- config_name: {name}\n  data_files: {name}.parquet\n" for name in ("grids", "pairs"))
    about = "# Counterfactual hard pairs, made with RePair\n\nIn a grid, image r fits caption r and no other.\n"
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n\n{about}", encoding="utf-8")
    return {"pairs": len(material.pairs), "grids": len(material.grids)}


def triplets(material: Material, folder: Path) -> dict[str, int]:
    """`image-anchors.jsonl` and `caption-anchors.jsonl` for sentence-transformers: anchor, positive, negative; images
    by path."""
    paths = _write_images(material, folder)
    by_image = [
        {"anchor": paths[pair.image], "positive": pair.text, "negative": material.texts[key]}
        for pair in material.pairs
        for key in pair.false_captions
    ]
    by_caption = [
        {"anchor": pair.text, "positive": paths[pair.image], "negative": paths[material.pairs[place].image]}
        for pair in material.pairs
        for place in pair.false_pairs
    ]
    for name, rows in (("image-anchors", by_image), ("caption-anchors", by_caption)):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return {"image anchors": len(by_image), "caption anchors": len(by_caption), "images": len(paths)}


FORMATS: dict[str, Callable[[Material, Path], dict[str, int]]] = {
    "open-clip": open_clip_csv,
    "negclip": negclip_tsv,
    "webdataset": webdataset_tar,
    "datasets": datasets_folder,
    "triplets": triplets,
}


def _write_images(material: Material, folder: Path) -> dict[str, str]:
    """Every image as a file below `folder`, by key; paths are relative to `folder`."""
    (folder / _IMAGES).mkdir()
    paths: dict[str, str] = {}
    for key in dict.fromkeys(pair.image for pair in material.pairs):
        data = material.read(key)
        paths[key] = f"{_IMAGES}/{_stem(key)}.{_ending(data, key)}"
        (folder / paths[key]).write_bytes(data)
    return paths


def _stem(key: str) -> str:
    """A file name for a key: itself where that is plain, else its hash."""
    plain = key.replace("-", "").replace("_", "").isalnum() and key.isascii() and len(key) <= 100
    return key if plain else hash_bytes(key.encode()).removeprefix("b2:")


def _ending(data: bytes, key: str) -> str:
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return _ENDINGS[str(picture.format)]
    except (UnidentifiedImageError, OSError, KeyError) as error:
        raise DataError(f"image {key} is of no kind that can be exported; kinds: {', '.join(_ENDINGS)}") from error


def _write_table(path: Path, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Tab-separated, as both trainings' pandas reads it: a field with quotation marks is quoted, or a caption that
    begins with one would swallow the rows below it."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, delimiter="\t", lineterminator="\n").writerows([names, *rows])


def _flat(text: str) -> str:
    """On one line, without tabs."""
    return " ".join(text.split())


def _pair_files(material: Material, number: int) -> list[tuple[str, bytes]]:
    pair = material.pairs[number]
    data = material.read(pair.image)
    about = {
        "image": pair.image,
        "caption": pair.caption,
        "false_captions": [material.texts[key] for key in pair.false_captions],
    }
    name = f"{number:08d}"
    return [
        (f"{name}.{_ending(data, pair.image)}", data),
        (f"{name}.txt", pair.text.encode()),
        (f"{name}.json", json.dumps(about, ensure_ascii=False, sort_keys=True).encode()),
    ]


def _grid_files(material: Material, number: int) -> list[tuple[str, bytes]]:
    grid, name = material.grids[number], f"{number:08d}"
    files: list[tuple[str, bytes]] = []
    for place, (image, caption) in enumerate(zip(grid.images, grid.texts, strict=True)):
        data = material.read(image)
        files += [
            (f"{name}.{place}.{_ending(data, image)}", data),
            (f"{name}.{place}.txt", material.texts[caption].encode()),
        ]
    return files


def _write_shards(folder: Path, name: str, samples: Iterable[Sequence[tuple[str, bytes]]]) -> int:
    n_shards = 0
    for number, part in enumerate(_parts(samples)):
        with tarfile.open(folder / f"{name}-{number:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for sample in part:
                for file, data in sample:
                    member = tarfile.TarInfo(file)
                    member.size, member.mode = len(data), 0o644
                    archive.addfile(member, io.BytesIO(data))
        n_shards += 1
    return n_shards


def _parts(samples: Iterable[Sequence[tuple[str, bytes]]]) -> Iterator[list[Sequence[tuple[str, bytes]]]]:
    part: list[Sequence[tuple[str, bytes]]] = []
    for sample in samples:
        part.append(sample)
        if len(part) == _SHARD:
            yield part
            part = []
    if part:
        yield part
