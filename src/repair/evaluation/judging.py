"""The rules of `items.Rule` on scores: by how much each item is right, and so whether it is, ties stated."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.evaluation.items import TASKS, Rule

Margins = Mapping[str, npt.NDArray[np.float64]]

CHANCE: Mapping[Rule, Mapping[str, float]] = {
    Rule.PAIRS: {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6},
    Rule.TRIPLE: {"image_text": 1 / 3, "image_first": 1 / 2, "image_second": 1 / 2, "text_only": 1 / 3},
}


def margins(rule: Rule, scores: npt.ArrayLike, between_texts: npt.ArrayLike | None = None) -> Margins:
    """By how much each item is right, for each task of the rule; 0 is a tie, below 0 is wrong.

    Args:
        rule: How items are judged.
        scores: Image–text scores, shape (n, n_images, n_texts), right options first.
        between_texts: Text–text scores, shape (n, n_texts, n_texts); for TRIPLE's text-only task, which is left out
            without them.

    Raises:
        DataError: a shape that the rule has no use for, or scores that are not finite.

    Example:
        Winoground: the first item is right both ways, the second only in choosing images:

        >>> found = margins(Rule.PAIRS, [[[3, 1], [1, 3]], [[2, 3], [1, 4]]])
        >>> found["text"].tolist(), found["image"].tolist(), found["group"].tolist()
        ([2.0, -1.0], [2.0, 1.0], [2.0, -1.0])
    """
    s = _checked(rule, scores)
    if rule in (Rule.STRICT, Rule.FIRST):
        return {"accuracy": s[:, 0, 0] - s[:, 0, 1:].max(axis=1)}
    if rule is Rule.PAIRS:
        text = np.minimum(s[:, 0, 0] - s[:, 0, 1], s[:, 1, 1] - s[:, 1, 0])
        image = np.minimum(s[:, 0, 0] - s[:, 1, 0], s[:, 1, 1] - s[:, 0, 1])
        return {"text": text, "image": image, "group": np.minimum(text, image)}
    first, second = s[:, 0, 0] - s[:, 0, 2], s[:, 0, 1] - s[:, 0, 2]
    found = {"image_text": np.minimum(first, second), "image_first": first, "image_second": second}
    if between_texts is not None:
        t = np.asarray(between_texts, dtype=np.float64)
        found["text_only"] = np.minimum(t[:, 0, 1] - t[:, 0, 2], t[:, 0, 1] - t[:, 1, 2])
    return found


def right(rule: Rule, margin: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Whether items are right by the rule's own tie rule."""
    hits: npt.NDArray[np.bool_] = margin >= 0 if rule is Rule.FIRST else margin > 0
    return hits


def chance(rule: Rule, task: str, n_texts: int) -> float:
    """What random scores get, in [0, 1]."""
    return 1 / n_texts if rule in (Rule.STRICT, Rule.FIRST) else CHANCE[rule][task]


def argmax_hits(scores: npt.ArrayLike) -> dict[str, npt.NDArray[np.bool_]]:
    """CLIP_benchmark's rule on (n, n_images, n_texts): the first maximum must be the right one, so ties favour index 0.

    `text`: for each of the first min(n_images, n_texts) images the right text; `image`: conversely; `acc`: both.
    """
    s = np.asarray(scores, dtype=np.float64)
    wanted = np.arange(min(s.shape[1], s.shape[2]))
    text = (s.argmax(axis=2)[:, : len(wanted)] == wanted).all(axis=1)
    image = (s.argmax(axis=1)[:, : len(wanted)] == wanted).all(axis=1)
    return {"image_acc": image, "text_acc": text, "acc": image & text}


def _checked(rule: Rule, scores: npt.ArrayLike) -> npt.NDArray[np.float64]:
    s = np.asarray(scores, dtype=np.float64)
    wanted = {Rule.PAIRS: (2, 2), Rule.TRIPLE: (1, 3)}.get(rule)
    good = s.ndim == 3 and (s.shape[1:] == wanted if wanted else s.shape[1] == 1 and s.shape[2] >= 2)
    if not good:
        raise DataError(f"scores of shape {s.shape} cannot be judged by the rule {rule} ({', '.join(TASKS[rule])})")
    if not np.isfinite(s).all():
        raise DataError("scores: hold NaN or infinity")
    return s
