"""compare.html: one self-contained page on where two models differ, with pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from repair.core.identity import derive_rng
from repair.core.records import Direction
from repair.evaluation.document import Outcome
from repair.evaluation.versus import MOVES, Changed, Versus
from repair.pipeline.comparing import Side
from repair.reports.pictures import Span, data_uri, text_change
from repair.store.files import write_text

_TEMPLATES = Path(__file__).parent / "templates"
_N_SHOWN = 8  # of each kind, suite and task


@dataclass(frozen=True, slots=True)
class Card:
    """One item that changed, as the page shows it. `wrong` is a picture or a text that stood where it should not."""

    outcome: Outcome
    before: Outcome
    after: Outcome
    picture: str | None
    wrong_picture: str | None
    spans: tuple[Span, ...]  # from the right text to the wrong one


def write_comparison(
    path: Path, facts: Mapping[str, Any], found: Sequence[Versus], side: Side, *, seed: int = 0
) -> Path:
    """Write the page to `path`; up to eight items of each kind are shown, drawn by `seed`. Raises StoreError."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    whole = [one for one in found if one.changed is not None]
    places = {(one.suite, one.task): number for number, one in enumerate(whole, start=1)}
    page = environment.get_template("compare.html.j2").render(
        facts=facts,
        scores=[(one, places[one.suite, one.task]) for one in found],
        groups=[
            (places[one.suite, one.task], one, {move: _cards(one, move, side, seed) for move in MOVES}) for one in whole
        ],
        style=Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
    )
    write_text(path, page)
    return path


def _cards(one: Versus, move: str, side: Side, seed: int) -> list[Card]:
    changed = [item for item in one.changed or () if item.move == move]
    order = derive_rng(seed, "compare", one.suite, one.task, move).permutation(len(changed))
    return [_card(changed[place], one, side) for place in order[:_N_SHOWN]]


def _card(item: Changed, one: Versus, side: Side) -> Card:
    wrong = item.before if item.move == "fixed" else item.after
    finds_pictures = one.task == str(Direction.TEXT_TO_IMAGE)
    return Card(
        outcome=wrong,
        before=item.before,
        after=item.after,
        picture=_uri(side, one.suite, wrong.image),
        wrong_picture=_uri(side, one.suite, wrong.got) if finds_pictures else None,
        spans=() if finds_pictures else tuple(text_change(wrong.expected, wrong.got)),
    )


def _uri(side: Side, suite: str, name: str) -> str | None:
    read = side.pictures.get(suite)
    data = None if read is None else read(name)
    return None if data is None else data_uri(data)
