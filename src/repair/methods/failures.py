"""False positives as hard negatives, unedited: what RePair mines and verifies, without what it makes of it."""

from collections.abc import Iterable, Mapping

from repair.core.records import Direction, Failure, Verdict
from repair.core.synthesis import Sample, SampleKind
from repair.methods.method import sample_id

NAME = "failures"


def from_failures(
    failures: Iterable[Failure], verdicts: Iterable[Verdict], *, texts: Mapping[str, str], owners: Mapping[str, str]
) -> list[Sample]:
    """One sample for each kept failure: the false caption of an image, or the false image of a caption.

    `texts`: caption id to text; `owners`: caption id to image id.
    """
    kept = {verdict.failure_id for verdict in verdicts if verdict.keep}
    samples = []
    for index, failure in enumerate(failures):
        if failure.failure_id not in kept:
            continue
        asks_image = failure.direction is Direction.IMAGE_TO_TEXT
        caption = failure.ground_truth_id if asks_image else failure.query_id
        samples.append(
            Sample(
                sample_id=sample_id(NAME, caption, index),
                builder=NAME,
                kind=SampleKind.NEGATIVE_CAPTION if asks_image else SampleKind.NEGATIVE_IMAGE,
                image_id=failure.query_id if asks_image else owners[caption],
                caption_id=caption,
                index=index,
                how=failure.failure_id,
                text_key=failure.false_positive_id if asks_image else None,
                text=texts[failure.false_positive_id] if asks_image else None,
                image_key=None if asks_image else failure.false_positive_id,
            )
        )
    return samples
