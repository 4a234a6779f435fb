"""Released counterfactual pairs: COCO-Counterfactuals and TripletCLIP's shards."""

import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from repair.core.errors import DataError
from repair.core.records import Pair
from repair.core.synthesis import SampleKind
from repair.methods.importers.fields import name_in, parsed, table_of, text_in
from repair.methods.importers.owners import Imported, Owners, Rows, bytes_of, lines_of

_ENDINGS = ("", ".png", ".jpg", ".jpeg", ".webp")


def read_cococf(path: Path, owners: Owners) -> Imported:
    """JSONL of id, caption_0, image_0, caption_1, image_1: of a caption_0 of the split, the pair (image_1, caption_1).

    Images are beside the file or in its folder `images`. Or a CSV of image_path and caption, whose rows are pairs
    without an anchor: they train where pairs are pooled.
    """
    rows = Rows("coco_cf")
    if path.suffix == ".csv":
        return _csv_pairs(path, rows)
    for number, line in enumerate(lines_of(path), start=1):
        if not line.strip():
            continue
        rows.n_rows += 1
        where = f"{path}, line {number}"
        row = parsed(line, where)
        caption, other = (text_in(row, key, where) for key in ("caption_0", "caption_1"))
        image, other_image = (name_in(row, key, where) for key in ("image_0", "image_1"))
        how = str(number) if row.get("id") is None else name_in(row, "id", where)
        pair = owners.of(image, caption, where=where)
        if pair is None:
            rows.n_foreign += 1
            continue
        key = rows.picture(partial(bytes_of, _image(path, where, other_image)))
        rows.add(pair, SampleKind.PAIR, how=how, text=other, image_key=key)
    return rows.done()


def read_tripletclip(path: Path, owners: Owners) -> Imported:
    """WebDataset shards of samples with caption, neg_caption and neg_image: members `KEY.FIELD` or `KEY.FIELD.EXT`."""
    shards = sorted(path.glob("*.tar")) if path.is_dir() else [path]
    if not shards:
        raise DataError(f"{path}: holds no .tar file")
    rows = Rows("tripletclip")
    for shard in shards:
        for key, fields in _shard(shard):
            rows.n_rows += 1
            missing = [name for name in ("caption", "neg_caption", "neg_image") if name not in fields]
            if missing:
                raise DataError(f'{shard}: sample {key} has no "{missing[0]}"; it has {", ".join(sorted(fields))}')
            caption = fields["caption"]().decode("utf-8", "replace")
            pair = owners.of(key, caption, where=f"{shard}, sample {key}")
            if pair is None:
                rows.n_foreign += 1
                continue
            negative = " ".join(fields["neg_caption"]().decode("utf-8", "replace").split())
            rows.add(pair, SampleKind.PAIR, how=key, text=negative, image_key=rows.picture(fields["neg_image"]))
    return rows.done()


def _csv_pairs(path: Path, rows: Rows) -> Imported:
    for number, (where, line) in enumerate(table_of(path, ("image_path", "caption")), start=2):
        rows.n_rows += 1
        key = rows.picture(partial(bytes_of, _image(path, where, line["image_path"])))
        text = text_in(line, "caption", where)
        nobody = Pair(image_id="", caption_id=f"coco_cf-{number}", text=text, split="")
        rows.add(nobody, SampleKind.PAIR, how=str(number), text=text, image_key=key)
    return rows.done()


def _image(path: Path, where: str, name: str) -> Path:
    for folder in (path.parent / "images", path.parent):
        for ending in _ENDINGS:
            if (folder / f"{name}{ending}").is_file():
                return folder / f"{name}{ending}"
    raise DataError(f"{where}: image {name} is neither beside the file nor in its folder images")


def _shard(path: Path) -> Iterator[tuple[str, dict[str, Callable[[], bytes]]]]:
    """Samples of a shard in its order: fields by name, their bytes read when asked for."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for member in tar.getmembers() if member.isfile()]
    except (OSError, tarfile.TarError) as error:
        raise DataError(f"{path}: not a readable tar file (not compressed): {error}") from error
    samples: dict[str, dict[str, Callable[[], bytes]]] = {}
    for member in members:
        folder, _, name = member.name.rpartition("/")
        key, _, rest = name.partition(".")
        if rest:
            place = f"{folder}/{key}" if folder else key
            samples.setdefault(place, {})[rest.split(".")[0]] = partial(_read_at, path, member.offset_data, member.size)
    yield from samples.items()


def _read_at(path: Path, start: int, size: int) -> bytes:
    """Straight from its place: a shard holds thousands of members, and finding one by name reads them all."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
