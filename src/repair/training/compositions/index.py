"""The samples that train, found by their anchor."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from repair.core.synthesis import Sample, SampleKind


class SampleIndex:
    """Accepted samples of a run, by kind and caption. Rejected ones and those without content are left out."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_caption: dict[SampleKind, dict[str, list[Sample]]] = {kind: defaultdict(list) for kind in SampleKind}
        self._by_image: dict[SampleKind, dict[str, list[Sample]]] = {kind: defaultdict(list) for kind in SampleKind}
        self.samples = tuple(sample for sample in samples if sample.rejected is None)
        for sample in self.samples:
            self._by_caption[sample.kind][sample.caption_id].append(sample)
            self._by_image[sample.kind][sample.image_id].append(sample)

    def of_caption(self, kind: SampleKind, caption_id: str) -> list[Sample]:
        return self._by_caption[kind].get(caption_id, [])

    def of_image(self, kind: SampleKind, image_id: str) -> list[Sample]:
        return self._by_image[kind].get(image_id, [])

    def all_of(self, kind: SampleKind) -> list[Sample]:
        return [sample for sample in self.samples if sample.kind is kind]

    def texts(self) -> dict[str, str]:
        """Text by key of everything written, foils included."""
        found: dict[str, str] = {}
        for sample in self.samples:
            for key, text in ((sample.text_key, sample.text), (sample.foil_key, sample.foil)):
                if key is not None and text is not None:
                    found[key] = text
        return found

    def image_keys(self) -> set[str]:
        return {sample.image_key for sample in self.samples if sample.image_key is not None}


def matching_pairs(samples: Iterable[Sample], own_captions: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """(image key, text key) of what samples add to what matches.

    A T⁺ or a unit matches the anchor's image; an I⁺ all captions of the anchor's image (some may no longer fit: such
    cells are left out of a softmax rather than called false); a counterfactual pair matches itself.
    """
    pairs: list[tuple[str, str]] = []
    for sample in samples:
        match sample.kind:
            case SampleKind.POSITIVE_CAPTION | SampleKind.UNIT:
                pairs.append((sample.image_id, str(sample.text_key)))
            case SampleKind.POSITIVE_IMAGE:
                pairs += [(str(sample.image_key), caption) for caption in own_captions[sample.image_id]]
            case SampleKind.PAIR:
                pairs.append((str(sample.image_key), str(sample.text_key)))
            case _:
                pass
    return pairs
