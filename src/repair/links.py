"""Link: every kept failure says of an image and a caption that they do not match, and which edit would.

An image_to_text failure (image I, false caption T, edit T⁺) gives

    image I    negative  caption T      I was asked, T came back
    caption T  negative  image I        the same fact, seen from T: it was verified that I does not show T
    image I    positive  caption T⁺     if it was repaired

and a text_to_image failure (caption T, false image I, edit I⁺) gives the same two negatives and T positive I⁺. The
second negative is ours; it lets the unedited false positive be an anchor whose hard negative's repair is its own edit.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repair.core.errors import DataError
from repair.core.identity import derive_seed
from repair.core.records import Direction, Link, LinkKind, Modality, Repair, RepairStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDistribution:
    """Distinct targets per anchor of one modality and kind (the paper's Figures 7 and 8)."""

    anchor_modality: Modality
    kind: LinkKind
    n_anchors: int  # with at least one such link
    n_links: int
    mean: float
    max: int
    histogram: tuple[tuple[int, int], ...]  # (targets, anchors that have so many), ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSummary:
    """`n_linked`: repairs that gave a link; `n_dropped`: links over a cap; four distributions, always in one order."""

    n_repairs: int
    n_linked: int
    n_links: int
    n_dropped: int
    distributions: tuple[LinkDistribution, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """`links` are ordered by failure id, then image anchors before caption anchors, then positive before negative."""

    links: tuple[Link, ...]
    summary: LinkSummary


def build_links(
    repairs: Sequence[Repair],
    *,
    texts: Mapping[str, str],
    max_positives: int | None = 20,
    max_negatives: int | None = 50,
    unrepaired_negatives: bool = True,
    seed: int = 0,
) -> Links:
    """The links of `repairs`, whose order does not matter.

    `texts`: caption id to text. The caps count an anchor's distinct targets of one kind; under a cap, links of repaired
    failures come first, and the rest is a draw by `seed` that depends on failure ids only. `unrepaired_negatives`:
    whether failures without a valid edit (unrepaired, negative_only, failed) give their two negatives; their false
    positive was verified all the same. Raises DataError for a caption without text.
    """
    rows: list[tuple[Link, bool]] = []
    n_linked = 0
    for repair in repairs:
        repaired = repair.status is RepairStatus.REPAIRED
        if repaired or unrepaired_negatives:
            n_linked += 1
            rows += [(link, repaired) for link in _links_of(repair, texts)]
    caps = {LinkKind.POSITIVE: max_positives, LinkKind.NEGATIVE: max_negatives}
    links = sorted(_capped(rows, caps, seed=seed), key=_order)
    summary = LinkSummary(
        n_repairs=len(repairs),
        n_linked=n_linked,
        n_links=len(links),
        n_dropped=len(rows) - len(links),
        distributions=tuple(_distribution(links, m, k) for m in Modality for k in LinkKind),
    )
    return Links(links=tuple(links), summary=summary)


def _links_of(repair: Repair, texts: Mapping[str, str]) -> list[Link]:
    asks_image = repair.direction is Direction.IMAGE_TO_TEXT
    image = repair.query_id if asks_image else repair.false_positive_id
    caption = repair.false_positive_id if asks_image else repair.query_id
    if caption not in texts:
        raise DataError(f"failure {repair.failure_id}: no text for caption {caption}")
    links = [
        _link(image, Modality.IMAGE, LinkKind.NEGATIVE, caption, texts[caption], repair),
        _link(caption, Modality.TEXT, LinkKind.NEGATIVE, image, None, repair),
    ]
    if repair.status is RepairStatus.REPAIRED:
        if repair.key is None or (asks_image and repair.text is None):
            raise DataError(f"failure {repair.failure_id}: repaired, but without its edit")
        anchor, modality = (image, Modality.IMAGE) if asks_image else (caption, Modality.TEXT)
        links.append(_link(anchor, modality, LinkKind.POSITIVE, repair.key, repair.text, repair))
    return links


def _link(anchor: str, modality: Modality, kind: LinkKind, target: str, text: str | None, repair: Repair) -> Link:
    return Link(
        anchor_key=anchor,
        anchor_modality=modality,
        kind=kind,
        target_key=target,
        target_text=text,
        failure_id=repair.failure_id,
    )


def _capped(rows: Iterable[tuple[Link, bool]], caps: Mapping[LinkKind, int | None], *, seed: int) -> list[Link]:
    draws: dict[str, int] = {}
    ranked = []
    for link, repaired in rows:
        if link.failure_id not in draws:
            draws[link.failure_id] = derive_seed(seed, "links", link.failure_id)
        ranked.append((not repaired, draws[link.failure_id], link.failure_id, link))
    kept: dict[tuple[Modality, str, LinkKind], set[str]] = defaultdict(set)
    out = []
    for *_, link in sorted(ranked, key=lambda row: row[:3]):
        targets = kept[link.anchor_modality, link.anchor_key, link.kind]
        cap = caps[link.kind]
        if link.target_key in targets or cap is None or len(targets) < cap:
            targets.add(link.target_key)
            out.append(link)
    return out


def _order(link: Link) -> tuple[str, bool, bool, str]:
    return (
        link.failure_id,
        link.anchor_modality is Modality.TEXT,
        link.kind is LinkKind.NEGATIVE,
        link.anchor_key,
    )


def _distribution(links: Iterable[Link], modality: Modality, kind: LinkKind) -> LinkDistribution:
    targets: dict[str, set[str]] = defaultdict(set)
    for link in links:
        if link.anchor_modality is modality and link.kind is kind:
            targets[link.anchor_key].add(link.target_key)
    sizes = np.array([len(found) for found in targets.values()], dtype=np.int64)
    values, counts = np.unique(sizes, return_counts=True)
    return LinkDistribution(
        anchor_modality=modality,
        kind=kind,
        n_anchors=len(sizes),
        n_links=int(sizes.sum()),
        mean=float(sizes.mean()) if len(sizes) else 0.0,
        max=int(sizes.max()) if len(sizes) else 0,
        histogram=tuple(zip(values.tolist(), counts.tolist(), strict=True)),
    )
