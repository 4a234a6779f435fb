"""The chat model against a real HTTP server that fails in every way a server can."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from repair.backends.chat.server import ChatServer
from repair.backends.connection import Connection
from repair.core.errors import BackendError, BadReply, ConfigError, RateLimited, Refused, ServerRejected, Unavailable
from repair.core.ports import Reply
from repair.core.records import Usage
from tests.backends.loopback import Answer, Loopback, completion, loopback

KEY = "sk-very-secret-0123456789"
SCHEMA = {"title": "Word", "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def model(server: Loopback, /, **options: Any) -> ChatServer:
    named = {"api_key_env", "read_timeout_s", "connect_timeout_s"}
    how = {"connect_timeout_s": 120.0, **{name: options.pop(name) for name in named & set(options)}}
    return ChatServer(Connection(server.url, **how), model="m", **options)


def ask(chat: ChatServer, *, seed: int = 7, schema: Any = SCHEMA) -> Reply[str]:
    return asyncio.run(chat.chat([{"role": "user", "content": "hello"}], schema=schema, seed=seed))


def failure(server: Loopback, /, **options: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        ask(model(server, **options))
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_request_and_its_answer(server: Loopback) -> None:
    server.says('{"word": "hi"}', tokens=(31, 4))
    reply = ask(model(server, temperature=0.5, max_tokens=50, extra={"top_p": 0.9}), seed=(1 << 62) + 5)
    assert reply == Reply('{"word": "hi"}', Usage(tokens_in=31, tokens_out=4), '{"word": "hi"}')
    assert server.last.path == "/v1/chat/completions"
    assert server.last.body == {
        "model": "m",
        "max_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 5,  # every server's range
        "response_format": {"type": "json_schema", "json_schema": {"name": "Word", "strict": True, "schema": SCHEMA}},
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_what_differs_between_servers(server: Loopback) -> None:
    server.says(*["{}"] * 6)
    ask(model(server, server="openai", send_seed=False))
    assert server.last.body["max_completion_tokens"] == 1024
    assert not {"seed", "temperature", "max_tokens"} & set(server.last.body)
    ask(model(server, structured="json_object"))
    assert server.last.body["response_format"] == {"type": "json_object"}
    assert "JSON Schema" in server.last.body["messages"][-1]["content"][-1]["text"]
    ask(model(server, structured="prompt"))
    assert "response_format" not in server.last.body
    assert '"word"' in server.last.body["messages"][-1]["content"][-1]["text"]
    ask(model(server), schema=None)
    assert "response_format" not in server.last.body
    bounded = {"type": "object", "properties": {"words": {"type": "array", "maxItems": 2, "items": {"maxLength": 9}}}}
    for kind, of_a_word in (("llama.cpp", {"maxLength": 9}), ("openai", {})):
        ask(model(server, server=kind), schema=bounded)
        words = server.last.body["response_format"]["json_schema"]["schema"]["properties"]["words"]
        assert words == {"type": "array", "maxItems": 2, "items": of_a_word}


def test_logprobs_are_kept_in_the_record(server: Loopback) -> None:
    body = completion("{}")
    body["choices"][0]["logprobs"] = {"content": [{"token": "{}", "logprob": -0.25}]}
    server.script.append(Answer(body=body))
    reply = ask(model(server, logprobs=True))
    assert server.last.body["logprobs"] is True
    assert json.loads(reply.raw)["logprobs"]["content"][0]["logprob"] == -0.25
    assert reply.value == "{}"


def test_a_server_that_does_not_count_is_estimated(server: Loopback) -> None:
    body = completion("x" * 40)
    del body["usage"]
    server.script.append(Answer(body=body))
    assert ask(model(server)).usage == Usage(tokens_in=1, tokens_out=10)


@pytest.mark.parametrize(
    ("status", "code", "message", "kind", "part"),
    [
        (400, "", "unknown field", ServerRejected, "unknown field"),
        (401, "", "bad key", ServerRejected, "api_key_env"),
        (402, "", "pay", ServerRejected, "out of credit"),
        (403, "", "not yours", ServerRejected, "may not use"),
        (404, "model_not_found", "no such model", ServerRejected, "base_url"),
        (422, "", "temperature", ServerRejected, "temperature"),
        (501, "", "not implemented", ServerRejected, "501"),
        (429, "insufficient_quota", "no money", ServerRejected, "out of credit"),
        (429, "rate_limit_exceeded", "slow down", RateLimited, "slow down"),
        (400, "content_policy_violation", "no", Refused, "400"),
        (403, "moderation_blocked", "no", Refused, "403"),
        (400, "context_length_exceeded", "long", Refused, "long"),
        (400, "", "This model's maximum context length is 10 tokens", Refused, "context length"),
        (413, "", "too large", Refused, "413"),
        (408, "", "late", Unavailable, "408"),
        (500, "", "oops", Unavailable, "oops"),
        (500, "", "image input is not supported", ServerRejected, 'image_as = "captions"'),
        (502, "", "bad gateway", Unavailable, "502"),
        (503, "", "loading", Unavailable, "loading"),
        (529, "", "overloaded", Unavailable, "529"),
    ],
)
def test_what_a_status_means(
    server: Loopback, status: int, code: str, message: str, kind: type[BackendError], part: str
) -> None:
    server.fails(status, message, code=code)
    error = failure(server)
    assert type(error) is kind
    assert part in str(error)
    assert error.stops == (kind is ServerRejected)
    assert len(server.seen) == 1  # the client asked once: asking again is the engine's business


def test_what_was_turned_away_costs_nothing_and_the_rest_is_unknown(server: Loopback) -> None:
    server.fails(429)
    assert failure(server).usage == Usage(price_usd=0.0)
    server.fails(500)
    assert failure(server).usage is None


@pytest.mark.parametrize(
    ("headers", "low", "high"),
    [
        ({"retry_after": "7"}, 7, 7),
        ({"retry_after": "0.5"}, 0.5, 0.5),
        ({"retry_after_ms": "1500"}, 1.5, 1.5),
        ({"retry_after": "Fri, 31 Dec 9999 23:59:59 GMT"}, 1e9, 1e12),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry_after": "-3"}, 0, 0),
        ({"retry_after": "soon"}, None, None),
        ({"retry_after": "inf"}, None, None),
        ({}, None, None),
    ],
)
def test_retry_after(server: Loopback, headers: dict[str, str], low: float | None, high: float | None) -> None:
    for status in (429, 503):
        server.fails(status, **headers)
        waits = failure(server).retry_after_s
        if low is None or high is None:
            assert waits is None
        else:
            assert waits is not None
            assert low <= waits <= high


def test_bodies_that_are_no_completion_may_come_better_next_time(server: Loopback) -> None:
    whole = json.dumps(completion("{}")).encode()
    for answer in (
        Answer(body=whole, cut=True),
        Answer(body=whole[:-20]),
        Answer(body=b""),
        Answer(body=b"<html>gateway</html>", content_type="text/html"),
        Answer(body=b"\xff\xfe\x00", content_type="application/octet-stream"),
        Answer(body={"choices": []}),
        Answer(body={"object": "list"}),
        Answer(body=["a"]),
        Answer(body=b"[" * 100_000),
    ):
        server.script.append(answer)
        assert type(failure(server)) is Unavailable


def test_an_error_inside_a_200(server: Loopback) -> None:
    for code, kind in ((429, RateLimited), (402, ServerRejected), ("weird", Unavailable)):
        server.script.append(Answer(body={"error": {"message": "upstream", "code": code}}))
        assert type(failure(server)) is kind


def test_no_server_and_a_stalled_one(server: Loopback) -> None:
    server.script.append(Answer(stall=True))
    assert "read_timeout_s = 0.1" in str(failure(server, read_timeout_s=0.1))
    server.url = "http://127.0.0.1:9/v1"
    error = failure(server)
    assert type(error) is Unavailable
    assert error.usage == Usage(price_usd=0.0)  # nothing was sent


def test_answers_that_are_failures(server: Loopback) -> None:
    server.says('{"word": "h', finish="length", tokens=(5, 1024))
    error = failure(server)
    assert type(error) is BadReply
    assert "max_tokens = 1024" in str(error)
    assert (error.usage, error.raw) == (Usage(tokens_in=5, tokens_out=1024), '{"word": "h')
    server.says(None, refusal="I cannot\nhelp")
    error = failure(server)
    assert (type(error), str(error)) == (Refused, "the model refused: I cannot help")
    assert error.usage == Usage(tokens_in=100, tokens_out=10)
    server.says("half", finish="content_filter")
    assert type(failure(server)) is Refused
    server.says(None, finish="tool_calls")
    assert "empty" in str(failure(server))


def test_the_key_is_sent_and_nowhere_else(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    chat = model(server, api_key_env="TEST_KEY")
    server.says("{}")
    ask(chat)
    assert server.last.headers["authorization"] == f"Bearer {KEY}"
    server.fails(401, f"Incorrect API key provided: {KEY}. Or sk-other-9876543210?")
    with pytest.raises(ServerRejected) as caught:
        ask(chat)
    server.script.append(Answer(body=f"<html>{KEY}</html>".encode()))
    with pytest.raises(Unavailable) as garbled:
        ask(chat)
    shown = [repr(caught.value), caught.value.raw, str(garbled.value), repr(chat), repr(chat.connection), caplog.text]
    shown += [chat.fingerprint, json.dumps(chat.parameters), chat.place]
    assert "sk-" not in "".join(shown)
    assert "[redacted]" in str(caught.value)
    monkeypatch.setenv("TEST_KEY", "another")
    assert model(server, api_key_env="TEST_KEY").fingerprint == model(server).fingerprint


def test_without_a_key_none_of_the_environment_is_sent(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.says("{}")
    ask(model(server))
    assert KEY not in json.dumps(server.last.headers)


def test_the_fingerprint_is_of_what_can_change_an_answer(server: Loopback) -> None:
    base = model(server)
    moved = ChatServer(Connection("http://elsewhere:1/v1", read_timeout_s=1), model="m")
    assert base.fingerprint == moved.fingerprint
    others: list[dict[str, Any]] = [
        {"server": "vllm"},
        {"revision": "2"},
        {"temperature": 0.0},
        {"max_tokens": 9},
        {"structured": "prompt"},
        {"extra": {"top_k": 1}},
    ]
    assert len({base.fingerprint, *(model(server, **other).fingerprint for other in others)}) == 1 + len(others)


def test_many_calls_at_once_over_several_event_loops(server: Loopback) -> None:
    server.answer = lambda seen: Answer(body=completion(seen.body["messages"][0]["content"]))
    chat = model(server)

    async def many() -> list[str]:
        asked = [chat.chat([{"role": "user", "content": str(i)}], schema=None, seed=0) for i in range(50)]
        return [reply.value for reply in await asyncio.gather(*asked)]

    for _ in range(2):
        assert asyncio.run(many()) == [str(i) for i in range(50)]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"base_url": "localhost:8000"}, "is no address"),
        ({"base_url": "http://user:pw@host/v1"}, "holds a user"),
        ({"base_url": "http://host/v1?key=pw@"}, "api_key_env"),
        ({"connect_timeout_s": 0}, "connect_timeout_s"),
        ({"api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_wrong_connections(options: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part) as caught:
        Connection(**{"base_url": "http://h/v1", **options})
    assert "pw@" not in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"model": ""}, {"max_tokens": 0}, {"temperature": 3.0}, {"extra": {"seed": 1}}], ids=str
)
def test_wrong_options(server: Loopback, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ChatServer(Connection(server.url), **{"model": "m", **options})
