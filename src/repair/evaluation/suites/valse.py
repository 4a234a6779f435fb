"""VALSE (Parcalabescu et al. 2022): a caption against a foil in six linguistic phenomena, eleven files.

Each file is an object of {"image_file", "caption", "foil", "mturk": {"caption", "foil", "other"}, …}. By the paper only
items count where at least two of three annotators chose the caption; `validated=False` keeps all. Pairwise accuracy
acc_r: s(image, caption) strictly above s(image, foil). The paper's average is the mean over its instruments (files).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.evaluation.items import TASKS, Average, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.suites.files import entries, read, text

PHENOMENA: Mapping[str, tuple[str, ...]] = {
    "existence": ("existence",),
    "plurality": ("plurals",),
    "counting": ("counting-hard", "counting-small-quant", "counting-adversarial"),
    "relations": ("relations",),
    "actions": ("action-replacement", "actant-swap"),
    "coreference": ("coreference-standard", "coreference-hard"),
    "foil-it": ("foil-it",),
}
_N_AGREED = 2


def valse(*, data: Path, validated: bool = True) -> ChoiceSuite:
    """The suite from the folder `data`. Raises DataError for a file that cannot be read."""
    if not data.is_dir():
        raise DataError(f"{data} is no folder: give the folder of VALSE's JSON files with --data")
    items, problems = [], []
    hashes: dict[str, str] = {}
    counts: dict[str, int] = {}
    n_dropped = 0
    for name in (name for names in PHENOMENA.values() for name in names):
        path = data / f"{name}.json"
        if not path.is_file():
            problems.append(f"the file {path.name} is missing")
            continue
        value, hashes[path.name] = read(path)
        for key, entry in entries(value, path):
            where = f"suite file {path}, item {key}"
            if validated and _votes(entry, where) < _N_AGREED:
                n_dropped += 1
                continue
            counts[name] = counts.get(name, 0) + 1
            items.append(
                Item(
                    item_id=f"{name}/{key}",
                    group=name,
                    images=(text(entry, "image_file", where),),
                    texts=(text(entry, "caption", where), text(entry, "foil", where)),
                )
            )
    tasks, files = TASKS[Rule.STRICT], tuple(counts)
    parts = tuple(tuple(name for name in names if name in counts) for names in PHENOMENA.values())
    return ChoiceSuite(
        name="valse",
        rule=Rule.STRICT,
        items=tuple(items),
        averages=(
            macro("mean of instruments", files, tasks),
            Average(name="mean of phenomena", parts=tuple(filter(None, parts)), tasks=tasks),
            micro("micro over all items", files, tasks),
        ),
        facts={"n_by_split": counts, "files": hashes, "validated": validated, "n_not_validated": n_dropped},
        problems=tuple(problems),
    )


def _votes(entry: Mapping[str, Any], where: str) -> int:
    """How many annotators chose the caption; 0 for an item that was not shown to any."""
    votes = entry.get("mturk")
    n = votes.get("caption", 0) if isinstance(votes, Mapping) else 0
    if not isinstance(n, int) or isinstance(n, bool):
        raise DataError(f'{where}: "mturk" must count votes, not {votes!r}')
    return n
