"""What matches what in the train split: labels, what follows from them, what verifiers said, and the edits."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from repair.core.errors import DataError
from repair.core.images import decode
from repair.core.progress import Progress
from repair.core.records import Criterion, Direction, Failure, Repair, Verdict
from repair.core.texts import folded
from repair.numerics.cosines import IntArray
from repair.numerics.duplicates import dhash, embedding_duplicates, hash_duplicates
from repair.numerics.matching import Matching, matching_pairs
from repair.pipeline.catalogue import Catalogue, image_item
from repair.pipeline.workbench import Workbench
from repair.store.files import write_json
from repair.training.matching import MatchTable

_NO_PAIRS = np.zeros((0, 2), dtype=np.int64)


def near_duplicates(bench: Workbench, catalogue: Catalogue, embeddings: np.ndarray) -> IntArray:  # type: ignore[type-arg]
    """Pairs of near-duplicate images of the split, by either of the two settings; lower position first."""
    settings = bench.config.mining
    found = [_NO_PAIRS]
    if settings.near_duplicate_bits >= 0:
        hashes = _hashes(bench, catalogue)
        found.append(hash_duplicates(hashes, max_distance=settings.near_duplicate_bits))
    if settings.near_duplicate_cosine <= 1:
        found.append(embedding_duplicates(embeddings, threshold=settings.near_duplicate_cosine))
    return np.unique(np.concatenate(found), axis=0)


def labelled_matching(bench: Workbench, catalogue: Catalogue, twins: IntArray) -> Matching:
    """Own captions, further positives, near-duplicates' captions, and captions that read the same."""
    return matching_pairs(
        catalogue.owner,
        catalogue.texts,
        n_images=len(catalogue.image_ids),
        near_duplicates=twins,
        extra_positives=_extra_positives(bench.config.mining.extra_positives, catalogue),
    )


def match_table(
    catalogue: Catalogue,
    matching: Matching,
    twins: IntArray,
    *,
    repairs: Iterable[Repair],
    judged: Iterable[tuple[str, str]] = (),
    edited_texts: Iterable[tuple[str, str]] = (),
) -> MatchTable:
    """The table that batches and grids ask, by key. `judged`: (image, caption) pairs that a verifier said do match."""
    rows, columns = matching.pairs.nonzero()
    pairs = [(catalogue.image_ids[i], catalogue.caption_ids[c]) for i, c in zip(rows, columns, strict=True)]
    pairs += list(judged)
    texts = dict(zip(catalogue.caption_ids, map(folded, catalogue.texts), strict=True))
    texts.update((key, folded(text)) for key, text in edited_texts)
    for repair in repairs:
        if repair.key is None:
            continue
        if repair.direction is Direction.IMAGE_TO_TEXT:
            pairs.append((repair.query_id, repair.key))
            texts[repair.key] = folded(str(repair.text))
        else:
            pairs.append((repair.key, repair.query_id))
    # A pair's lower position stands for both, so that of three alike all are one.
    representative = {catalogue.image_ids[b]: catalogue.image_ids[a] for a, b in reversed(twins.tolist())}
    named = {image: representative.get(image, image) for image in {*representative, *representative.values()}}
    return MatchTable(pairs, texts=texts, twins=named)


def judged_matching(failures: Sequence[Failure], verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """(image, caption) of the failures that the verifier dropped as true matches."""
    benign = {v.failure_id for v in verdicts if v.criterion is Criterion.BENIGN_MISMATCH}
    return [
        (f.query_id, f.false_positive_id)
        if f.direction is Direction.IMAGE_TO_TEXT
        else (f.false_positive_id, f.query_id)
        for f in failures
        if f.failure_id in benign
    ]


def _hashes(bench: Workbench, catalogue: Catalogue) -> np.ndarray:  # type: ignore[type-arg]
    """Difference hashes of the split's images, kept in the cache by content."""
    path = bench.config.cache_path() / "dhash.json"
    known: dict[str, str] = _read_json(path)
    progress: Progress = bench.progress
    items = [image_item(catalogue, bench.source, row) for row in range(len(catalogue.image_ids))]
    missing = [item for item in items if item.content_hash not in known]
    with progress.task("look-alikes", len(missing)) as advance:
        for item in missing:
            picture = decode(item.read(), where=f"image {item.key}")
            known[item.content_hash] = hex(int(dhash(np.asarray(picture))))
            advance(1)
    if missing:
        write_json(path, known)
    return np.array([int(known[item.content_hash], 16) for item in items], dtype=np.uint64)


def _read_json(path: Path) -> dict[str, str]:
    """A cache file's content; a damaged one counts as empty."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _extra_positives(name: str, catalogue: Catalogue) -> list[tuple[int, int]]:
    """(image, caption) positions from the file {image id: [caption id, …]}; ids of other splits are left out."""
    if not name:
        return []
    try:
        content = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"mining.extra_positives: {name} cannot be read: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(v, list) for v in content.values()):
        raise DataError(f"mining.extra_positives: {name} must be a JSON object: {{image id: [caption id, …]}}")
    return [
        (catalogue.image_row[image], catalogue.caption_row[caption])
        for image, captions in content.items()
        for caption in map(str, captions)
        if image in catalogue.image_row and caption in catalogue.caption_row
    ]
