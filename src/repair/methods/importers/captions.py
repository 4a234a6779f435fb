"""Released captions: NegCLIP's and SugarCrepe's negatives, CS-CLIP's units, LaCLIP's rewrites."""

import ast
import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repair.core.errors import DataError
from repair.core.synthesis import SampleKind
from repair.methods.importers.owners import Imported, Owners, Rows, lines_of, text_of


def read_negclip(path: Path, owners: Owners) -> Imported:
    """Tab-separated with a header: title, filepath, neg_caption (a list literal), neg_image (one of row numbers)."""
    rows = Rows("negclip")
    lines = list(csv.DictReader(io.StringIO(text_of(path)), delimiter="\t"))
    _columns(path, lines, ("title", "filepath", "neg_caption"))
    for number, line in enumerate(lines):
        rows.n_rows += 1
        pair = owners.of(line["filepath"], line["title"])
        if pair is None:
            rows.n_foreign += 1
            continue
        for text in _literal(path, number + 2, line["neg_caption"]):
            rows.add(pair, SampleKind.NEGATIVE_CAPTION, how="swap", text=" ".join(str(text).split()))
        for other in _literal(path, number + 2, line.get("neg_image") or "[]"):
            if not isinstance(other, int) or not 0 <= other < len(lines):
                raise DataError(f"{path}, line {number + 2}: neg_image names row {other!r} of {len(lines)}")
            near = owners.image(lines[other]["filepath"])
            if near is not None:
                rows.add(pair, SampleKind.NEIGHBOUR, how="nearest", image_key=near.image_id)
    return rows.done()


def read_sugarcrepe(path: Path, owners: Owners) -> Imported:
    """One JSON: {id: {filename, caption, negative_caption}}; ids need not be in a row. Of a folder, all of them."""
    rows = Rows("sugarcrepe")
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        content = _json(file)
        if not isinstance(content, dict):
            raise DataError(f"{file}: must be a JSON object of rows by id, not {type(content).__name__}")
        for name, row in content.items():
            rows.n_rows += 1
            caption, negative, image = (
                _field(file, name, row, key) for key in ("caption", "negative_caption", "filename")
            )
            pair = owners.of(image, caption)
            if pair is None:
                rows.n_foreign += 1
            else:
                rows.add(pair, SampleKind.NEGATIVE_CAPTION, how=file.stem, text=negative)
    return rows.done()


def read_csclip(path: Path, owners: Owners) -> Imported:
    """JSON rows of original_caption, image_path, entities, negative_entities {entity: [{negative}]} and relations
    [{subject, relation_type, object, negatives}]."""
    rows = Rows("cs_clip")
    content = _json(path)
    found = content.values() if isinstance(content, dict) else content
    if not isinstance(content, (dict, list)):
        raise DataError(f"{path}: must be a JSON list of rows, or an object of them by id")
    for number, row in enumerate(found):
        rows.n_rows += 1
        pair = owners.of(str(row.get("image_path", "")), _field(path, number, row, "original_caption"))
        if pair is None:
            rows.n_foreign += 1
            continue
        for entity, negatives in dict(row.get("negative_entities") or {}).items():
            for negative in negatives:
                rows.add(pair, SampleKind.UNIT, how="entity", text=str(entity), foil=_said(negative))
        for relation in row.get("relations") or ():
            unit = _said(relation)
            for negative in relation.get("negatives") or ():
                rows.add(pair, SampleKind.UNIT, how="relation", text=unit, foil=_said(negative))
    return rows.done()


def read_laclip(path: Path, owners: Owners) -> Imported:
    """Rewrites, a line each, that go line by line with the headerless CSV `image,caption` beside them: the only .csv of
    the folder. Raises DataError if the two are not as long."""
    tables = sorted(path.parent.glob("*.csv"))
    if len(tables) != 1:
        raise DataError(
            f"{path}: needs the .csv of images and captions beside it, and only that one; found {len(tables)}"
        )
    originals = list(csv.reader(io.StringIO(text_of(tables[0]))))
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
        pair = owners.of(*original)
        if pair is None:
            rows.n_foreign += 1
        elif len(rewrite.split()) >= 2:
            rows.add(pair, SampleKind.POSITIVE_CAPTION, how=path.stem, text=" ".join(rewrite.split()))
    return rows.done()


def _said(value: Any) -> str:
    """A text, one under "negative", or a relation in words."""
    if isinstance(value, Mapping):
        if "negative" in value:
            return str(value["negative"])
        return " ".join(str(value.get(key, "")) for key in ("subject", "relation_type", "object")).strip()
    return str(value)


def _literal(path: Path, line: int, text: str) -> Iterator[Any]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, (list, tuple)):
        raise DataError(f"{path}, line {line}: {text[:60]!r} is not a list")
    yield from value


def _columns(path: Path, lines: list[dict[str, str]], wanted: tuple[str, ...]) -> None:
    missing = [name for name in wanted if lines and name not in lines[0]]
    if missing:
        raise DataError(f'{path}: has no column "{missing[0]}"; it has {", ".join(map(str, lines[0]))}')


def _json(path: Path) -> Any:
    try:
        return json.loads(text_of(path))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {error}") from error


def _field(path: Path, row: object, content: Any, key: str) -> str:
    if not isinstance(content, Mapping) or not isinstance(content.get(key), str):
        raise DataError(f'{path}, row {row}: needs a text under "{key}"')
    return " ".join(str(content[key]).split())
