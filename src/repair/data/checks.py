"""Opening every image of a source, whatever kind of source it is: `repair doctor` does this."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from repair.core.errors import DataError
from repair.core.images import MAX_PIXELS, decode
from repair.core.ports import PairSource
from repair.core.records import SetAside


def check_images(
    source: PairSource,
    *,
    splits: Sequence[str] | None = None,
    max_pixels: int = MAX_PIXELS,
    n_workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[SetAside]:
    """The images of `splits` (all, unless given) that cannot be read and decoded in full, with reasons, in order.

    `progress(done, total)` is called after each image. Results do not depend on `n_workers` (threads).
    """
    image_ids = [
        image_id
        for split in (source.splits() if splits is None else splits)
        for image_id in dict.fromkeys(pair.image_id for pair in source.pairs(split))
    ]

    def problem(image_id: str) -> str | None:
        try:
            decode(source.read_image(image_id), where=image_id, max_pixels=max_pixels)
        except DataError as error:
            return str(error)
        return None

    bad = []
    with ThreadPoolExecutor(max_workers=max(1, n_workers)) as pool:
        for done, (image_id, reason) in enumerate(zip(image_ids, pool.map(problem, image_ids), strict=True), start=1):
            if reason is not None:
                bad.append(SetAside(item=image_id, reason=reason.removeprefix(f"image {image_id}: ")))
            if progress is not None:
                progress(done, len(image_ids))
    return bad
