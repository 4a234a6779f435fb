"""Tools over the drawn world for builders under test: calls answered at once, nothing kept on disk."""

import asyncio

from repair.core.errors import Refused
from repair.core.identity import derive_seed, hash_bytes
from repair.core.ports import ImageItem
from repair.methods.method import Anchor, Measure
from repair.world.source import WorldSource
from repair.world.synthesis import WorldMaker, WorldWriter

RIGHT = {"no_op_rate": 0.0, "excess_rate": 0.0, "misplaced_rate": 0.0}
SOURCE = WorldSource(n_train=40, n_val=0, n_test=0, annotation_noise_rate=0.0)
PAIRS = SOURCE.pairs("train")


class WorldTools:
    def __init__(self, *, seed=0, broken=()):
        self.seed, self.broken = seed, broken
        self.pictures, self.asked = {}, []
        self._writer, self._maker = WorldWriter(**RIGHT), WorldMaker(**RIGHT)

    async def write(self, task, index=0):
        self.asked.append(("write", str(task.change), index))
        if "write" in self.broken:
            return None
        return (await self._writer.write(task, seed=derive_seed(self.seed, index))).value

    async def rule(self, task, index=0):
        self.asked.append(("rule", str(task.change), index))
        return (await self._writer.write(task, seed=derive_seed(self.seed, index))).value

    async def make(self, task, index=0):
        self.asked.append(("make", task.text, index))
        if "make" in self.broken:
            return None
        try:
            return await self.keep((await self._maker.make(task, seed=derive_seed(self.seed, index))).value)
        except Refused:
            return None

    async def keep(self, picture):
        self.pictures[hash_bytes(picture)] = picture
        return hash_bytes(picture)


def anchor(row=0):
    pair = PAIRS[row]
    own = tuple(other.text for other in PAIRS if other.image_id == pair.image_id)
    image = ImageItem(
        key=pair.image_id,
        content_hash=SOURCE.image_hash(pair.image_id),
        captions=own,
        read=lambda: SOURCE.read_image(pair.image_id),
    )
    return Anchor(image=image, caption_id=pair.caption_id, text=pair.text)


def built(builder, row=0, **options):
    """Samples of one anchor, and the tools they were made with."""
    tools = WorldTools(**options)

    async def run():
        shared = await builder.prepare(tools, [pair.text for pair in PAIRS[:20]])
        return await builder.build(anchor(row), tools, shared)

    return asyncio.run(run()), tools


def measures(samples, **values):
    return {sample.sample_id: Measure(**values) for sample in samples}
