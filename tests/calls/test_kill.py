"""A process that writes is killed again and again; nothing it had finished is lost, torn, or asked for again."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from repair.core.calls import CallOutcome
from repair.core.identity import request_key
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger
from tests.calls import killed_worker

N_ITEMS, CONCURRENCY, N_KILLS = 900, 6, 12
ROOT = Path(__file__).parents[2]


class Session:
    """What one process said before it ended. It makes `n_calls` at most and is killed at its line `kill_at`."""

    def __init__(self, folder: Path, *, n_calls: int, kill_at: int | None) -> None:
        command = [sys.executable, "-m", "tests.calls.killed_worker", str(folder), str(N_ITEMS), str(CONCURRENCY)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("." * n_calls)
        process.stdin.flush()
        lines = []
        for line in process.stdout:
            lines.append(line)
            if len(lines) == kill_at:
                process.kill()
        process.stdout.close()
        process.stdin.close()
        self.killed = process.wait() != 0
        pairs = [tuple(line.split()) for line in lines if line.endswith("\n")]
        self.lost = next(int(number) for verb, number in pairs if verb == "lost")
        self.runs = [int(number) for verb, number in pairs if verb == "run"]
        self.done = {int(number) for verb, number in pairs if verb == "done"}


def key_of(index: int) -> str:
    return request_key(task="verify", backend="b2:backend", seed=index, payload={"text": f"caption {index}"})


def check_what_is_left(folder: Path, done: set[int], session: Session) -> int:
    """Everything answered is there and whole; what was asked without a row has a lease. Returns the leases."""
    with Ledger.view(folder / "ledger.sqlite") as ledger, BlobStore.view(folder / "blobs.sqlite") as blobs:
        assert ledger.damage() is None
        for index in range(N_ITEMS):
            answer = ledger.get(key_of(index))
            assert answer is not None or index not in done
            if answer is None:
                continue
            if killed_worker.is_image(index):
                assert answer.blob is not None
                assert blobs.get(answer.blob) == killed_worker.answer(index)
            else:
                assert answer.value == f'"answer {index}"'
        recorded = {logged.attempt.call.key for logged in ledger.attempts()}
        in_flight = {index for index in session.runs if key_of(index) not in recorded}
        assert len(in_flight) <= ledger.n_leased() <= CONCURRENCY
        return ledger.n_leased()


def test_kill_and_resume(tmp_path: Path) -> None:
    rng = random.Random(11)
    done: set[int] = set()
    runs: Counter[int] = Counter()
    n_leased = n_killed = 0
    for number in range(N_KILLS + 1):
        if number < N_KILLS:  # somewhere among its new calls, with a few more allowed, so that it is at work when hit
            n_new = rng.randint(2, 60)
            session = Session(tmp_path, n_calls=n_new + 10, kill_at=len(done) + n_new)
        else:
            session = Session(tmp_path, n_calls=N_ITEMS, kill_at=None)
        assert session.lost == n_leased
        assert not done & set(session.runs), "a finished call was made again"
        done |= session.done
        runs.update(session.runs)
        n_leased = check_what_is_left(tmp_path, done, session)
        n_killed += session.killed
    assert n_killed == N_KILLS
    good = {index for index in range(N_ITEMS) if not killed_worker.fails(index)}
    assert done == good
    assert sum(runs[index] - 1 for index in good) <= n_killed * CONCURRENCY
    with Ledger.view(tmp_path / "ledger.sqlite") as ledger:
        rows = Counter(logged.attempt.outcome for logged in ledger.attempts())
        assert rows[CallOutcome.DONE] == len(good)
        # every call the backend saw is a row: an answer, a failure, or one that may have been lost
        assert sum(rows.values()) >= sum(runs.values())
        assert ledger.n_leased() == 0
