"""Heads of an encoder that cannot retrieve yet, fitted on the train split before anything else."""

import torch

from repair.core.errors import StoreError
from repair.core.identity import hash_value, short
from repair.core.ports import TrainableEncoder
from repair.pipeline.features import Features
from repair.pipeline.workbench import Workbench
from repair.store.files import read_json, write_json

_LOSSES = "losses.json"  # written last: with it, all is there
_VERSION = 1  # raise it whenever heads are fitted in another way


def fitted_heads(bench: Workbench) -> tuple[TrainableEncoder, list[float]]:
    """The encoder with fitted heads, and each epoch's loss. Fitted once for all runs that share run.cache: the variants
    of a bench start from the same heads. (`repair eval` of an encoder that needs it fits heads of its own.)"""
    config, encoder = bench.config, bench.new_encoder()
    key = hash_value(
        {
            "version": _VERSION,
            "encoder": [config.encoder.name, config.encoder.options, encoder.fingerprint()],
            "options": config.encoder.fit,
            "seed": config.run.seed,
            "data": [bench.source.fingerprint, config.data.train_split],
            "torch": [torch.__version__, torch.get_num_threads()],  # both decide the last bits
        }
    )
    kept = config.cache_path() / "fitted" / short(key)
    if (kept / _LOSSES).exists():
        try:
            encoder.load_weights(str(kept))
            return encoder, read_json(kept / _LOSSES)
        except StoreError:  # cut short, or by another version: fitted anew below
            encoder = bench.new_encoder()
    features = Features(bench, None)
    images, texts = features.prepared_images(bench.train), features.prepared_texts(bench.train)
    with bench.progress.task("fit heads", None) as advance:
        losses = encoder.fit_heads(  # type: ignore[attr-defined]
            images,
            texts,
            bench.train.owner,
            seed=config.run.seed,
            options=config.encoder.fit,
            progress=lambda done, total: advance(1, f"epoch {done}/{total}"),
        )
    encoder.save(str(kept), facts={"fitted_on": config.data.train_split, "seed": config.run.seed})
    write_json(kept / _LOSSES, losses)
    return encoder, losses
