"""The three rule backends in one answer: the fused call plan."""

from repair.backends.lexical.editor import edits_of
from repair.backends.lexical.instructor import LexicalInstructor
from repair.backends.lexical.verifier import FREE, NOISE_THRESHOLD, TRUTH_THRESHOLD, LexicalVerifier
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Case, Plan, Reply
from repair.core.records import Direction


class LexicalPlanner:
    """Verdict, instruction and, for image_to_text, the `n_edits` best rewrites (fewer if there are fewer).

    Answers as LexicalVerifier, LexicalInstructor and LexicalTextEditor do; raises BadReply where one of them does.
    """

    def __init__(self, *, truth_threshold: float = TRUTH_THRESHOLD, noise_threshold: float = NOISE_THRESHOLD) -> None:
        self._verifier = LexicalVerifier(truth_threshold=truth_threshold, noise_threshold=noise_threshold)
        self._instructor = LexicalInstructor()
        self.fingerprint = hash_value(
            {"planner": "lexical", "parts": [self._verifier.fingerprint, self._instructor.fingerprint]}
        )

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Reply[Plan]:  # noqa: ARG002 (nothing is drawn)
        verdict = self._verifier.judge(case).value
        if not verdict.keep:
            return Reply(Plan(verdict=verdict, instruction=None, edits=()), FREE, canonical_json({"keep": False}))
        instruction = self._instructor.tell(case).value
        edits = edits_of(case)[:n_edits] if case.direction is Direction.IMAGE_TO_TEXT else ()
        raw = canonical_json({"keep": True, "instruction": instruction.instruction, "edits": list(edits)})
        return Reply(Plan(verdict=verdict, instruction=instruction, edits=edits), FREE, raw)
