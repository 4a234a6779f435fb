"""What travels through the system: frozen values, each one row of a table.

Words are those of the paper and of docs/architecture.md: a *query* retrieves a *false positive* that is not its
*ground truth*; the row of mining is a *failure*; the *residual* must change, the *scaffold* must stay; one edit is a
*candidate*; the selected candidate is the *repair*; repairs become *links*; links become *grids*.

Items are named by a key: an image's id or a caption's id for originals, a content hash ("b2:…") for edits. An
edited caption's key is the hash of its text, an edited image's key the hash of its encoded bytes.
"""

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """What retrieves what. In printed tables only: `i2t`, `t2i`."""

    IMAGE_TO_TEXT = "image_to_text"
    TEXT_TO_IMAGE = "text_to_image"

    @property
    def short(self) -> str:
        return "i2t" if self is Direction.IMAGE_TO_TEXT else "t2i"


class ErrorType(StrEnum):
    """What kind of thing is wrong in a false positive; a failure may have several (paper, Table 16)."""

    OBJECT = "object"
    ATTRIBUTE = "attribute"
    RELATION = "relation"
    ACTION = "action"
    COUNT = "count"
    HALLUCINATION = "hallucination"


class Criterion(StrEnum):
    """Why the pre-edit verifier drops a failure (paper, Table 12)."""

    ANNOTATION_NOISE = "annotation_noise"  # criterion 1: query and ground truth disagree
    BENIGN_MISMATCH = "benign_mismatch"  # criterion 2: the false positive does match the query


class Modality(StrEnum):
    IMAGE = "image"
    TEXT = "text"


class LinkKind(StrEnum):
    """What a link says of its target, seen from its anchor."""

    POSITIVE = "positive"  # the anchor has this hard positive (an edit)
    NEGATIVE = "negative"  # the anchor has this hard negative (an unedited false positive)


class RepairStatus(StrEnum):
    REPAIRED = "repaired"
    UNREPAIRED = "unrepaired"  # edits were made, none was valid
    NEGATIVE_ONLY = "negative_only"  # no editor for this modality: the false positive still serves as hard negative
    FAILED = "failed"  # a call failed; asked again when the stage runs again


class Shortfall(StrEnum):
    """What is wrong with a kept edit (paper, Table 18); of several, the first in this order."""

    AMBIGUOUS_FALSE_POSITIVE = "ambiguous_false_positive"  # the false positive was true of the query all along
    SEMANTIC_MISMATCH = "semantic_mismatch"  # the edit is not true of the query
    SCAFFOLD_DRIFT = "scaffold_drift"  # it is, but more has changed than had to
    ARTEFACT = "artefact"  # no fact too many has changed, but something else that is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One image with one of its own captions, as labelled."""

    image_id: str
    caption_id: str
    text: str
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """One input item that could not be used, with the reason; the run goes on without it.

    `split` is where it would have been, None where that cannot be told (a line that cannot be read).
    """

    item: str
    reason: str
    split: str | None = None
    is_caption: bool = False  # else an image, or a line of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One row of mining. Ranks start at 1 and follow the tie rule of `numerics.similarity`; scores are cosines."""

    failure_id: str
    direction: Direction
    query_id: str
    false_positive_id: str
    ground_truth_id: str  # the best-ranked ground truth
    false_positive_rank: int  # among the items that do not match
    ground_truth_rank: int  # 1 + the number of non-matching items that score above it
    false_positive_score: float
    ground_truth_score: float
    outranks: bool  # the false positive stands above the best ground truth


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The pre-edit verifier's answer on one failure."""

    failure_id: str
    keep: bool
    criterion: Criterion | None  # set exactly when dropped
    reason: str
    error: str | None = None  # the call failed: neither kept nor dropped


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """What must change in the false positive, what must stay, and one imperative sentence that says so."""

    failure_id: str
    error_types: tuple[ErrorType, ...]
    residual: str
    scaffold: str
    instruction: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One edit of the false positive, before selection."""

    failure_id: str
    index: int  # 0 … M-1, one seed each
    key: str | None  # content hash of the edited text or image; None if the call failed
    text: str | None  # the edited caption (image_to_text only)
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredCandidate:
    """A candidate with what selection measured. `rejected` is None exactly for valid candidates."""

    failure_id: str
    index: int
    key: str | None
    text: str | None
    query_score: float | None  # s(query, candidate)
    gain: float | None  # s(query, candidate) - s(query, false positive)
    closeness: float | None  # cosine of candidate and false positive, in their own modality
    rejected: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The outcome of one kept failure. `key` and `text` are those of the selected candidate, if there is one."""

    failure_id: str
    direction: Direction
    query_id: str
    false_positive_id: str
    ground_truth_id: str
    status: RepairStatus
    reason: str
    candidate_index: int | None
    key: str | None
    text: str | None
    gain: float | None
    closeness: float | None
    n_candidates: int
    n_valid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The anchor has this hard positive or hard negative, the target; the modalities of the two always differ.

    An image anchor's positive target is an edited caption, its negative target an original caption; likewise for a
    caption anchor and images.
    """

    anchor_key: str
    anchor_modality: Modality
    kind: LinkKind
    target_key: str
    target_text: str | None  # the target's text when it is a caption
    failure_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Three images and three captions by key; the diagonal is true, the six other cells are false.

        row / column     anchor_text   repaired_text   negative_text
        anchor_image          true          false           false
        negative_image        false         true            false
        repaired_image        false         false           true

    `repaired_text` fits `negative_image` (an edit, else its own caption); `repaired_image` fits `negative_text` (an
    edit, else its own image).
    """

    step: int
    index: int  # within the step
    images: tuple[str, str, str]
    texts: tuple[str, str, str]
    n_synthetic: int  # how many of the six items are edits


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call cost. Money is None when the price is unknown; it is never zero by default."""

    tokens_in: int = 0
    tokens_out: int = 0
    n_images: int = 0
    price_usd: float | None = None
    latency_s: float = 0.0
