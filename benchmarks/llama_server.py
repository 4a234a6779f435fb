"""The staged plan over real captions through a llama.cpp server: does every item end, and do the counts agree?

    python benchmarks/llama_server.py [--failures 50] [--data ../shared/data/flickr8k] [--threads 2]

Failures are mined by the small encoder of the drawn world, which knows nothing of photos: that gives captions of other
photos, which is what the calls need. A 270M model sees captions, no pixels, and answers badly; what is measured is
whether each item ends as done, dropped or failed with a reason, and whether the tokens of the ledger are those of the
metrics of the server. The small verifier drops nearly everything, so instruct and edit run once more with every failure
kept.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from repair.config import Config, load_config
from repair.console import ConsoleProgress
from repair.core.records import Candidate, Failure, Instruction, Verdict
from repair.pipeline.run import run_pipeline
from repair.store.ledger import Ledger
from repair.store.tables import read_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.backends import llama

N_IMAGES = {"train": 200, "val": 20, "judged": 20}


def subset(data: Path, folder: Path) -> Path:
    """A captions file of the first images of each split; it lies in a folder that is thrown away."""
    left = dict(N_IMAGES)
    rows = []
    for line in (data / "captions.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if left.get(row["split"], 0) > 0:
            left[row["split"]] -= 1
            rows.append(line)
    path = folder / "captions.jsonl"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=50)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/flickr8k"))
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if reason := llama.missing():
        raise SystemExit(f"skipped: {reason}")
    if not (arguments.data / "captions.jsonl").exists():
        raise SystemExit(f"skipped: no captions.jsonl in {arguments.data}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        captions = subset(arguments.data, folder)
        with llama.llama_server(folder, n_threads=arguments.threads) as address:
            began = time.monotonic()
            for name, verified in (("verified", "true"), ("kept", "false")):
                settings = config(folder, address, captions, arguments, name, f"verification.enabled={verified}")
                run_pipeline(settings, until="edit", reuse=False, progress=ConsoleProgress())
                report(settings.run_path() / "round-0")
            took_s = time.monotonic() - began
            server = llama.counts(address)
        compare(folder / "calls" / "ledger.sqlite", server, took_s)


def config(folder: Path, address: str, captions: Path, arguments: argparse.Namespace, name: str, more: str) -> Config:
    # Without the server's cache every prompt token is processed, so that its own totals are those of the requests. The
    # penalty keeps the small model from saying one thing over and over until a text has its longest length.
    options = (
        f'{{model="gemma", base_url="{address}/v1", server="llama.cpp", image_as="captions", '
        "read_timeout_s=2400.0, extra={cache_prompt=false, repeat_penalty=1.2}}"
    )
    return load_config(
        {},
        overrides=[
            f"run.folder={folder}",
            f"run.name={name}",
            f"run.cache={folder}/cache",
            f"run.calls={folder}/calls",
            "data.source=jsonl",
            f'data.options={{path="{captions}", images="{arguments.data}"}}',
            "data.test_split=judged",
            'mining.directions=["image_to_text"]',
            f"mining.max_failures={arguments.failures}",
            *(f"{role}=chat" for role in ("verification.verifier", "instruction.instructor", "editing.text_editor")),
            *(f"{place}={options}" for place in ("verification.options", "instruction.options")),
            f"editing.text_options={options}",
            "calls.concurrency=2",
            "calls.timeout_s=2400",
            "calls.max_failed_rate=1",
            more,
        ],
    )


def report(tables: Path) -> None:
    """What became of the items of a run. Ends the program if one is missing."""
    n_failures = len(read_table(tables / "failures.parquet", Failure))
    verdicts = Counter(
        "failed" if v.error else "kept" if v.keep else str(v.criterion)
        for v in read_table(tables / "verdicts.parquet", Verdict)
    )
    told = Counter("failed" if i.error else "done" for i in read_table(tables / "instructions.parquet", Instruction))
    edits = Counter("failed" if c.error else "done" for c in read_table(tables / "candidates.parquet", Candidate))
    print(f"{n_failures} failures: verify {dict(verdicts)}; instruct {dict(told)}; edit {dict(edits)}", flush=True)
    if verdicts.total() != n_failures or told.total() != verdicts["kept"] or edits.total() != 3 * told["done"]:
        raise SystemExit("FAILED: an item is missing")


def compare(ledger_path: Path, server: llama.Counts, took_s: float) -> None:
    """The ledger's tokens beside the server's. Ends the program if they differ."""
    with Ledger.view(ledger_path) as ledger:
        rows = ledger.usage()
        reasons = Counter(str(logged.attempt.error) for logged in ledger.attempts() if logged.attempt.error)
    ours = llama.Counts(sum(row.tokens_in for row in rows), sum(row.tokens_out for row in rows))
    for reason, count in reasons.most_common(5):
        print(f"  {count} x {reason[:150]}")
    print(f"{sum(row.n_calls for row in rows)} calls in {took_s:.0f} s")
    print(f"tokens in/out: ledger {ours.tokens_in}/{ours.tokens_out}, server {server.tokens_in}/{server.tokens_out}")
    if ours != server:
        raise SystemExit("FAILED: the counts differ")
    print("every item ended, and the counts are equal")


if __name__ == "__main__":
    main()
