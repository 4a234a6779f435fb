"""What other methods than RePair ask of models, answered over the world's truth with the same editors and error rates.

A caption or a picture is changed by the very functions that RePair's editors use (`world.faults`, `world.changes`), and
comes out right, unchanged, changed too much or missing its purpose just as often. So between methods only the idea
differs: what is asked for, about which images, and how it is trained on.
"""

from typing import Any

import numpy as np

from repair.core.errors import ConfigError, DataError, Refused
from repair.core.identity import canonical_json, derive_rng, hash_value
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.core.synthesis import Change, MakingTask, WritingTask
from repair.world.backends import TOKENS_PER_IMAGE, TOKENS_PER_WORD, side_of
from repair.world.changes import changed_caption, foil_of, rewritten_caption, units_of
from repair.world.drawing import read_scene, render
from repair.world.faults import edit_rates, edited_scene
from repair.world.language import parse
from repair.world.sampling import sample_scene
from repair.world.scenes import Scene
from repair.world.source import WORLD_VERSION
from repair.world.vocabulary import SETTINGS

_WRITING_WORDS, _MAKING_WORDS = 180, 30  # of a plausible prompt, as those of RePair's editors
_SIDE = 64


class WorldWriter:
    """A `core.synthesis.CaptionWriter`. Options as those of the world's text editor, with its defaults.

    Each text asked for comes out right or wrong on its own. Raises Refused for an image or a caption outside the world.
    """

    changes = frozenset(Change)

    def __init__(
        self,
        *,
        no_op_rate: float = 0.1,
        excess_rate: float = 0.1,
        misplaced_rate: float = 0.1,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = _rates_given(no_op_rate, excess_rate, misplaced_rate)
        self._rates = edit_rates(no_op_rate, excess_rate, misplaced_rate)
        self._price_usd = price_usd_per_call
        self.fingerprint = hash_value({"backend": "world-writer", "version": 1, "world": WORLD_VERSION, **options})

    async def write(self, task: WritingTask, *, seed: int) -> Reply[tuple[str, ...]]:
        rng = derive_rng(seed, "world", "write", hash_value(task.payload()))
        try:
            texts = self._written(task, rng)
        except DataError as error:
            raise Refused(f'writer "world" cannot read "{task.text}": {error}') from error
        raw = canonical_json(list(texts))
        n_words = _WRITING_WORDS + len(task.text.split()) + sum(len(part.split()) for part in task.parts)
        usage = Usage(
            tokens_in=round(TOKENS_PER_WORD * n_words),
            tokens_out=round(TOKENS_PER_WORD * len(raw.split())),
            price_usd=self._price_usd,
        )
        return Reply(texts, usage, raw)

    def _written(self, task: WritingTask, rng: np.random.Generator) -> tuple[str, ...]:
        if task.change is Change.DOMAINS:
            return tuple(forms[0] for forms in SETTINGS.values())
        if task.change is Change.UNITS:
            return units_of(task.text)
        scene = _scene_of(task)
        if task.change is Change.FOIL:
            return tuple(foil_of(scene, part, rng, outcome=self._rates.outcome(rng)) for part in task.parts)
        outcome = self._rates.outcome(rng)
        if task.change is Change.REWRITE:
            return (rewritten_caption(scene, task.text, rng, outcome=outcome),)
        text = changed_caption(scene, task.text, task.change, rng, outcome=outcome)
        return () if text is None else (text,)


def world_rules() -> WorldWriter:
    """The writer without errors: rules swap what they are told to swap, and leave out what gives nothing false."""
    return WorldWriter(no_op_rate=0.0, excess_rate=0.0, misplaced_rate=0.0)


class WorldMaker:
    """A `core.synthesis.ImageMaker`. Options as those of the world's image editor, with its defaults.

    A picture out of nothing starts from a scene of its own. Where `text` is a caption followed by " | " and a setting,
    the caption is shown in that setting. Raises Refused for an image or a text outside the world, or one that no scene
    fits.
    """

    def __init__(
        self,
        *,
        no_op_rate: float = 0.1,
        excess_rate: float = 0.15,
        misplaced_rate: float = 0.15,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = _rates_given(no_op_rate, excess_rate, misplaced_rate)
        self._rates = edit_rates(no_op_rate, excess_rate, misplaced_rate)
        self._price_usd = price_usd_per_call
        self.fingerprint = hash_value({"backend": "world-maker", "version": 1, "world": WORLD_VERSION, **options})

    async def make(self, task: MakingTask, *, seed: int) -> Reply[bytes]:
        rng = derive_rng(seed, "world", "make", hash_value(task.payload()))
        try:
            data, changed = self._made(task, rng)
        except DataError as error:
            raise Refused(f'maker "world" cannot draw "{task.text}": {error}') from error
        n_words = _MAKING_WORDS + len(task.text.split()) + len(task.source_text.split())
        shown = 0 if task.source is None else TOKENS_PER_IMAGE
        usage = Usage(tokens_in=round(TOKENS_PER_WORD * n_words) + shown, n_images=1, price_usd=self._price_usd)
        return Reply(data, usage, canonical_json({"changed": changed}))

    def _made(self, task: MakingTask, rng: np.random.Generator) -> tuple[bytes, bool]:
        caption, _, setting = task.text.partition(" | ")
        claim = parse(caption)
        if setting:
            named = next((name for name, forms in SETTINGS.items() if setting in forms), None)
            if named is None:
                raise DataError(f'there is no setting "{setting}"')
            claim = type(claim)(phrases=claim.phrases, relations=claim.relations, setting=named)
        data = b"" if task.source is None else task.source.read()
        scene = sample_scene(rng) if task.source is None else read_scene(data)
        edited = edited_scene(scene, claim, rng, outcome=self._rates.outcome(rng))
        if data and edited == scene:
            return data, False
        return render(edited, size=side_of(data) if data else _SIDE), True


def _scene_of(task: WritingTask) -> Scene:
    if task.image is None:
        raise Refused('writer "world" needs the image of a caption to know what is false of it')
    return read_scene(task.image.read())


def _rates_given(no_op_rate: float, excess_rate: float, misplaced_rate: float) -> dict[str, Any]:
    options = {"no_op_rate": no_op_rate, "excess_rate": excess_rate, "misplaced_rate": misplaced_rate}
    for option, value in options.items():
        if not 0 <= value <= 1:
            raise ConfigError(f'option "{option}" of the world\'s writer or maker: a rate in [0, 1], not {value}')
    return options
