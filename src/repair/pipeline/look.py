"""Looking at a run without changing it: where it stands, and the lineage of one failure."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from repair.core.errors import ConfigError, StoreError
from repair.core.ports import PairSource
from repair.core.records import (
    Candidate,
    Direction,
    Failure,
    Grid,
    Instruction,
    Link,
    Repair,
    ScoredCandidate,
    Verdict,
)
from repair.pipeline.places import BLOBS, LEDGER, calls_file, config_of, no_calls_file
from repair.pipeline.run import stage_line
from repair.pipeline.sources import open_source
from repair.pipeline.spending import cost_lines, pair_costs
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger
from repair.store.ledger_rows import LoggedAttempt
from repair.store.run_folder import RunFolder
from repair.store.tables import read_table

Record = TypeVar("Record")

_SHOWN_GRIDS = 5
_TABLES: dict[str, type[Any]] = {
    "verdicts": Verdict,
    "instructions": Instruction,
    "candidates": Candidate,
    "scored": ScoredCandidate,
    "repairs": Repair,
    "links": Link,
}


def run_status(path: Path) -> dict[str, Any]:
    """Stages done with their summaries, who is writing, and what the calls have cost so far."""
    folder = RunFolder.view(path)
    config = config_of(folder)
    holder = folder.holder()
    stages = [
        {
            "round": state.round,
            "stage": state.stage,
            "intact": folder.intact(state),
            "finished": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(folder.finished_s(state))),
            "summary": state.summary,
        }
        for state in folder.states()
    ]
    ledger_path = calls_file(folder, config, LEDGER)
    calls: list[dict[str, Any]] = []
    n_in_flight = 0
    if ledger_path is not None:
        with Ledger.view(ledger_path) as ledger:
            calls = [{**row._asdict(), "outcome": str(row.outcome)} for row in ledger.usage()]
            n_in_flight = ledger.n_leased()
    return {
        "run": str(path),
        "rounds": config.pipeline.rounds,
        "running": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "stages": stages,
        "calls": calls,
        "calls_in_flight": n_in_flight,
        "calls_missing": no_calls_file(folder, config, LEDGER) if ledger_path is None else None,
        "plan": config.calls.plan,
        "pair_costs": pair_costs(path, ledger_path),
        "report": str(folder.report_path) if folder.report_path.exists() else None,
    }


def status_lines(status: Mapping[str, Any]) -> list[str]:
    running = status["running"]
    head = f"run {status['run']}: "
    head += f"running (process {running['pid']} on {running['host']})" if running else "not running"
    lines = [head]
    for stage in status["stages"]:
        line = stage_line(
            stage["round"],
            stage["stage"],
            stage["summary"],
            how=f"done {stage['finished']}",
            command=f"repair run {status['run']}/config.toml",
        )
        lines.append(line if stage["intact"] else f"{line} [outputs changed or missing: will run again]")
    if not status["stages"]:
        lines.append("no stage has finished yet")
    if status["calls_missing"]:
        lines.append(f"no call is on record: {status['calls_missing']}")
    for row in status["calls"]:
        price = "price unknown" if row["n_unpriced"] else f"{row['price_usd']:.4f} USD"
        lines.append(
            f"calls {row['task']} {row['outcome']}: {row['n_calls']}, tokens {row['tokens_in']} in "
            f"{row['tokens_out']} out, images {row['n_images']}, {price}"
        )
    lines += cost_lines(status["pair_costs"], status["plan"])
    if status["calls_in_flight"] and not running:
        lines.append(f"{status['calls_in_flight']} calls were in flight when the run stopped; they are made again")
    if status["report"]:
        lines.append(f"report: {status['report']}")
    return lines


def lineage(path: Path, failure_id: str, *, images: Path | None = None) -> dict[str, Any]:
    """Everything on record about one failure (or the only one that starts with `failure_id`).

    With `images`, its pictures are written into that folder and named in the result.
    """
    folder = RunFolder.view(path)
    config = config_of(folder)
    round, failure = find_failure(folder, failure_id)
    source = open_source(config)
    texts = {pair.caption_id: pair for pair in source.pairs(config.data.train_split)}
    found: dict[str, Any] = {"run": str(path), "round": round, "failure": _plain(failure)}
    found["texts"] = _texts(failure, texts)
    for name, record_type in _TABLES.items():
        rows = rows_of(folder, round, name, record_type)
        found[name] = [_plain(row) for row in rows if row.failure_id == failure.failure_id]
    found["grids"] = _grids_of(folder, round, failure, found["repairs"])
    ledger_path, blobs_path = (calls_file(folder, config, name) for name in (LEDGER, BLOBS))
    found["missing"] = [] if ledger_path else [no_calls_file(folder, config, LEDGER)]
    if ledger_path is not None:
        with Ledger.view(ledger_path) as ledger:
            found["calls"] = [_call(logged) for logged in ledger.attempts(failure_id=failure.failure_id)]
    if images is not None:
        found["images"] = _write_images(failure, found, source, blobs_path, images)
        if blobs_path is None and _has_edited_image(found):
            found["missing"].append(no_calls_file(folder, config, BLOBS))
    return found


def lineage_lines(found: Mapping[str, Any]) -> list[str]:
    failure, texts = found["failure"], found["texts"]
    lines = [
        f"failure {failure['failure_id']} ({failure['direction']}, round {found['round']})",
        f"  query           {failure['query_id']}  {texts['query']}",
        f"  ground truth    {failure['ground_truth_id']}  {texts['ground_truth']}",
        f"                  rank {failure['ground_truth_rank']}, score {failure['ground_truth_score']:.4f}",
        f"  false positive  {failure['false_positive_id']}  {texts['false_positive']}",
        f"                  rank {failure['false_positive_rank']} of those that do not match, "
        f"score {failure['false_positive_score']:.4f}",
    ]
    for verdict in found["verdicts"]:
        answer = (
            f"failed: {verdict['error']}" if verdict["error"] else "keep" if verdict["keep"] else verdict["criterion"]
        )
        lines.append(f"  verdict         {answer}: {verdict['reason']}")
    for told in found["instructions"]:
        lines.append(f"  error types     {', '.join(told['error_types'])}")
        lines.append(f"  residual        {told['residual']}")
        lines.append(f"  scaffold        {told['scaffold']}")
        lines.append(f"  instruction     {told['instruction'] or told['error']}")
    for candidate in found["scored"]:
        state = "valid" if candidate["rejected"] is None else f"rejected: {candidate['rejected']}"
        gain = (
            ""
            if candidate["gain"] is None
            else f", gain {candidate['gain']:+.4f}, closeness {candidate['closeness']:.4f}"
        )
        lines.append(f"  candidate {candidate['index']}     {candidate['text'] or candidate['key']} ({state}{gain})")
    for repair in found["repairs"]:
        lines.append(f"  repair          {repair['status']}: {repair['reason']}")
    lines.append(f"  links           {len(found['links'])}")
    lines.append(f"  grids           {found['grids']['n']} hold its edit or its pair")
    for call in found.get("calls", []):
        lines.append(
            f"  call            {call['task']} {call['outcome']}, tokens {call['tokens_in']}+{call['tokens_out']}"
        )
    lines += [f"  picture         {name}: {file}" for name, file in found.get("images", {}).items()]
    lines += [f"  missing         {what}" for what in found["missing"]]
    return lines


def find_failure(folder: RunFolder, failure_id: str) -> tuple[int, Failure]:
    """The last round that mined a failure, and the failure; a beginning of its id will do. Raises ConfigError if that
    names none or several."""
    found = [
        (int(place.name.removeprefix("round-")), failure)
        for place in sorted(folder.path.glob("round-*"))
        for failure in rows_of(folder, int(place.name.removeprefix("round-")), "failures", Failure)
        if failure.failure_id.startswith(failure_id)
    ]
    ids = {failure.failure_id for _, failure in found}
    if not ids:
        raise ConfigError(f'no failure "{failure_id}" in {folder.path}: ids are in its round-*/failures.parquet')
    if len(ids) > 1:
        raise ConfigError(
            f'"{failure_id}" names {len(ids)} failures, e.g. {", ".join(sorted(ids)[:3])}: give more of it'
        )
    return found[-1]


def rows_of(folder: RunFolder, round: int, name: str, record_type: type[Record]) -> list[Record]:
    """A table of a round; empty if its stage has not run."""
    path = folder.folder(round) / f"{name}.parquet"
    return read_table(path, record_type) if path.exists() else []


def _texts(failure: Failure, texts: Mapping[str, Any]) -> dict[str, str]:
    """The caption behind each id of the failure; for an image, its own captions."""
    own: dict[str, list[str]] = {}
    for pair in texts.values():
        own.setdefault(pair.image_id, []).append(pair.text)
    ids = {
        "query": failure.query_id, "ground_truth": failure.ground_truth_id, "false_positive": failure.false_positive_id,
    }  # fmt: skip
    return {
        name: f'"{texts[item].text}"' if item in texts else f"an image with {own.get(item, [])}"
        for name, item in ids.items()
    }


def _grids_of(folder: RunFolder, round: int, failure: Failure, repairs: list[dict[str, Any]]) -> dict[str, Any]:
    edits = {repair["key"] for repair in repairs if repair["key"]}
    pair = {failure.query_id, failure.false_positive_id}
    grids = [
        grid
        for grid in rows_of(folder, round, "grids", Grid)
        if edits & {*grid.images, *grid.texts} or pair <= {*grid.images, *grid.texts}
    ]
    return {"n": len(grids), "first": [_plain(grid) for grid in grids[:_SHOWN_GRIDS]]}


def _write_images(
    failure: Failure, found: Mapping[str, Any], source: PairSource, blobs_path: Path | None, images: Path
) -> dict[str, str]:
    if failure.direction is Direction.IMAGE_TO_TEXT:
        wanted = {"query": source.read_image(failure.query_id)}
    else:
        wanted = {
            "ground_truth": source.read_image(failure.ground_truth_id),
            "false_positive": source.read_image(failure.false_positive_id),
        }
        if blobs_path is not None:
            wanted |= _edited_images(found["candidates"], blobs_path)
    written = {}
    try:
        images.mkdir(parents=True, exist_ok=True)
        for name, data in wanted.items():
            ending = "png" if data.startswith(b"\x89PNG") else "jpg" if data.startswith(b"\xff\xd8") else "img"
            file = images / f"{failure.failure_id}-{name}.{ending}"
            file.write_bytes(data)
            written[name] = str(file)
    except OSError as error:
        raise StoreError(f"pictures cannot be written to {images}: {error.strerror}") from error
    return written


def _edited_images(candidates: Sequence[Mapping[str, Any]], blobs_path: Path) -> dict[str, bytes]:
    """Those of the candidates that are kept there, by the name of their picture."""
    with BlobStore.view(blobs_path) as blobs:
        kept = {f"candidate_{one['index']}": blobs.get(one["key"]) for one in candidates if one["key"]}
    return {name: data for name, data in kept.items() if data is not None}


def _has_edited_image(found: Mapping[str, Any]) -> bool:
    return any(candidate["key"] and candidate["text"] is None for candidate in found["candidates"])


def _call(logged: LoggedAttempt) -> dict[str, Any]:
    attempt = logged.attempt
    return {
        "number": logged.number,
        "task": attempt.call.task,
        "key": attempt.call.key,
        "backend": attempt.call.backend,
        "seed": attempt.call.seed,
        "outcome": str(attempt.outcome),
        "error": attempt.error,
        "raw": attempt.raw,
        **asdict(attempt.usage),
    }


def _plain(record: Any) -> dict[str, Any]:
    """A record as JSON has it."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(record), default=str))
    return plain
