"""SIGKILL at random moments of a run against a server that fails: nothing changes in the end, nothing is paid twice.

    python benchmarks/kills.py [--kills 100] [--failures 40] [--seed 0]

Its files lie in a temporary folder: TMPDIR says where, if another disk is to be measured.

The staged plan in both directions, up to grids, over HTTP: `chat` and `image_edits` against a server of this machine
that answers the first time of some requests with 429, 503, a body cut off, or JSON that does not fit. The run is killed
when the server has seen a random number of further requests, or at a random moment before the first, and started
again, `--kills` times; then it may finish. Each session is a process forked from one that has everything imported, so
that a kill costs a second. Printed, and the exit code is 1 if one of them does not hold:

- the tables are, byte for byte, those of a run that nobody interrupted;
- by the server's own log, nothing was answered twice but what was in flight when a session was killed;
- every call that ended has one row in the ledger, and no more were in flight than the limit allows.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.calls import CallOutcome
from repair.core.progress import Silent
from repair.pipeline.run import run_pipeline
from repair.pipeline.sources import open_source
from repair.store.ledger import Ledger

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.backends.loopback import Answer, Seen, completion, image_answer, loopback
from tests.pipeline import tiny

CONCURRENCY = 4  # calls in flight at each of the two places: the language model and the image editor
LATENCY_S = 0.02
FAULTS = ("limited", "unavailable", "cut", "unfit", "prose")


class FaultServer:
    """Answers that follow from what is asked about, whatever was asked before; a third of the requests fail at first.

    Its log has one line a request: what became of it, and a digest of its content.
    """

    def __init__(self, log: Path) -> None:
        self._log = log.open("a", buffering=1)
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()

    def __call__(self, seen: Seen) -> Answer:
        time.sleep(LATENCY_S)
        digest = hashlib.sha256(repr(seen.body).encode()).hexdigest()[:16]
        with self._lock:
            self._seen[digest] += 1
            number = int(digest, 16) % (3 * len(FAULTS))
            fault = FAULTS[number] if self._seen[digest] == 1 and number < len(FAULTS) else ""
            if fault in ("unfit", "prose") and not _is_first_turn(seen):
                fault = "unavailable"  # a second turn that does not fit either would fail the item
            self._log.write(f"{fault or 'answered'} {digest}\n")
        if fault == "limited":
            return Answer(429, {"error": {"message": "slow down"}})
        if fault == "unavailable":
            return Answer(503, {"error": {"message": "overloaded"}})
        answer = self._edited(seen.body) if seen.path.endswith("/images/edits") else self._said(seen.body, fault)
        answer.cut = fault == "cut"
        return answer

    def _said(self, body: dict[str, Any], fault: str) -> Answer:
        if fault:
            return Answer(body=completion("Let me think." if fault == "prose" else {"keep": "yes"}))
        asked = next(message["content"] for message in body["messages"] if message["role"] == "user")
        number = int(hashlib.sha256(asked.encode()).hexdigest(), 16)  # not of the whole body: a second turn ends alike
        name = body["response_format"]["json_schema"]["name"]
        if name == "VerdictAnswer":
            keep = number % 6 > 0
            value: dict[str, Any] = {"reason": f"reason {number % 97}"}
            value |= {"query_matches_ground_truth": True, "candidate_matches_query": not keep}
        elif name == "InstructionAnswer":
            value = {"error_types": ["attribute"], "residual": "it", "scaffold": "the rest"}
            value["instruction"] = f"Change it in way {number % 89}."
        else:
            value = {"caption": f"a dog number {(number + int(body['seed'])) % 83} in a park"}
        return Answer(body=completion(value))

    def _edited(self, form: dict[str, Any]) -> Answer:
        picture = next(part for part in form.values() if isinstance(part, bytes))
        return image_answer(picture)


def _is_first_turn(seen: Seen) -> bool:
    return seen.path.endswith("/chat/completions") and all(m["role"] != "assistant" for m in seen.body["messages"])


def serve(log: Path, address: "multiprocessing.connection.Connection") -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it says so of every connection that a kill cuts
    with loopback() as server:
        server.answer = FaultServer(log)
        address.send(server.url)
        signal.pause()


@contextmanager
def fault_server(log: Path) -> Iterator[str]:
    """Address of a server in a process of its own, which forgets everything with this block but its log."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=serve, args=(log, there), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.kill()
        process.join()


def config(folder: Path, url: str, n_failures: int) -> Config:
    chat = f'{{model="m", base_url="{url}", server="vllm", image_as="captions"}}'
    settings = [
        "data.options={n_train=60, n_val=5, n_test=5}",
        f"mining.max_failures={n_failures}",
        f"run.folder={folder}",
        f"run.cache={folder}/cache",
        *(f"{role}=chat" for role in ("verification.verifier", "instruction.instructor", "editing.text_editor")),
        *(f"{place}={chat}" for place in ("verification.options", "instruction.options", "editing.text_options")),
        "editing.image_editor=image_edits",
        f'editing.image_options={{model="e", base_url="{url}", server="vllm-omni", size="source"}}',
        f"calls.concurrency={CONCURRENCY}",
    ]
    return tiny.config(folder, *settings)


def session(settings: Config) -> int:
    """The pid of a process that makes the run, or goes on with it."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        run_pipeline(settings, until="grids", reuse=False, progress=Silent())
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of this process may get back into the caller's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def killed(pid: int, log: Path, *, n_more: int, after_s: float) -> bool:
    """Kill the session when the log has `n_more` further lines, `after_s` later. False if it ended before."""
    until = n_lines(log) + n_more
    while n_lines(log) < until:
        if ended(pid):
            return False
        time.sleep(0.002)
    time.sleep(after_s)
    if ended(pid):
        return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def ended(pid: int) -> bool:
    found, status = os.waitpid(pid, os.WNOHANG)
    if found and status:
        raise SystemExit("FAILED: a session ended with an error")
    return bool(found)


def n_lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def tables(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "round-0").glob("*.parquet"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--failures", type=int, default=40, help="a direction")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as place:
        whole, often = Path(place, "whole"), Path(place, "killed")
        whole.mkdir()
        often.mkdir()
        with fault_server(whole / "log") as url:
            settings = config(whole, url, arguments.failures)
            open_source(settings)  # drawn once, for every process
            began = time.perf_counter()
            os.waitpid(session(settings), 0)
            print(
                f"uninterrupted: {n_lines(whole / 'log')} requests in {time.perf_counter() - began:.1f} s", flush=True
            )
        with fault_server(often / "log") as url:
            settings = config(often, url, arguments.failures)
            n_kills, most_leased = 0, 0
            began = time.perf_counter()
            while n_kills < arguments.kills:
                n_more = rng.choice((0, 1, 2, 4, 8))
                after_s = rng.uniform(0, 0.02) if n_more else rng.uniform(0, 1.0)
                if not killed(session(settings), often / "log", n_more=n_more, after_s=after_s):
                    break
                n_kills += 1
                if (often / "run" / "ledger.sqlite").exists():
                    with Ledger.view(often / "run" / "ledger.sqlite") as ledger:
                        most_leased = max(most_leased, ledger.n_leased())
            else:
                os.waitpid(session(settings), 0)
            took_s = time.perf_counter() - began
        verdict(whole, often, n_kills, most_leased, took_s)


def verdict(whole: Path, often: Path, n_kills: int, most_leased: int, took_s: float) -> None:
    """Print what holds. Ends the program with 1 if something does not."""
    lines = [line.split() for line in (often / "log").read_text().splitlines()]
    answers = Counter(digest for kind, digest in lines if kind == "answered")
    with Ledger.view(often / "run" / "ledger.sqlite") as ledger:
        outcomes = Counter(logged.attempt.outcome for logged in ledger.attempts())
        done = Counter(
            logged.attempt.call.key for logged in ledger.attempts() if logged.attempt.outcome is CallOutcome.DONE
        )
    expected, found = tables(whole / "run"), tables(often / "run")
    differ = [name for name in expected if expected[name] != found.get(name)]
    repeated = sum(count - 1 for count in answers.values())
    print(f"{n_kills} kills in {took_s:.0f} s, {len(lines)} requests ({json.dumps(Counter(k for k, _ in lines))})")
    print(f"tables: {len(found)}, {'byte for byte equal' if not differ else 'DIFFERENT: ' + ', '.join(differ)}")
    print(f"calls done: {done.total()}, of them twice in the ledger: {done.total() - len(done)}")
    print(
        f"answered twice by the server's log: {repeated}; in flight at a kill: {outcomes[CallOutcome.LOST]} in all, "
        f"{most_leased} at most at once (limit {2 * CONCURRENCY})"
    )
    holds = not differ and len(done) == done.total() and repeated <= outcomes[CallOutcome.LOST]
    if not holds or most_leased > 2 * CONCURRENCY:
        raise SystemExit("FAILED")
    print("all of it holds")


if __name__ == "__main__":
    main()
