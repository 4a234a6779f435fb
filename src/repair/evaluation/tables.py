"""Results as lines of text: each score with its interval, number of items, chance and blind scores."""

from collections.abc import Sequence

from repair.evaluation.document import Document, Score, SuiteResult

_RANKS = frozenset({"median rank"})
UNIT = frozenset(  # shown as they are; all other shares in per cent
    {"MRR", "cosine", "cosine, lowest 5 %", "neighbours", "CKA"}
)


def document_lines(document: Document) -> list[str]:
    """One block a suite: a line of facts, a table of scores, what is missing, what to mind."""
    model = document.model
    lines = [f"model {model['spec']} ({model['name']}, {model['dim']} dimensions, {model['fingerprint'][:15]})"]
    for suite in document.suites:
        lines += ["", *suite_lines(suite)]
    return lines


def suite_lines(suite: SuiteResult) -> list[str]:
    """What a suite is, and its scores."""
    return [*suite_head(suite), *(f"  {line}" for line in score_table(suite.scores))]


def suite_head(suite: SuiteResult) -> list[str]:
    """How many items were run, the facts to read scores by, and what is missing."""
    partial = "  PARTIAL: not comparable with published numbers" if suite.partial else ""
    lines = [f"{suite.suite}: {suite.n_run} of {suite.n_items} items{partial}"]
    lines += [f"  {line}" for line in (*_fact_lines(suite), *_missing_lines(suite))]
    return lines


def score_table(scores: Sequence[Score]) -> list[str]:
    """A heading and one line a score; shares in per cent."""
    blind = any(score.blind is not None for score in scores)
    probe = any(score.probe is not None for score in scores)
    chance = any(score.chance is not None for score in scores)
    head = ["of", "score", "value", "interval", "n"]
    head += ["chance"] * chance + ["blind"] * blind + ["text probe"] * probe
    rows = [head]
    for score in scores:
        brackets = interval(score.metric, score.low, score.high)
        row = [score.group, score.metric, shown(score.metric, score.value), brackets, str(score.n)]
        row += [shown(score.metric, score.chance)] * chance
        row += [shown(score.metric, score.blind)] * blind + [shown(score.metric, score.probe)] * probe
        rows.append(row)
    return table(rows, n_left=2)


def table(rows: Sequence[Sequence[str]], *, n_left: int) -> list[str]:
    """Rows of equal length as aligned lines; the first `n_left` columns are words."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return ["  ".join(_padded(cell, widths[k], left=k < n_left) for k, cell in enumerate(row)).rstrip() for row in rows]


def shown(metric: str, value: float | None) -> str:
    """A value as people read it: ranks as they are, MRR and cosines with four digits, shares in per cent."""
    if value is None:
        return ""
    if metric in _RANKS:
        return f"{value:g}"
    return f"{value:.4f}" if metric in UNIT else f"{100 * value:.2f}"


def interval(metric: str, low: float | None, high: float | None) -> str:
    """The interval in brackets; "" without one."""
    return "" if low is None or high is None else f"[{shown(metric, low)}, {shown(metric, high)}]"


def _padded(cell: str, width: int, *, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)


def _fact_lines(suite: SuiteResult) -> list[str]:
    facts = suite.facts
    lines = []
    if suite.kind == "retrieval":
        each = facts["captions_per_image"]
        lines.append(
            f"split {facts['split']}: {facts['n_images']} images, {facts['n_captions']} captions "
            f"({each['min']} to {each['max']} an image, mean {each['mean']:.2f}), positives: {facts['positives']}"
            + (f", {facts['n_folds']} folds" if facts["n_folds"] > 1 else "")
        )
        tied = ", ".join(f"{n} in {name}" for name, n in facts["n_tied_queries"].items())
        lines.append(f"ties: {facts['tie_rule']}; tied queries: {tied}")
    else:
        for name in ("version", "seed", "texts_hash"):
            if facts.get(name) is not None:
                lines.append(f"{name.replace('_', ' ')}: {facts[name]}")
        if "tie_rule" in facts:
            n_tied = facts.get("n_tied")
            named = ", ".join(f"{n} in {task}" for task, n in n_tied.items()) if isinstance(n_tied, dict) else n_tied
            lines.append(f"ties: {facts['tie_rule']}; tied items: {named}")
        if facts.get("n_same_text"):
            lines.append(
                f"{facts['n_same_text']} items have a wrong text equal to a right one, a tie whatever the model"
            )
    if facts.get("n_texts_cut"):
        lines.append(f"{facts['n_texts_cut']} texts are longer than the model reads and lose their end")
    return lines


def _missing_lines(suite: SuiteResult) -> list[str]:
    missing = suite.missing
    lines = list(missing.problems)
    if missing.n_images:
        named = ", ".join(missing.images[:3])
        lines.append(f"missing: {missing.n_images} images, {missing.n_items} items with them, e.g. {named}")
    return lines
