"""What is wrong with an edit, exactly: the classes of the paper's Table 18, decided by scene and claim.

An edit is measured against the smallest one: whatever it changes beyond that many facts has drifted from the scaffold.
"""

import io

import numpy as np
from PIL import Image

from repair.core.identity import derive_rng
from repair.core.records import Shortfall
from repair.world.claims import holds
from repair.world.distance import caption_distance, scene_distance
from repair.world.drawing import draw, read_scene
from repair.world.image_edits import minimal_image_edit
from repair.world.language import parse
from repair.world.scenes import Scene
from repair.world.text_edits import minimal_edits


def text_shortfall(scene: Scene, false_positive: str, edit: str) -> Shortfall | None:
    """Of a caption edited to be true of `scene`; None if nothing is wrong. What a caption says is all of it, so it has
    no artefacts. Raises DataError for a caption of another world."""
    before, after = parse(false_positive), parse(edit)
    if holds(scene, before):
        return Shortfall.AMBIGUOUS_FALSE_POSITIVE
    if not holds(scene, after):
        return Shortfall.SEMANTIC_MISMATCH
    least = minimal_edits(scene, before)[0].cost
    return Shortfall.SCAFFOLD_DRIFT if caption_distance(before, after) > least else None


def image_shortfall(text: str, false_positive: bytes, edit: bytes) -> Shortfall | None:
    """Of an image edited to show `text`; None if nothing is wrong. Raises DataError for bytes of another world."""
    claim, before, after = parse(text), read_scene(false_positive), read_scene(edit)
    if holds(before, claim):
        return Shortfall.AMBIGUOUS_FALSE_POSITIVE
    if not holds(after, claim):
        return Shortfall.SEMANTIC_MISMATCH
    # All smallest edits change equally many facts, so it does not matter which one is drawn.
    smallest = minimal_image_edit(before, claim, rng=derive_rng(0, "shortfall"))
    if scene_distance(before, after) > scene_distance(before, smallest):
        return Shortfall.SCAFFOLD_DRIFT
    if _looks(before) != _looks(after, n=len(before.things)) or not _is_drawn(edit, after):
        return Shortfall.ARTEFACT
    return None


def _looks(scene: Scene, *, n: int | None = None) -> tuple[int, ...]:
    """What is seen of a scene beyond its facts: of the background, and of its first `n` things (new ones come last)."""
    return (scene.noise, *(thing.noise for thing in scene.things[:n]))


def _is_drawn(png: bytes, scene: Scene) -> bool:
    """Whether the pixels are those of the scene that the bytes carry."""
    with Image.open(io.BytesIO(png)) as image:
        pixels = np.asarray(image.convert("RGB"))
    return bool(np.array_equal(pixels, np.asarray(draw(scene, size=pixels.shape[1]).convert("RGB"))))
