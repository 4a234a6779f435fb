"""What one GPU makes of it: ViT-B/32 in bf16, as a table with the date and the card.

    benchmarks/gpu.sh                   at most 6 minutes on an H200; needs no network
    python benchmarks/gpu.py --smoke    small sizes, in seconds on a CPU: shows that it runs, measures nothing

Weights are drawn, and so are images and captions (77 tokens, the full length): neither changes what a step costs.

  embed      images from the uint8 cache to unit rows, `encoder.embed_images`
  vanilla    training.loss=vanilla       } as many images and captions a step, `Training` as the pipeline runs it;
  grids      training.loss=local_grids   } 224 pairs a step is the paper's batch
  pieces     vanilla with training.micro_batch = pairs / 4 (gradient caching)
  top-k      exact, both directions, k = 10: the same tiles and the same order as `numerics.similarity.search_both`, on
             the GPU; beside it that function itself, on the processor, on a part of the rows; the lists are compared

`TFLOP/s`: what the model needs (2 a multiplication and addition, backward twice forward, no second forward pass
counted) over the time; `of peak`: of the card's dense bf16 rate by its data sheet, where known; `of matmul`: of a large
bf16 matrix product timed here. `memory`: peak of torch's allocator. `idle`: share of the time without inputs.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models

from repair.core.ports import Array
from repair.core.records import Grid, Pair
from repair.encoders.hf import HfEncoder
from repair.encoders.rows import RowStore
from repair.numerics.ranking import EMPTY, decode
from repair.numerics.similarity import search_both
from repair.training.loop import Recipe, Training, TrainingData
from repair.training.matching import MatchTable
from repair.training.prepared import Prepared

# Dense bf16 TFLOP/s by the makers' data sheets, by what the driver calls the card.
_PEAKS = {"NVIDIA H200": 989.5, "NVIDIA H100 80GB HBM3": 989.5, "NVIDIA A100-SXM4-80GB": 312.0}
_COLUMNS = ("what", "s", "rate", "TFLOP/s", "of peak", "of matmul", "memory", "idle")
_K = 10
_SIGN = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything. `searches`: rows × columns; `compared`: rows of the first that the processor searches."""

    seconds: float  # after which nothing more is begun
    n_images: int
    batches: tuple[tuple[int, int], ...]  # (global pairs, grids) a step
    n_steps: int
    warm_up: int
    embed_batches: tuple[int, ...]
    matmul: int
    searches: tuple[tuple[int, int], ...]
    compared: int
    dim: int
    block: int
    model: dict[str, Any]


FULL = Sizes(
    seconds=300,
    n_images=16384,
    batches=((128, 32), (1024, 256)),
    n_steps=20,
    warm_up=5,
    embed_batches=(256, 2048),
    matmul=8192,
    searches=((145_000, 29_000), (1_000_000, 1_000_000)),
    compared=29_000,
    dim=512,
    block=8192,
    model={},  # transformers' own default is ViT-B/32
)
_TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SMOKE = Sizes(
    seconds=600,
    n_images=48,
    batches=((8, 4),),
    n_steps=3,
    warm_up=1,
    embed_batches=(16,),
    matmul=64,
    searches=((300, 90),),
    compared=120,
    dim=16,
    block=64,
    model={"text_config": _TINY, "vision_config": {**_TINY, "image_size": 64}, "projection_dim": 16},
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small sizes, on a CPU too")
    smoke = parser.parse_args(arguments).smoke
    if not smoke and not torch.cuda.is_available():
        sys.exit("gpu.py: torch sees no GPU; --smoke shows on a CPU that it runs")
    table = Table(SMOKE if smoke else FULL)
    _matmul(table)
    encoder = _encoder(table)
    with tempfile.TemporaryDirectory() as folder:
        data = _Data(table.sizes, encoder, Path(folder))
        _embed(table, encoder, data)
        _steps(table, encoder, data)
    _searches(table)


class Table:
    """The rows as they come, and what they are held against."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._end = time.monotonic() + sizes.seconds
        card = torch.cuda.get_device_name() if self.device.type == "cuda" else "no GPU, small sizes: measures nothing"
        self._peak = _PEAKS.get(card)
        self.matmul: float | None = None
        print(f"{date.today()}, {card}, torch {torch.__version__}, transformers {transformers.__version__}, bf16\n")
        print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}")

    def left_s(self) -> float:
        return self._end - time.monotonic()

    def add(
        self, what: str, seconds: float, rate: str, *, flop: float = 0.0, memory: float = 0.0, idle: float | None = None
    ) -> None:
        """One row: `flop` operations in `seconds`, `memory` in bytes."""
        speed = flop / seconds / 1e12
        of = [f"{speed / base:.0%}" if flop and base else "" for base in (self._peak, self.matmul)]
        cells = [what, f"{seconds:.4g}", rate, f"{speed:.3g}" if flop else "", *of]
        cells += [f"{memory / 1e9:.2f} GB" if memory else "", "" if idle is None else f"{idle:.1%}"]
        print(f"| {' | '.join(cells)} |", flush=True)

    def timed(self) -> float:
        """The time, once the device has done all it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def memory(self) -> float:
        """The most bytes torch held since the last call; 0 without a GPU."""
        if self.device.type != "cuda":
            return 0.0
        most = float(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()
        return most


# --------------------------------------------------------------------------------------- model and data


def _matmul(table: Table) -> None:
    n = table.sizes.matmul
    left, right = (torch.randn(n, n, device=table.device, dtype=torch.bfloat16) for _ in "12")
    for _ in range(3):
        left @ right
    start = table.timed()
    for _ in range(10):
        left @ right
    seconds = (table.timed() - start) / 10
    flop = 2.0 * n**3
    table.add(f"matrix product, {n}³", seconds, "", flop=flop)
    table.matmul = flop / seconds / 1e12
    table.memory()


def _encoder(table: Table) -> Any:
    """CLIP of the real class with drawn weights. Its tokenizer has no words: captions are drawn as ids."""
    torch.manual_seed(0)
    library: Any = transformers
    model = library.CLIPModel(library.CLIPConfig(**table.sizes.model))
    pixels = model.config.vision_config.image_size
    return HfEncoder(
        model,
        tokenizer=library.PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1}, unk_token="<unk>")), pad_token="<pad>"
        ),
        image_processor=library.CLIPImageProcessor(
            size={"shortest_edge": pixels}, crop_size={"height": pixels, "width": pixels}
        ),
        length=int(model.config.text_config.max_position_embeddings),
        device=table.device.type,
        precision="bf16",
    )


class _Data:
    """A cache of uint8 images on disk, as `PreparedCache` leaves it, and a caption of each."""

    def __init__(self, sizes: Sizes, encoder: Any, folder: Path) -> None:
        rng = np.random.default_rng(0)
        config = encoder.module.model.config
        n, pixels, length = sizes.n_images, config.vision_config.image_size, encoder.prepare_texts([]).shape[2]
        self.image_keys, self.text_keys = [f"i{at}" for at in range(n)], [f"t{at}" for at in range(n)]
        store = RowStore(folder, origin=encoder.preparation)
        store.append(
            self.image_keys, np.frombuffer(rng.bytes(n * 3 * pixels**2), np.uint8).reshape(n, 3, pixels, pixels)
        )
        self.images = store.take(self.image_keys)
        end = config.text_config.eos_token_id
        self.texts = np.ones((n, 2, length), dtype=np.int32)
        self.texts[:, 0] = rng.integers(2, end - 1, (n, length))
        self.texts[:, 0, -1] = end
        self.flop_image, self.flop_text = forward_flop(config)

    def training(self, encoder: Any, recipe: Recipe) -> Training:
        n = len(self.image_keys)
        pairs = [Pair(image_id=f"i{at}", caption_id=f"t{at}", text="", split="train") for at in range(n)]
        grids = []
        for step in range(recipe.n_steps):
            for index in range(recipe.grids_per_step):
                # Disjoint within a step and from nothing else: as many items as vanilla, but for chance.
                rows = [(7919 * step + 3 * index + third) % n for third in range(3)]
                images, texts = tuple(f"i{row}" for row in rows), tuple(f"t{row}" for row in rows)
                grids.append(Grid(step=step, index=index, images=images, texts=texts, n_synthetic=0))  # type: ignore[arg-type]
        data = TrainingData(
            pairs=pairs,
            grids=grids,
            matches=MatchTable([(pair.image_id, pair.caption_id) for pair in pairs]),
            images=Prepared((self.image_keys, self.images), what="image"),
            texts=Prepared((self.text_keys, self.texts), what="caption"),
        )
        return Training(encoder, data, recipe)


def forward_flop(config: Any) -> tuple[float, float]:
    """Floating-point operations of one image and of one caption through CLIP, forward: products only, 2 for each
    multiplication and addition; attention in full, as it is without the causal half left out."""
    vision, text = config.vision_config, config.text_config
    n_patches = (vision.image_size // vision.patch_size) ** 2
    patches = 2.0 * n_patches * 3 * vision.patch_size**2 * vision.hidden_size
    towers = [_tower_flop(vision, n_patches + 1), _tower_flop(text, text.max_position_embeddings)]
    heads = [2.0 * tower.hidden_size * config.projection_dim for tower in (vision, text)]
    return patches + towers[0] + heads[0], towers[1] + heads[1]


def _tower_flop(tower: Any, n: int) -> float:
    width, hidden = tower.hidden_size, tower.intermediate_size
    layer = 2.0 * n * (4 * width**2 + 2 * width * hidden) + 4.0 * n**2 * width
    return float(tower.num_hidden_layers * layer)


# -------------------------------------------------------------------------------------- embedding, steps


def _embed(table: Table, encoder: Any, data: _Data) -> None:
    for size in table.sizes.embed_batches:
        encoder.embed_images(data.images[: 2 * size], batch_size=size)
        table.memory()
        start = table.timed()
        encoder.embed_images(data.images, batch_size=size)
        seconds, n = table.timed() - start, len(data.images)
        table.add(
            f"embed {n:,} images, {size} at a time",
            seconds,
            f"{n / seconds:,.0f} images/s",
            flop=n * data.flop_image,
            memory=table.memory(),
        )


def _steps(table: Table, encoder: Any, data: _Data) -> None:
    for n_global, n_grids in table.sizes.batches:
        pairs = n_global + 3 * n_grids
        recipe = Recipe(batch_pairs=n_global, grids_per_step=n_grids)
        plain = replace(recipe, loss="vanilla")
        pieces = replace(plain, micro_batch=max(1, pairs // 4))
        vanilla = _step(table, encoder, data, f"vanilla, {pairs} pairs", plain)
        grids = _step(table, encoder, data, f"grids, {n_global} pairs + {n_grids} grids", recipe)
        cached = _step(table, encoder, data, f"pieces, {pairs} pairs, {pieces.micro_batch} at a time", pieces)
        if vanilla and grids and cached:
            ratios = f"| grids / vanilla {grids / vanilla:.3f}, pieces / vanilla {cached / vanilla:.3f} |"
            print(ratios + " |" * (len(_COLUMNS) - 1), flush=True)


def _step(table: Table, encoder: Any, data: _Data, what: str, recipe: Recipe) -> float | None:
    """Seconds of a step of a sample, by the median; None if time has run out."""
    if table.left_s() < 0:
        table.add(f"{what}: left out, time is up", 1.0, "")
        return None
    n = table.sizes.n_steps + table.sizes.warm_up
    recipe = replace(recipe, n_steps=n, precision="bf16", lr=1e-6)
    training = data.training(encoder, recipe)
    table.memory()
    stamps, rows = [table.timed()], []
    for row in training.run():
        stamps.append(table.timed())
        rows.append(row)
    taken = list(np.diff(stamps))[table.sizes.warm_up :]
    kept = rows[table.sizes.warm_up :]
    seconds = statistics.median(taken)
    n_images, n_texts = (
        statistics.median(values) for values in zip(*((r.n_images, r.n_texts) for r in kept), strict=True)
    )
    table.add(
        what,
        seconds,
        f"{n_images / seconds:,.0f} pairs/s",
        flop=3 * (n_images * data.flop_image + n_texts * data.flop_text),
        memory=table.memory(),
        idle=sum(row.wait_s for row in kept) / sum(taken),
    )
    return float(seconds / n_images)


# ------------------------------------------------------------------------------------------------ search


def _searches(table: Table) -> None:
    sizes = table.sizes
    for number, (n_rows, n_columns) in enumerate(sizes.searches):
        if table.left_s() < 10:
            table.add(f"top-k, {n_rows:,} × {n_columns:,}: left out, time is up", 1.0, "")
            continue
        rows, columns = (_unit_rows(table, n, seed) for seed, n in enumerate((n_rows, n_columns)))
        table.memory()
        start = table.timed()
        n_done, found = top_k_both(rows, columns, k=_K, block=sizes.block, until=time.monotonic() + table.left_s() - 5)
        seconds = table.timed() - start
        part = "" if n_done == n_rows else f", the first {n_done:,} rows, time was up"
        cells = n_done * n_columns
        table.add(
            f"top-k, {n_rows:,} × {n_columns:,}{part}", seconds, f"{cells / seconds:.3g} pairs/s", memory=table.memory()
        )
        if number == 0:
            _beside_ours(table, rows[: sizes.compared], columns)
        del rows, columns, found


def _beside_ours(table: Table, rows: torch.Tensor, columns: torch.Tensor) -> None:
    left, right = rows.cpu().numpy(), columns.cpu().numpy()
    start = time.perf_counter()
    ours = search_both(left, right, k=_K)
    seconds = time.perf_counter() - start
    _, found = top_k_both(rows, columns, k=_K, block=table.sizes.block)
    same = all(
        np.array_equal(theirs[0], own.indices) and np.array_equal(theirs[1], own.scores)
        for theirs, own in zip(found, (ours.rows, ours.columns), strict=True)
    )
    what = f"search_both on the processor, {len(left):,} × {len(right):,}: lists {'equal' if same else 'DIFFER'}"
    table.add(what, seconds, f"{len(left) * len(right) / seconds:.3g} pairs/s")


def _unit_rows(table: Table, n: int, seed: int) -> torch.Tensor:
    """Drawn unit rows, rounded as the search rounds them; one in ten is a copy of another, as captions are."""
    generator = torch.Generator(device=table.device).manual_seed(seed)
    rows = torch.randn(n, table.sizes.dim, generator=generator, device=table.device)
    rows /= rows.norm(dim=1, keepdim=True)
    rows[-(n // 10) :] = rows[: n // 10]
    return (rows * 2.0**26).round() / 2.0**26


def top_k_both(
    rows: torch.Tensor, columns: torch.Tensor, *, k: int, block: int, until: float = float("inf")
) -> tuple[int, tuple[tuple[Array, Array], tuple[Array, Array]]]:
    """The k best columns of every row and rows of every column, (indices, scores) each, in the order (-score, index);
    and how many rows were done before the clock (`time.monotonic`) reached `until`.

    Scores as in `numerics.cosines`: products of rounded components add up exactly in float64, whatever the order.
    """
    sides = [
        _Lists(len(side), k=min(k, len(other)), device=rows.device)
        for side, other in ((rows, columns), (columns, rows))
    ]
    for row_start in range(0, len(rows), block):
        if time.monotonic() > until:
            return row_start, (sides[0].result(), sides[1].result())
        left = rows[row_start : row_start + block].double()
        for column_start in range(0, len(columns), block):
            scores = (left @ columns[column_start : column_start + block].double().T).float()
            sides[0].update(scores, row_start, column_start)
            sides[1].update(scores.T, column_start, row_start)
    return len(rows), (sides[0].result(), sides[1].result())


class _Lists:
    """`numerics.ranking.Side` in torch: running top-k lists of one direction, an item one int64 key."""

    def __init__(self, n_queries: int, *, k: int, device: torch.device) -> None:
        self.k = k
        self.keys = torch.full((n_queries, k), int(EMPTY), device=device)
        self.floor = torch.full((n_queries,), -torch.inf, device=device)

    def update(self, scores: torch.Tensor, query_start: int, item_start: int) -> None:
        span = slice(query_start, query_start + len(scores))
        better = (scores > self.floor[span, None]).contiguous()
        if scores.shape[1] > self.k and 8 * int(better.sum()) > better.numel():
            better &= scores >= scores.topk(self.k, dim=1).values[:, -1:]  # ties with the tile's own k-th stay in
        query, item = better.nonzero(as_tuple=True)
        if not len(query):
            return
        queries, row, counts = torch.unique_consecutive(query, return_inverse=True, return_counts=True)
        place = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[row]
        entering = torch.full((len(queries), int(counts.max())), int(EMPTY), device=query.device)
        entering[row, place] = _encoded(scores[query, item], item + item_start)
        queries += query_start
        merged = torch.cat([self.keys[queries], entering], dim=1).sort(dim=1).values[:, : self.k]
        self.keys[queries] = merged
        self.floor[queries] = _scores_of(merged[:, -1])

    def result(self) -> tuple[Array, Array]:
        return decode(self.keys.cpu().numpy())


def _encoded(scores: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    bits = (scores + 0.0).view(torch.int32)  # + 0 turns -0.0 into 0.0
    return ((~torch.where(bits < 0, bits ^ _SIGN, bits)).long() << 32) | items


def _scores_of(keys: torch.Tensor) -> torch.Tensor:
    ascending = ~(keys >> 32).int()
    scores = torch.where(ascending < 0, ascending ^ _SIGN, ascending).view(torch.float32)
    return scores.masked_fill(keys == int(EMPTY), -torch.inf)


if __name__ == "__main__":
    main()
