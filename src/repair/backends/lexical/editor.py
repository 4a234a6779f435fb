"""The text editor by rules: the contradicted phrases of a caption replaced by those of the ground truth."""

from collections.abc import Sequence
from functools import lru_cache

from repair.backends.lexical.parsing import parser_fingerprint
from repair.backends.lexical.rewriting import rewrites
from repair.backends.lexical.sides import sides_of
from repair.backends.lexical.verifier import FREE, RULES
from repair.core.errors import BadReply, ConfigError
from repair.core.identity import hash_value
from repair.core.ports import Case, Reply
from repair.core.records import Direction, Instruction

N_CHOICES = 3


class LexicalTextEditor:
    """Makes a false-positive caption true of the image by the smallest change its own captions allow.

    Rewrites are ranked (see `rewriting.rewrites`); seed s gives the one at place `s mod min(n_choices, rewrites)`, so
    consecutive seeds give distinct captions, and equal seeds equal ones. The rules find the residual by themselves:
    a sentence of another instructor cannot be followed by a rule, so the instruction is not read.

    `edit_text` raises BadReply for a text_to_image case, for an image without captions, and if no rewrite is left
    that differs from the false positive and from every ground truth.
    """

    def __init__(self, *, n_choices: int = N_CHOICES) -> None:
        if n_choices < 1:
            raise ConfigError(f"n_choices of the lexical text editor must be at least 1, not {n_choices}")
        self._n_choices = n_choices
        self.fingerprint = hash_value(
            {"text_editor": "lexical", "rules": RULES, "parser": parser_fingerprint(), "n_choices": n_choices}
        )

    async def edit_text(
        self,
        case: Case,
        instruction: Instruction,  # noqa: ARG002 (see above)
        *,
        seed: int,
    ) -> Reply[str]:
        ranked = edits_of(case)
        text = ranked[seed % min(self._n_choices, len(ranked))]
        return Reply(text, FREE, text)


def edits_of(case: Case) -> tuple[str, ...]:
    """All rewrites of an image_to_text case's false positive, best first, at least one. Raises BadReply, as above."""
    if case.direction is not Direction.IMAGE_TO_TEXT:
        raise BadReply("the lexical text editor edits captions only: give a text_to_image case an image editor")
    sides = sides_of(case)
    ranked = _ranked(sides.claim, sides.evidence)
    if not ranked:
        raise BadReply(f"no small change makes '{_cut(sides.claim)}' agree with the captions of the image")
    return ranked


@lru_cache(maxsize=1024)
def _ranked(text: str, evidence: Sequence[str]) -> tuple[str, ...]:
    """Kept for a while: the M candidates of one failure are asked for one by one."""
    return tuple(rewrite.text for rewrite in rewrites(text, evidence))


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
