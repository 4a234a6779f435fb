"""What calls cost: the price of a model as the user states it, and what a call is assumed to use before one is made."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from repair.core.errors import ConfigError, suggest
from repair.core.records import Usage

_PER_MILLION = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars: `input` and `output` per million tokens, `image` per image made, `call` per call. A part that is not
    given costs nothing. Raises ConfigError for a negative price."""

    input: float = 0.0
    output: float = 0.0
    image: float = 0.0
    call: float = 0.0

    def of(self, usage: Usage) -> float:
        """What a call that used `usage` costs.

        Example:
            >>> Price(input=0.15, output=0.6).of(Usage(tokens_in=2_000_000, tokens_out=500_000))
            0.6
        """
        tokens_usd = (self.input * usage.tokens_in + self.output * usage.tokens_out) * _PER_MILLION
        return tokens_usd + self.image * usage.n_images + self.call

    def applied(self, usage: Usage) -> Usage:
        """`usage` with its price, unless the backend has said one."""
        return usage if usage.price_usd is not None else replace(usage, price_usd=self.of(usage))


class Seat(NamedTuple):
    """Where a call is made, for the limit and the price: `place` is "server|model" or a fingerprint, `name` what the
    user calls it in `calls.prices`."""

    place: str
    name: str
    price: Price | None = None


def seat_of(backend: Any, *, name: str, prices: Mapping[str, Price]) -> Seat:
    """The seat of a backend that the config calls `name`. Its price may stand under its whole place, its model, or
    that name, whichever is found first."""
    place = str(getattr(backend, "place", "") or backend.fingerprint)
    model = place.rpartition("|")[2] if "|" in place else name
    for known in (place, model, name):
        if known in prices:
            return Seat(place, known, prices[known])
    return Seat(place, model)


def parse_prices(setting: Mapping[str, Any]) -> dict[str, Price]:
    """`calls.prices` by model. Raises ConfigError naming what cannot be read."""
    parts = [field.name for field in fields(Price)]
    prices = {}
    for model, given in setting.items():
        where = f'calls.prices."{model}"'
        if not isinstance(given, Mapping):
            raise ConfigError(f"{where}: write {{ input = 0.15, output = 0.60 }} (US dollars per million tokens)")
        for part, value in given.items():
            if part not in parts:
                raise ConfigError(f'{where}: unknown part "{part}": {suggest(str(part), parts)}')
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigError(f"{where}.{part}: a price in US dollars, 0 or more, not {value!r}")
        prices[model] = Price(**{part: float(value) for part, value in given.items()})
    return prices


# What one call is taken to use where nothing better is known. Tokens: prompts of this project with one image at 85 to
# 300 tokens, and the paper's Table 9 per sample (2,200 i2t, 1,430 t2i) over its calls. Never charged to an answered
# call, which says what it used.
ASSUMED = {
    "verify": Usage(tokens_in=700, tokens_out=60, latency_s=1.0),
    "instruct": Usage(tokens_in=700, tokens_out=120, latency_s=1.5),
    "edit_text": Usage(tokens_in=350, tokens_out=30, latency_s=0.7),
    "edit_image": Usage(tokens_in=60, n_images=1, latency_s=5.0),
    "plan": Usage(tokens_in=1000, tokens_out=250, latency_s=2.5),
    "verify_candidate": Usage(tokens_in=700, tokens_out=60, latency_s=1.0),
    "verify_cell": Usage(tokens_in=700, tokens_out=60, latency_s=1.0),
}


def assumed(task: str) -> Usage:
    return ASSUMED.get(task, ASSUMED["verify"])
