"""A compositional suite on a model: every item judged, averages with intervals, blind scores beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from repair.core.errors import DataError
from repair.core.ports import FloatArray
from repair.evaluation.blind import average_picture, probe_scores
from repair.evaluation.document import FromItems, Missing, Outcome, Score, SuiteResult, score_of
from repair.evaluation.embedding import Embedder, Uncertainty
from repair.evaluation.items import TASKS, TIE_RULES, Average, ChoiceSuite, Item, Rule, micro
from repair.evaluation.judging import Margins, argmax_hits, chance, margins, right
from repair.evaluation.pictures import Pictures
from repair.numerics.cosines import pair_scores, quantise
from repair.numerics.statistics import bootstrap_group_mean

_N_NAMED = 10  # missing images named in a result
_MAX_GROUPS = 40
_N_RIGHT = {Rule.STRICT: 1, Rule.FIRST: 1, Rule.TRIPLE: 2}


@dataclass(frozen=True, slots=True)
class Runnable:
    """The items of a suite whose pictures are there, and what is missing."""

    items: tuple[Item, ...]
    missing: Missing

    @property
    def partial(self) -> bool:
        return bool(self.missing.n_images or self.missing.problems)


def runnable(suite: ChoiceSuite, pictures: Pictures, *, allow_missing: bool) -> Runnable:
    """What of `suite` can be run.

    Raises:
        DataError: anything is missing and `allow_missing` is false, or nothing is left.
    """
    gone = set(pictures.missing(name for item in suite.items for name in item.images))
    items = tuple(item for item in suite.items if not gone.intersection(item.images))
    missing = Missing(
        n_images=len(gone),
        n_items=len(suite.items) - len(items),
        images=sorted(gone)[:_N_NAMED],
        problems=list(suite.problems),
    )
    refuse_missing(suite.name, missing, n_items=len(suite.items), n_left=len(items), allow_missing=allow_missing)
    return Runnable(items, missing)


def refuse_missing(name: str, missing: Missing, *, n_items: int, n_left: int, allow_missing: bool) -> None:
    """Raises DataError if something is missing that may not be, or nothing is left to run."""
    said = list(missing.problems)
    if missing.n_images:
        shown = ", ".join(missing.images[:3])
        said.append(
            f"{missing.n_images} images are missing or cannot be read ({shown}"
            f"{', …' if missing.n_images > 3 else ''}), and {missing.n_items} of {n_items} items with them"
        )
    if not n_left:
        raise DataError(f"suite {name}: nothing can be run: {'; '.join(said)}")
    if said and not allow_missing:
        raise DataError(
            f"suite {name}: {'; '.join(said)}: give the rest, or say --allow-missing, which labels the result partial"
        )


def evaluate_choice(
    suite: ChoiceSuite,
    pictures: Pictures,
    embedder: Embedder,
    *,
    uncertainty: Uncertainty,
    allow_missing: bool = False,
    probe: bool = True,
) -> tuple[SuiteResult, list[Outcome]]:
    """Every item of `suite` judged, the averages it names, and each group by itself.

    Args:
        suite: What to run.
        pictures: Where its pictures are.
        embedder: The model.
        uncertainty: How intervals are made; images are resampled.
        allow_missing: Run what can be run, and label the result partial.
        probe: Also fit the text-only probe.

    Raises:
        DataError: something is missing and may not be, or a picture cannot be read.
    """
    run = runnable(suite, pictures, allow_missing=allow_missing)
    scores, between, prior = _scores(suite, run.items, pictures, embedder)
    found = margins(suite.rule, scores, between)
    sides = {
        "blind": margins(suite.rule, prior),
        "probe": _probe(suite, run.items, uncertainty["seed"]) if probe else None,
    }
    tally = _Tally(suite, run.items, found, sides, uncertainty)
    texts = [text for item in run.items for text in item.texts]
    result = SuiteResult(
        suite=suite.name,
        kind="choice",
        partial=run.partial,
        n_items=len(suite.items),
        n_run=len(run.items),
        missing=run.missing,
        headline=f"{suite.headline or suite.averages[0].name} / {suite.averages[0].tasks[0]}",
        facts={
            **suite.facts,
            "rule": str(suite.rule),
            "tie_rule": TIE_RULES[suite.rule],
            "n_images": len({(name, item.box) for item in run.items for name in item.images}),
            "n_texts": len(set(texts)),
            "n_texts_cut": embedder.n_cut(sorted(set(texts))),
            "n_same_text": sum(_same_text(suite.rule, item) for item in run.items),
            "n_tied": {task: int((margin == 0).sum()) for task, margin in found.items()},
        },
        pictures=pictures.facts(),
        scores=tally.scores(),
        from_items=tally.from_items(),
        clip_benchmark=_clip_benchmark(suite, run.items, scores),
    )
    return result, _outcomes(suite, run.items, scores, found)


def _scores(
    suite: ChoiceSuite, items: Sequence[Item], pictures: Pictures, embedder: Embedder
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64] | None, npt.NDArray[np.float64]]:
    """Image–text scores, text–text scores for TRIPLE, and the scores with the average picture."""
    shown = [(name, item.box if place == 0 else None) for item in items for place, name in enumerate(item.images)]
    said = [text for item in items for text in item.texts]
    distinct = {key: row for row, key in enumerate(dict.fromkeys(shown))}
    words = {text: row for row, text in enumerate(dict.fromkeys(said))}
    z_images = quantise(
        embedder.images([pictures.item(*key) for key in distinct], label=f"{suite.name}: images"), what="images"
    )
    z_texts = quantise(embedder.texts(list(words), label=f"{suite.name}: texts"), what="texts")
    n, n_images, n_texts = len(items), len(items[0].images), len(items[0].texts)
    image = np.array([distinct[key] for key in shown]).reshape(n, n_images)
    text = np.array([words[word] for word in said]).reshape(n, n_texts)
    scores = _pairs(z_images, z_texts, image, text)
    between = _pairs(z_texts, z_texts, text, text) if suite.rule is Rule.TRIPLE else None
    middle = quantise(average_picture(z_images[image[:, 0]]), what="average picture")
    prior = _pairs(middle, z_texts, np.zeros_like(image), text)
    return scores, between, prior


def _pairs(
    left: FloatArray, right_rows: FloatArray, rows: npt.NDArray[Any], columns: npt.NDArray[Any]
) -> npt.NDArray[np.float64]:
    """Exact scores of each item's options, (n, a, b)."""
    n, a, b = len(rows), rows.shape[1], columns.shape[1]
    row = np.repeat(rows, b, axis=1).ravel()
    column = np.tile(columns, (1, a)).ravel()
    return pair_scores(left, right_rows, row, column).astype(np.float64).reshape(n, a, b)


def _probe(suite: ChoiceSuite, items: Sequence[Item], seed: int) -> Margins | None:
    if suite.rule not in _N_RIGHT:
        return None  # with both texts right somewhere, texts alone decide nothing
    clusters = _numbers([item.made_with or item.images[0] for item in items])
    scores = probe_scores([item.texts for item in items], _N_RIGHT[suite.rule], clusters, seed=seed)
    return None if scores is None else margins(suite.rule, scores[:, None, :])


@dataclass(frozen=True, slots=True)
class _Tally:
    """From margins to averages."""

    suite: ChoiceSuite
    items: Sequence[Item]
    margins: Margins
    sides: dict[str, Margins | None]
    uncertainty: Uncertainty

    def scores(self) -> list[Score]:
        return [
            score
            for average in self._averages()
            for task in average.tasks
            if (score := self._score(average, task)) is not None
        ]

    def from_items(self) -> list[FromItems]:
        """Which items each score averages."""
        present = {item.group for item in self.items}
        found = []
        for average in self._averages():
            parts = [sorted(present.intersection(groups)) for groups in average.parts]
            parts = [groups for groups in parts if groups]
            whole = len(parts) == 1 and len(parts[0]) == len(present)
            found += [
                FromItems(group=average.name, metric=task, task=task, parts=None if whole else parts)
                for task in average.tasks
                if parts
            ]
        return [one for one in found if one.task in self.margins]

    def _averages(self) -> list[Average]:
        """The suite's, and each group by itself."""
        tasks = TASKS[self.suite.rule]
        named = {average.name for average in self.suite.averages}
        groups = [micro(group, [group], tasks) for group in self.suite.groups if group not in named]
        if len(groups) > _MAX_GROUPS:  # hundreds of relations, thousands of pairs of attributes: items.parquet has them
            groups = []
        return [*self.suite.averages, *groups]

    def _score(self, average: Average, task: str) -> Score | None:
        part = {group: number for number, groups in enumerate(average.parts) for group in groups}
        rows = np.array([row for row, item in enumerate(self.items) if item.group in part], dtype=np.int64)
        if not len(rows):
            return None
        members = np.array([part[self.items[row].group] for row in rows])
        clusters = _numbers([self.items[row].images[0] for row in rows])
        rule, margin = self.suite.rule, self.margins[task][rows]

        def mean(hits: npt.NDArray[Any]) -> float:
            present = np.unique(members)
            return float(np.mean([hits[members == number].mean() for number in present]))

        beside = {
            name: mean(right(rule, side[task][rows])) if side is not None and task in side else None
            for name, side in self.sides.items()
        }
        return score_of(
            average.name,
            task,
            bootstrap_group_mean(right(rule, margin), members, clusters, **self.uncertainty),
            chance=chance(rule, task, len(self.items[0].texts)),
            if_ties_won=mean(margin >= 0),
            if_ties_lost=mean(margin > 0),
            **beside,
        )


def _outcomes(
    suite: ChoiceSuite, items: Sequence[Item], scores: npt.NDArray[np.float64], found: Margins
) -> list[Outcome]:
    rows = []
    for task, margin in found.items():
        hits = right(suite.rule, margin)
        for row, item in enumerate(items):
            highest = int(scores[row, 0].argmax())
            if suite.rule is Rule.STRICT and not hits[row]:
                highest = 1 + int(scores[row, 0, 1:].argmax())
            rows.append(
                Outcome(
                    suite=suite.name,
                    group=item.group,
                    task=task,
                    item=item.item_id,
                    cluster=item.images[0],
                    image=item.images[0],
                    query="",
                    expected=item.texts[0],
                    got=item.texts[highest] if len(item.images) == 1 else item.texts[1],
                    hit=bool(hits[row]),
                    rank=None,
                    margin=float(margin[row]),
                )
            )
    return rows


def _clip_benchmark(suite: ChoiceSuite, items: Sequence[Item], scores: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    """By CLIP_benchmark's own rule, for the suites it has."""
    found = []
    for group, dataset in suite.exports.items():
        rows = [row for row, item in enumerate(items) if group in ("*", item.group)]
        if rows:
            metrics = {name: float(hits.mean()) for name, hits in argmax_hits(scores[rows]).items()}
            found.append({"dataset": dataset, "task": "image_caption_selection", "metrics": metrics})
    return found


def _same_text(rule: Rule, item: Item) -> bool:
    """Whether a wrong text is also a right one."""
    n_right = _N_RIGHT.get(rule, 1)
    return not set(item.texts[:n_right]).isdisjoint(item.texts[n_right:])


def _numbers(names: Sequence[str]) -> npt.NDArray[np.int64]:
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in names], dtype=np.int64)
