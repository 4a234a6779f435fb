"""Verifier, instructor, text editor and planner over a chat model, each from its own prompt file.

One call is one request; if its answer does not fit the schema there is at most one more, which shows the model its
answer and what is wrong with it. Both are billed to the call.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, TypeVar

from repair.backends.chat.batches import BatchServer
from repair.backends.chat.images import ImageAs, ImageSender
from repair.backends.chat.schemas import (
    BaseAnswer,
    CaptionAnswer,
    InstructionAnswer,
    PlanAnswer,
    VerdictAnswer,
    parse_answer,
    strict_schema,
)
from repair.backends.chat.server import ChatServer, ServerKind, Structured
from repair.backends.chat.showing import instruction_block, messages_of
from repair.backends.connection import Connection
from repair.backends.prompts import load_prompt
from repair.core.calls import CallFacts
from repair.core.errors import BackendError, BadReply
from repair.core.identity import hash_value
from repair.core.ports import Case, ChatModel, Plan, Reply
from repair.core.records import Direction, ErrorType, Instruction, Usage, Verdict
from repair.core.texts import folded

Answer = TypeVar("Answer", bound=BaseAnswer)

Messages = list[dict[str, Any]]


class ChatTask:
    """What the four have in common: options, messages, structured answers, the one repair turn.

    Options, all but `model` with defaults.
    Server: `base_url`, `model`, `server` (its kind), `revision` (name it when the weights behind `model` change),
    `api_key_env` (the environment variable that holds the key; empty: no key), `connect_timeout_s`, `read_timeout_s`.
    Asking: `temperature` ("task": 0, above it for edits and plans; "server": not sent), `max_tokens`, `structured`,
    `repair_turn`, `send_seed`, `logprobs`, `extra` (more fields of the request), `prompt` (a prompt file of one's own).
    Images: `image_as` ("captions" for models that see none), `max_side` in pixels, `image_folder`.
    Batches: `batch` sends requests through the provider's batch mode (`batches.py`), at most `batch_size` in one,
    waiting `batch_wait_s` for more, looking every `batch_poll_s`.

    `fingerprint` covers what can change an answer; addresses, keys, time-outs and batches cannot.
    """

    prompt_name: ClassVar[str]
    answer: ClassVar[type[BaseAnswer]]
    warmth: ClassVar[float] = 0.0

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "http://127.0.0.1:8000/v1",
        server: ServerKind = "other",
        revision: str = "",
        api_key_env: str = "",
        connect_timeout_s: float = 30.0,
        read_timeout_s: float = 300.0,
        temperature: float | Literal["task", "server"] = "task",
        max_tokens: int = 1024,
        structured: Structured = "json_schema",
        repair_turn: bool = True,
        send_seed: bool = True,
        logprobs: bool = False,
        extra: dict[str, Any] = {},  # noqa: B006 (read only)
        prompt: str = "",
        image_as: ImageAs = "data_url",
        max_side: int = 768,
        image_folder: str = "",
        batch: bool = False,
        batch_size: int = 1000,
        batch_wait_s: float = 5.0,
        batch_poll_s: float = 30.0,
    ) -> None:
        self._images = ImageSender(image_as=image_as, max_side=max_side, folder=image_folder)
        self._prompt = load_prompt(self.prompt_name, prompt)
        connection = Connection(
            base_url,
            api_key_env=api_key_env,
            connect_timeout_s=connect_timeout_s,
            read_timeout_s=read_timeout_s,
        )
        warmth = {"task": self.warmth, "server": None}
        chat = ChatServer(
            connection,
            model=model,
            server=server,
            revision=revision,
            temperature=warmth[temperature] if isinstance(temperature, str) else temperature,
            max_tokens=max_tokens,
            structured=structured,
            send_seed=send_seed,
            logprobs=logprobs,
            extra=extra,
        )
        self.chat: ChatModel = chat
        if batch:
            self.chat = BatchServer(chat, size=batch_size, wait_s=batch_wait_s, poll_s=batch_poll_s)
        self._n_turns = 2 if repair_turn else 1
        self.place = chat.place
        self.facts = CallFacts(
            prompt_id=self._prompt.id,
            prompt_version=self._prompt.version,
            model_id=model,
            parameters={**chat.parameters, "prompt_hash": self._prompt.digest, **self._images.facts()},
        )
        self.fingerprint = hash_value(
            {
                "backend": "chat",
                "version": 1,
                "task": self.prompt_name,
                "chat": chat.fingerprint,
                "prompt": [self._prompt.id, self._prompt.version, self._prompt.digest],
                "schema": strict_schema(self.answer),
                "images": self._images.facts(),
                "n_turns": self._n_turns,
            }
        )

    async def messages(self, case: Case, **slots: str) -> Messages:
        """What is sent for `case`. Raises DataError as `messages_of` does."""
        return await messages_of(self._prompt, case, self._images, slots)

    async def _ask(
        self,
        messages: Messages,
        answer: type[Answer],
        *,
        seed: int,
        complaint: Callable[[Answer], str | None] = lambda _: None,
    ) -> Reply[Answer]:
        """The model's answer, checked against its schema and by `complaint` (what is wrong with it, or None)."""
        spent = Usage()
        raws: list[str] = []
        for turn in range(1, self._n_turns + 1):
            try:
                reply = await self.chat.chat(messages, schema=strict_schema(answer), seed=seed)
            except BackendError as error:
                if turn > 1:  # the first turn was billed, whatever became of the second
                    error.usage = _sum(spent, error.usage or Usage())
                    error.raw = "\n".join([*raws, error.raw])
                raise
            spent = _sum(spent, reply.usage) if turn > 1 else reply.usage
            raws.append(reply.raw)
            wrong: str | None
            try:
                value = parse_answer(reply.value, answer)
                wrong = complaint(value)
            except BadReply as error:
                wrong = str(error)
            if wrong is None:
                return Reply(value, spent, "\n".join(raws))
            messages = [*messages, *_repair_turn(reply.value, wrong)]
        again = f" after {self._n_turns} turns" if self._n_turns > 1 else ""
        raise BadReply(f"{wrong}{again}", usage=spent, raw="\n".join(raws))


class ChatVerifier(ChatTask):
    """A `Verifier`: two questions, from which keep or the criterion follows."""

    prompt_name = "verify"
    answer = VerdictAnswer

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]:
        reply = await self._ask(await self.messages(case), VerdictAnswer, seed=seed)
        return Reply(reply.value.verdict(case.failure_id), reply.usage, reply.raw)


class ChatInstructor(ChatTask):
    """An `Instructor`."""

    prompt_name = "instruct"
    answer = InstructionAnswer

    async def instruct(self, case: Case, *, seed: int) -> Reply[Instruction]:
        reply = await self._ask(await self.messages(case), InstructionAnswer, seed=seed, complaint=_no_error_type)
        return Reply(reply.value.told(case.failure_id), reply.usage, reply.raw)


class ChatTextEditor(ChatTask):
    """A `TextEditor`. Seeds differ by candidate, so it is asked with some temperature."""

    prompt_name = "edit_text"
    answer = CaptionAnswer
    warmth = 0.8

    async def edit_text(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[str]:
        _image_to_text_only(case)
        messages = await self.messages(case, instruction=instruction_block(instruction))
        reply = await self._ask(messages, CaptionAnswer, seed=seed)
        return Reply(" ".join(reply.value.caption.split()), reply.usage, reply.raw)


class ChatPlanner(ChatTask):
    """A `Planner`. Edits that repeat each other or the false positive are dropped; at least one must be left."""

    prompt_name = "plan"
    answer = PlanAnswer
    warmth = 0.3

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Reply[Plan]:
        with_edits = case.direction is Direction.IMAGE_TO_TEXT
        messages = await self.messages(case, edits=edits_wish(n_edits if with_edits else 0))

        def complaint(answer: PlanAnswer) -> str | None:
            if not answer.verdict("").keep:
                return None
            if not answer.instruction.strip():
                return '"instruction": must not be empty for an item that is to be repaired'
            if with_edits and not _distinct(answer.edits, case):
                return '"edits": must hold captions that differ from the one of the retrieved item'
            return _no_error_type(answer)

        reply = await self._ask(messages, PlanAnswer, seed=seed, complaint=complaint)
        verdict = reply.value.verdict(case.failure_id)
        plan = Plan(
            verdict=verdict,
            instruction=reply.value.told(case.failure_id) if verdict.keep else None,
            edits=_distinct(reply.value.edits, case)[:n_edits] if verdict.keep and with_edits else (),
        )
        return Reply(plan, reply.usage, reply.raw)


def edits_wish(n_edits: int) -> str:
    """The sentence about `edits` in the plan prompt; 0 for images, which another model edits."""
    if n_edits == 0:
        return 'Leave the list "edits" empty.'
    return (
        f'In "edits" write the caption of the retrieved item again in {n_edits} distinct ways: each follows the '
        "instruction, is true of the query and keeps every other word of the old caption."
    )


def _no_error_type(answer: InstructionAnswer | PlanAnswer) -> str | None:
    if answer.error_types:
        return None
    return f'"error_types": must name at least one of {", ".join(ErrorType)}'


def _distinct(edits: list[str], case: Case) -> tuple[str, ...]:
    """One-line edits in order, without blanks, repetitions, and the false positive itself."""
    taken = {folded(getattr(case.false_positive, "text", ""))}
    kept = []
    for edit in edits:
        line = " ".join(edit.split())
        if line and folded(line) not in taken:
            taken.add(folded(line))
            kept.append(line)
    return tuple(kept)


def _image_to_text_only(case: Case) -> None:
    if case.direction is not Direction.IMAGE_TO_TEXT:
        raise BadReply("a text editor edits captions only: give a text_to_image case an image editor", usage=Usage())


def _repair_turn(answered: str, wrong: str) -> Messages:
    wish = f"This answer cannot be used: {wrong}. Answer again: one JSON object that fits the schema, nothing else."
    return [{"role": "assistant", "content": answered}, {"role": "user", "content": wish}]


def _sum(one: Usage, other: Usage) -> Usage:
    known = one.price_usd is not None and other.price_usd is not None
    return replace(
        one,
        tokens_in=one.tokens_in + other.tokens_in,
        tokens_out=one.tokens_out + other.tokens_out,
        price_usd=(one.price_usd or 0.0) + (other.price_usd or 0.0) if known else None,
    )
