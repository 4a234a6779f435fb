"""What a pair costs under each call plan, and how often its edit is true: the world's backends at their error rates.

    python benchmarks/plans.py [--failures 400] [--set selection.min_gain=-1]

Its files lie in a temporary folder: TMPDIR says where, if another disk is to be measured.

Prints LLM and image calls for each failure the verifier kept (as the paper counts: 5 LLM, and 2 LLM + 3 images; calls
about dropped failures beside it) and for each repaired pair, everything counted; and the share of repaired pairs whose
edit is true of its query, with a 95 % Wilson interval.
"""

import argparse
import tempfile
from pathlib import Path

from repair.config import Config, load_config
from repair.core.progress import Silent
from repair.core.records import Direction, Repair, Verdict
from repair.numerics.statistics import wilson_interval
from repair.pipeline.run import run_pipeline
from repair.pipeline.sources import open_source
from repair.store.blobs import BlobStore
from repair.store.ledger import Ledger
from repair.store.tables import read_table

IMAGE_TASK = "edit_image"


def config(folder: Path, plan: str, n_failures: int, more: list[str]) -> Config:
    settings = [
        "data.options={n_train=1000, n_val=5, n_test=5}",
        f"mining.max_failures={n_failures}",
        f"calls.plan={plan}",
        f"run.folder={folder}",
        f"run.name={plan}",
        f"run.cache={folder}/cache",
        *more,
    ]
    return load_config(None, overrides=settings, environment={})


def measure(settings: Config) -> None:
    plan, folder = settings.calls.plan, settings.run_path()
    run_pipeline(settings, until="select", reuse=False, progress=Silent())
    kept = {v.failure_id for v in read_table(folder / "round-0" / "verdicts.parquet", Verdict) if v.keep}
    repairs = read_table(folder / "round-0" / "repairs.parquet", Repair)
    source = open_source(settings)
    texts = {pair.caption_id: pair.text for pair in source.pairs(settings.data.train_split)}
    for direction in Direction:
        pairs = [r for r in repairs if r.direction is direction and r.key is not None]
        n_kept = sum(failure.startswith(direction.short) for failure in kept)
        calls = {"LLM": 0, "image": 0}
        about_kept = dict(calls)
        with Ledger.view(folder / "ledger.sqlite") as ledger:
            for logged in ledger.attempts():
                call = logged.attempt.call
                if call.failure_id.startswith(direction.short):
                    kind = "image" if call.task == IMAGE_TASK else "LLM"
                    calls[kind] += 1
                    about_kept[kind] += call.failure_id in kept
        with BlobStore.view(folder / "blobs.sqlite") as blobs:
            n_true = sum(_is_true(source, blobs, texts, repair) for repair in pairs)
        share = wilson_interval(n_true, len(pairs))
        print(
            f"{plan} {direction.short}: {n_kept} kept, {len(pairs)} repaired; for each kept failure "
            + ", ".join(f"{n / n_kept:.2f} {kind}" for kind, n in about_kept.items())
            + f" (with dropped ones {calls['LLM'] / n_kept:.2f} LLM); for each repaired pair "
            + ", ".join(f"{n / len(pairs):.2f} {kind}" for kind, n in calls.items())
            + f"; true pairs {share.estimate:.3f} [{share.low:.3f}, {share.high:.3f}]"
        )


def _is_true(source, blobs: BlobStore, texts: dict[str, str], repair: Repair) -> bool:  # type: ignore[no-untyped-def]
    if repair.direction is Direction.IMAGE_TO_TEXT:
        return bool(source.holds(source.read_image(repair.query_id), str(repair.text)))
    return bool(source.holds(blobs.get(str(repair.key)), texts[repair.query_id]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=400, help="a direction")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting, as for repair run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for plan in ("staged", "fused"):
            measure(config(Path(folder), plan, args.failures, args.set))


if __name__ == "__main__":
    main()
