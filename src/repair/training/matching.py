"""Which images and captions match, edits included: no batch may push them apart, in no grid may they stand as false."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt


class MatchTable:
    """A set of matching (image key, text key) pairs that knows equal captions and duplicate images.

    `pairs`: labelled pairs, further known positives, pairs judged to match, and edits with the item they fit. `texts`:
    text key to its folded text (`core.texts.folded`), edits included; captions of equal text match the same images.
    `twins`: image key to a representative of its near-duplicates; images of one representative match the same captions.
    Keys that occur nowhere match nothing.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        texts: Mapping[str, str] | None = None,
        twins: Mapping[str, str] | None = None,
    ) -> None:
        known = list(pairs)
        self._images = _classes((image for image, _ in known), twins or {})
        self._texts = _classes((text for _, text in known), texts or {})
        self._n_texts = 1 + max(self._texts.values(), default=0)
        codes = {self._images[image] * self._n_texts + self._texts[text] for image, text in known}
        self._codes = np.array(sorted(codes), dtype=np.int64)
        self._code_set = codes

    def __call__(self, image: str, text: str) -> bool:
        """Whether the two match."""
        row, column = self._images.get(image, -1), self._texts.get(text, -1)
        return row >= 0 and column >= 0 and row * self._n_texts + column in self._code_set

    def mask(self, images: Sequence[str], texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Shape (n_images, n_texts): whether image i matches text j."""
        rows = np.array([self._images.get(key, -1) for key in images], dtype=np.int64)
        columns = np.array([self._texts.get(key, -1) for key in texts], dtype=np.int64)
        codes = rows[:, None] * self._n_texts + columns[None, :]
        codes[(rows < 0)[:, None] | (columns < 0)[None, :]] = -1
        if not len(self._codes):
            return np.zeros(codes.shape, dtype=bool)
        place = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        found: npt.NDArray[np.bool_] = self._codes[place] == codes
        return found


def _classes(keys: Iterable[str], named: Mapping[str, str]) -> dict[str, int]:
    """A number for each key; keys of one name share it. A key without a name is a class of its own."""
    numbers: dict[tuple[bool, str], int] = {}
    out: dict[str, int] = {}
    for key in (*keys, *named):
        name = (True, named[key]) if key in named else (False, key)
        out[key] = numbers.setdefault(name, len(numbers))
    return out
