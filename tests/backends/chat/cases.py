"""Cases whose images can be read: pictures of one colour."""

from PIL import Image

from repair.core.identity import hash_bytes
from repair.core.ports import Case, ImageItem, TextItem
from repair.core.records import Direction, ErrorType, Instruction
from tests.backends.loopback import png

CAPTIONS = ("A man in a red shirt rides a bike .", "A cyclist on a street .")
TOLD = Instruction(
    failure_id="f1",
    error_types=(ErrorType.ATTRIBUTE,),
    residual="blue",
    scaffold="a man rides a bike",
    instruction='Replace "blue" by "red".',
)


def image(
    colour: str = "red", *, size: tuple[int, int] = (40, 30), captions: tuple[str, ...] = CAPTIONS, key: str = "a.jpg"
) -> ImageItem:
    data = png(Image.new("RGB", size, colour))
    return ImageItem(key=key, content_hash=hash_bytes(data), captions=captions, read=lambda: data)


def image_to_text(
    false_positive: str = "A man in a blue shirt rides a bike .", captions: tuple[str, ...] = CAPTIONS
) -> Case:
    return Case(
        failure_id="f1",
        direction=Direction.IMAGE_TO_TEXT,
        query=image(captions=captions),
        false_positive=TextItem(key="fp-1", text=false_positive),
        ground_truths=tuple(TextItem(key=f"gt-{i}", text=text) for i, text in enumerate(captions)),
    )


def text_to_image(query: str = "A man in a blue shirt rides a bike .") -> Case:
    return Case(
        failure_id="f2",
        direction=Direction.TEXT_TO_IMAGE,
        query=TextItem(key="q-1", text=query),
        false_positive=image("red", key="wrong.jpg"),
        ground_truths=(image("blue", captions=(query, "A cyclist in blue ."), key="right.jpg"),),
    )
