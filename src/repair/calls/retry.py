"""How often and how late a call that got no answer is made again."""

from dataclasses import dataclass

from repair.core.identity import derive_rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff with full jitter: before attempt n + 1 wait between 0 and `first_delay_s` · 2^(n-1) seconds,
    at most `max_delay_s`. Where in that span depends on the request alone, so that requests which failed together come
    back apart, and a run can be repeated."""

    n_attempts: int = 5
    first_delay_s: float = 1.0
    max_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.n_attempts < 1:
            raise ValueError("n_attempts must be 1 or more")

    def delay_s(self, key: str, attempt: int, *, retry_after_s: float | None = None) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 1); never less than the server asked for."""
        longest = min(self.max_delay_s, self.first_delay_s * 2.0 ** (attempt - 1))
        return max(longest * float(derive_rng(0, "retry", key, attempt).random()), retry_after_s or 0.0)
