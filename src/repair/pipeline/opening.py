"""What `repair eval --data` can name, opened: a data set of any known format, told by what the file is like."""

import json
from pathlib import Path
from typing import Any

from repair.core.errors import ConfigError, DataError
from repair.core.ports import PairSource
from repair.core.registry import parse_spec
from repair.data.rules import Rules
from repair.pipeline import registries

_LOOKED_AT = 1 << 16  # bytes of a JSON file that tell COCO's from Karpathy's


def open_data(
    data: str, *, images: Path | None, any_bad: bool, cache: Path, n_workers: int
) -> tuple[PairSource, dict[str, Any]]:
    """The source named by `data`, and how to find its pictures again.

    `data` is a path (.jsonl, .csv, .tsv, Karpathy's or COCO's .json, a folder of images with .txt) or a spec such as
    jsonl(path="…", split="…"). With `any_bad`, any number of images may be unusable; they are in `set_aside`.

    Raises:
        ConfigError: a format that cannot be told.
        DataError: the data cannot be read.
    """
    options: dict[str, Any] = {"images": images} if images is not None else {}
    if "(" in data or data == "world":
        name, own = parse_spec(data, kind="data source")
        registries.SOURCES.require(name)
        options |= own
    else:
        path = Path(data).expanduser()
        name = _format(path)
        options["path"] = path
    if name == "world":
        options.pop("images", None)
        place: dict[str, Any] = {"kind": "world", "options": dict(options)}
    else:
        if any_bad:
            options["rules"] = Rules.model_validate({**dict(options.get("rules") or {}), "max_bad_rate": 1.0})
        root = options.get("images") or _root(options["path"])
        place = {"kind": "folder", "root": str(Path(root).expanduser().resolve())}
    source: PairSource = registries.SOURCES.build(name, options=options, cache=cache, n_workers=n_workers)
    return source, place


def chosen_split(source: PairSource, wanted: str | None, *, usual: str = "test") -> str:
    """The split to evaluate: the wanted one, else the only one, else the usual one.

    Raises:
        ConfigError: there are several, none is the usual one, and none is named: splits are never mixed silently.
    """
    splits = list(source.splits())
    if wanted is not None:
        return wanted  # the source itself refuses one it does not have
    if len(splits) == 1:
        return splits[0]
    if usual in splits:
        return usual
    raise ConfigError(f"the data have the splits {', '.join(splits)}: choose one with --split")


def _format(path: Path) -> str:
    if path.is_dir():
        return "folder"
    if path.suffix == ".jsonl":
        return "jsonl"
    if path.suffix in (".csv", ".tsv"):
        return "csv"
    if path.suffix == ".json":
        return "coco" if _is_coco(path) else "karpathy"
    raise ConfigError(
        f"--data {path}: cannot tell its format: give a .jsonl, .csv, .tsv, .json or a folder, or a spec such as "
        f'karpathy(path="{path}")'
    )


def _is_coco(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            head = file.read(_LOOKED_AT)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"data file {path} cannot be read: {error}") from error
    if '"sentences"' in head:
        return False
    if '"annotations"' in head or '"file_name"' in head:
        return True
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return isinstance(content, dict) and "annotations" in content
    except (ValueError, RecursionError) as error:
        raise DataError(f"data file {path}: not valid JSON: {error}") from error


def _root(path: Any) -> Path:
    first = next(iter(path.values())) if isinstance(path, dict) else path
    place = Path(first).expanduser()
    return place if place.is_dir() else place.parent
