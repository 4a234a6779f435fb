"""Retrieval before and after on the evaluated splits; where the data know the truth, what is true beyond labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from repair.core.identity import derive_rng
from repair.core.ports import TrainableEncoder, TruthSource
from repair.core.records import Candidate, Direction, Failure, Grid, Link, Repair, Verdict
from repair.evaluation.results import DirectionResult, RetrievalResult, interval_json
from repair.evaluation.retrieval import evaluate_retrieval
from repair.evaluation.truth import TrueRecall, true_recall_at_1
from repair.grids import assumed_cells
from repair.numerics.metrics import agreement
from repair.pipeline.catalogue import Catalogue
from repair.pipeline.features import Features, edited_bytes
from repair.pipeline.graph import Work
from repair.pipeline.sample_truth import truth_of_samples
from repair.pipeline.stages_repair import table
from repair.pipeline.workbench import Workbench
from repair.store.files import write_json
from repair.store.tables import write_table

_N_CELLS = 5000  # assumed-false cells whose truth is looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRank:
    """Where one query's best ground truth stands, and what stands first. `top1_true` is None where truth is unknown."""

    split: str
    direction: Direction
    query_id: str
    rank: int
    top1_id: str
    top1_true: bool | None


def evaluate(bench: Workbench, round: int | None) -> Work:
    """`evaluation/NAME.json` with every score and `NAME-ranks.parquet` with every query's rank."""
    name = "base" if round is None else f"round-{round}"
    features = Features(bench, round)
    splits: dict[str, Any] = {}
    ranks: list[QueryRank] = []
    for split in bench.evaluated_splits():
        catalogue = bench.catalogue(split)
        result = _retrieval(bench, features, catalogue)
        splits[split], rows = _facts(bench, result, catalogue)
        ranks += rows
    folder = bench.folder.folder(None)
    facts = {"name": name, "encoder": features.encoder.fingerprint(), "splits": splits}
    if round is not None and isinstance(bench.source, TruthSource):
        facts["truth"] = (truth_of_round if bench.method.is_repair else truth_of_samples)(bench, round)
    write_json(folder / f"{name}.json", facts)
    write_table(folder / f"{name}-ranks.parquet", ranks, QueryRank)
    summary = {split: headline(facts) for split, facts in splits.items()}
    return Work((folder / f"{name}.json", folder / f"{name}-ranks.parquet"), {"name": name, **summary})


def mean_recall(bench: Workbench, encoder: TrainableEncoder, split: str) -> float:
    """Mean of both directions' R@1, in [0, 1]: what keep=best chooses by."""
    catalogue = bench.catalogue(split)
    features = Features(bench, None)
    images, texts = features.prepared_images(catalogue), features.prepared_texts(catalogue)
    result = evaluate_retrieval(
        encoder.embed_images(images),
        encoder.embed_texts(texts),
        image_ids=catalogue.image_ids,
        caption_ids=catalogue.caption_ids,
        owner=catalogue.owner,
        split=split,
        recall_at=(1,),
        n_bootstrap=1,
    )
    return sum(side.recall_at(1).interval.estimate for side in result.directions.values()) / len(result.directions)


def headline(facts: Mapping[str, Any]) -> dict[str, float]:
    """The scores a person looks at first: R@1 and MRR both ways, and true R@1 where it is known."""
    shown = {}
    for direction in Direction:
        metrics = facts[str(direction)]["metrics"]
        for metric in ("R@1", "true R@1", "MRR"):
            if metric in metrics:
                shown[f"{direction.short} {metric}"] = metrics[metric]["value"]
    return shown


def evaluation_lines(outcome: Mapping[str, Any]) -> list[str]:
    """A table of the evaluations among the stages of an outcome: one line an evaluation and split, in percent."""
    evaluations = [stage["summary"] for stage in outcome["stages"] if stage["stage"] == "eval"]
    lines = []
    for summary in evaluations:
        for split, scores in summary.items():
            if isinstance(scores, Mapping):
                shown = "  ".join(f"{metric} {100 * value:.2f}" for metric, value in scores.items())
                lines.append(f"{summary['name']:<10} {split:<8} {shown}")
    return lines


def _retrieval(bench: Workbench, features: Features, catalogue: Catalogue) -> RetrievalResult:
    settings = bench.config.evaluation
    images, texts = features.embeddings(catalogue)
    return evaluate_retrieval(
        images,
        texts,
        image_ids=catalogue.image_ids,
        caption_ids=catalogue.caption_ids,
        owner=catalogue.owner,
        split=catalogue.split,
        recall_at=settings.recall_at,
        confidence=settings.confidence,
        n_bootstrap=settings.n_bootstrap,
        seed=bench.config.run.seed,
    )


def _facts(bench: Workbench, result: RetrievalResult, catalogue: Catalogue) -> tuple[dict[str, Any], list[QueryRank]]:
    facts = result.to_json()
    rows: list[QueryRank] = []
    for direction, side in result.directions.items():
        asks_image = direction is Direction.IMAGE_TO_TEXT
        queries, items = catalogue.image_ids, catalogue.caption_ids
        if not asks_image:
            queries, items = items, queries
        true = _true_recall(bench, side, catalogue)
        if true is not None:
            facts[str(direction)]["metrics"]["true R@1"] = interval_json(true.interval)
        rows += [
            QueryRank(
                split=catalogue.split,
                direction=direction,
                query_id=queries[row],
                rank=int(side.ranks[row]),
                top1_id=items[int(side.top1[row])],
                top1_true=None if true is None else bool(true.hits[row]),
            )
            for row in range(len(queries))
        ]
    return facts, rows


def _true_recall(bench: Workbench, side: DirectionResult, catalogue: Catalogue) -> TrueRecall | None:
    """Whether what stands first is true of each query; None where the data do not know."""
    source, settings = bench.source, bench.config.evaluation
    if not isinstance(source, TruthSource):
        return None
    asks_image = side.direction is Direction.IMAGE_TO_TEXT

    def holds(query: int, first: int) -> bool:
        image, caption = (query, first) if asks_image else (first, query)
        return source.holds(bench.source.read_image(catalogue.image_ids[image]), catalogue.texts[caption])

    return true_recall_at_1(
        side.top1,
        holds,
        clusters=side.clusters,
        confidence=settings.confidence,
        n_bootstrap=settings.n_bootstrap,
        seed=bench.config.run.seed,
    )


# ---------------------------------------------------------------------------------------------- the round's truth


def truth_of_round(bench: Workbench, round: int) -> dict[str, Any]:
    """How good verifier, edits and grids really were, by a source that knows. Nothing of it is used by any stage."""
    failures = {f.failure_id: f for f in table(bench, round, "failures", Failure)}
    verdicts = [v for v in table(bench, round, "verdicts", Verdict) if v.error is None]
    genuine = [_is_genuine(bench, failures[v.failure_id]) for v in verdicts]
    judged = agreement([v.keep for v in verdicts], genuine) if verdicts else None
    candidates = [c for c in table(bench, round, "candidates", Candidate) if c.key is not None]
    repairs = [r for r in table(bench, round, "repairs", Repair) if r.key is not None]
    facts: dict[str, Any] = {
        "genuine_failure_rate": _rate(genuine),
        "verifier": None if judged is None else asdict(judged),
        "candidates_true_rate": _by_direction(
            failures, candidates, lambda c: _fits(bench, failures[c.failure_id], str(c.key), c.text)
        ),
        "repairs_true_rate": _by_direction(
            failures, repairs, lambda r: _fits(bench, failures[r.failure_id], str(r.key), r.text)
        ),
    }
    drawn = table(bench, round, "grids", Grid)
    if drawn:
        facts["assumed_cells"] = _cells_truth(bench, round, drawn)
    return facts


def _cells_truth(bench: Workbench, round: int, drawn: Sequence[Grid]) -> dict[str, Any]:
    cells = assumed_cells(drawn, table(bench, round, "links", Link))
    rng = derive_rng(bench.config.run.seed, "truth", "cells")
    chosen = rng.permutation(len(cells))[:_N_CELLS]
    texts = dict(zip(bench.train.caption_ids, bench.train.texts, strict=True))
    for earlier in range(round + 1):
        texts.update({str(r.key): r.text for r in table(bench, earlier, "repairs", Repair) if r.key and r.text})
    true = [_holds(bench, cells[i][0], texts[cells[i][1]]) for i in chosen]
    return {"n_distinct": len(cells), "n_looked_up": len(true), "true_rate": _rate(true)}


def _is_genuine(bench: Workbench, failure: Failure) -> bool:
    """The query and its ground truth agree, and the false positive is false of the query."""
    train = bench.train
    if failure.direction is Direction.IMAGE_TO_TEXT:
        false, truth = (train.texts[train.caption_row[i]] for i in (failure.false_positive_id, failure.ground_truth_id))
        return _holds(bench, failure.query_id, truth) and not _holds(bench, failure.query_id, false)
    query = train.texts[train.caption_row[failure.query_id]]
    return _holds(bench, failure.ground_truth_id, query) and not _holds(bench, failure.false_positive_id, query)


def _fits(bench: Workbench, failure: Failure, key: str, text: str | None) -> bool:
    """Whether an edit is true of the failure's query."""
    if failure.direction is Direction.IMAGE_TO_TEXT:
        return _holds(bench, failure.query_id, str(text))
    return _holds(bench, key, bench.train.texts[bench.train.caption_row[failure.query_id]])


def _holds(bench: Workbench, image: str, text: str) -> bool:
    source = bench.source
    assert isinstance(source, TruthSource)
    known = image in bench.train.image_row
    return source.holds(bench.source.read_image(image) if known else edited_bytes(bench, image), text)


def _by_direction(
    failures: Mapping[str, Failure], records: Sequence[Any], true: Callable[[Any], bool]
) -> dict[str, float | None]:
    return {
        str(direction): _rate([true(r) for r in records if failures[r.failure_id].direction is direction])
        for direction in Direction
    }


def _rate(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
