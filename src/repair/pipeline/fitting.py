"""Heads of an encoder that cannot retrieve yet, fitted on the train split before anything else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from repair.core.errors import StoreError
from repair.core.identity import hash_value, short
from repair.core.ports import Array, TrainableEncoder
from repair.core.progress import Progress
from repair.store.files import read_json, write_json

_LOSSES = "losses.json"  # written last: with it, all is there
_VERSION = 1  # raise it whenever heads are fitted in another way

Prepared = tuple[Array, Array, Array]  # images, texts, and the image row of each text


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What decides the heads. `made_of`: name and options of the encoder; `data`: fingerprint and split."""

    made_of: tuple[str, Mapping[str, Any]]
    data: tuple[str, str]
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def key(self, encoder: TrainableEncoder) -> str:
        name, options = self.made_of
        return hash_value(
            {
                "version": _VERSION,
                "encoder": [name, dict(options), encoder.fingerprint()],
                "options": dict(self.options),
                "seed": self.seed,
                "data": list(self.data),
                "torch": [torch.__version__, torch.get_num_threads()],  # both decide the last bits
            }
        )


def fitted_heads(
    fit: Fit,
    new_encoder: Callable[[], TrainableEncoder],
    prepared: Callable[[], Prepared],
    *,
    cache: Path,
    progress: Progress,
) -> tuple[TrainableEncoder, list[float]]:
    """The encoder with fitted heads, and each epoch's loss. Fitted once for all that share a cache: the variants of a
    bench start from the same heads, and `repair eval --fit` finds those of a run."""
    encoder = new_encoder()
    kept = cache / "fitted" / short(fit.key(encoder))
    if (kept / _LOSSES).exists():
        try:
            encoder.load_weights(str(kept))
            return encoder, read_json(kept / _LOSSES)
        except StoreError:  # cut short, or by another version: fitted anew below
            encoder = new_encoder()
    images, texts, owner = prepared()
    with progress.task("fit heads", None) as advance:
        losses = encoder.fit_heads(  # type: ignore[attr-defined]
            images,
            texts,
            owner,
            seed=fit.seed,
            options=fit.options,
            progress=lambda done, total: advance(1, f"epoch {done}/{total}"),
        )
    encoder.save(str(kept), facts={"fitted_on": fit.data[1], "seed": fit.seed})
    write_json(kept / _LOSSES, losses)
    return encoder, losses
