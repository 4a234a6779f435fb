"""Reading a case as the world's backends do: what it shows and says, what is true of it, and how it can be misread."""

import numpy as np

from repair.core.errors import DataError, Refused
from repair.core.identity import derive_rng, hash_value
from repair.core.ports import Case, ImageItem, Item, TextItem
from repair.core.records import Criterion, Direction, Instruction
from repair.world.bad_edits import wrong_text_edit
from repair.world.claims import Claim, holds
from repair.world.differences import Difference, image_difference, text_difference
from repair.world.drawing import read_scene
from repair.world.language import parse
from repair.world.sampling import vary_facts
from repair.world.scenes import Scene

N_MISREADINGS = 3  # the wrong ways to read the query of one case


def true_criterion(case: Case) -> Criterion | None:
    """What a verifier that never errs answers: None if the failure is genuine. Raises Refused outside the world."""
    if not _agree(case.query, case.ground_truths[0]):
        return Criterion.ANNOTATION_NOISE
    return Criterion.BENIGN_MISMATCH if _agree(case.query, case.false_positive) else None


def _agree(query: Item, item: Item) -> bool:
    image, text = (query, item) if isinstance(query, ImageItem) else (item, query)
    return holds(scene_of(image), claim_of(text))


def scene_of(item: Item) -> Scene:
    """What an image shows. Raises Refused for a caption, and for an image that is not of this world."""
    try:
        return read_scene(image_of(item).read())
    except DataError as error:
        raise Refused(f'backend "world" cannot see image {item.key}: {error}') from error


def claim_of(item: Item) -> Claim:
    """What a caption says. Raises Refused for an image, and for a caption outside the grammar of this world."""
    try:
        return parse(text_of(item))
    except DataError as error:
        raise Refused(f'backend "world" cannot read caption {item.key}: {error}') from error


def image_of(item: Item) -> ImageItem:
    """The item, an image. Raises Refused for a caption."""
    if not isinstance(item, ImageItem):
        raise Refused(f"{item.key} is a caption where the direction of the case asks for an image")
    return item


def text_of(item: Item) -> str:
    """The text of a caption. Raises Refused for an image."""
    if not isinstance(item, TextItem):
        raise Refused(f"{item.key} is an image where the direction of the case asks for a caption")
    return item.text


def case_rng(seed: int, task: str, case: Case, *names: str | int) -> np.random.Generator:
    """Random numbers for one request: they depend on seed, task and content, not on ids or order."""
    return derive_rng(seed, "world", task, hash_value(case.payload()), *names)


def reason_for(criterion: Criterion | None) -> str:
    """The reason a verdict of that criterion gives."""
    match criterion:
        case None:
            return "the false positive says something else than the query"
        case Criterion.ANNOTATION_NOISE:
            return "the query and its ground truth disagree"
        case _:
            return "the false positive is true of the query"


def difference(case: Case, reading: int) -> Difference:
    """How the false positive must change to fit the query as `reading` has it; empty where it fits already."""
    if case.direction is Direction.IMAGE_TO_TEXT:
        claim_of(case.false_positive)
        return text_difference(_query_scene(case, reading), text_of(case.false_positive))
    scene = scene_of(case.false_positive)
    try:
        return image_difference(scene, _query_text(case, reading))
    except DataError as error:
        if reading:
            # the misreading is of something that cannot be drawn: no instruction comes of it
            return Difference(error_types=(), residual="", scaffold="", instruction="", n_facts=0)
        raise Refused(f'backend "world" cannot draw caption {case.query.key}: {error}') from error


def to_edit_text(case: Case, instruction: Instruction) -> tuple[Scene, str]:
    """The scene to make the false-positive caption true of, and that caption."""
    claim_of(case.false_positive)
    return _query_scene(case, _reading_of(case, instruction)), text_of(case.false_positive)


def to_edit_image(case: Case, instruction: Instruction) -> tuple[Scene, Claim]:
    """The false-positive scene, and what it is to be made to show."""
    return scene_of(case.false_positive), parse(_query_text(case, _reading_of(case, instruction)))


def _reading_of(case: Case, instruction: Instruction) -> int:
    """Which reading of the query the instruction comes from; one from another instructor counts as right."""
    for reading in range(N_MISREADINGS + 1):
        if difference(case, reading).instruction == instruction.instruction:
            return reading
    return 0


def _query_scene(case: Case, reading: int) -> Scene:
    """The query image as seen by reading 0 (right) or with something wrong; the same for every call about the case."""
    scene = scene_of(case.query)
    return vary_facts(case_rng(reading, "misread", case), scene, n_changes=1) if reading else scene


def _query_text(case: Case, reading: int) -> str:
    """The query caption in reading 0, else with one fact taken for another that is false of the ground truth."""
    claim_of(case.query)
    text = text_of(case.query)
    if not reading:
        return text
    return wrong_text_edit(scene_of(case.ground_truths[0]), text, rng=case_rng(reading, "misread", case))
