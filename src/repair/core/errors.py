"""Every error this project raises on purpose.

    RepairError
    ├── ConfigError        a setting is unknown, of the wrong type, out of range, or two settings clash
    ├── DataError          an input file, image, caption or id is missing, broken or inconsistent
    ├── BackendError       a model or server did not do its job
    │   ├── Refused        it answered, and the answer is no (a policy refusal): one item's failure
    │   ├── BadReply       it answered, and the answer is unusable (not JSON, wrong schema, cut short)
    │   ├── Unavailable    it did not answer (connection, time-out, 5xx); trying again may help
    │   ├── RateLimited    429: too much at once; the engine sends less and asks again, it is no failure
    │   └── ServerRejected 400, 401, 402, 403, 404, out of credit: every call would meet it, so the stage stops
    ├── BudgetExceeded     the next call would break a cap; everything finished so far is kept
    ├── StoreError         the run folder, ledger or cache cannot be read or written
    │   ├── RunLocked      another process is using this run folder
    │   └── RunMismatch    this run folder belongs to another configuration
    ├── TrainingError      training cannot go on (a loss that is not finite, nothing to train on)
    ├── Interrupted        the user pressed Ctrl-C; everything finished so far is kept
    └── MissingDependency  an optional package is not installed

A message is one line: what is wrong, where, the rule, the choices, and the fix. The command line prints
it without a traceback and exits with `exit_code`.
"""

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from repair.core.records import Usage


class RepairError(Exception):
    """Base of all errors raised on purpose. `exit_code` is what the command line exits with."""

    exit_code = 1


class ConfigError(RepairError):
    exit_code = 2


class DataError(RepairError):
    exit_code = 3


class BackendError(RepairError):
    """What an adapter raises. A failed attempt may have been billed: say what it cost and what came back.

    `usage` is None when the server did not say. `stops` marks an error that the next call would meet as well (a wrong
    key, no credit): the engine stops. `retry_after_s` is the server's own wish, where it has one.
    """

    exit_code = 4

    def __init__(
        self,
        message: str = "",
        *,
        usage: "Usage | None" = None,
        raw: str = "",
        stops: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.usage = usage
        self.raw = raw
        self.stops = stops
        self.retry_after_s = retry_after_s


class Refused(BackendError):
    pass


class BadReply(BackendError):
    pass


class Unavailable(BackendError):
    pass


class RateLimited(BackendError):
    """Too many calls at once (429). Nothing was billed; the limiter slows down and sends the call again."""


class ServerRejected(BackendError):
    """The next call would be rejected just the same: wrong key, model, address or request, or no credit left."""

    def __init__(self, message: str = "", *, usage: "Usage | None" = None, raw: str = "") -> None:
        super().__init__(message, usage=usage, raw=raw, stops=True)


class BudgetExceeded(RepairError):
    exit_code = 5


class StoreError(RepairError):
    exit_code = 6


class RunLocked(StoreError):
    pass


class RunMismatch(StoreError):
    pass


class TrainingError(RepairError):
    exit_code = 7


class MissingDependency(RepairError):
    exit_code = 8


class Interrupted(RepairError):
    exit_code = 130


def suggest(name: str, choices: Iterable[str]) -> str:
    """The tail of an "unknown name" message: the nearest choice, whatever its case, if one is near, then all of them.

    Example:
        >>> suggest("vanila", ["vanilla", "local_grids"])
        'did you mean "vanilla"? Choices: local_grids, vanilla'
    """
    ordered = sorted(choices)
    folded = {choice.casefold(): choice for choice in ordered}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    hint = f'did you mean "{folded[near[0]]}"? ' if near else ""
    return f"{hint}Choices: {', '.join(ordered) if ordered else '(none)'}"
