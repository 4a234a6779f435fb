"""What a model must answer, as pydantic models, and the JSON Schema of each in the form strict servers accept.

Every text and list has a longest length, and those that must say something a shortest: both are in the schema, so that
guided decoding ends and ends with an answer, and are checked here.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from repair.core.errors import BadReply
from repair.core.records import Criterion, ErrorType, Instruction, Verdict

MAX_TEXT = 1000  # characters of one caption; llama.cpp takes up to 2000 repetitions of a character
MAX_REASON = 600  # one or two short sentences, told generously
MAX_INSTRUCTION = 400  # forty words
MAX_RESIDUAL = 300
MAX_EDITS = 16  # as many as `editing.n_candidates` can be

Answer = TypeVar("Answer", bound="BaseAnswer")

_SOME: dict[str, Any] = {"minLength": 1}  # said in the schema; what is checked here has better words for the model
_KEPT = ("type", "enum", "minItems", "maxItems", "minLength", "maxLength")
_THINKING = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)
_FENCED = re.compile(r"^\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*$", re.DOTALL)


def _present(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT, json_schema_extra=_SOME), AfterValidator(_present)]
MaybeText = Annotated[str, Field(max_length=MAX_TEXT)]
Reason = Annotated[str, Field(max_length=MAX_REASON, json_schema_extra=_SOME), AfterValidator(_present)]
Sentence = Annotated[str, Field(max_length=MAX_INSTRUCTION, json_schema_extra=_SOME), AfterValidator(_present)]
Residual = Annotated[str, Field(max_length=MAX_RESIDUAL)]
Scaffold = Annotated[str, Field(max_length=MAX_REASON)]
ErrorTypes = Annotated[list[ErrorType], Field(max_length=len(ErrorType))]


class BaseAnswer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)


class VerdictAnswer(BaseAnswer):
    """The reason comes first, so that the model gives it before it decides."""

    reason: Reason
    query_matches_ground_truth: bool
    candidate_matches_query: bool

    def verdict(self, failure_id: str) -> Verdict:
        criterion = None
        if not self.query_matches_ground_truth:
            criterion = Criterion.ANNOTATION_NOISE
        elif self.candidate_matches_query:
            criterion = Criterion.BENIGN_MISMATCH
        return Verdict(failure_id=failure_id, keep=criterion is None, criterion=criterion, reason=_line(self.reason))


class InstructionAnswer(BaseAnswer):
    error_types: Annotated[ErrorTypes, Field(json_schema_extra={"minItems": 1})]
    residual: Residual
    scaffold: Scaffold
    instruction: Sentence

    def told(self, failure_id: str) -> Instruction:
        return Instruction(
            failure_id=failure_id,
            error_types=tuple(dict.fromkeys(self.error_types)),
            residual=_line(self.residual),
            scaffold=_line(self.scaffold),
            instruction=_line(self.instruction),
        )


class CaptionAnswer(BaseAnswer):
    caption: Text


class PlanAnswer(BaseAnswer):
    reason: Reason
    query_matches_ground_truth: bool
    candidate_matches_query: bool
    error_types: ErrorTypes
    residual: Residual
    scaffold: Scaffold
    instruction: Annotated[str, Field(max_length=MAX_INSTRUCTION)]
    edits: Annotated[list[MaybeText], Field(max_length=MAX_EDITS)]

    def verdict(self, failure_id: str) -> Verdict:
        return VerdictAnswer(
            reason=self.reason,
            query_matches_ground_truth=self.query_matches_ground_truth,
            candidate_matches_query=self.candidate_matches_query,
        ).verdict(failure_id)

    def told(self, failure_id: str) -> Instruction:
        return InstructionAnswer(
            error_types=self.error_types,
            residual=self.residual,
            scaffold=self.scaffold,
            instruction=self.instruction,
        ).told(failure_id)


@cache
def strict_schema(model: type[BaseAnswer]) -> dict[str, Any]:
    """The model's JSON Schema: flat, every property required, no other allowed, few keywords beside the lengths."""
    schema = model.model_json_schema()
    properties = {name: _plain(part, schema.get("$defs", {})) for name, part in schema["properties"].items()}
    return {
        "title": model.__name__,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def without_lengths_of_text(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for servers that may refuse `maxLength`, OpenAI's first: lists keep their bounds."""
    return {
        key: without_lengths_of_text(part) if isinstance(part, dict) else part
        for key, part in schema.items()
        if key not in ("minLength", "maxLength")
    }


def parse_answer(text: str, model: type[Answer]) -> Answer:
    """The answer in a reply. Thinking aloud before it and a code fence around it are taken off.

    Raises BadReply that says what is wrong, in words the model can act on.
    """
    text = _THINKING.sub("", text).strip()
    fenced = _FENCED.match(text)
    try:
        value = json.loads(fenced.group(1) if fenced else text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadReply(f"not JSON ({error})") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(_fault(fault) for fault in error.errors(include_url=False, include_context=False)[:3])
        raise BadReply(f"wrong answer: {faults}") from None


def _plain(part: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in part:
        part = definitions[part["$ref"].rsplit("/", 1)[1]]
    kept = {key: part[key] for key in _KEPT if key in part}
    if "items" in part:
        kept["items"] = _plain(part["items"], definitions)
    return kept


def _fault(fault: Any) -> str:
    where = ".".join(str(step) for step in fault["loc"])
    message = fault["msg"].removeprefix("Value error, ")
    return f'"{where}": {message}' if where else str(message)


def _line(text: str) -> str:
    return " ".join(text.split())
