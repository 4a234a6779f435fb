"""One OpenAI-compatible server: address, key, time-outs, and what its failures mean to the engine.

The `openai` client does HTTP with its own retries off; 429 must reach the engine's limiter. The key is read from an
environment variable, stays in memory, and is cut out of everything that is said, logged or recorded.
"""

import asyncio
import math
import os
import re
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import openai

from repair.core.errors import BackendError, ConfigError, RateLimited, Refused, ServerRejected, Unavailable
from repair.core.records import Usage
from repair.core.redaction import keep_secret, redacted

Result = TypeVar("Result")

MAX_CONNECTIONS = 4096  # the engine limits; a pool of connections must not queue below it

_NO_KEY = "none"
_NOTHING = Usage(price_usd=0.0)  # what a call costs that the server turned away
_NEVER_SENT = (ConnectionRefusedError, socket.gaierror)
_SHOWN = 300  # characters of a server's message

# What servers call the refusal of one item, in `code` or `type` of the error; the next item may well pass.
_POLICY = ("content_filter", "content_policy", "moderation", "responsible_ai", "safety", "invalid_prompt")
_TOO_LONG = ("context_length_exceeded", "exceed_context_size", "string_above_max_length")
_TOO_LONG_TEXT = ("context length", "context size", "context window", "maximum model length", "too many tokens")
_BAD_IMAGE = ("invalid_image", "image_parse_error", "image_too", "invalid_base64", "unsupported_image")
_NO_CREDIT = ("insufficient_quota", "insufficient_credit", "billing", "credit_balance", "payment_required")
_NO_IMAGES = ("image input is not supported", "does not support image", "not a multimodal model")


class Connection:
    """A server and how to reach it. Clients are made per event loop and closed with it."""

    def __init__(
        self, base_url: str, *, api_key_env: str = "", connect_timeout_s: float = 30.0, read_timeout_s: float = 300.0
    ) -> None:
        """Raises ConfigError for an address that is none, a time-out that is not positive, and a variable not set."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f'option "base_url": "{_without_user(base_url)}" is no address; write e.g. http://127.0.0.1:8000/v1'
            )
        if parts.username or parts.password:
            raise ConfigError('option "base_url" holds a user or password: name a variable in "api_key_env" instead')
        if parts.query or parts.fragment:
            raise ConfigError(
                'option "base_url": an address without "?" and "#"; it is written down, so a key belongs into the '
                'variable that "api_key_env" names'
            )
        for name, value in (("connect_timeout_s", connect_timeout_s), ("read_timeout_s", read_timeout_s)):
            if not 0 < value < math.inf:
                raise ConfigError(f'option "{name}": seconds above 0, not {value}')
        if api_key_env and not os.environ.get(api_key_env):
            raise ConfigError(
                f'option "api_key_env": the environment variable {api_key_env} is not set; it must hold the key'
            )
        if api_key_env:
            keep_secret(os.environ[api_key_env])
        self.base_url = base_url.rstrip("/")
        self._api_key_env = api_key_env
        self._timeout = httpx2.Timeout(connect=connect_timeout_s, read=read_timeout_s, write=None, pool=None)
        self._read_timeout_s = read_timeout_s
        self._client: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: AsyncGenerator[None, None] | None = None

    def __repr__(self) -> str:
        return f"Connection({self.base_url!r})"

    async def call(self, send: Callable[[openai.AsyncOpenAI], Awaitable[Result]]) -> Result:
        """`await send(client)`, its failures as the BackendErrors that the engine knows (`failure_of`)."""
        client = await self._client_here()
        try:
            return await send(client)
        except openai.APIError as error:
            raise self.failure_of(error) from None

    def failure_of(self, error: openai.APIError) -> BackendError:
        """The server's failure in the engine's words, without the key."""
        if isinstance(error, openai.APIStatusError):
            names = f"{error.code or ''} {error.type or ''}"
            return self.status_failure(error.status_code, names, self._said(error), error.response.headers)
        if isinstance(error, openai.APIConnectionError):
            return self._no_answer(error)
        return Unavailable(f"{self.base_url}: {self._said(error)}")

    async def _client_here(self) -> openai.AsyncOpenAI:
        """The client of the running event loop.

        A suspended asynchronous generator closes it: a loop that ends closes its generators first, so no connection
        outlives its loop, and nobody has to remember.
        """
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            client = self._new_client()
            held = _closing(client)
            await anext(held)
            self._client, self._loop, self._held = client, loop, held
        return self._client

    def _new_client(self) -> openai.AsyncOpenAI:
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
        options: dict[str, Any] = {"timeout": self._timeout, "limits": limits}
        http: httpx2.AsyncClient
        try:
            http = openai.DefaultAioHttpClient(**options)  # a third of the CPU of the other one
        except RuntimeError:  # aiohttp is not installed
            http = openai.DefaultAsyncHttpxClient(**options)
        return openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=os.environ.get(self._api_key_env, _NO_KEY) if self._api_key_env else _NO_KEY,
            timeout=self._timeout,
            max_retries=0,
            http_client=http,
        )

    def status_failure(self, status: int, names: str, said: str, headers: Mapping[str, str]) -> BackendError:
        """What a status means. `names` is the error's code and type, `said` its message without the key."""
        what = f"{self.base_url} answered {status}: {said}"
        names, lower = names.lower(), said.lower()
        if status == 429 and not _any_in(_NO_CREDIT, names):
            return RateLimited(what, usage=_NOTHING, retry_after_s=retry_after_s(headers))
        if status in (429, 402) or (status in (400, 403) and _any_in(_NO_CREDIT, names)):
            return ServerRejected(f"{what} (out of credit)", usage=_NOTHING)
        if status == 413 or (status in (400, 403, 422) and _about_one_item(names, lower)):
            return Refused(what, usage=_NOTHING)
        if _any_in(_NO_IMAGES, lower):
            return ServerRejected(f'{what}: set the option image_as = "captions"', usage=_NOTHING)
        if status in (408, 409, 425) or (status >= 500 and status != 501):
            return Unavailable(what, retry_after_s=retry_after_s(headers))
        return ServerRejected(f"{what}{_ADVICE.get(status, '')}", usage=_NOTHING)

    def _no_answer(self, error: openai.APIConnectionError) -> BackendError:
        cause = error.__cause__
        if isinstance(cause, httpx2.ReadTimeout):
            return Unavailable(f"{self.base_url}: no answer for read_timeout_s = {self._read_timeout_s:g} s")
        why = " ".join(redacted(str(cause or error)).split())
        never_sent = any(isinstance(link, _NEVER_SENT) for link in _chain(cause))
        return Unavailable(
            f"{self.base_url}: {why[:_SHOWN] or type(cause).__name__}", usage=_NOTHING if never_sent else None
        )

    def _said(self, error: openai.APIError) -> str:
        """What the server said, on one line."""
        body = error.body
        message = body.get("message") if isinstance(body, dict) else None
        if not isinstance(message, str):
            message = body if isinstance(body, str) and body else error.message
        line = " ".join(redacted(message).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


_ADVICE = {
    401: ' (a wrong key? the option "api_key_env" names the variable that holds it)',
    403: " (this key may not use the model)",
    404: ' (a wrong address or model? see the options "base_url" and "model")',
}


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait, from Retry-After (seconds or a date) or retry-after-ms; None if it does not."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) * unit_s
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - time.time()
            except ValueError:
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def place_of(connection: Connection, model: str) -> str:
    """What shares one limit and one price: a model on a server."""
    return f"{connection.base_url}|{model}"


async def _closing(client: openai.AsyncOpenAI) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()


def _about_one_item(names: str, lower: str) -> bool:
    """Whether another request may pass: the error is about this one's content or length."""
    return _any_in((*_POLICY, *_TOO_LONG, *_BAD_IMAGE), names) or _any_in(_TOO_LONG_TEXT, lower)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """`error` and its causes."""
    while error is not None:
        yield error
        error = error.__cause__


def _any_in(words: tuple[str, ...], text: str) -> bool:
    return any(word in text for word in words)


def _without_user(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)
