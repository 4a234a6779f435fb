"""Items as the page shows them: a picture with what changed in it, or a caption with what changed in it."""

from dataclasses import dataclass
from typing import Self

from repair.reports.pictures import Change, Pictures, Span, text_change
from repair.reports.view import EDIT, RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """`uri` for a picture, `text` for a caption; None if it cannot be had here. `edited`: not an original."""

    key: str
    role: str
    is_image: bool
    uri: str | None = None
    text: str | None = None
    change: Change | None = None
    spans: tuple[Span, ...] = ()
    edited: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Shower:
    """Makes `Shown` of keys."""

    view: RunView
    pictures: Pictures

    @classmethod
    def of(cls, view: RunView) -> Self:
        return cls(view, Pictures(view))

    def image(self, key: str, role: str, *, was: str | None = None, note: str = "") -> Shown:
        """A picture; with `was`, the key of the picture it was made from, what changed is outlined."""
        change = None if was is None else self.pictures.change(was, key)
        edited = key.startswith(EDIT)
        return Shown(
            key=key, role=role, is_image=True, uri=self.pictures.uri(key), change=change, edited=edited, note=note
        )

    def caption(self, key: str, role: str, *, text: str | None = None, was: str | None = None, note: str = "") -> Shown:
        """A caption; with `was`, the text it was made from, what changed is marked."""
        words = self.view.text(key) if text is None else text
        spans = () if was is None or words is None else tuple(text_change(was, words))
        edited = key.startswith(EDIT)
        return Shown(key=key, role=role, is_image=False, text=words, spans=spans, edited=edited, note=note)

    def item(self, key: str, role: str, *, is_image: bool, note: str = "") -> Shown:
        """An original, or a known edit beside what it was made from."""
        origin = self.view.edits.get(key)
        if is_image:
            return self.image(key, role, was=None if origin is None else origin.false_positive_id, note=note)
        was = None if origin is None else self.view.text(origin.false_positive_id)
        return self.caption(key, role, was=was, note=note)
