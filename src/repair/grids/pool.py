"""What may stand where in a grid: the links, indexed from both sides, and what is known to match."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from repair.core.errors import DataError
from repair.core.identity import derive_seed
from repair.core.records import Link, LinkKind, Modality, Pair
from repair.core.texts import folded

Matches = Callable[[str, str], bool]  # (image key, text key)
_OTHER = {Modality.IMAGE: Modality.TEXT, Modality.TEXT: Modality.IMAGE}


def other(modality: Modality) -> Modality:
    return _OTHER[modality]


class Fit(NamedTuple):
    """Items of the other modality that are true of an item: edits made against the contrast, other edits, own items."""

    of_contrast: Sequence[str]
    edits: Sequence[str]
    own: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failure as grids see it: an image and a caption that were verified not to match, and what repairs one of them.

    `anchors`: from which sides a negative link was kept. `edit_pair`: the edit with the item it was made to fit.
    """

    failure_id: str
    image: str
    text: str
    anchors: tuple[Modality, ...]
    edit_pair: tuple[str, str] | None  # (image key, text key)

    def key(self, modality: Modality) -> str:
        return self.image if modality is Modality.IMAGE else self.text


class Pool:
    """Everything within a budget of edits, in an order that does not depend on the order of the links."""

    def __init__(
        self,
        links: Iterable[Link],
        pairs: Sequence[Pair],
        *,
        matches: Matches,
        use_edits: bool,
        budget: int | None,
        seed: int,
    ) -> None:
        """Raises DataError for a link between originals that `pairs` does not know."""
        self.own = _own(pairs)
        self.originals = {modality: tuple(own) for modality, own in self.own.items()}
        chosen = _within_budget(_by_failure(links), budget=budget, seed=seed)
        self.failures = tuple(found for rows in chosen if (found := _failure(rows)).anchors)
        kept = [link for rows in chosen for link in rows]
        self._check()
        self.negatives = _targets(link for link in kept if link.kind is LinkKind.NEGATIVE)
        positives = [link for link in kept if link.kind is LinkKind.POSITIVE]
        self.edits = _targets(positives if use_edits else [])
        self.edit_keys = {
            modality: {link.target_key for link in positives if link.anchor_modality is not modality}
            for modality in Modality
        }
        self._against = _against(self.failures) if use_edits else {}
        self._folded = {pair.caption_id: folded(pair.text) for pair in pairs}
        self._folded.update({k.target_key: folded(k.target_text) for k in positives if k.target_text is not None})
        self._known = {(pair.image_id, folded(pair.text)) for pair in pairs}
        self._known.update((f.edit_pair[0], self._folded[f.edit_pair[1]]) for f in map(_failure, chosen) if f.edit_pair)
        self._matches = matches

    def match(self, modality: Modality, item: str, partner: str) -> bool:
        """Whether `item` of `modality` and `partner` of the other are labelled, made or judged to match."""
        image, text = (item, partner) if modality is Modality.IMAGE else (partner, item)
        return (image, self._folded[text]) in self._known or self._matches(image, text)

    def fit(self, modality: Modality, item: str, *, contrast: str) -> Fit:
        """What is true of `item`; `contrast` is of the other modality, and not."""
        return Fit(
            self._against.get((modality, item, contrast), ()),
            self.edits[modality].get(item, ()),
            self.own[modality].get(item, ()),
        )

    def _check(self) -> None:
        for failure in self.failures:
            for modality in Modality:
                if failure.key(modality) not in self.own[modality]:
                    raise DataError(
                        f"failure {failure.failure_id}: {modality} {failure.key(modality)} is not in the split that is "
                        "trained on"
                    )


def _own(pairs: Sequence[Pair]) -> dict[Modality, dict[str, tuple[str, ...]]]:
    captions: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        captions[pair.image_id].append(pair.caption_id)
    return {
        Modality.IMAGE: {image: tuple(own) for image, own in captions.items()},
        Modality.TEXT: {pair.caption_id: (pair.image_id,) for pair in pairs},
    }


def _by_failure(links: Iterable[Link]) -> dict[str, list[Link]]:
    rows: dict[str, list[Link]] = defaultdict(list)
    for link in links:
        rows[link.failure_id].append(link)
    return rows


def sample_order(failure_id: str, *, seed: int) -> tuple[int, str]:
    """A sort key: a budget of samples keeps the failures that come first by it."""
    return derive_seed(seed, "grids", "budget", failure_id), failure_id


def _within_budget(rows: Mapping[str, list[Link]], *, budget: int | None, seed: int) -> list[list[Link]]:
    """The first failures, by a draw of their id, that have `budget` edits: a larger budget only adds, and one that is
    not exceeded leaves nothing out. Where none has an edit, failures are counted."""
    drawn = sorted(rows, key=lambda failure_id: sample_order(failure_id, seed=seed))
    chosen = [rows[failure_id] for failure_id in drawn]
    edited = [any(link.kind is LinkKind.POSITIVE for link in links) for links in chosen]
    if budget is None:
        return chosen
    n_before = accumulate(edited if any(edited) else (True for _ in edited))
    return [links for links, n in zip(chosen, n_before, strict=True) if n <= budget]


def _failure(links: Sequence[Link]) -> Failure:
    image = text = ""
    anchors = set()
    edit_pair = None
    for link in links:
        pair = (link.anchor_key, link.target_key)
        pair = pair if link.anchor_modality is Modality.IMAGE else pair[::-1]
        if link.kind is LinkKind.POSITIVE:
            edit_pair = pair
        else:
            image, text = pair
            anchors.add(link.anchor_modality)
    return Failure(
        failure_id=links[0].failure_id,
        image=image,
        text=text,
        anchors=tuple(modality for modality in Modality if modality in anchors),
        edit_pair=edit_pair,
    )


def _targets(links: Iterable[Link]) -> dict[Modality, dict[str, tuple[str, ...]]]:
    """Distinct targets by anchor, sorted."""
    found: dict[Modality, dict[str, set[str]]] = {modality: defaultdict(set) for modality in Modality}
    for link in links:
        found[link.anchor_modality][link.anchor_key].add(link.target_key)
    return {m: {key: tuple(sorted(targets)) for key, targets in anchors.items()} for m, anchors in found.items()}


def _against(failures: Iterable[Failure]) -> dict[tuple[Modality, str, str], tuple[str, ...]]:
    """(modality, item, contrast) to the edits that were made of the contrast so that it fits the item."""
    found: dict[tuple[Modality, str, str], set[str]] = defaultdict(set)
    for failure in failures:
        if failure.edit_pair is None:
            continue
        image, text = failure.edit_pair
        if image == failure.image:
            found[Modality.IMAGE, image, failure.text].add(text)
        else:
            found[Modality.TEXT, text, failure.image].add(image)
    return {key: tuple(sorted(edits)) for key, edits in found.items()}
