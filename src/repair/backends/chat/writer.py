"""A caption writer over a chat model, for other methods than RePair: one call is one task."""

from typing import Annotated

from pydantic import Field

from repair.backends.chat.schemas import BaseAnswer, Text
from repair.backends.chat.tasks import ChatTask
from repair.backends.prompts import data_block
from repair.core.identity import hash_value
from repair.core.ports import Reply
from repair.core.synthesis import Change, WritingTask

_ONE = "Give one text."
_NOT = "It must be wrong for every image that the caption fits, and otherwise as close to the caption as can be."
_IF_TWO = "Give one text, or none if there are not two."

TASKS: dict[Change, str] = {
    Change.REWRITE: f"Say the same as the caption in other words. Add nothing and leave nothing out. {_ONE}",
    Change.CONTRAST: f"Write a caption that is close to this one but describes another image. {_NOT} {_ONE}",
    Change.REPLACE_OBJECT: f"Replace one object of the caption by another that could be there. {_NOT} {_ONE}",
    Change.REPLACE_ATTRIBUTE: f"Replace one attribute (colour, size, number, kind) by another. {_NOT} {_ONE}",
    Change.REPLACE_RELATION: f"Replace one relation or action of the caption by another. {_NOT} {_ONE}",
    Change.SWAP_OBJECT: f"Let two objects of the caption change places. {_NOT} {_IF_TWO}",
    Change.SWAP_ATTRIBUTE: f"Let attributes of two objects change places. {_NOT} {_IF_TWO}",
    Change.SWAP: f"Let two words or phrases of one kind change places. {_NOT} {_IF_TWO}",
    Change.ADD_OBJECT: f"Add to the caption one object that is not in the image but plausible. {_NOT} {_ONE}",
    Change.ADD_ATTRIBUTE: f"Add to one object an attribute that it is not likely to have. {_NOT} {_ONE}",
    Change.UNITS: "Take the caption apart. Give each object with its attributes as a short phrase, then each relation "
    "between two objects as a short phrase of its own, such as “a dog beside a car”.",
    Change.FOIL: "For each of the parts give the same phrase with one thing wrong: another object or attribute, or for "
    "a relation its contrary or the two changed over. One text for each part, in their order.",
    Change.DOMAINS: "The parts are captions of one collection. Name up to ten settings, weathers or times of day in "
    "which such things could be shown, each a short phrase such as “in the snow”.",
}


class Texts(BaseAnswer):
    texts: Annotated[list[Text], Field(max_length=32)]


class ChatWriter(ChatTask):
    """A `core.synthesis.CaptionWriter`. Options as every chat task has them. The image is not shown.

    Raises BadReply, after the one turn in which the model is told, for a FOIL without a text for each part and for more
    than one text where one is asked for.
    """

    prompt_name = "write"
    answer = Texts
    warmth = 0.8
    changes = frozenset(Change)

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Of model, prompt and parameters, and of what the tasks say."""
        return hash_value([self._of_chat, TASKS])

    @fingerprint.setter
    def fingerprint(self, value: str) -> None:
        self._of_chat = value

    async def write(self, task: WritingTask, *, seed: int) -> Reply[tuple[str, ...]]:
        material: dict[str, str | list[str]] = {} if task.change is Change.DOMAINS else {"caption": task.text}
        if task.parts:
            material["parts"] = list(task.parts)
        system, user = self._prompt.fill({"material": data_block("material", material), "task": TASKS[task.change]})
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        several = task.change in (Change.UNITS, Change.FOIL, Change.DOMAINS)

        def complaint(answer: Texts) -> str | None:
            if task.change is Change.FOIL and len(answer.texts) != len(task.parts):
                return f'"texts": must hold one text for each of the {len(task.parts)} parts, not {len(answer.texts)}'
            if not several and len(answer.texts) > 1:
                return f'"texts": must hold one text, not {len(answer.texts)}'
            return None

        reply = await self._ask(messages, Texts, seed=seed, complaint=complaint)
        return Reply(tuple(" ".join(text.split()) for text in reply.value.texts), reply.usage, reply.raw)
