"""Run folders for the tests: a small one made by the pipeline, and one written by hand, whose numbers are known."""

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw

from repair.config import Config, load_config
from repair.core.calls import Attempt, Call, CallFacts, CallOutcome
from repair.core.identity import hash_bytes
from repair.core.records import (
    Candidate,
    Criterion,
    Direction,
    ErrorType,
    Failure,
    Grid,
    Instruction,
    Link,
    LinkKind,
    Modality,
    Repair,
    RepairStatus,
    ScoredCandidate,
    Usage,
    Verdict,
)
from repair.pipeline.evaluating import QueryRank
from repair.store.files import write_json, write_text
from repair.store.ledger import Ledger
from repair.store.run_folder import RunFolder
from repair.store.tables import write_table

I2T, T2I = Direction.IMAGE_TO_TEXT, Direction.TEXT_TO_IMAGE
CAPTIONS = ("a red dog", "a blue cat")
TABLE_OF = {
    "mine": (Failure, "failures"),
    "verify": (Verdict, "verdicts"),
    "instruct": (Instruction, "instructions"),
    "edit": (Candidate, "candidates"),
    "select": (Repair, "repairs"),
    "link": (Link, "links"),
    "grids": (Grid, "grids"),
}
EDIT_TEXT = "a blue dog"
EDIT_KEY = hash_bytes(EDIT_TEXT.encode())


def picture(colour: str, *, size: tuple[int, int] = (40, 30)) -> bytes:
    """A JPEG, all of one colour but for a white corner."""
    image = Image.new("RGB", size, colour)
    ImageDraw.Draw(image).rectangle((0, 0, 8, 8), fill="white")
    sink = BytesIO()
    image.save(sink, "JPEG")
    return sink.getvalue()


def photos(folder: Path, *, captions: Sequence[str] = CAPTIONS) -> Path:
    """Three train and four test photos with two captions each, as a JSONL data set. Images are named by their file."""
    folder.mkdir(parents=True)
    rows = []
    for split, colours in (("train", ("red", "blue", "green")), ("test", ("red", "blue", "green", "grey"))):
        for number, colour in enumerate(colours):
            name = f"{split}{number}.jpg"
            (folder / name).write_bytes(picture(colour))
            rows.append({"image": name, "split": split, "captions": [f"{text} {number}" for text in captions]})
    path = folder / "captions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(folder: Path, *more: str) -> Config:
    """The config of the handmade run: photos, no editor of images."""
    (folder / "words.txt").write_text("a red blue dog cat", encoding="utf-8")
    overrides = [
        "data.source=jsonl",
        f'data.options={{ path = "{folder}/photos/captions.jsonl" }}',
        "data.val_split=test",
        f'encoder.options={{ checkpoint = "none", vocabulary = "{folder}/words.txt" }}',
        "editing.image_editor=none",
        "evaluation.n_bootstrap=200",
        f"run.folder={folder}",
        f"run.cache={folder}/cache",
        "run.name=handmade",
        *more,
    ]
    return load_config(None, overrides=overrides, environment={})


class Handmade:
    """Writes the run folder of a photo run, stage by stage, from records given by the test."""

    def __init__(self, folder: Path, *more: str, captions: Sequence[str] = CAPTIONS) -> None:
        photos(folder / "photos", captions=captions)
        self.config = settings(folder, *more)
        self.path = self.config.run_path()
        self._run = RunFolder.open(
            self.path,
            config_toml=self.config.to_toml(),
            fingerprint=self.config.fingerprint(),
            settings=self.config.flat(),
            versions={"repair-clip": "0"},
        )

    def stage(self, name: str, records: Sequence[object] = (), *, round: int = 0) -> None:
        """A finished stage that left `records`."""
        record_type, table = TABLE_OF[name]
        path = self._run.folder(round) / f"{table}.parquet"
        path.parent.mkdir(exist_ok=True)
        write_table(path, records, record_type)
        self._run.finish_stage(round, name, "key", outputs=[path], summary={"n": len(records)})

    def select(self, scored: Sequence[ScoredCandidate], repairs: Sequence[Repair]) -> None:
        write_table(self._run.folder(0) / "scored.parquet", scored, ScoredCandidate)
        self.stage("select", repairs)

    def evaluate(self, round: int | None, ranks: Sequence[QueryRank]) -> None:
        """An evaluation whose R@1 and MRR are those of `ranks`; its intervals are the whole range."""
        name = "base" if round is None else f"round-{round}"
        folder = self._run.folder(None)
        folder.mkdir(exist_ok=True)
        facts = {"name": name, "encoder": "b2:0", "splits": {"test": {**_COUNTS, **_sides(ranks)}}}
        write_json(folder / f"{name}.json", facts)
        write_table(folder / f"{name}-ranks.parquet", ranks, QueryRank)
        outputs = [folder / f"{name}.json", folder / f"{name}-ranks.parquet"]
        self._run.folder(round).mkdir(exist_ok=True)
        self._run.finish_stage(round, "eval", "key", outputs=outputs, summary={"name": name})

    def train(self, rows: Sequence[dict[str, object]], *, finished: bool = True) -> None:
        path = self._run.folder(0) / "metrics.jsonl"
        path.parent.mkdir(exist_ok=True)
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        if finished:
            self._run.finish_stage(0, "train", "key", outputs=[path], summary={"steps": len(rows)})

    def calls(self, *attempts: Attempt) -> None:
        with Ledger.open(self.path / "ledger.sqlite") as ledger:
            for attempt in attempts:
                grant = ledger.lease(attempt.call, declared=Usage(), started_s=0.0).result()
                ledger.record(attempt, lease=grant.lease or 0).result()

    def close(self) -> Path:
        self._run.close()
        return self.path


_COUNTS = {
    "split": "test",
    "n_images": 4,
    "n_captions": 8,
    "captions_per_image": {"min": 2, "mean": 2.0, "max": 2},
    "tie_rule": "lower id first",
    "confidence": 0.95,
    "n_bootstrap": 200,
    "seed": 0,
}


def _sides(ranks: Sequence[QueryRank]) -> dict[str, object]:
    sides: dict[str, object] = {}
    for direction in Direction:
        own = [row.rank for row in ranks if row.direction is direction]
        values = {"R@1": sum(rank <= 1 for rank in own) / len(own), "MRR": sum(1 / rank for rank in own) / len(own)}
        sides[str(direction)] = {
            "n_queries": len(own),
            "n_items": 12 - len(own),
            "n_tied_queries": 0,
            "metrics": {
                **{name: {"value": value, "low": 0.0, "high": 1.0} for name, value in values.items()},
                "median rank": 1.0,
            },
            "if_ties_won": {},
            "if_ties_lost": {},
        }
    return sides


def rank(query_id: str, place: int, *, top1: str | None = None, true: bool | None = None) -> QueryRank:
    """A row of the test split; the direction follows from the id, since only caption ids hold a "#"."""
    direction = T2I if "#" in query_id else I2T
    stands_first = top1 or ("test3.jpg" if direction is T2I else "test3.jpg#0")
    return QueryRank(
        split="test", direction=direction, query_id=query_id, rank=place, top1_id=stands_first, top1_true=true
    )


def attempt(
    failure_id: str,
    task: str,
    *,
    key: str,
    tokens: tuple[int, int] = (10, 2),
    price: float | None = None,
    outcome: CallOutcome = CallOutcome.DONE,
    seed: int = 0,
    value: str = "1",
) -> Attempt:
    return Attempt(
        call=Call(key=key, task=task, backend="b", failure_id=failure_id, seed=seed, facts=CallFacts()),
        outcome=outcome,
        usage=Usage(tokens_in=tokens[0], tokens_out=tokens[1], price_usd=price, latency_s=0.5),
        estimated=False,
        raw="",
        value=value if outcome is CallOutcome.DONE else None,
        blob=None,
        error=None if outcome is CallOutcome.DONE else "no",
        started_s=0.0,
        finished_s=0.5,
    )


def failure(failure_id: str, query: str, false_positive: str, truth: str) -> Failure:
    return Failure(
        failure_id=failure_id,
        direction=I2T if failure_id.startswith("i2t") else T2I,
        query_id=query,
        false_positive_id=false_positive,
        ground_truth_id=truth,
        false_positive_rank=1,
        ground_truth_rank=2,
        false_positive_score=0.5,
        ground_truth_score=0.4,
        outranks=True,
    )


def verdict(failure_id: str, criterion: Criterion | None = None, *, error: str | None = None) -> Verdict:
    keep = criterion is None and error is None
    return Verdict(failure_id=failure_id, keep=keep, criterion=criterion, reason="because", error=error)


def told(failure_id: str, *kinds: ErrorType) -> Instruction:
    return Instruction(
        failure_id=failure_id, error_types=kinds, residual="red", scaffold="dog", instruction="Make it blue."
    )


def repaired(failed: Failure, *, key: str | None = EDIT_KEY, closeness: float = 0.9) -> Repair:
    """A repair with the edit `EDIT_TEXT`, or with none (`key=None`)."""
    done = key is not None
    return Repair(
        failure_id=failed.failure_id,
        direction=failed.direction,
        query_id=failed.query_id,
        false_positive_id=failed.false_positive_id,
        ground_truth_id=failed.ground_truth_id,
        status=RepairStatus.REPAIRED if done else RepairStatus.UNREPAIRED,
        reason="closest of 1 valid among 2" if done else "no valid candidate: no_op 2",
        candidate_index=0 if done else None,
        key=key,
        text=EDIT_TEXT if done else None,
        gain=0.1 if done else None,
        closeness=closeness if done else None,
        n_candidates=2,
        n_valid=int(done),
    )


def scored(failure_id: str, index: int, rejected: str | None = None) -> ScoredCandidate:
    return ScoredCandidate(
        failure_id=failure_id,
        index=index,
        key=EDIT_KEY,
        text=EDIT_TEXT,
        query_score=0.6,
        gain=0.1,
        closeness=0.9,
        rejected=rejected,
    )


def negative(anchor: str, target: str, failure_id: str = "i2t-1", *, kind: LinkKind = LinkKind.NEGATIVE) -> Link:
    is_text = "#" in anchor
    return Link(
        anchor_key=anchor,
        anchor_modality=Modality.TEXT if is_text else Modality.IMAGE,
        kind=kind,
        target_key=target,
        target_text=None if is_text else "text",
        failure_id=failure_id,
    )


WORLD = {"n_train": 40, "n_val": 10, "n_test": 16}
