"""Texts that a suite makes itself: hashed, written beside the results, and read back to be used again."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.core.identity import hash_value
from repair.evaluation.items import TASKS, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.tagging import tagger_facts


def rows_of(suite: ChoiceSuite) -> list[dict[str, Any]]:
    """The items of a suite as rows of SUITE-texts.jsonl."""
    return [
        {"item": item.item_id, "group": item.group, "image": item.images[0], "texts": list(item.texts)}
        for item in suite.items
    ]


def texts_hash(items: Sequence[Item]) -> str:
    """Content hash of ids, images and texts, in order: equal exactly for equal suites."""
    return hash_value([[item.item_id, list(item.images), list(item.texts)] for item in items])


def suite_of_kinds(items: Sequence[Item], kinds: Sequence[str], *, name: str, seed: int, n_images: int) -> ChoiceSuite:
    """Items made with the tagger, a group for each of `kinds`: right if the first text scores strictly above the rest.

    Averages are the mean of the kinds that have items, in the order of `kinds`, and the micro average. `n_images`: how
    many images there were to make items of.
    """
    counts, tasks = Counter(item.group for item in items), TASKS[Rule.STRICT]
    groups = tuple(kind for kind in kinds if counts[kind])
    return ChoiceSuite(
        name=name,
        rule=Rule.STRICT,
        items=tuple(items),
        averages=(macro("mean of kinds", groups, tasks), micro("micro over all items", groups, tasks)),
        facts={
            "seed": seed,
            "n_by_split": dict(counts),
            "texts_hash": texts_hash(items),
            "n_images": n_images,
            **tagger_facts(),
        },
        generated=True,
    )


def read_items(path: Path) -> list[Item]:
    """Items from a file that an earlier evaluation wrote. Raises DataError naming the line that is not one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"texts file {path} cannot be read: {error}") from error
    items = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            items.append(
                Item(
                    item_id=str(row["item"]),
                    group=str(row["group"]),
                    images=(str(row["image"]),),
                    texts=tuple(str(text) for text in row["texts"]),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"texts file {path} line {number}: not a row of an evaluation's texts: {error}") from error
    return items
