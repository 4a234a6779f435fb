"""SugarCrepe (Hsieh et al. 2023) and SugarCrepe++ (Dumpala et al. 2024): hard negatives for COCO val2017 captions.

SugarCrepe: seven files, an object of {"filename", "caption", "negative_caption"}. Right if s(image, caption) is above
s(image, negative), strictly. Three averages are in use and differ by up to 3.5 points, so all are given: micro over all
items, mean of the seven splits, mean of the three families' micro averages. Two versions are about: swap_obj has 246
items in the first release and 245 since; which one it is, is said.

SugarCrepe++: five files, a list of {"id", "filename", "caption", "caption2", "negative_caption"}. `image_text`: both
captions strictly above the negative; `text_only`: the captions are closer to each other than either is to the negative.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.evaluation.items import TASKS, Average, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.suites.files import entries, read, text

SIZES: Mapping[str, tuple[int, ...]] = {
    "replace_obj": (1652,),
    "replace_att": (788,),
    "replace_rel": (1406,),
    "swap_obj": (245, 246),
    "swap_att": (666,),
    "add_obj": (2062,),
    "add_att": (692,),
}
FAMILIES = {
    "replace": ("replace_obj", "replace_att", "replace_rel"),
    "swap": ("swap_obj", "swap_att"),
    "add": ("add_obj", "add_att"),
}
_PLUS = ("replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")
_VERSIONS = {245: "245 items of swap_obj (current)", 246: "246 items of swap_obj (first release)"}


def sugarcrepe(*, data: Path) -> ChoiceSuite:
    """The suite from the folder `data`. Raises DataError for a file that cannot be read."""
    items, facts, problems = _read(data, SIZES, ("caption", "negative_caption"))
    tasks, splits = TASKS[Rule.STRICT], tuple(facts["n_by_split"])
    families = [tuple(split for split in family if split in splits) for family in FAMILIES.values()]
    averages = (
        micro("micro over all items", splits, tasks),
        macro("mean of splits", splits, tasks),
        Average(name="mean of families", parts=tuple(filter(None, families)), tasks=tasks),
        *(micro(f"{name} (family)", family, tasks) for name, family in zip(FAMILIES, families, strict=True) if family),
    )
    return ChoiceSuite(
        name="sugarcrepe",
        rule=Rule.STRICT,
        items=tuple(items),
        averages=averages,
        facts={**facts, "version": _VERSIONS.get(facts["n_by_split"].get("swap_obj"), "unknown")},
        problems=tuple(problems),
        exports={split: f"sugar_crepe/{split}" for split in splits},
    )


def sugarcrepe_pp(*, data: Path) -> ChoiceSuite:
    """The suite from the folder `data`. Raises DataError for a file that cannot be read."""
    items, facts, problems = _read(data, {k: SIZES[k] for k in _PLUS}, ("caption", "caption2", "negative_caption"))
    splits, tasks = tuple(facts["n_by_split"]), TASKS[Rule.TRIPLE]
    return ChoiceSuite(
        name="sugarcrepe_pp",
        rule=Rule.TRIPLE,
        items=tuple(items),
        averages=(macro("mean of splits", splits, tasks), micro("micro over all items", splits, tasks)),
        facts={**facts, "version": _VERSIONS.get(facts["n_by_split"].get("swap_obj"), "unknown")},
        problems=tuple(problems),
    )


def _read(
    folder: Path, sizes: Mapping[str, tuple[int, ...]], texts: Sequence[str]
) -> tuple[list[Item], dict[str, Any], list[str]]:
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder: give the one that holds the files {', '.join(sizes)} with --data")
    items, problems = [], []
    hashes: dict[str, str] = {}
    counts: dict[str, int] = {}
    for split, known in sizes.items():
        path = folder / f"{split}.json"
        if not path.is_file():
            problems.append(f"the file {path.name} is missing")
            continue
        value, hashes[path.name] = read(path)
        found = entries(value, path)
        counts[split] = len(found)
        if len(found) not in known:
            problems.append(f"{split} has {len(found)} items, published are {' or '.join(map(str, known))}")
        for key, entry in found:
            where = f"suite file {path}, item {key}"
            items.append(
                Item(
                    item_id=f"{split}/{key}",
                    group=split,
                    images=(text(entry, "filename", where),),
                    texts=tuple(text(entry, name, where) for name in texts),
                )
            )
    return items, {"n_by_split": counts, "files": hashes}, problems
