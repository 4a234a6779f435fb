"""The staged plan over real captions through a llama.cpp server: does every item end, and do the counts agree?

    python benchmarks/llama_server.py [--failures 50] [--data ../shared/data/flickr8k] [--threads 2]

Failures are mined by the small encoder of the drawn world, which knows nothing of photos: that gives captions of other
photos, which is what the calls need. A 270M model sees captions, no pixels, and answers badly; what is measured is
whether each item ends as done, dropped or failed with a reason, and whether the tokens of the ledger are those of the
metrics of the server.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from repair.config import load_config
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
            options = (
                f'{{model="gemma", base_url="{address}/v1", server="llama.cpp", image_as="captions", max_tokens=200, '
                "read_timeout_s=1200.0, extra={cache_prompt=false}}"
            )
            config = load_config(
                {},
                overrides=[
                    f"run.folder={folder}",
                    "data.source=jsonl",
                    f'data.options={{path="{captions}", images="{arguments.data}"}}',
                    "data.test_split=judged",
                    'mining.directions=["image_to_text"]',
                    f"mining.max_failures={arguments.failures}",
                    *(f"{name}=chat" for name in ("verification.verifier", "instruction.instructor")),
                    "editing.text_editor=chat",
                    *(f"{name}={options}" for name in ("verification.options", "instruction.options")),
                    f"editing.text_options={options}",
                    "calls.concurrency=2",
                    "calls.timeout_s=2400",
                    "calls.max_failed_rate=1",
                ],
            )
            run_pipeline(config, until="edit", reuse=False, progress=ConsoleProgress())
            took_s = time.monotonic() - began
            server = llama.counts(address)
        report(config.run_path(), server, took_s)


def report(run: Path, server: llama.Counts, took_s: float) -> None:
    tables = run / "round-0"
    n_failures = len(read_table(tables / "failures.parquet", Failure))
    verdicts = Counter(
        "failed" if v.error else "kept" if v.keep else str(v.criterion)
        for v in read_table(tables / "verdicts.parquet", Verdict)
    )
    told = Counter("failed" if i.error else "done" for i in read_table(tables / "instructions.parquet", Instruction))
    edits = Counter("failed" if c.error else "done" for c in read_table(tables / "candidates.parquet", Candidate))
    with Ledger.view(run / "ledger.sqlite") as ledger:
        rows = ledger.usage()
        reasons = Counter(str(logged.attempt.error) for logged in ledger.attempts() if logged.attempt.error)
    ours = llama.Counts(sum(row.tokens_in for row in rows), sum(row.tokens_out for row in rows))
    print(f"failures {n_failures}, {sum(row.n_calls for row in rows)} calls in {took_s:.0f} s")
    print(f"verify {dict(verdicts)}; instruct {dict(told)}; edit {dict(edits)}")
    for reason, count in reasons.most_common(5):
        print(f"  {count} x {reason[:150]}")
    print(f"tokens in/out: ledger {ours.tokens_in}/{ours.tokens_out}, server {server.tokens_in}/{server.tokens_out}")
    if sum(verdicts.values()) != n_failures or ours != server:
        raise SystemExit("FAILED: an item is missing, or the counts differ")
    print("every item ended, and the counts are equal")


if __name__ == "__main__":
    main()
