"""What the RePair paper reports of methods (arXiv 2608.29604), shown beside a bench's own numbers for orientation only:
other data, other models, other backends. COCO30K is quoted. What did not reach us is left out, never guessed.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from repair.core.records import Direction, Shortfall


class Scores(NamedTuple):
    """In percent; MRR in [0, 1]. None: did not reach us."""

    r1: float | None
    r5: float | None
    r10: float | None
    mrr: float | None


Value = TypeVar("Value")


def known(of: Mapping[str, Value], variant: str) -> Value | None:
    """What the paper has of a method, whatever the case of its name in a bench; None if it did not reach us."""
    return next((value for name, value in of.items() if name.lower() == variant.lower()), None)


_I2T, _T2I = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE

# Tables 1, 7, 8: thousands of samples, and scores by direction.
SAMPLES_K: dict[str, int] = {
    "RePair": 107, "NegCLIP": 205, "SugarCrepe": 145, "LaCLIP": 145, "SimCLR": 145, "TripletCLIP": 145, "ALIA": 145,
    "COCO-CF": 145,
}  # fmt: skip
RESULTS: dict[str, dict[Direction, Scores]] = {
    "Vanilla": {_I2T: Scores(60.54, 83.86, 90.94, 0.7070), _T2I: Scores(44.15, 71.97, 81.74, 0.5679)},
    "NegCLIP": {_I2T: Scores(61.06, 84.00, 91.24, 0.7134), _T2I: Scores(44.37, 72.29, 81.95, 0.5710)},
    "SugarCrepe": {_I2T: Scores(61.92, 85.02, 91.14, 0.7167), _T2I: Scores(45.09, 72.94, 82.69, 0.5778)},
    "LaCLIP": {_I2T: Scores(60.96, 84.30, 91.00, 0.7267), _T2I: Scores(44.99, 72.70, 82.32, 0.5778)},
    "SimCLR": {_I2T: Scores(61.34, 84.14, 90.86, 0.7190), _T2I: Scores(45.13, 72.77, 82.24, 0.5775)},
    "RePair": {_I2T: Scores(62.64, None, None, None), _T2I: Scores(46.11, None, None, None)},
}
# Table 2: difference in R@1 to the full method, in points, I2T and T2I.
ABLATIONS: dict[str, tuple[float, float]] = {
    "w/o Failure": (-2.10, -2.42),
    "w/o Repair": (-1.81, -1.91),
    "w/o QC": (-0.66, -1.24),
    "w/o PQC": (-0.52, -0.78),
    "Full Matrix": (-1.22, -1.75),
}
# Table 3: shares of right choices on ARO, in percent.
COMPOSITIONAL_SUITES = ("VG-Attr", "VG-Rel", "COCO-Ord", "Flickr-Ord")
COMPOSITIONAL: dict[str, tuple[float, float, float, float]] = {
    "Vanilla": (62.6, 51.6, 25.4, 31.1),
    "NegCLIP": (62.0, 49.3, 26.7, 31.5),
    "SugarCrepe": (62.1, 51.3, 26.6, 32.1),
    "LaCLIP": (62.8, 49.7, 27.1, 32.0),
    "SimCLR": (62.5, 53.7, 27.0, 32.8),
}
# Table 9, COCO30K: thousand tokens in, out (per sample or per thousand: the paper does not say).
TOKENS_K = {_I2T: (1790.8, 125.8), _T2I: (1278.2, 115.9)}
# Tables 10, 11: thousands of language-model and image calls for all samples.
CALLS_K: dict[str, tuple[str, str]] = {
    "RePair": ("355", "180"),
    "NegCLIP": ("0", "0"),
    "SugarCrepe": ("435–1305", "0"),
    "LaCLIP": ("145", "0"),
    "TripletCLIP": ("145", "145"),
    "ALIA": ("145", "435"),
    "COCO-CF": ("435", "435"),
}
# Table 19: samples (thousands, I2T / T2I) and R@1 by round.
ROUNDS: tuple[tuple[str, float, float], ...] = (
    ("47.0 / 60.0", 62.64, 46.11),
    ("58.1 / 81.7", 63.02, 46.32),
    ("62.3 / 92.3", 63.11, 46.40),
)
# Table 17, text to image: cosine of false positive and edit, as mean, standard deviation, median.
CLOSENESS: dict[Direction, dict[str, tuple[float, float, float]]] = {
    _I2T: {},
    _T2I: {
        "attribute": (0.912, 0.063, 0.932),
        "relation": (0.882, 0.086, 0.904),
        "action": (0.875, 0.093, 0.901),
        "count": (0.873, 0.100, 0.899),
        "object": (0.860, 0.104, 0.891),
    },
}
# Table 18: of 800 kept pairs that people judged, how many fell short.
N_JUDGED = 800
SHORTFALLS: dict[Shortfall, int] = {
    Shortfall.SEMANTIC_MISMATCH: 34,
    Shortfall.SCAFFOLD_DRIFT: 21,
    Shortfall.AMBIGUOUS_FALSE_POSITIVE: 4,
    Shortfall.ARTEFACT: 1,
}
