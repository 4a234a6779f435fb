"""`repair export`: a trained model with its card, or pairs and grids in a format other code reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repair.config import Config
from repair.core.errors import ConfigError, suggest
from repair.core.ports import TrainableEncoder
from repair.core.records import Direction
from repair.pipeline import registries
from repair.pipeline.formats import FORMATS
from repair.pipeline.material import gather, last_round
from repair.pipeline.places import LEDGER, calls_file, config_of, no_calls_file
from repair.store.files import read_json, replacing_folder
from repair.store.ledger import Ledger
from repair.store.run_folder import RunFolder

MODEL = "model"


def export(run: Path, kind: str, out: Path, *, round: int | None, force: bool) -> dict[str, Any]:
    """Fill the folder `out`, whole or not at all; says what was written.

    `kind`: "model" or one of `formats.FORMATS`; `round`: None for the last. Raises ConfigError for an unknown kind, a
    round that is not there, a folder that is there already and not empty (unless `force`), or one that the run is in.
    """
    if kind != MODEL and kind not in FORMATS:
        raise ConfigError(f'unknown export "{kind}": {suggest(kind, [MODEL, *FORMATS])}')
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not force):
        raise ConfigError(f"{out} exists: name another folder, or --force to replace it")
    here, there = run.resolve(), out.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise ConfigError(f"{out} would replace the run {run} or a part of it: name a folder outside")
    if kind == MODEL:
        counts = _export_model(run, out, round)
    else:
        material = gather(run, round)
        with replacing_folder(out) as new:
            counts = FORMATS[kind](material, new)
    return {"export": kind, "folder": str(out), **counts}


def export_lines(done: Mapping[str, Any]) -> list[str]:
    facts = {key: value for key, value in done.items() if key not in ("export", "folder", "load", "missing")}
    lines = [f"wrote {done['folder']} ({done['export']}): " + ", ".join(f"{v} {k}" for k, v in facts.items())]
    lines += [f"its card does not say what calls it took: {done['missing']}"] if "missing" in done else []
    return [*lines, f"load it with: {done['load']}"] if "load" in done else lines


def _export_model(run: Path, out: Path, round: int | None) -> dict[str, Any]:
    folder = RunFolder.view(run)
    config = config_of(folder)
    number = last_round(folder, "train") if round is None else round
    weights = folder.folder(number) / "weights"
    if not weights.is_dir():
        raise ConfigError(f"{run}: round {number} has no trained weights: `repair train` makes them")
    encoder: TrainableEncoder = registries.ENCODERS.build(
        config.encoder.name, options=config.encoder.options, seed=config.run.seed
    )
    encoder.load_weights(str(weights))
    facts = card_facts(folder, config, number)
    with replacing_folder(out) as new:
        encoder.save(str(new), facts=facts)
    name = config.encoder.name.partition(":")[0]
    load = f"encoder.name={name}:{out}" if name in ("open_clip", "hf") else f"encoder.options.checkpoint={out}"
    missing = {} if calls_file(folder, config, LEDGER) else {"missing": no_calls_file(folder, config, LEDGER)}
    return {"rounds trained": number + 1, "load": f'repair … --set "{load}"', **missing}


def card_facts(folder: RunFolder, config: Config, round: int) -> dict[str, Any]:
    """What the card says: how it was made, of what data, at what cost, with what result."""
    training = config.training
    train = next((s.summary for s in folder.states() if (s.round, s.stage) == (round, "train")), {})
    select = next((s.summary for s in folder.states() if (s.round, s.stage) == (round, "select")), {})
    repaired = {name: part for name, part in select.items() if isinstance(part, Mapping)}
    return {
        "base": config.encoder.name,
        "rounds": round + 1,
        "loss": training.loss,
        "config": config.fingerprint(),
        "data": {
            "source": config.data.source,
            "train_split": config.data.train_split,
            "test_split": config.data.test_split,
            **{f"repairs_{name}": part.get("repaired", 0) for name, part in repaired.items()},
        },
        "budget": {
            "steps": train.get("steps"),
            "pairs_encoded_per_step": training.batch_pairs + 3 * training.grids_per_step,
            "learning_rate": training.lr,
            **_calls(folder, config),
        },
        "results": _results(folder, config, round),
    }


def _calls(folder: RunFolder, config: Config) -> dict[str, Any]:
    path = calls_file(folder, config, LEDGER)
    if path is None:
        return {}
    with Ledger.view(path) as ledger:
        rows = list(ledger.usage())
    return {
        "model_calls": sum(row.n_calls for row in rows),
        "tokens_in": sum(row.tokens_in for row in rows),
        "tokens_out": sum(row.tokens_out for row in rows),
    }


def _results(folder: RunFolder, config: Config, round: int) -> dict[str, Any]:
    """Test scores before and after, in percent, and how many items they are of."""
    found: dict[str, Any] = {}
    split = config.data.test_split
    for label, name in (("before", "base"), ("after", f"round-{round}")):
        path = folder.folder(None) / f"{name}.json"
        facts: dict[str, Any] = read_json(path)["splits"].get(split, {}) if path.exists() else {}
        for direction in Direction if facts else ():
            for metric, value in facts[str(direction)]["metrics"].items():
                number = value["value"] if isinstance(value, Mapping) else value
                if str(metric).startswith("R@"):
                    key = f"{direction.short} {metric} on {split} ({facts['n_images']} images)"
                    found.setdefault(key, {})[label] = f"{100 * number:.2f}"
    return {
        key: " → ".join(value.get(when, "not measured") for when in ("before", "after")) for key, value in found.items()
    }
