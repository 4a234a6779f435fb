"""Provider batch mode (`/v1/batches`) behind the ChatModel port: many requests in one file, answers within a day.

Requests are gathered until `size` of them wait or none has come for `wait_s`; each group is uploaded, polled and handed
out by custom id, whatever the order of the lines. A line that failed or is missing is that request's own failure. A
batch carries a digest of its requests: a process that died after creating it finds it again and does not pay twice.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import openai

from repair.backends.chat.server import ChatServer
from repair.core.errors import BackendError, ConfigError, RateLimited, ServerRejected, Unavailable
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.core.redaction import redacted

Result = TypeVar("Result")

MAX_SIZE = 50_000  # requests in one file, and bytes: what providers take
MAX_BYTES = 150_000_000

_ENDPOINT: Literal["/v1/chat/completions"] = "/v1/chat/completions"
_DIGEST = "repair_requests"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_ADOPTED = frozenset({"validating", "in_progress", "finalizing", "completed"})
_PATIENCE = 20  # looks in a row that may fail: the batch is paid for
_NOTHING = Usage(price_usd=0.0)


class _Waiting(NamedTuple):
    line: str
    custom_id: str
    body: Mapping[str, Any]
    reply: "asyncio.Future[Reply[str]]"


class BatchServer:
    """A `ChatModel` whose requests travel in batches. `chat` returns when its batch has come back."""

    def __init__(self, chat: ChatServer, *, size: int, wait_s: float, poll_s: float) -> None:
        if not 1 <= size <= MAX_SIZE:
            raise ConfigError(f'option "batch_size": from 1 to {MAX_SIZE}, not {size}')
        if wait_s < 0 or poll_s < 0:
            raise ConfigError('options "batch_wait_s" and "batch_poll_s": 0 or more seconds')
        self.fingerprint = chat.fingerprint
        self._chat = chat
        self._size = size
        self._wait_s = wait_s
        self._poll_s = poll_s
        self._waiting: list[_Waiting] = []
        self._came = asyncio.Event()
        self._gatherer: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._collected: set[str] = set()

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None, seed: int
    ) -> Reply[str]:
        """As `ChatServer.chat`; Unavailable if the batch came back without this request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # what an earlier loop left behind ended with it
            self._loop, self._waiting, self._came, self._gatherer = loop, [], asyncio.Event(), None
        body = self._chat.body(messages, schema=schema, seed=seed)
        custom_id = hash_value(body).removeprefix("b2:")
        line = canonical_json({"custom_id": custom_id, "method": "POST", "url": _ENDPOINT, "body": body})
        reply: asyncio.Future[Reply[str]] = loop.create_future()
        self._waiting.append(_Waiting(line, custom_id, body, reply))
        self._came.set()
        if self._gatherer is None or self._gatherer.done():
            self._gatherer = loop.create_task(self._gather())
        return await reply

    async def _gather(self) -> None:
        """Send off what waits, in groups, until nothing waits any more."""
        while self._waiting:
            if len(self._waiting) < self._size:
                self._came.clear()
                try:
                    async with asyncio.timeout(self._wait_s):
                        await self._came.wait()
                    continue
                except TimeoutError:
                    pass
            group = self._next_group()
            task = asyncio.get_running_loop().create_task(self._serve(group))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    def _next_group(self) -> list[_Waiting]:
        n_bytes = 0
        group: list[_Waiting] = []
        while self._waiting and len(group) < self._size:
            n_bytes += len(self._waiting[0].line.encode()) + 1
            if group and n_bytes > MAX_BYTES:
                break
            group.append(self._waiting.pop(0))
        return group

    async def _serve(self, group: list[_Waiting]) -> None:
        """Get the group's answers and hand them out; a failure of the whole is the failure of each."""
        try:
            lines = await self._answers(group)
        except BackendError as error:
            for waiting in group:
                _settle(waiting, error)
            return
        except BaseException:
            for waiting in group:
                waiting.reply.cancel()
            raise
        for waiting in group:
            try:
                _settle(waiting, self._read(waiting, lines.get(waiting.custom_id)))
            except BackendError as error:
                _settle(waiting, error)

    async def _answers(self, group: list[_Waiting]) -> dict[str, Mapping[str, Any]]:
        """The batch's lines by custom id, from its output file and its error file."""
        by_id = {waiting.custom_id: waiting.line for waiting in group}
        digest = hash_value(sorted(by_id))
        batch = await self._existing(digest) or await self._create("\n".join(by_id.values()) + "\n", digest)
        while batch.status not in _ENDED:
            await asyncio.sleep(self._poll_s)
            batch = await self._patiently(partial(_retrieve, batch_id=batch.id))
        self._collected.add(batch.id)
        if batch.status == "failed":
            faults = (batch.errors and batch.errors.data) or []
            why = "; ".join(f"{fault.code}: {fault.message}" for fault in faults[:3]) or "no reason given"
            kind = RateLimited if "limit" in why else ServerRejected
            raise kind(redacted(f"the batch {batch.id} failed: {why}"), usage=_NOTHING)
        lines: dict[str, Mapping[str, Any]] = {}
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                for line in _objects(await self._patiently(partial(_content, file_id=file_id))):
                    lines.setdefault(str(line.get("custom_id")), line)
        return lines

    async def _create(self, lines: str, digest: str) -> Any:
        call = self._chat.connection.call
        file = await call(lambda client: client.files.create(file=("requests.jsonl", lines.encode()), purpose="batch"))
        return await call(
            lambda client: client.batches.create(
                input_file_id=file.id, endpoint=_ENDPOINT, completion_window="24h", metadata={_DIGEST: digest}
            )
        )

    async def _existing(self, digest: str) -> Any | None:
        """A batch of exactly these requests that an earlier process created and could not collect."""
        try:
            page = await self._chat.connection.call(_first_page)
        except ServerRejected:  # a server that lists no batches
            return None
        for batch in page.data:
            wanted = (batch.metadata or {}).get(_DIGEST) == digest and batch.status in _ADOPTED
            if wanted and batch.id not in self._collected:
                return batch
        return None

    async def _patiently(self, send: Callable[[openai.AsyncOpenAI], Awaitable[Result]]) -> Result:
        for _ in range(_PATIENCE - 1):
            try:
                return await self._chat.connection.call(send)
            except (Unavailable, RateLimited) as error:
                await asyncio.sleep(max(self._poll_s, error.retry_after_s or 0.0))
        return await self._chat.connection.call(send)

    def _read(self, waiting: _Waiting, line: Mapping[str, Any] | None) -> Reply[str]:
        if line is None:
            raise Unavailable("the batch came back without this request", usage=_NOTHING)
        response = line.get("response")
        if isinstance(response, dict) and isinstance(response.get("body"), dict):
            status, body = response.get("status_code", 200), response["body"]
            if status == 200:
                return self._chat.read(json.dumps(body), sent=waiting.body)
            fault = body.get("error") or body
        else:
            status, fault = 502, line.get("error") or {}
        names = f"{fault.get('code')} {fault.get('type')}"
        said = redacted(str(fault.get("message", "no reason given")))
        failure = self._chat.connection.status_failure(int(status), names, said, {})
        if isinstance(failure, RateLimited):  # it waited for a day already: the limiter has no part in it
            return _raise(Unavailable(str(failure), usage=failure.usage))
        return _raise(failure)


async def _first_page(client: openai.AsyncOpenAI) -> Any:
    return await client.batches.list(limit=100)


async def _retrieve(client: openai.AsyncOpenAI, *, batch_id: str) -> Any:
    return await client.batches.retrieve(batch_id)


async def _content(client: openai.AsyncOpenAI, *, file_id: str) -> str:
    return (await client.files.content(file_id)).text


def _settle(waiting: _Waiting, outcome: Reply[str] | BackendError) -> None:
    if waiting.reply.done():  # its caller has gone
        return
    if isinstance(outcome, BackendError):
        waiting.reply.set_exception(outcome)
    else:
        waiting.reply.set_result(outcome)


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects in `text`, one a line; a line that is none answers nobody."""
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _raise(failure: BackendError) -> Reply[str]:
    raise failure
