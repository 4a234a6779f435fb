"""Edits of captions and scenes, minimal and otherwise, and what is wrong between the two: the room's editing API."""

from repair.world.bad_edits import (
    overreaching_image_edit,
    overreaching_text_edit,
    wrong_image_edit,
    wrong_text_edit,
)
from repair.world.differences import Difference, image_difference, text_difference
from repair.world.distance import caption_distance, scene_distance
from repair.world.image_edits import minimal_image_edit
from repair.world.text_edits import minimal_text_edits

__all__ = [
    "Difference",
    "caption_distance",
    "image_difference",
    "minimal_image_edit",
    "minimal_text_edits",
    "overreaching_image_edit",
    "overreaching_text_edit",
    "scene_distance",
    "text_difference",
    "wrong_image_edit",
    "wrong_text_edit",
]
