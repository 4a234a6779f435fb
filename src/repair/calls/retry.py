"""How often and how late a call that got no answer is made again."""

from dataclasses import dataclass

from repair.core.identity import derive_rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential backoff with jitter: before attempt n + 1 wait `first_delay_s` · 2^(n-1), at most `max_delay_s`,
    times a factor in [0.5, 1.5) that depends on the request, so that requests which failed together return apart."""

    n_attempts: int = 5
    first_delay_s: float = 0.5
    max_delay_s: float = 30.0

    def __post_init__(self) -> None:
        if self.n_attempts < 1:
            raise ValueError("n_attempts must be 1 or more")

    def delay_s(self, key: str, attempt: int, *, retry_after_s: float | None = None) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 1); never less than the server asked for."""
        base = min(self.max_delay_s, self.first_delay_s * 2.0 ** (attempt - 1))
        jittered = base * (0.5 + float(derive_rng(0, "retry", key, attempt).random()))
        return max(jittered, retry_after_s or 0.0)
