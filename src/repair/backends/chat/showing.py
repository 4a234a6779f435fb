"""A case as messages to a chat model: images first, then the prompt with the case's texts as delimited data."""

from collections.abc import Mapping
from typing import Any

from repair.backends.chat.images import ImageSender
from repair.backends.prompts import Prompt, data_block
from repair.core.errors import DataError
from repair.core.ports import Case, ImageItem, Item, TextItem
from repair.core.records import Instruction

_MAX_CAPTIONS = 10  # captions that describe one image to a model that sees none


async def messages_of(
    prompt: Prompt, case: Case, images: ImageSender, slots: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """System and user message. No id, key or file name of the case is in them: those mean nothing to a model.

    Raises DataError if an image cannot be decoded, or has no captions and the model sees captions only.
    """
    blocks: list[str] = []
    parts: list[dict[str, Any]] = []
    truth = case.ground_truths[0]
    for name, item in (("query", case.query), ("labelled_match", truth), ("retrieved_item", case.false_positive)):
        if isinstance(item, TextItem):
            blocks.append(data_block(name, {"caption": item.text}))
        elif images.image_as == "captions":
            blocks.append(data_block(name, {"image_described_by": described(item, apart_from=truth)}))
        else:
            n_shown = sum(part["type"] == "image_url" for part in parts) + 1
            parts += [{"type": "text", "text": f"Image {n_shown}:"}, await images.part(item)]
            blocks.append(f'<data name="{name}">\nimage: Image {n_shown} above\n</data>')
    system, user = prompt.fill({"case": "\n".join(blocks), **(slots or {})})
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": [*parts, {"type": "text", "text": user}] if parts else user})
    return messages


def described(image: ImageItem, *, apart_from: Item) -> list[str]:
    """What captions say of an image, without the one it is to be compared with, unless there is no other."""
    captions = list(image.captions)
    if isinstance(apart_from, TextItem) and len(captions) > 1:
        captions = [caption for caption in captions if caption != apart_from.text] or captions
    if not captions:
        raise DataError(
            'an image without captions cannot be shown to a model that sees none: set image_as = "data_url"'
        )
    return captions[:_MAX_CAPTIONS]


def instruction_block(told: Instruction) -> str:
    """What another model said must change: data as well."""
    return data_block("instruction", {"wrong": told.residual, "keep": told.scaffold, "instruction": told.instruction})
