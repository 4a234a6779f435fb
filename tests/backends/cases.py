"""Cases of our own making: a caption, an image's captions, nothing else."""

from repair.core.ports import Case, ImageItem, TextItem
from repair.core.records import Direction

BLUE_SHIRT = (
    "A man in a blue shirt rides a bicycle down a street .",
    "A man is riding his bicycle on a busy street .",
    "The cyclist wears a blue shirt and a white helmet .",
    "A man with a helmet rides past some shops .",
    "A man on a bicycle in the middle of the city .",
)
TWO_DOGS = (
    "Two brown dogs run across a field of snow .",
    "Two dogs are running through the snow .",
    "Two brown dogs play in a wide snowy field .",
)


def image(captions: tuple[str, ...], *, key: str = "photo") -> ImageItem:
    return ImageItem(key=key, content_hash=f"b2:{key}", captions=captions, read=lambda: b"")


def image_to_text(false_positive: str, captions: tuple[str, ...] = BLUE_SHIRT) -> Case:
    return Case(
        failure_id="f1",
        direction=Direction.IMAGE_TO_TEXT,
        query=image(captions),
        false_positive=TextItem(key="fp", text=false_positive),
        ground_truths=tuple(TextItem(key=f"gt{i}", text=text) for i, text in enumerate(captions)),
    )


def text_to_image(query: str, captions: tuple[str, ...] = BLUE_SHIRT, *, siblings: tuple[str, ...] = ()) -> Case:
    return Case(
        failure_id="f2",
        direction=Direction.TEXT_TO_IMAGE,
        query=TextItem(key="query", text=query, image_captions=siblings),
        false_positive=image(captions, key="false"),
        ground_truths=(image(siblings, key="true"),),
    )
