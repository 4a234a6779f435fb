"""Two images and two captions: Winoground (Thrush et al. 2022), COLA's multi-object items (Ray et al. 2023).

Winoground: 400 items {"image_0", "image_1", "caption_0", "caption_1"}, as JSON lines or a list. Text score: for both
images the right caption scores higher; image score: for both captions the right image does; group: both. Names are
often swapped elsewhere. One item is 0.25 points; differences below 2 points are noise.

COLA: 210 lists [image link, caption, image link, caption]. Its published score is Winoground's *image* score.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import hash_bytes
from repair.evaluation.items import TASKS, ChoiceSuite, Item, Rule, micro
from repair.evaluation.suites.files import entries, located, read, text

_WINOGROUND = ("examples.jsonl", "winoground.jsonl", "examples.json", "winoground.json")
_COLA = ("COLA_multiobjects_matching_benchmark.json",)
_N_WINOGROUND = 400
_N_COLA = 210


def winoground(*, data: Path) -> ChoiceSuite:
    """The suite from `data`, a file or the folder that holds it. Raises DataError for items of another form.

    An image may be named with or without its ending (the published archive has ID_img_0.png).
    """
    path = located(data, _WINOGROUND)
    found, digest = _listed(path)
    items = []
    for key, entry in found:
        where = f"suite file {path}, item {key}"
        items.append(
            Item(
                item_id=str(entry.get("id", key)),
                group=str(entry.get("tag") or "untagged"),
                images=tuple(_ended(text(entry, f"image_{k}", where)) for k in (0, 1)),
                texts=tuple(text(entry, f"caption_{k}", where) for k in (0, 1)),
            )
        )
    return _suite("winoground", items, path, digest, n=_N_WINOGROUND, headline="group", exports={"*": "winoground"})


def cola(*, data: Path) -> ChoiceSuite:
    """The suite from `data`, the file or its folder. Raises DataError for items of another form."""
    path = located(data, _COLA)
    value, digest = read(path)
    if not isinstance(value, list):
        raise DataError(f"suite file {path}: not a list of items")
    items = []
    for number, entry in enumerate(value):
        if not isinstance(entry, list) or len(entry) != 4 or not all(isinstance(part, str) and part for part in entry):
            raise DataError(f"suite file {path}, item {number}: expected [image, caption, image, caption], not {entry}")
        first, caption, second, other = entry
        images = (first.rsplit("/", 1)[-1], second.rsplit("/", 1)[-1])
        items.append(Item(item_id=str(number), group="all items", images=images, texts=(caption, other)))
    return _suite("cola", items, path, digest, n=_N_COLA, headline="image", exports={})


def _suite(
    name: str, items: list[Item], path: Path, digest: str, *, n: int, headline: str, exports: dict[str, str]
) -> ChoiceSuite:
    groups = tuple(dict.fromkeys(item.group for item in items))
    tasks = (headline, *(task for task in TASKS[Rule.PAIRS] if task != headline))
    return ChoiceSuite(
        name=name,
        rule=Rule.PAIRS,
        items=tuple(items),
        averages=(micro("all items", groups, tasks),),
        facts={"files": {path.name: digest}},
        problems=() if len(items) == n else (f"{path.name} has {len(items)} items, published are {n}",),
        exports=exports,
    )


def _listed(path: Path) -> tuple[list[tuple[str, Mapping[str, Any]]], str]:
    if path.suffix != ".jsonl":
        value, digest = read(path)
        return entries(value, path), digest

    data = path.read_bytes()
    try:
        rows = [json.loads(line) for line in data.decode("utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise DataError(f"suite file {path}: a line is not valid JSON: {error}") from error
    return entries(rows, path), hash_bytes(data)


def _ended(name: str) -> str:
    return name if "." in name.rsplit("/", 1)[-1] else f"{name}.png"
