"""How the world's backends go wrong: rates of keeping from precision and recall, and edits by how they come out."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

import numpy as np

from repair.core.errors import ConfigError
from repair.world.bad_edits import overreaching_image_edit, overreaching_text_edit, wrong_image_edit, wrong_text_edit
from repair.world.claims import Claim
from repair.world.image_edits import minimal_image_edit
from repair.world.language import describe, parse_said, say
from repair.world.scenes import Scene
from repair.world.text_edits import minimal_text_edits

_CHOICE_RATES = (0.6, 0.25, 0.15)  # how often the editor takes the first, second, third of equally small edits


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierRates:
    """How often the verifier keeps a failure, given the truth. See `verifier_rates`."""

    keep_genuine: float
    keep_other: float


def verifier_rates(*, precision: float, recall: float, genuine_rate: float) -> VerifierRates:
    """The two rates of keeping that give `precision` and `recall` where a share `genuine_rate` is genuine.

    With r = recall = P(keep | genuine), p = precision = P(genuine | keep) and g = genuine_rate,
    P(keep | not genuine) = r g (1 - p) / (p (1 - g)). Raises ConfigError if that is no probability.
    """
    keep_other = 0.0
    if precision < 1:
        if not (0 < genuine_rate < 1 and precision > 0):
            raise ConfigError("precision below 1 needs a precision above 0 and a genuine_rate between 0 and 1")
        keep_other = recall * genuine_rate * (1 - precision) / (precision * (1 - genuine_rate))
    if keep_other > 1:
        raise ConfigError(
            f"precision {precision} with recall {recall} cannot be: of failures of which {genuine_rate:.0%} are "
            f"genuine, even one that keeps all others has a higher precision; raise precision or lower genuine_rate"
        )
    return VerifierRates(keep_genuine=recall, keep_other=keep_other)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditRates:
    """How often an edit changes nothing, changes too much, or changes the wrong thing; else it is minimal and right."""

    no_op: float
    excess: float
    misplaced: float

    def outcome(self, rng: np.random.Generator) -> str:
        """ "no_op", "excess", "misplaced" or "right"."""
        draw = rng.random()
        for name in ("no_op", "excess", "misplaced"):
            draw -= getattr(self, name)
            if draw < 0:
                return name
        return "right"


def edit_rates(no_op_rate: float, excess_rate: float, misplaced_rate: float) -> EditRates:
    """The rates, checked to sum to at most 1. Raises ConfigError."""
    if no_op_rate + excess_rate + misplaced_rate > 1 + 1e-9:
        raise ConfigError('the rates of going wrong of an editor "world" sum to more than 1: lower one of them')
    return EditRates(no_op=no_op_rate, excess=excess_rate, misplaced=misplaced_rate)


def edited_text(scene: Scene, text: str, rng: np.random.Generator, *, outcome: str) -> str:
    """`text` edited to be true of `scene`, or not quite, as `outcome` says; of equally small edits any, best first."""
    match outcome:
        case "no_op":
            return text
        case "excess":
            return overreaching_text_edit(scene, text, rng=rng)
        case "misplaced":
            return wrong_text_edit(scene, text, rng=rng)
        case _:
            edits = minimal_text_edits(scene, text, len(_CHOICE_RATES))
            weights = np.asarray(_CHOICE_RATES[: len(edits)])
            return edits[int(rng.choice(len(edits), p=weights / weights.sum()))]


def another_text(scene: Scene, text: str, rng: np.random.Generator, *, taken: Collection[str]) -> str:
    """A true caption that is not among `taken`: a minimal edit, else one in other words, else any description."""
    minimal = minimal_text_edits(scene, text, 8)
    claim = parse_said(minimal[0]).claim
    rewordings = (say(claim, rng=rng) for _ in range(20))
    descriptions = (say(describe(scene, rng, detail=rng.random()), rng=rng) for _ in range(200))
    return next((other for other in chain(minimal, rewordings, descriptions) if other not in taken), text)


def edited_scene(scene: Scene, claim: Claim, rng: np.random.Generator, *, outcome: str) -> Scene:
    """`scene` edited to fit `claim`, or not quite, as `outcome` says."""
    match outcome:
        case "no_op":
            return scene
        case "excess":
            return overreaching_image_edit(scene, claim, rng=rng)
        case "misplaced":
            return wrong_image_edit(scene, claim, rng=rng)
        case _:
            return minimal_image_edit(scene, claim, rng=rng)
