"""Numbers as people read them, and the plain sentences of the report."""

from collections.abc import Mapping
from typing import Any

_MINUS = "\N{MINUS SIGN}"
UNKNOWN = "–"

DIRECTIONS = {"image_to_text": "image → text", "text_to_image": "text → image"}
STEPS = {
    "mined": "mined: near misses of the model",
    "kept": "kept by the verifier",
    "edited": "edited: at least one candidate",
    "repaired": "repaired: a valid edit selected",
    "in_grids": "repairs used in grids",
}
OUTCOMES = {
    "repaired": "Repaired",
    "annotation_noise": "Dropped by criterion 1: annotation noise (query and ground truth disagree)",
    "benign_mismatch": "Dropped by criterion 2: benign mismatch (the false positive does match)",
    "unrepaired": "Kept, but no edit was valid",
    "negative_only": "Kept as hard negative only (no editor for this modality)",
    "failed": "A call failed",
}
MOVES = {
    "fixed": "Fixed: wrong before, right after",
    "newly_broken": "Newly broken: right before, wrong after",
    "still_failing": "Still failing",
}
REJECTIONS = {
    "call_failed": "call failed",
    "unreadable": "unreadable",
    "no_op": "no-op",
    "copy_of_ground_truth": "copy of the ground truth",
    "low_gain": "gain below δ",
    "refused_by_verifier": "refused by the verifier",
}

SAMPLE_KINDS = {
    "positive_caption": "T⁺ caption",
    "negative_caption": "T⁻ caption",
    "positive_image": "I⁺ image",
    "negative_image": "I⁻ image",
    "counterfactual_pair": "T⁻ I⁻ pair",
    "unit": "T⁺ T⁻ unit",
}
SAMPLE_RIGHT = {
    "positive_caption": "true of the source image",
    "negative_caption": "false of the source image",
    "positive_image": "the source caption is true of it",
    "negative_image": "the source caption is false of it",
    "counterfactual_pair": "image and caption fit each other, and the caption is false of the source image",
    "unit": "true of the source image, and its foil is not",
}


def number(value: float | int | None, decimals: int = 0) -> str:
    """With thousands separators; an en dash where it is unknown, and no minus before what rounds to zero.

    Example:
        >>> number(12345), number(-0.5, 2), number(-0.001, 2), number(None)
        ('12,345', '−0.50', '0.00', '–')
    """
    return UNKNOWN if value is None else f"{value:z,.{decimals}f}".replace("-", _MINUS)


def percent(share: float | None, decimals: int = 1) -> str:
    """A share in [0, 1] as per cent.

    Example:
        >>> percent(0.4567), percent(None)
        ('45.7 %', '–')
    """
    return UNKNOWN if share is None else f"{number(100 * share, decimals)} %"


def signed(value: float | None, decimals: int = 2) -> str:
    """With its sign, also when positive; zero has none.

    Example:
        >>> signed(0.5), signed(-0.254), signed(0.0)
        ('+0.50', '−0.25', '0.00')
    """
    text = number(value, decimals)
    return f"+{text}" if value is not None and value > 0 and text != number(0, decimals) else text


def probability(value: float | None) -> str:
    """A p-value: three decimals, or < 0.001."""
    if value is None:
        return UNKNOWN
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def score(metric: str, value: float | None) -> str:
    """A metric as tables print it: R@k in per cent with two decimals, MRR with four."""
    if value is None:
        return UNKNOWN
    return f"{value:.4f}" if metric == "MRR" else f"{100 * value:.2f}"


def score_interval(metric: str, low: float | None, high: float | None) -> str:
    """An interval of a metric, a decimal less than the metric itself; empty where there is none."""
    if low is None or high is None:
        return ""
    if metric == "MRR":
        return f"{low:.3f} – {high:.3f}"
    return f"{100 * low:.1f} – {100 * high:.1f}"


def gain(metric: str, value: float | None) -> str:
    """A difference of two values of a metric, signed; R@k in points."""
    if value is None:
        return UNKNOWN
    return signed(value, 4) if metric == "MRR" else signed(100 * value, 2)


def gain_interval(metric: str, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    scale, decimals = (1, 3) if metric == "MRR" else (100, 1)
    return f"{signed(scale * low, decimals)} to {signed(scale * high, decimals)}"


def money(value: float | None, n_unpriced: int, n_calls: int) -> str:
    """US dollars; a sum that lacks the calls of unknown price is a lower bound, never counted as all.

    Example:
        >>> money(None, 5, 5), money(1.5, 2, 5), money(1.5, 0, 5), money(None, 0, 0)
        ('unknown', '≥ 1.5000 USD', '1.5000 USD', '–')
    """
    if not n_calls:
        return UNKNOWN
    if value is None:
        return "unknown"
    known = f"{value:,.4f} USD"
    return f"≥ {known}" if n_unpriced else known


def reading(direction: str, metrics: Mapping[str, Any], confidence: float) -> str:
    """What one direction's before and after say of R@k, the least k first, in sentences that do not claim more than the
    intervals do."""
    metric, *others = (name for name in metrics if name != "MRR")
    before, after, difference = (metrics[metric][name] for name in ("before", "after", "difference"))
    where = DIRECTIONS[direction]
    if after is None or difference is None:
        return f"{where}: {metric} is {score(metric, before['value'])} before training."
    change = f"{where}: {metric} {score(metric, before['value'])} → {score(metric, after['value'])}"
    change += f" ({gain(metric, difference['value'])} points"
    if difference["low"] is None:
        return f"{change}); without the data source there is no interval."
    change += f", {percent(confidence, 0)} interval {gain_interval(metric, difference['low'], difference['high'])}"
    change += f", p {_equals(probability(difference['p_value']))}). "
    if difference["low"] <= 0 <= difference["high"]:
        change += "The interval includes 0: this run alone does not show a change."
    else:
        better = "better" if difference["low"] > 0 else "worse"
        change += f"The interval excludes 0: on these images the trained model is {better}."
    clear = [f"{name} {gain(name, metrics[name]['difference']['value'])}" for name in others if _clear(metrics[name])]
    return f"{change} Also clear of 0: {', '.join(clear)}." if clear else change


def limits(made: str) -> str:
    """What one run does not show; `made` is what it trained on beyond the data."""
    return (
        "This is one run with one seed. The intervals say how much the scores would move with other test images; they "
        f"do not say how much they would move with another training seed, nor whether the {made} made the difference "
        f"or just more training. For that, “repair bench” trains with and without {made} at equal budgets over several "
        "seeds."
    )


def _clear(facts: Mapping[str, Any]) -> bool:
    """Whether the interval of the difference excludes zero."""
    difference = facts["difference"]
    return bool(difference and difference["low"] is not None and not difference["low"] <= 0 <= difference["high"])


def _equals(text: str) -> str:
    return text if text.startswith("<") else f"= {text}"
