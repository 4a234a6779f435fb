"""The `ChatModel` over an OpenAI-compatible server: one request, one answer, nothing asked again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, Field, ValidationError

from repair.backends.chat.schemas import without_lengths_of_text
from repair.backends.connection import Connection, place_of
from repair.core.errors import BadReply, ConfigError, Refused, Unavailable
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.core.redaction import redacted

ServerKind = Literal["openai", "vllm", "sglang", "llama.cpp", "ollama", "other"]
Structured = Literal["json_schema", "json_object", "prompt"]

_SEED_BITS = 31  # the smallest range of the servers: llama.cpp keeps 32 bits, others signed ones
_CHARS_PER_TOKEN = 4  # only where a server does not count
_TAKE_LENGTHS = frozenset({"vllm", "sglang", "llama.cpp", "ollama"})  # of texts, in a schema for guided decoding
_SET_BY_US = frozenset({"model", "messages", "seed", "response_format", "stream", "n"})


class ChatServer:
    """Messages in, text out, over `/chat/completions`.

    `server` is the kind of server: it decides how the token limit is called, and is part of the fingerprint together
    with `model` and `revision`; the address is not, so a server may move. `temperature` None is the server's own.
    `structured` says how JSON is asked for: by schema (guided decoding), by JSON mode, or in words. With `logprobs`
    the raw record holds them. `extra` goes into every request as it is.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        model: str,
        server: ServerKind = "other",
        revision: str = "",
        temperature: float | None = None,
        max_tokens: int = 1024,
        structured: Structured = "json_schema",
        send_seed: bool = True,
        logprobs: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        extra = dict(extra or {})
        if not model:
            raise ConfigError('option "model": the name the server knows the model by; it must not be empty')
        if max_tokens < 1:
            raise ConfigError(f'option "max_tokens": 1 or more, not {max_tokens}')
        if temperature is not None and not 0 <= temperature <= 2:
            raise ConfigError(f'option "temperature": from 0 to 2, not {temperature}')
        if taken := sorted(_SET_BY_US & set(extra)):
            raise ConfigError(f'option "extra": "{taken[0]}" is set by RePair itself; leave it out')
        self.connection = connection
        self.place = place_of(connection, model)
        self.parameters: dict[str, Any] = {
            "server": server,
            "revision": revision,
            "temperature": temperature,
            "max_tokens": max_tokens,
            "structured": structured,
            "send_seed": send_seed,
            "logprobs": logprobs,
            "extra": extra,
        }
        self.model = model
        self._max_tokens = max_tokens
        self._fields: dict[str, Any] = {
            "model": model,
            "max_completion_tokens" if server == "openai" else "max_tokens": max_tokens,
            **({} if temperature is None else {"temperature": temperature}),
            **({"logprobs": True} if logprobs else {}),
            **extra,
        }
        self._server = server
        self._structured: Structured = structured
        self._send_seed = send_seed
        self._logprobs = logprobs
        self.fingerprint = hash_value({"chat": 1, "model": model, **self.parameters})

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None, seed: int
    ) -> Reply[str]:
        """One answer. Raises BadReply if it was cut short or is empty, Refused if the model would not answer, and
        what `Connection.call` raises."""
        body = self.body(messages, schema=schema, seed=seed)
        response = await self.connection.call(
            lambda client: client.post("/chat/completions", cast_to=httpx2.Response, body=body)
        )
        return self.read(response.text, sent=body)

    def body(
        self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None, seed: int
    ) -> dict[str, Any]:
        """The request as JSON."""
        sent: list[Mapping[str, Any]] = list(messages)
        body: dict[str, Any] = {**self._fields}
        if self._send_seed:
            body["seed"] = seed & ((1 << _SEED_BITS) - 1)
        if schema is not None and self._structured == "json_schema":
            guide = schema if self._server in _TAKE_LENGTHS else without_lengths_of_text(schema)
            named = {"name": str(schema.get("title", "answer")), "strict": True, "schema": dict(guide)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif schema is not None:
            sent = _with_schema_in_words(sent, schema)
            if self._structured == "json_object":
                body["response_format"] = {"type": "json_object"}
        return {**body, "messages": sent}

    def read(self, text: str, *, sent: Mapping[str, Any]) -> Reply[str]:
        """The answer in a response body. Raises as `chat` does, and Unavailable if the body is no completion at all:
        cut off, or another page than the server's."""
        where = self.connection.base_url
        try:
            value = json.loads(text)
            if isinstance(value, dict) and value.get("error"):
                raise self._failure_inside(value["error"])
            completion = _Completion.model_validate(value)
        except (ValueError, RecursionError) as error:  # ValidationError is a ValueError
            kind = "no JSON" if not isinstance(error, ValidationError) else "no chat completion"
            shown = " ".join(redacted(text[:80]).split())
            raise Unavailable(f'{where}: the answer is {kind}: "{shown}"') from None
        choice = completion.choices[0]
        content = choice.message.content or ""
        usage = _usage(completion.usage, sent, content)
        raw = content if not self._logprobs else canonical_json({"content": content, "logprobs": choice.logprobs})
        if choice.message.refusal:
            raise Refused(f"the model refused: {_cut(choice.message.refusal)}", usage=usage, raw=choice.message.refusal)
        if choice.finish_reason == "content_filter":
            raise Refused("the server's content filter stopped the answer", usage=usage, raw=raw)
        if choice.finish_reason == "length":
            raise BadReply(
                f"the answer was cut off at max_tokens = {self._max_tokens} ({usage.tokens_out} tokens): raise it",
                usage=usage,
                raw=raw,
            )
        if not content.strip():
            raise BadReply(f"the answer is empty (finish_reason {choice.finish_reason})", usage=usage, raw=raw)
        return Reply(content, usage, raw)

    def _failure_inside(self, error: Any) -> Exception:
        """Gateways answer 200 with an error inside."""
        fault = error if isinstance(error, dict) else {"message": str(error)}
        code = fault.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        said = _cut(redacted(str(fault.get("message", ""))))
        return self.connection.status_failure(status, f"{code} {fault.get('type')}", said, {})


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: Any = None


class _Counts(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Counts | None = None


def _usage(counts: _Counts | None, sent: Mapping[str, Any], content: str) -> Usage:
    if counts is not None:
        return Usage(tokens_in=counts.prompt_tokens, tokens_out=counts.completion_tokens)
    n_chars = sum(len(text) for message in sent["messages"] for text in _texts(message["content"]))
    return Usage(tokens_in=n_chars // _CHARS_PER_TOKEN, tokens_out=len(content) // _CHARS_PER_TOKEN)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def _with_schema_in_words(messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages, the last of which also says what JSON is wanted."""
    wish = (
        f"Answer with one JSON object and nothing else. It must fit this JSON Schema:\n{canonical_json(dict(schema))}"
    )
    *before, last = messages
    content = last["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    return [*before, {**last, "content": [*parts, {"type": "text", "text": wish}]}]


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"
