"""Batch mode against a real HTTP server that keeps files and batches, and spoils them."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from repair.backends.chat import ChatVerifier
from repair.backends.chat.batches import BatchServer
from repair.backends.chat.server import ChatServer
from repair.backends.connection import Connection
from repair.core.errors import BadReply, ConfigError, RateLimited, Refused, ServerRejected, Unavailable
from repair.core.ports import Reply
from tests.backends.chat.cases import image_to_text
from tests.backends.loopback import Answer, Batches, Loopback, completion, loopback


@pytest.fixture
def server() -> Iterator[Loopback]:
    with loopback() as running:
        yield running


def echo(body: Any) -> tuple[int, Any]:
    return 200, completion(f"answer to {body['messages'][0]['content']}")


def batching(server: Loopback, *, size: int = 100) -> BatchServer:
    return BatchServer(ChatServer(Connection(server.url), model="m"), size=size, wait_s=0.02, poll_s=0)


def ask(chat: BatchServer, *questions: str) -> list[Any]:
    """The replies or failures, in order."""

    async def all_of() -> list[Any]:
        asked = [chat.chat([{"role": "user", "content": text}], schema=None, seed=1) for text in questions]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of())


def values(replies: list[Any]) -> list[Any]:
    return [reply.value if isinstance(reply, Reply) else type(reply) for reply in replies]


@pytest.mark.parametrize(
    "order", [list, lambda lines: lines[::-1], lambda lines: [*lines, *lines]], ids=["in order", "reversed", "twice"]
)
def test_answers_come_back_by_id_whatever_the_order(server: Loopback, order: Callable[[list[str]], list[str]]) -> None:
    provider = server.answer = Batches(echo, order=order)
    questions = [str(i) for i in range(7)]
    replies = ask(batching(server), *questions)
    assert values(replies) == [f"answer to {question}" for question in questions]
    assert replies[0].usage.tokens_in == 100
    assert len(provider.batches) == 1
    line = json.loads(provider.files["file-0"].splitlines()[0])
    assert (line["method"], line["url"], line["body"]["model"]) == ("POST", "/v1/chat/completions", "m")


def test_groups_are_as_large_as_asked_and_equal_requests_are_one_line(server: Loopback) -> None:
    provider = server.answer = Batches(echo)
    assert values(ask(batching(server, size=2), "a", "b", "c", "d", "e")) == [f"answer to {q}" for q in "abcde"]
    assert len(provider.batches) == 3
    assert values(ask(batching(server), "f", "f")) == ["answer to f"] * 2
    assert len(list(provider.files.values())[-2].splitlines()) == 1


def test_missing_and_torn_lines_are_those_requests_failures(server: Loopback) -> None:
    server.answer = Batches(echo, order=lambda lines: [lines[2], "[]", "", lines[0][:50], '{"custom_id": "alien"}'])
    assert values(ask(batching(server), "a", "b", "c")) == [Unavailable, Unavailable, "answer to c"]


def test_failed_lines(server: Loopback) -> None:
    def one(body: Any) -> tuple[int, Any]:
        wanted = body["messages"][0]["content"]
        if wanted == "cut":
            return 200, completion("{", finish="length")
        if wanted.isdigit():
            return int(wanted), {"error": {"message": "no", "code": "content_filter" if wanted == "400" else ""}}
        return echo(body)

    server.answer = Batches(one)
    found = values(ask(batching(server), "a", "cut", "400", "401", "429", "500"))
    assert found == ["answer to a", BadReply, Refused, ServerRejected, Unavailable, Unavailable]


def test_an_expired_batch_keeps_what_was_done(server: Loopback) -> None:
    server.answer = Batches(echo, order=lambda lines: lines[:1], ends="expired")
    assert values(ask(batching(server), "a", "b")) == ["answer to a", Unavailable]


def test_a_batch_that_is_rejected_rejects_its_requests(server: Loopback) -> None:
    server.answer = Batches(echo, ends="failed")
    replies = ask(batching(server), "a", "b")
    assert values(replies) == [ServerRejected] * 2
    assert "invalid_json_line" in str(replies[0])


def test_upload_faults_reach_every_request_and_polling_faults_none(server: Loopback) -> None:
    provider = server.answer = Batches(echo)
    server.script = [Answer(404, {"error": {"message": "no list"}}), Answer(429, {"error": {"message": "slow"}})]
    assert values(ask(batching(server), "a", "b")) == [RateLimited] * 2
    assert provider.batches == {}
    polls = iter([Answer(500, {"error": {"message": "oops"}}), Answer(429, {}), Answer(body=b"{", cut=True)])

    def shaky(seen: Any) -> Answer:
        if "/batches/" in seen.path and (fault := next(polls, None)):
            return fault
        return provider(seen)

    server.answer = shaky
    assert values(ask(batching(server), "a")) == ["answer to a"]
    assert next(polls, None) is None


def test_a_batch_left_behind_is_found_again_and_not_paid_twice(server: Loopback) -> None:
    provider = Batches(echo, n_polls=10_000)
    server.answer = provider

    async def dies() -> None:
        asked = asyncio.ensure_future(batching(server).chat([{"role": "user", "content": "a"}], schema=None, seed=1))
        while not provider.batches:
            await asyncio.sleep(0)
        asked.cancel()

    asyncio.run(dies())
    provider.n_polls = 1
    assert values(ask(batching(server), "a")) == ["answer to a"]
    assert len(provider.batches) == 1
    chat = batching(server)
    assert values(ask(chat, "b") + ask(chat, "b")) == ["answer to b"] * 2  # but never the same twice in one process
    assert len(provider.batches) == 3


def test_a_task_over_batches(server: Loopback) -> None:
    answer = {"reason": "r", "query_matches_ground_truth": True, "candidate_matches_query": False}
    server.answer = Batches(lambda body: (200, completion(answer)))
    made = ChatVerifier(model="m", base_url=server.url, batch=True, batch_wait_s=0.01, batch_poll_s=0)
    assert asyncio.run(made.verify(image_to_text(), seed=0)).value.keep
    assert made.fingerprint == ChatVerifier(model="m").fingerprint  # the same answers, another way to get them


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"batch_size": 50_001}, {"batch_wait_s": -1.0}], ids=str)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        ChatVerifier(model="m", batch=True, **options)
