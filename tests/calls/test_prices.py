import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repair.calls.budget import Budget
from repair.calls.engine import CallEngine
from repair.calls.prices import Price, assumed, parse_prices, seat_of
from repair.calls.retry import Retry
from repair.core.calls import Caps
from repair.core.errors import BadReply, BudgetExceeded, ConfigError, ServerRejected, Unavailable
from repair.core.records import Usage
from tests.calls.support import Backend, Delays, ask_backend, stores

PRICE = Price(input=1.0, output=10.0, image=0.02, call=0.001)
TOKENS = Usage(tokens_in=1000, tokens_out=100)


def test_a_price_has_four_parts() -> None:
    assert PRICE.of(Usage(tokens_in=1_000_000, tokens_out=100_000, n_images=2)) == pytest.approx(1 + 1 + 0.04 + 0.001)
    assert PRICE.applied(Usage(price_usd=0.5)).price_usd == 0.5  # the server's own word counts


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"m": 3}, r'calls\.prices\."m": write'),
        ({"m": {"inptu": 3}}, r'unknown part "inptu": did you mean "input"'),
        ({"m": {"input": -1}}, r"m\"\.input: a price in US dollars, 0 or more, not -1"),
        ({"m": {"input": "1"}}, "not '1'"),
        ({"m": {"input": True}}, "not True"),
        ({"m": {"input": float("nan")}}, "not nan"),
    ],
)
def test_a_price_that_cannot_be_read_is_named(setting: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_prices(setting)


def test_a_price_stands_under_place_model_or_name() -> None:
    served = SimpleNamespace(place="http://h/v1|gpt", fingerprint="b2:x")
    local = SimpleNamespace(fingerprint="b2:y")
    prices = {"http://h/v1|gpt": Price(call=1), "gpt": Price(call=2), "chat": Price(call=3), "lexical": Price()}
    assert seat_of(served, name="chat", prices=prices).price == Price(call=1)
    prices.pop("http://h/v1|gpt")
    assert seat_of(served, name="chat", prices=prices).price == Price(call=2)
    prices.pop("gpt")
    assert seat_of(served, name="chat", prices=prices).price == Price(call=3)
    assert seat_of(served, name="other", prices=prices) == ("http://h/v1|gpt", "gpt", None)
    assert seat_of(local, name="lexical", prices=prices) == ("b2:y", "lexical", Price())


def test_calls_are_charged_their_price_and_the_cap_holds(tmp_path: Path) -> None:
    async def work(engine: CallEngine) -> list[Any]:
        calls = (ask_backend(engine, index, backend, price=PRICE) for index in range(40))
        return await asyncio.gather(*calls, return_exceptions=True)

    one_usd = PRICE.of(TOKENS)
    backend = Backend(lambda *_: "x", usage=TOKENS)
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=8, budget=Budget(Caps(max_usd=10.5 * one_usd)))
        results = asyncio.run(work(engine))
        assert sum(isinstance(result, BudgetExceeded) for result in results) == 30
        assert ledger.spent().n_calls == 10
        assert ledger.spent().price_usd == pytest.approx(10 * one_usd)
        assert not any(logged.attempt.estimated for logged in ledger.attempts())


def test_failed_attempts_are_charged_what_they_used_or_what_is_assumed(tmp_path: Path) -> None:
    errors = [BadReply("no", usage=TOKENS), Unavailable("cut"), ServerRejected("401: wrong key")]
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, retry=Retry(n_attempts=1), sleep=Delays())
        backend = Backend(lambda index, _: errors[index])
        for index in range(2):
            asyncio.run(ask_backend(engine, index, backend, price=PRICE))
        with pytest.raises(ServerRejected):
            asyncio.run(ask_backend(engine, 2, backend, price=PRICE))
        rows = [logged.attempt for logged in ledger.attempts()]
        expected = [PRICE.of(TOKENS), PRICE.of(assumed("verify")), 0.0]
        assert [row.usage.price_usd for row in rows] == pytest.approx(expected)
        assert [row.estimated for row in rows] == [False, True, False]
        assert [row.outcome for row in rows] == ["bad_reply", "unavailable", "failed"]  # no model has refused


def test_the_setting_to_set_is_named_before_the_first_call(tmp_path: Path) -> None:
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1, budget=Budget(Caps(max_usd=1.0)))
        with pytest.raises(ConfigError, match=r'set calls\.prices\."model" = \{ input = …'):
            asyncio.run(ask_backend(engine, 0, Backend(lambda *_: "x")))


def test_keys_are_kept_out_of_the_ledger(tmp_path: Path) -> None:
    secret = "Bearer abcdefgh12345678"
    with stores(tmp_path) as (ledger, blobs):
        engine = CallEngine(ledger, blobs, concurrency=1)
        backend = Backend(lambda *_: BadReply(f"bad header {secret}", usage=TOKENS, raw=f"raw {secret}"))
        outcome = asyncio.run(ask_backend(engine, 0, backend))
        (logged,) = ledger.attempts()
        assert outcome.error == logged.attempt.error == "bad header Bearer [redacted]"
        assert logged.attempt.raw == "raw Bearer [redacted]"
