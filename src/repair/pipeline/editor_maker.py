"""The run's image editor as an image maker: any picture a method asks for is an edit of the anchor's image."""

from collections.abc import Callable

from repair.core.errors import ConfigError, Refused
from repair.core.identity import hash_value
from repair.core.ports import Case, ImageEditor, Reply, TextItem
from repair.core.records import Direction, ErrorType, Instruction
from repair.core.synthesis import MakingTask


class EditorMaker:
    """A `core.synthesis.ImageMaker` over `editing.image_editor`. It cannot draw out of nothing.

    A text of the form "CAPTION | SETTING" asks for the same things in that setting.
    """

    def __init__(self, *, editor: Callable[[], ImageEditor | None]) -> None:
        found = editor()
        if found is None:
            raise ConfigError('method.maker="editor" needs an image editor: set editing.image_editor')
        self._editor = found
        self.fingerprint = hash_value({"maker": "editor", "version": 1, "editor": found.fingerprint})

    async def make(self, task: MakingTask, *, seed: int) -> Reply[bytes]:
        source = task.source
        if source is None:
            raise Refused(
                'maker "editor" edits images, it draws none: set method.options.from_anchor=true or a method.maker'
            )
        caption, _, setting = task.text.partition(" | ")
        if setting:
            told = f"Show the same things {setting}. Change background and light, and nothing that the caption names."
        else:
            told = f'Change the image as little as possible so that it shows: "{caption}".'
        case = Case(
            failure_id="",
            direction=Direction.TEXT_TO_IMAGE,
            query=TextItem(key=hash_value(caption), text=caption),
            false_positive=source,
            ground_truths=(source,),
        )
        instruction = Instruction(
            failure_id="",
            error_types=(ErrorType.OBJECT,),
            residual=caption,
            scaffold=task.source_text,
            instruction=told,
        )
        return await self._editor.edit_image(case, instruction, seed=seed)
