"""Released captions: NegCLIP's and SugarCrepe's negatives, CS-CLIP's units, LaCLIP's rewrites."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.core.synthesis import SampleKind
from repair.core.texts import folded
from repair.methods.importers.fields import (
    as_list,
    as_object,
    as_text,
    cells_of,
    json_of,
    kind_of,
    name_in,
    table_of,
    text_in,
)
from repair.methods.importers.owners import Imported, Owners, Rows, lines_of


def read_negclip(path: Path, owners: Owners) -> Imported:
    """Tab-separated with a header: title, filepath, neg_caption (a list literal), neg_image (one of row numbers)."""
    rows = Rows("negclip")
    table = table_of(path, ("title", "filepath", "neg_caption"), delimiter="\t")
    for where, line in table:
        rows.n_rows += 1
        pair = owners.of(line["filepath"], line["title"], where=where)
        if pair is None:
            rows.n_foreign += 1
            continue
        for text in _literal(where, line["neg_caption"]):
            negative = as_text(text, "each of neg_caption", where)
            rows.add(pair, SampleKind.NEGATIVE_CAPTION, how="swap", text=negative)
        for other in _literal(where, line.get("neg_image") or "[]"):
            if type(other) is not int or not 0 <= other < len(table):
                raise DataError(f"{where}: neg_image names row {other!r} of {len(table)}")
            _, named = table[other]
            near = owners.image(named["filepath"], named["title"], where=where)
            if near is not None:
                rows.add(pair, SampleKind.NEIGHBOUR, how="nearest", image_key=near.image_id)
    return rows.done()


def read_sugarcrepe(path: Path, owners: Owners) -> Imported:
    """One JSON: {id: {filename, caption, negative_caption}}; ids need not be in a row. Of a folder, all of them."""
    rows = Rows("sugarcrepe")
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        content = json_of(file)
        if not isinstance(content, dict):
            raise DataError(f"{file}: must be a JSON object of rows by id, not {kind_of(content)}")
        for name, row in content.items():
            rows.n_rows += 1
            where = f"{file}, row {name}"
            caption, negative = (text_in(row, key, where) for key in ("caption", "negative_caption"))
            pair = owners.of(name_in(row, "filename", where), caption, where=where)
            if pair is None:
                rows.n_foreign += 1
            else:
                rows.add(pair, SampleKind.NEGATIVE_CAPTION, how=file.stem, text=negative)
    return rows.done()


def read_csclip(path: Path, owners: Owners) -> Imported:
    """JSON rows of original_caption, image_path, entities, negative_entities {entity: [{negative}]} and relations
    [{subject, relation_type, object, negatives}].

    The method's negative caption is not in the file: as its builder does, the caption in which the first unit that
    stands in it gives way to its foil.
    """
    rows = Rows("cs_clip")
    content = json_of(path)
    if not isinstance(content, (dict, list)):
        raise DataError(f"{path}: must be a JSON list of rows, or an object of them by id, not {kind_of(content)}")
    for name, row in content.items() if isinstance(content, dict) else enumerate(content):
        rows.n_rows += 1
        where = f"{path}, row {name}"
        caption = text_in(row, "original_caption", where)
        image = "" if row.get("image_path") is None else name_in(row, "image_path", where)
        pair = owners.of(image, caption, where=where)
        if pair is None:
            rows.n_foreign += 1
            continue
        units = [(how, unit, foil) for how, unit, foil in _units(row, where) if unit and foil]
        for how, unit, foil in units:
            rows.add(pair, SampleKind.UNIT, how=how, text=unit, foil=foil)
        negative = _half_truth(pair.text, [(unit, foil) for _, unit, foil in units])
        if negative is not None:
            rows.add(pair, SampleKind.NEGATIVE_CAPTION, how="foil", text=negative)
    return rows.done()


def read_laclip(path: Path, owners: Owners) -> Imported:
    """Rewrites, a line each, that go line by line with the headerless CSV `image,caption` beside them: the only .csv of
    the folder. Raises DataError if the two are not as long."""
    tables = sorted(path.parent.glob("*.csv"))
    if len(tables) != 1:
        raise DataError(
            f"{path}: needs the .csv of images and captions beside it, and only that one; found {len(tables)}"
        )
    originals = cells_of(tables[0])
    rewrites = lines_of(path)
    if len(originals) != len(rewrites):
        raise DataError(
            f"{path}: {len(rewrites)} lines for {len(originals)} of {tables[0].name}; they go together line by line"
        )
    rows = Rows("laclip")
    for number, (original, rewrite) in enumerate(zip(originals, rewrites, strict=True)):
        if len(original) != 2:
            raise DataError(f"{tables[0]}, line {number + 1}: must be image,caption, not {len(original)} columns")
        rows.n_rows += 1
        pair = owners.of(*original, where=f"{tables[0]}, line {number + 1}")
        if pair is None:
            rows.n_foreign += 1
        elif len(rewrite.split()) >= 2:
            rows.add(pair, SampleKind.POSITIVE_CAPTION, how=path.stem, text=" ".join(rewrite.split()))
    return rows.done()


def _units(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, str]]:
    """What each unit of a row is, the unit, and a foil of it."""
    entities = row.get("negative_entities")
    for entity, negatives in as_object({} if entities is None else entities, '"negative_entities"', where).items():
        unit = as_text(entity, "an entity", where)
        for negative in as_list(negatives, f'the negatives of entity "{unit}"', where):
            yield "entity", unit, _said(negative, f'a negative of entity "{unit}"', where)
    relations = row.get("relations")
    for relation in as_list([] if relations is None else relations, '"relations"', where):
        negatives = as_object(relation, "a relation", where).get("negatives")
        for negative in as_list([] if negatives is None else negatives, "the negatives of a relation", where):
            yield "relation", _said(relation, "a relation", where), _said(negative, "a negative of a relation", where)


def _said(value: Any, what: str, where: str) -> str:
    """A text, one under "negative", or a relation in words."""
    if not isinstance(value, Mapping):
        return as_text(value, what, where)
    if "negative" in value:
        return text_in(value, "negative", f"{where}, {what}")
    said = (text_in(value, key, f"{where}, {what}") for key in ("subject", "relation_type", "object"))
    return " ".join(part for part in said if part)


def _half_truth(text: str, units: Sequence[tuple[str, str]]) -> str | None:
    """The text with the first unit that stands in it replaced by its foil; None where none does."""
    for unit, foil in units:
        changed = _replaced(text, unit, foil)
        if folded(changed) != folded(text):
            return " ".join(changed.split())
    return None


def _replaced(text: str, unit: str, foil: str) -> str:
    """As whole words, whatever their case: released entities are often in small letters. A capital stays one, or it
    would tell the true caption from the false."""

    def put(found: re.Match[str]) -> str:
        return foil[0].upper() + foil[1:] if found[0][0].isupper() else foil

    words = r"\s+".join(re.escape(word) for word in unit.split())
    return re.sub(rf"(?<!\w){words}(?!\w)", put, text, flags=re.IGNORECASE)


def _literal(where: str, text: str) -> Sequence[Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{where}: {text[:60]!r} is not a list")
    return value
