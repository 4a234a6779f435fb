"""What can be swapped: one Protocol per role, each with a one-paragraph contract.

Adapters (data/, encoders/, backends/, world/) implement these; stages are written against them; only pipeline.py
brings the two together, by name, through the registries.

Task-level ports (Verifier, Instructor, TextEditor, ImageEditor, Planner) are asynchronous: one call is one request,
and the call engine decides how many are in flight. An adapter must not cache, retry or limit by itself; it raises
one of the BackendErrors of `core.errors` and the engine does the rest. `fingerprint` names everything of the
adapter that can change an answer (model, revision, prompt hash, parameters, error rates) and nothing else.
An adapter may also have `place: str`, "server|model": calls to one place share one limit and one price
(`calls.prices`); without it the fingerprint is the place. `facts: CallFacts`, if it has them, are recorded with its
calls.
`seed` is given by the engine per record; the same request and seed ask for the same answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from repair.core.records import Direction, ErrorType, Instruction, Pair, SetAside, Shortfall, Usage, Verdict

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
Value = TypeVar("Value")


# ---------------------------------------------------------------------------------------------- data


class PairSource(Protocol):
    """Images with their own captions, by split.

    `pairs(split)` is in a fixed order, captions of one image adjacent. Image and caption ids are unique over all
    splits. `read_image` returns the *encoded* bytes (PNG, JPEG, …), equal at every call; decoding is
    `core.images.decode`. Items that cannot be used are in `set_aside`, never in `pairs`.
    """

    fingerprint: str  # of ids, texts and image contents

    def splits(self) -> Sequence[str]: ...

    def pairs(self, split: str) -> Sequence[Pair]:
        """Raises ConfigError for a split that does not exist (naming those that do)."""
        ...

    def read_image(self, image_id: str) -> bytes:
        """Raises DataError naming the image if it cannot be read."""
        ...

    def image_hash(self, image_id: str) -> str:
        """Content hash of `read_image(image_id)`."""
        ...

    @property
    def set_aside(self) -> Sequence[SetAside]: ...


@runtime_checkable
class TruthSource(Protocol):
    """A PairSource that knows what is true, not only what is labelled (the world does, real data do not)."""

    def holds(self, image: bytes, text: str) -> bool:
        """Whether `text` is true of the encoded `image`."""
        ...


@runtime_checkable
class EditTruth(TruthSource, Protocol):
    """A TruthSource that also knows the smallest edit, and so what is wrong with one. None: nothing is."""

    def text_shortfall(self, image: bytes, false_positive: str, edit: str) -> Shortfall | None:
        """Of a caption edited to fit the encoded query `image`. Raises DataError for what it cannot read."""
        ...

    def image_shortfall(self, text: str, false_positive: bytes, edit: bytes) -> Shortfall | None:
        """Of an encoded image edited to fit the query `text`. Raises DataError for what it cannot read."""
        ...


# ------------------------------------------------------------------------------------------ encoders


class DualEncoder(Protocol):
    """Two towers into one space.

    *Preparing* is the part that never trains (decode, resize, tokenise, a frozen backbone's features): its result
    depends only on the content and on `preparation`, and is cached under both. *Embedding* is the rest.
    Embeddings are float32, shape (n, dim), unit norm, in the order of the input, and independent of batch size up to
    float tolerance (1e-5).
    """

    name: str
    dim: int
    preparation: str  # fingerprint of prepare_*: preprocessing, tokenizer, frozen weights

    def fingerprint(self) -> str:
        """Changes with any weight and with `preparation`."""
        ...

    def prepare_images(self, images: Sequence[Image.Image]) -> Array:
        """Shape (n, …), any dtype; row i depends on image i only, to the last bit."""
        ...

    def prepare_texts(self, texts: Sequence[str]) -> Array:
        """Shape (n, …), any dtype; row i depends on text i only, to the last bit. Long texts are cut (see `n_cut`)."""
        ...

    def n_cut(self, texts: Sequence[str]) -> int:
        """How many of `texts` are too long for the text tower and lose their end."""
        ...

    def embed_images(self, prepared: Array, *, batch_size: int = 256) -> FloatArray: ...

    def embed_texts(self, prepared: Array, *, batch_size: int = 256) -> FloatArray: ...

    @property
    def logit_scale(self) -> float:
        """α in [1, 100]: the logit of a pair is α times its cosine."""
        ...


class TrainableEncoder(DualEncoder, Protocol):
    """A DualEncoder whose `module` can be trained.

    `module.image_features(prepared)` and `module.text_features(prepared)` take tensors of prepared rows and return
    (n, dim) features, not yet normalised; `module.log_scale` is the parameter ln α.
    """

    module: "torch.nn.Module"

    def save(self, folder: str, *, facts: Mapping[str, Any]) -> None:
        """Write weights (safetensors) and JSON with `facts`, whole or not at all."""
        ...

    def load_weights(self, folder: str) -> None:
        """Raises StoreError if `folder` holds no weights or those of another shape."""
        ...


# ------------------------------------------------------------------------------- requests and replies


@dataclass(frozen=True, slots=True, kw_only=True)
class TextItem:
    key: str  # caption id, or content hash of an edit
    text: str
    image_captions: tuple[str, ...] = ()  # all captions of the image this caption was written for, itself included


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageItem:
    key: str  # image id, or content hash of an edit
    content_hash: str
    captions: tuple[str, ...]  # its own labelled captions; () for an edit
    read: Callable[[], bytes] = field(compare=False, repr=False)


Item = TextItem | ImageItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One failure with its contents: what every backend is asked about.

    image_to_text: query is an ImageItem, false_positive and ground_truths are TextItems (all own captions, best
    ranked first). text_to_image: query is a TextItem, false_positive an ImageItem, ground_truths one ImageItem.
    """

    failure_id: str
    direction: Direction
    query: Item
    false_positive: Item
    ground_truths: tuple[Item, ...]

    def payload(self) -> dict[str, Any]:
        """The content of the request for `core.identity.request_key`: texts and content hashes, no ids, no paths."""
        return {
            "direction": str(self.direction),
            "query": _content(self.query),
            "false_positive": _content(self.false_positive),
            "ground_truths": [_content(item) for item in self.ground_truths],
        }


def _content(item: Item) -> dict[str, Any]:
    if isinstance(item, TextItem):
        return {"text": item.text, "image_captions": list(item.image_captions)}
    return {"image": item.content_hash, "captions": list(item.captions)}


class Reply(NamedTuple, Generic[Value]):
    """A backend's answer, what it cost, and its raw text for the record."""

    value: Value
    usage: Usage
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The fused call plan's single answer. `edits` holds M distinct captions for image_to_text, else is empty."""

    verdict: Verdict
    instruction: Instruction | None  # None exactly if dropped
    edits: tuple[str, ...]


class Verifier(Protocol):
    """Answers the two criteria about a case."""

    fingerprint: str

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]: ...


class Instructor(Protocol):
    """Says what must change in the false positive."""

    fingerprint: str

    async def instruct(self, case: Case, *, seed: int) -> Reply[Instruction]: ...


class TextEditor(Protocol):
    """Applies an instruction to the false-positive caption of an image_to_text case; returns the new caption."""

    fingerprint: str

    async def edit_text(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[str]: ...


class ImageEditor(Protocol):
    """Applies an instruction to the false-positive image of a text_to_image case; returns encoded bytes."""

    fingerprint: str

    async def edit_image(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[bytes]: ...


class Planner(Protocol):
    """Verdict, instruction and, for image_to_text, M distinct edits in one call (call plan `fused`)."""

    fingerprint: str

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Reply[Plan]: ...


class ChatModel(Protocol):
    """A chat-completions model: messages in, text (JSON if a schema is given) out.

    `messages` are dicts of the chat-completions dialect; images are data URLs. No retries inside.
    """

    fingerprint: str

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None, seed: int
    ) -> Reply[str]: ...


__all__ = [
    "Array",
    "Case",
    "ChatModel",
    "DualEncoder",
    "EditTruth",
    "ErrorType",
    "FloatArray",
    "ImageEditor",
    "ImageItem",
    "Instructor",
    "Item",
    "PairSource",
    "Plan",
    "Planner",
    "Reply",
    "TextEditor",
    "TextItem",
    "TrainableEncoder",
    "TruthSource",
    "Verifier",
]
