import pytest

from repair.core.redaction import keep_secret, redacted

KEY = "abcd1234efgh5678"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {KEY}",
        f'{{"api_key": "{KEY}"}}',
        f"X-API-Key={KEY}&n=1",
        f"http://ann:{KEY}@host/v1",
        f"Incorrect API key provided: sk-{KEY}{KEY}",
        f"access_token: {KEY}",
    ],
)
def test_what_looks_like_a_key_is_hidden_and_the_rest_stays(text: str) -> None:
    hidden = redacted(text)
    assert KEY not in hidden
    assert "[redacted]" in hidden
    assert redacted(hidden) == hidden


def test_a_known_key_is_hidden_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVER_API_KEY", "plain words 42")
    assert redacted("the server said: plain words 42!") == "the server said: [redacted]!"
    keep_secret("told at run time")
    assert redacted("x told at run time y") == "x [redacted] y"


def test_ordinary_lines_are_left_alone() -> None:
    for line in (
        "round 0 verify (3.2 s): image_to_text: kept 812, dropped 3",
        "calls.max_tokens = 1000 (990 tokens used): raise calls.max_tokens",
        "https://example.org:8000/v1 answered 500: b2:0123456789abcdef0123456789abcdef",
        "the key of this request is b2:0123",
    ):
        assert redacted(line) == line
