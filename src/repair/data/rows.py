"""From what a file says to clean images with captions; everything unusable is set aside with its reason.

Each adapter turns its format into `Row`s and `SetAside`s; the rest is the same for all of them and happens here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from repair.core.errors import DataError
from repair.core.records import SetAside
from repair.data.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One image as a file has it: `image` and `captions` may still be anything. `where` is "FILE line N" or alike."""

    where: str
    image: Any
    captions: Sequence[Any]
    split: Any = None


@dataclass(slots=True)
class Entry:
    """One image after cleaning. `captions` are (caption id, text); the id counts all captions, also the bad ones."""

    image_id: str
    split: str | None
    captions: list[tuple[str, str]] = field(default_factory=list)
    n_seen: int = 0


@dataclass(slots=True)
class Cleaned:
    entries: list[Entry]
    bad_images: list[SetAside]
    bad_captions: list[SetAside]
    n_images: int  # good and bad
    n_captions: int


def clean_rows(rows: Iterable[Row | SetAside], *, rules: Rules, one_row_an_image: bool) -> Cleaned:
    """Check ids, splits and captions; images in order of their first row.

    With `one_row_an_image` a second row of an image is a duplicate and is set aside; without, its captions are added.
    """
    entries: dict[str, Entry] = {}
    first_seen: dict[str, str] = {}
    bad_images: list[SetAside] = []
    bad_captions: list[SetAside] = []
    n_captions = 0
    for row in rows:
        if isinstance(row, SetAside):
            bad_images.append(row)
            continue
        problem = _row_problem(row)
        image_id = str(PurePosixPath(row.image)) if problem is None else ""
        if problem is None and image_id in entries and one_row_an_image:
            problem = f'duplicate id "{image_id}", first at {first_seen[image_id]}'
        entry = entries.get(image_id)
        if problem is None and entry is not None and entry.split != row.split:
            problem = f'image "{image_id}" is in split {entry.split} at {first_seen[image_id]}, here in {row.split}'
        if problem is not None:
            split = row.split if isinstance(row.split, str) else None
            bad_images.append(SetAside(item=row.where, reason=problem, split=split))
            continue
        if entry is None:
            entry = entries[image_id] = Entry(image_id, row.split)
            first_seen[image_id] = row.where
        n_captions += len(row.captions)
        bad_captions.extend(_add_captions(entry, row.captions, rules=rules))
    kept = _with_captions(entries.values(), bad_images)
    return Cleaned(kept, bad_images, bad_captions, len(kept) + len(bad_images), n_captions)


def assign_splits(cleaned: Cleaned, *, fixed: str | None, rules: Rules) -> None:
    """Give every entry a split: `fixed`, or the data's own, or by `Rules.split_of` where the data has none at all.

    An entry without a split among others that have one is set aside.
    """
    some_have_one = any(entry.split is not None for entry in cleaned.entries)
    kept = []
    for entry in cleaned.entries:
        if fixed is not None:
            entry.split = fixed
        elif entry.split is None and some_have_one:
            cleaned.bad_images.append(SetAside(item=entry.image_id, reason="no split, although other images have one"))
            continue
        elif entry.split is None:
            entry.split = rules.split_of(entry.image_id)
        kept.append(entry)
    cleaned.entries = kept


def refuse_if_too_bad(cleaned: Cleaned, *, name: str, max_bad_rate: float) -> None:
    """Raises DataError if nothing usable is left, or more than `max_bad_rate` of images or captions are bad."""
    for kind, bad, total in (
        ("images", cleaned.bad_images, cleaned.n_images),
        ("captions", cleaned.bad_captions, cleaned.n_captions),
    ):
        if total and len(bad) > max_bad_rate * total:
            raise DataError(
                f"{name}: {len(bad)} of {total} {kind} cannot be used, more than rules.max_bad_rate = {max_bad_rate:g} "
                f"of them; the first: {bad[0].item}: {bad[0].reason}"
            )
    if not cleaned.entries:
        raise DataError(f"{name}: holds no usable image with a caption")


def _row_problem(row: Row) -> str | None:
    if not isinstance(row.image, str) or not row.image.strip():
        return f"the image must be a file name, not {_shown(row.image)}"
    path = PurePosixPath(row.image)
    if path.is_absolute() or ".." in path.parts or "\0" in row.image:
        return f"the image {_shown(row.image)} must be a path below the image folder"
    if row.split is not None and (not isinstance(row.split, str) or not row.split.strip()):
        return f"the split must be a name, not {_shown(row.split)}"
    return None


def _add_captions(entry: Entry, captions: Sequence[Any], *, rules: Rules) -> list[SetAside]:
    bad = []
    for caption in captions:
        caption_id = f"{entry.image_id}#{entry.n_seen}"
        entry.n_seen += 1
        if not isinstance(caption, str):
            reason = f"a caption must be text, not {_shown(caption)}"
            bad.append(SetAside(item=caption_id, reason=reason, split=entry.split, is_caption=True))
            continue
        text = " ".join(caption.split())
        problem = rules.caption_problem(text)
        if problem is None and not text.isprintable():
            problem = "caption with control characters"
        if problem is None:
            entry.captions.append((caption_id, text))
        else:
            bad.append(SetAside(item=caption_id, reason=problem, split=entry.split, is_caption=True))
    return bad


def _with_captions(entries: Iterable[Entry], bad_images: list[SetAside]) -> list[Entry]:
    kept = []
    for entry in entries:
        if entry.captions:
            kept.append(entry)
        else:
            reason = "none of its captions can be used" if entry.n_seen else "no caption"
            bad_images.append(SetAside(item=entry.image_id, reason=reason, split=entry.split))
    return kept


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}…"
