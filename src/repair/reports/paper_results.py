"""What the RePair paper reports of methods (arXiv 2608.29604), shown beside a bench's own numbers for orientation only:
other data, other models, other backends. COCO30K is quoted. What did not reach us is left out, never guessed.
"""

from typing import NamedTuple

from repair.core.records import Direction


class Scores(NamedTuple):
    """In percent; MRR in [0, 1]. None: did not reach us."""

    r1: float | None
    r5: float | None
    r10: float | None
    mrr: float | None


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
