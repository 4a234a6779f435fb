"""What the RePair paper reports (arXiv 2608.29604), shown beside a run's own numbers for orientation only: other data,
other models, other backends. Where it gives two data sets, COCO30K is quoted.
"""

from typing import Any

from repair.core.records import Direction
from repair.reports import paper_results

_I2T, _T2I = str(Direction.IMAGE_TO_TEXT), str(Direction.TEXT_TO_IMAGE)

# Table 12: share of what was dropped, by criterion.
CRITERIA = {
    _I2T: {"annotation_noise": 0.2793, "benign_mismatch": 0.7207},
    _T2I: {"annotation_noise": 0.2585, "benign_mismatch": 0.7415},
}
# Table 13: the pre-edit verifier against people (N = 400).
VERIFIER = {"precision": 0.902, "recall": 0.839, "accuracy": 0.820, "kappa": 0.58}
# Table 16: error types, several per failure.
ERROR_TYPES = {
    _I2T: {
        "object": 0.440, "attribute": 0.337, "relation": 0.121, "action": 0.341, "count": 0.188, "hallucination": 0.369,
    },
    _T2I: {
        "object": 0.483, "attribute": 0.107, "relation": 0.158, "action": 0.266, "count": 0.124, "hallucination": 0.005,
    },
}  # fmt: skip
# Table 17: mean cosine of false positive and edit.
CLOSENESS: dict[str, dict[str, float]] = {
    _I2T: {},
    _T2I: {"object": 0.860, "attribute": 0.912, "relation": 0.882, "action": 0.875, "count": 0.873},
}
# Table 11: model calls for each sample that training uses.
CALLS = {_I2T: "5 language-model calls", _T2I: "2 language-model calls and 3 image edits"}

# Table 18: of the kept pairs that people judged wrong, the share of each class.
SHORTFALLS = {
    "n": paper_results.N_JUDGED,
    "n_wrong": sum(paper_results.SHORTFALLS.values()),
    "shares": {str(kind): n / sum(paper_results.SHORTFALLS.values()) for kind, n in paper_results.SHORTFALLS.items()},
}

ALL: dict[str, Any] = {
    "criteria": CRITERIA, "verifier": VERIFIER, "error_types": ERROR_TYPES, "closeness": CLOSENESS, "calls": CALLS,
    "shortfalls": SHORTFALLS,
}  # fmt: skip
