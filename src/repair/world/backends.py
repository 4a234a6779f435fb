"""Backends over the world's truth that err at set rates, so that checking and selecting visibly earn their keep.

They see what a real backend sees, images as bytes and captions as text, and know the truth because the bytes of the
world's images carry their scene. They hold no state; every draw comes from the request's seed and content, so the same
request gets the same answer whatever came before it. Usage is simulated: 1.3 tokens a word of a prompt of plausible
length, 85 tokens an image, and no money unless a price is set.
"""

import io
from collections.abc import Mapping
from typing import Any

from PIL import Image

from repair.core.errors import ConfigError, Refused
from repair.core.identity import canonical_json, hash_value
from repair.core.ports import Case, ImageItem, Plan, Reply, TextItem
from repair.core.records import Criterion, Direction, Instruction, Usage, Verdict
from repair.world.cases import (
    N_MISREADINGS,
    case_rng,
    difference,
    image_of,
    reason_for,
    to_edit_image,
    to_edit_text,
    true_criterion,
)
from repair.world.drawing import render
from repair.world.faults import another_text, edit_rates, edited_scene, edited_text, verifier_rates
from repair.world.source import WORLD_VERSION

TOKENS_PER_WORD = 1.3
TOKENS_PER_IMAGE = 85
_PROMPT_WORDS = {"verify": 220, "instruct": 260, "edit_text": 180, "edit_image": 30, "plan": 420}


class _Backend:
    """What the five have in common: a fingerprint of the options, and simulated cost."""

    def __init__(self, name: str, price_usd_per_call: float | None, options: Mapping[str, float]) -> None:
        for option, value in options.items():
            if not 0 <= value <= 1:
                raise ConfigError(f'option "{option}" of backend "world": a rate in [0, 1], not {value}')
        if price_usd_per_call is not None and price_usd_per_call < 0:
            raise ConfigError(f'option "price_usd_per_call" of backend "world": 0 or more, not {price_usd_per_call}')
        self._price_usd = price_usd_per_call
        self.fingerprint = hash_value({"backend": f"world-{name}", "version": 1, "world": WORLD_VERSION, **options})

    def _usage(self, task: str, case: Case, *, extra: str = "", answer: str = "", n_images: int = 0) -> Usage:
        items = (case.query, case.false_positive, *case.ground_truths)
        texts = [item.text if isinstance(item, TextItem) else " ".join(item.captions) for item in items]
        n_words = _PROMPT_WORDS[task] + sum(len(text.split()) for text in (*texts, extra))
        shown = sum(isinstance(item, ImageItem) for item in items) * TOKENS_PER_IMAGE
        return Usage(
            tokens_in=round(TOKENS_PER_WORD * n_words) + shown,
            tokens_out=round(TOKENS_PER_WORD * len(answer.split())),
            n_images=n_images,
            price_usd=self._price_usd,
        )


class WorldVerifier(_Backend):
    """A `Verifier` with given precision and recall; what it keeps is called genuine.

    A failure is genuine if the query and its best-ranked ground truth agree (else the right answer is
    annotation_noise) and the false positive is false of the query (else it is benign_mismatch). A genuine failure that
    is dropped is dropped under either criterion, by chance.

    Options: `precision` and `recall` of keeping, by default those of the paper's verifier against people (Table 13:
    90.2 %, 83.9 %); `genuine_rate`, the share of genuine failures at which `precision` is meant: 0.714 follows from the
    paper's accuracy of 82.0 %. Where more are genuine, the precision comes out higher. With precision=1 and recall=1 it
    never errs.
    """

    def __init__(
        self,
        *,
        precision: float = 0.902,
        recall: float = 0.839,
        genuine_rate: float = 0.714,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = {"precision": precision, "recall": recall, "genuine_rate": genuine_rate}
        super().__init__("verifier", price_usd_per_call, options)
        self._rates = verifier_rates(precision=precision, recall=recall, genuine_rate=genuine_rate)

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]:
        verdict = self.judge(case, seed=seed)
        criterion = None if verdict.criterion is None else str(verdict.criterion)
        raw = canonical_json({"keep": verdict.keep, "criterion": criterion, "reason": verdict.reason})
        return Reply(verdict, self._usage("verify", case, answer=raw), raw)

    def judge(self, case: Case, *, seed: int) -> Verdict:
        """The verdict alone. Raises Refused if image or texts are not of this world."""
        rng = case_rng(seed, "verify", case)
        truth = true_criterion(case)
        keep = bool(rng.random() < (self._rates.keep_genuine if truth is None else self._rates.keep_other))
        mistaken = tuple(Criterion)[int(rng.integers(len(Criterion)))]
        criterion = None if keep else truth or mistaken
        return Verdict(failure_id=case.failure_id, keep=keep, criterion=criterion, reason=reason_for(criterion))


class WorldInstructor(_Backend):
    """An `Instructor`: the minimal edit in words; at `misreading_rate` it gets a fact of the query wrong.

    The default of 4 % is the share of the paper's kept pairs whose edit does not match the query (95.8 % do).
    A false positive that is in fact true of the query (a failure kept by mistake) has nothing to repair: the
    instruction then follows a misreading of the query, as a model's does that has been told that something is wrong.
    """

    def __init__(self, *, misreading_rate: float = 0.04, price_usd_per_call: float | None = None) -> None:
        super().__init__("instructor", price_usd_per_call, {"misreading_rate": misreading_rate})
        self._misreading_rate = misreading_rate

    async def instruct(self, case: Case, *, seed: int) -> Reply[Instruction]:
        instruction = self.advise(case, seed=seed)
        raw = canonical_json(_instruction_fields(instruction))
        return Reply(instruction, self._usage("instruct", case, answer=raw), raw)

    def advise(self, case: Case, *, seed: int) -> Instruction:
        """The instruction alone. Raises Refused if image or texts are not of this world, or nothing can be changed."""
        rng = case_rng(seed, "instruct", case)
        misread = bool(rng.random() < self._misreading_rate)
        first = 1 + int(rng.integers(N_MISREADINGS)) if misread else 0
        for reading in (first, *range(1, N_MISREADINGS + 1), 0):
            wrong = difference(case, reading)
            if wrong.error_types:
                return Instruction(
                    failure_id=case.failure_id,
                    error_types=wrong.error_types,
                    residual=wrong.residual,
                    scaffold=wrong.scaffold,
                    instruction=wrong.instruction,
                )
        raise Refused("nothing in the false positive can be changed: it is true of the query however that is read")


class WorldTextEditor(_Backend):
    """A `TextEditor`: a caption with the fewest facts changed that fits what the instruction says of the query image.

    Options: `no_op_rate`, the caption comes back as it was; `excess_rate`, it becomes true but up to two more facts are
    changed; `misplaced_rate`, one fact is changed and it stays false. One candidate in ten each: of three candidates
    two then are usually good, and taking the first (the ablation w/o PQC) is bad three times in ten.
    Where several edits are equally small, seeds take different ones, the more conservative more often.
    """

    def __init__(
        self,
        *,
        no_op_rate: float = 0.1,
        excess_rate: float = 0.1,
        misplaced_rate: float = 0.1,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = {"no_op_rate": no_op_rate, "excess_rate": excess_rate, "misplaced_rate": misplaced_rate}
        super().__init__("text-editor", price_usd_per_call, options)
        self._rates = edit_rates(no_op_rate, excess_rate, misplaced_rate)

    async def edit_text(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[str]:
        scene, text = to_edit_text(case, instruction)
        rng = case_rng(seed, "edit_text", case, instruction.instruction)
        edited = edited_text(scene, text, rng, outcome=self._rates.outcome(rng))
        raw = canonical_json({"caption": edited})
        return Reply(edited, self._usage("edit_text", case, extra=instruction.instruction, answer=raw), raw)


class WorldImageEditor(_Backend):
    """An `ImageEditor`: the false positive with the fewest facts changed that fits the query as the instruction has it.

    All other pixels stay as they are. Options: `no_op_rate`, the image comes back as it was; `excess_rate`, it fits but
    up to two more facts are changed; `misplaced_rate`, something is changed and it still does not fit. Image editors
    miss more often than language models (the paper's edits are minimal in 89.8 % of kept images against 96.8 %
    of kept captions, after selection from three), hence 15 % for the latter two.
    """

    def __init__(
        self,
        *,
        no_op_rate: float = 0.1,
        excess_rate: float = 0.15,
        misplaced_rate: float = 0.15,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = {"no_op_rate": no_op_rate, "excess_rate": excess_rate, "misplaced_rate": misplaced_rate}
        super().__init__("image-editor", price_usd_per_call, options)
        self._rates = edit_rates(no_op_rate, excess_rate, misplaced_rate)

    async def edit_image(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[bytes]:
        data = image_of(case.false_positive).read()
        scene, claim = to_edit_image(case, instruction)
        rng = case_rng(seed, "edit_image", case, instruction.instruction)
        edited = edited_scene(scene, claim, rng, outcome=self._rates.outcome(rng))
        if edited != scene:
            data = render(edited, size=side_of(data))
        raw = canonical_json({"changed": edited != scene})
        return Reply(data, self._usage("edit_image", case, extra=instruction.instruction, n_images=1), raw)


class WorldPlanner(_Backend):
    """A `Planner` that errs as verifier, instructor and text editor together, with their options and defaults.

    Its edits are distinct: where there are too few equally small ones, the same edit is put into other words.
    """

    def __init__(
        self,
        *,
        precision: float = 0.902,
        recall: float = 0.839,
        genuine_rate: float = 0.714,
        misreading_rate: float = 0.04,
        no_op_rate: float = 0.1,
        excess_rate: float = 0.1,
        misplaced_rate: float = 0.1,
        price_usd_per_call: float | None = None,
    ) -> None:
        options = {
            "precision": precision,
            "recall": recall,
            "genuine_rate": genuine_rate,
            "misreading_rate": misreading_rate,
            "no_op_rate": no_op_rate,
            "excess_rate": excess_rate,
            "misplaced_rate": misplaced_rate,
        }
        super().__init__("planner", price_usd_per_call, options)
        self._verifier = WorldVerifier(precision=precision, recall=recall, genuine_rate=genuine_rate)
        self._instructor = WorldInstructor(misreading_rate=misreading_rate)
        self._rates = edit_rates(no_op_rate, excess_rate, misplaced_rate)

    async def plan(self, case: Case, *, n_edits: int, seed: int) -> Reply[Plan]:
        verdict = self._verifier.judge(case, seed=seed)
        instruction = self._instructor.advise(case, seed=seed) if verdict.keep else None
        edits: tuple[str, ...] = ()
        if instruction is not None and case.direction is Direction.IMAGE_TO_TEXT:
            edits = self._edits(case, instruction, n_edits=n_edits, seed=seed)
        plan = Plan(verdict=verdict, instruction=instruction, edits=edits)
        criterion = None if verdict.criterion is None else str(verdict.criterion)
        fields: dict[str, Any] = {"keep": verdict.keep, "criterion": criterion, "reason": verdict.reason}
        fields["instruction"] = None if instruction is None else _instruction_fields(instruction)
        raw = canonical_json({**fields, "edits": list(edits)})
        return Reply(plan, self._usage("plan", case, answer=raw), raw)

    def _edits(self, case: Case, instruction: Instruction, *, n_edits: int, seed: int) -> tuple[str, ...]:
        scene, text = to_edit_text(case, instruction)
        edits: dict[str, None] = {}
        for index in range(n_edits):
            rng = case_rng(seed, "plan", case, index)
            edited = edited_text(scene, text, rng, outcome=self._rates.outcome(rng))
            if edited in edits:
                edited = another_text(scene, text, rng, taken=edits)
            edits[edited] = None
        return tuple(edits)


def side_of(png: bytes) -> int:
    """Side of a square image in pixels."""
    with Image.open(io.BytesIO(png)) as image:
        return image.width


def _instruction_fields(instruction: Instruction) -> dict[str, Any]:
    return {
        "error_types": [str(kind) for kind in instruction.error_types],
        "residual": instruction.residual,
        "scaffold": instruction.scaffold,
        "instruction": instruction.instruction,
    }
