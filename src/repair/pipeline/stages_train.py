"""The stages around training, as the run folder sees them: fit, mine, link, grids, train."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from repair import links as linking
from repair import mining
from repair.core.ports import Case, TextItem
from repair.core.records import Criterion, Direction, Failure, Grid, Link, Repair, RepairStatus, Verdict
from repair.grids import assumed_cells, sample_grids
from repair.numerics.cosines import IntArray
from repair.pipeline.asking import ask_all
from repair.pipeline.catalogue import image_item, text_item
from repair.pipeline.evaluating import mean_recall
from repair.pipeline.features import Features
from repair.pipeline.fitting import Fit, fitted_heads
from repair.pipeline.graph import Work
from repair.pipeline.matches import judged_matching, labelled_matching, match_table, near_duplicates
from repair.pipeline.questions import CELL_TASK, cell_id
from repair.pipeline.stages_repair import FAILED_CALLS, mined_with, table, write
from repair.pipeline.training_run import train_encoder
from repair.pipeline.workbench import Workbench
from repair.store.files import replacing_folder, write_json
from repair.training.loop import TrainingData
from repair.training.matching import MatchTable
from repair.training.prepared import Prepared

ROWS = "metrics.jsonl"
TWINS = "near-duplicates.json"


def fit(bench: Workbench, round: int | None) -> Work:  # noqa: ARG001
    """Fit the heads of an encoder that cannot retrieve yet; otherwise only note where everything starts."""
    place = bench.folder.folder(None) / "start.json"
    if not bench.fits_base:
        write_json(place, {"encoder": bench.plain_encoder.fingerprint(), "fitted": False})
        return Work((place,), {"fitted": False})
    folder = bench.folder.path / "base"
    config, features = bench.config, Features(bench, None)
    encoder, losses = fitted_heads(
        Fit(
            made_of=(config.encoder.name, config.encoder.options),
            data=(bench.source.fingerprint, config.data.train_split),
            seed=config.run.seed,
            options=config.encoder.fit,
        ),
        bench.new_encoder,
        lambda: (features.prepared_images(bench.train), features.prepared_texts(bench.train), bench.train.owner),
        cache=config.cache_path(),
        progress=bench.progress,
    )
    encoder.save(str(folder), facts={"fitted_on": config.data.train_split, "seed": config.run.seed})
    write_json(place, {"encoder": encoder.fingerprint(), "fitted": True})
    return Work((place, folder), {"fitted": True, "epochs": len(losses), "last_loss": losses[-1]})


def mine(bench: Workbench, round: int) -> Work:
    settings = bench.config.mining
    images, texts = Features(bench, mined_with(round)).embeddings(bench.train)
    twins = near_duplicates(bench, bench.train, images)
    mined = mining.mine(
        images,
        texts,
        image_ids=bench.train.image_ids,
        caption_ids=bench.train.caption_ids,
        matching=labelled_matching(bench, bench.train, twins),
        strategy=settings.strategy,
        directions=settings.directions,
        top_k=settings.top_k,
        max_per_query=settings.max_per_query,
        max_per_item=settings.max_per_item,
        max_failures=settings.max_failures,
        seed=bench.config.run.seed,
    )
    place = bench.folder.folder(round) / TWINS
    write_json(place, twins.tolist())
    work = write(bench, round, "failures", mined.failures, Failure)
    summary = asdict(mined.summary)
    directions = {str(name): counts for name, counts in summary.pop("directions").items()}
    return Work((*work.outputs, place), {**summary, "near_duplicate_pairs": len(twins), **directions})


def link(bench: Workbench, round: int) -> Work:
    """Links of the repairs of all rounds so far."""
    settings = bench.config.links
    built = linking.build_links(
        repairs_so_far(bench, round),
        texts=dict(zip(bench.train.caption_ids, bench.train.texts, strict=True)),
        max_positives=settings.max_positives,
        max_negatives=settings.max_negatives,
        unrepaired_negatives=settings.unrepaired_negatives,
        seed=bench.config.run.seed,
    )
    work = write(bench, round, "links", built.links, Link)
    return Work(work.outputs, json.loads(json.dumps(asdict(built.summary), default=str)))


def grids(bench: Workbench, round: int) -> Work:
    settings, training = bench.config.grids, bench.config.training
    if training.loss == "vanilla" or training.grids_per_step == 0:
        return Work(write(bench, round, "grids", (), Grid).outputs, {"n_grids": 0})
    links = table(bench, round, "links", Link)

    def sample(matches: MatchTable) -> "tuple[tuple[Grid, ...], dict[str, object]]":
        drawn = sample_grids(
            links,
            bench.source.pairs(bench.config.data.train_split),
            matches=matches,
            n_steps=training.n_steps,
            grids_per_step=training.grids_per_step,
            seed=bench.config.run.seed,
            use_edits=settings.use_edits,
            anchor_synthetic_rate=settings.anchor_synthetic_rate,
            max_samples=settings.max_samples,
            max_per_item=settings.max_per_item,
        )
        return drawn.grids, asdict(drawn.summary)

    known = Known.of(bench, round)
    drawn, summary = sample(known.table())
    summary["cells_assumed_false"] = len(assumed_cells(drawn, links))
    checks: tuple[Path, ...] = ()
    if settings.verify_cells:
        true_cells, verdicts = _judge_cells(bench, round, assumed_cells(drawn, links))
        checks = write(bench, round, "cells", verdicts, Verdict).outputs  # grids drawn anew do not tell what was asked
        n_failed = sum(verdict.error is not None for verdict in verdicts)
        drawn, summary = sample(known.table(true_cells))
        summary["cells_verified"] = len(verdicts)
        summary["cells_assumed_false"] = len(assumed_cells(drawn, links))
        summary["cells_judged_true"] = len(true_cells)
        if n_failed:
            summary[FAILED_CALLS] = n_failed
    work = write(bench, round, "grids", drawn, Grid)
    return Work((*work.outputs, *checks), json.loads(json.dumps(summary, default=str)))


def train(bench: Workbench, round: int, data: TrainingData | None = None) -> Work:
    """Train on the round's grids, or on `data` (other methods than RePair)."""
    start = mined_with(round) if bench.config.pipeline.train_from == "previous" else None
    encoder = bench.encoder_after(start)
    folder = bench.folder.folder(round)
    summary = train_encoder(
        encoder,
        data or _training_data(bench, round, table(bench, round, "grids", Grid)),
        bench.config,
        folder=folder / "checkpoint",
        rows=folder / ROWS,
        evaluate=lambda model: mean_recall(bench, model, bench.config.data.val_split),
        progress=bench.progress,
    )
    weights = bench.weights_folder(round)
    assert weights is not None
    facts = {"round": round, "config": bench.config.fingerprint(), "steps": bench.config.training.n_steps}
    with replacing_folder(weights) as new:
        encoder.save(str(new), facts=facts)
    return Work((weights,), {"steps": summary.pop("steps"), "encoder": encoder.fingerprint(), **summary})


def _training_data(bench: Workbench, round: int, drawn: Sequence[Grid]) -> TrainingData:
    features = Features(bench, None)  # preparing never depends on weights
    edits = {repair.key: repair for repair in repairs_so_far(bench, round) if repair.key is not None}
    used_images = {key for grid in drawn for key in grid.images}
    used_texts = {key for grid in drawn for key in grid.texts}
    images = sorted(k for k, r in edits.items() if r.text is None and k in used_images)
    texts = sorted(k for k, r in edits.items() if r.text is not None and k in used_texts)
    image_parts = [(bench.train.image_ids, features.prepared_images(bench.train))]
    text_parts = [(bench.train.caption_ids, features.prepared_texts(bench.train))]
    if images:
        image_parts.append((tuple(images), features.prepared_edited_images(images)))
    if texts:
        words = [str(edits[key].text) for key in texts]
        text_parts.append((tuple(texts), features.prepared_edited_texts(words)))
    return TrainingData(
        pairs=bench.source.pairs(bench.config.data.train_split),
        grids=drawn,
        matches=Known.of(bench, round).table(),
        images=Prepared(*image_parts, what="image"),
        texts=Prepared(*text_parts, what="caption"),
    )


@dataclass(frozen=True, slots=True)
class Known:
    """All that is known to match by the end of verification and editing of a round, earlier rounds included."""

    bench: Workbench
    twins: IntArray
    repairs: tuple[Repair, ...]
    judged: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, bench: Workbench, round: int) -> "Known":
        twins = json.loads((bench.folder.folder(round) / TWINS).read_text(encoding="utf-8"))
        judged = [
            pair
            for earlier in range(round + 1)
            for pair in judged_matching(
                table(bench, earlier, "failures", Failure), table(bench, earlier, "verdicts", Verdict)
            )
        ]
        return cls(
            bench,
            np.array(twins, dtype=np.int64).reshape(-1, 2),
            tuple(repairs_so_far(bench, round)),
            tuple(judged),
        )

    def table(self, true_cells: Sequence[tuple[str, str]] = ()) -> MatchTable:
        matching = labelled_matching(self.bench, self.bench.train, self.twins)
        return match_table(
            self.bench.train, matching, self.twins, repairs=self.repairs, judged=[*self.judged, *true_cells]
        )


def repairs_so_far(bench: Workbench, round: int) -> list[Repair]:
    """Repairs of all rounds up to `round`; of a failure mined again, a repaired outcome counts before any other."""
    found: dict[str, Repair] = {}
    for earlier in range(round + 1):
        for repair in table(bench, earlier, "repairs", Repair):
            known = found.get(repair.failure_id)
            if known is None or known.status is not RepairStatus.REPAIRED:
                found[repair.failure_id] = repair
    return list(found.values())


def _judge_cells(
    bench: Workbench, round: int, cells: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[Verdict]]:
    """Those cells that the verifier says do match, and its verdict on every cell that it was asked about. Cells that
    hold an edited caption are asked about like any other."""
    asker = bench.asker()
    texts = {r.key: r.text for r in repairs_so_far(bench, round) if r.key is not None and r.text is not None}
    cases = list(_cell_cases(bench, cells, texts))

    async def one(case: Case) -> Verdict:
        return await asker.verdict(case, bench.verifier, task=CELL_TASK)

    verdicts = ask_all(
        asker,
        one,
        cases,
        label="verify cells",
        progress=bench.progress,
        first=bench.failed_earlier,
    )
    matching = [
        (case.query.key, case.false_positive.key)
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.criterion is Criterion.BENIGN_MISMATCH
    ]
    return matching, verdicts


def _cell_cases(bench: Workbench, cells: Sequence[tuple[str, str]], texts: dict[str, str]) -> Iterator[Case]:
    """A cell as a case: its image asked, its caption returned. Edited images have no captions and are left out."""
    train = bench.train
    for image, text in cells:
        if image not in train.image_row:
            continue
        row = train.image_row[image]
        if text in train.caption_row:
            false = text_item(train, train.caption_row[text])
        else:
            false = TextItem(key=text, text=texts[text])
        yield Case(
            failure_id=cell_id(image, text),
            direction=Direction.IMAGE_TO_TEXT,
            query=image_item(train, bench.source, row),
            false_positive=false,
            ground_truths=tuple(text_item(train, caption) for caption in train.captions_of[row]),
        )
