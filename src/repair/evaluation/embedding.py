"""The one thing an evaluation asks of a model: unit vectors of pictures and of texts."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from repair.core.ports import FloatArray, ImageItem


class Embedder(Protocol):
    """A model as evaluations see it. Rows are float32, unit norm, in the order of the input."""

    def images(self, items: Sequence[ImageItem], *, label: str) -> FloatArray:
        """Raises DataError naming the image if one cannot be decoded."""
        ...

    def texts(self, texts: Sequence[str], *, label: str) -> FloatArray: ...

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many texts are too long for the model and lose their end."""
        ...


class Uncertainty(TypedDict):
    """How intervals are made; the keywords of `numerics.statistics.bootstrap_mean`."""

    confidence: float
    n_resamples: int
    seed: int
