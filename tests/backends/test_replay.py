"""Recording and replaying: the world's backends for real, a scripted one where only failures matter."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repair.backends.replay import FORMAT
from repair.core.errors import BadReply, ConfigError, Refused, StoreError, Unavailable
from repair.core.ports import Case, ImageItem, Reply, TextItem
from repair.core.records import Direction, Usage, Verdict
from repair.pipeline import registries
from repair.world.source import WorldSource
from tests.backends.chat.cases import TOLD, image_to_text


@pytest.fixture(scope="module")
def cases() -> tuple[Case, Case]:
    """One failure of each direction from the drawn world."""
    source = WorldSource(n_train=4, n_val=2, n_test=2, seed=1)
    captions: dict[str, list[Any]] = {}
    for pair in source.pairs("train"):
        captions.setdefault(pair.image_id, []).append(pair)
    (first, mine), (second, others) = list(captions.items())[:2]

    def image(image_id: str, pairs: list[Any]) -> ImageItem:
        texts = tuple(pair.text for pair in pairs)
        return ImageItem(
            key=image_id,
            content_hash=source.image_hash(image_id),
            captions=texts,
            read=lambda: source.read_image(image_id),
        )

    def text(pair: Any) -> TextItem:
        return TextItem(key=pair.caption_id, text=pair.text)

    i2t = Case(
        failure_id="i2t-1",
        direction=Direction.IMAGE_TO_TEXT,
        query=image(first, mine),
        false_positive=text(others[0]),
        ground_truths=tuple(text(pair) for pair in mine),
    )
    t2i = Case(
        failure_id="t2i-1",
        direction=Direction.TEXT_TO_IMAGE,
        query=text(mine[0]),
        false_positive=image(second, others),
        ground_truths=(image(first, mine),),
    )
    return i2t, t2i


def ask_all(cases: tuple[Case, Case], spec: str, *, seed: int = 3) -> list[Any]:
    """Every port's reply, or its failure as text."""
    i2t, t2i = cases
    told = replace(TOLD, residual="x")

    async def all_of() -> list[Any]:
        return await asyncio.gather(
            registries.VERIFIERS.build(spec).verify(i2t, seed=seed),
            registries.VERIFIERS.build(spec).verify(t2i, seed=seed),
            registries.INSTRUCTORS.build(spec).instruct(i2t, seed=seed),
            registries.TEXT_EDITORS.build(spec).edit_text(i2t, told, seed=seed),
            registries.IMAGE_EDITORS.build(spec).edit_image(t2i, told, seed=seed),
            registries.PLANNERS.build(spec).plan(i2t, n_edits=3, seed=seed),
            return_exceptions=True,
        )

    return [
        reply if isinstance(reply, Reply) else f"{type(reply).__name__}: {reply}" for reply in asyncio.run(all_of())
    ]


def test_what_was_recorded_is_replayed_alike(tmp_path: Path, cases: tuple[Case, Case]) -> None:
    file = tmp_path / "deep" / "answers.jsonl"
    direct = ask_all(cases, "world")
    assert any(isinstance(reply, Reply) for reply in direct)
    assert ask_all(cases, f'replay(path="{file}", of="world")') == direct
    first = file.read_bytes()
    assert ask_all(cases, f'replay(path="{file}", of="world")') == direct  # answered from the file
    assert file.read_bytes() == first
    assert ask_all(cases, f'replay(path="{file}")') == direct  # no backend behind it
    renamed = (replace(cases[0], failure_id="other"), cases[1])
    assert ask_all(renamed, f'replay(path="{file}")')[0].value.failure_id == "other"
    missing = ask_all(cases, f'replay(path="{file}")', seed=4)
    assert all("holds no answer" in reply for reply in missing)


def test_a_replay_is_the_backend_it_recorded(tmp_path: Path, cases: tuple[Case, Case]) -> None:
    file = tmp_path / "a.jsonl"
    ask_all(cases, f'replay(path="{file}", of="world")')
    plain = registries.VERIFIERS.build("world").fingerprint
    assert registries.VERIFIERS.build("replay", options={"path": str(file), "of": "world"}).fingerprint == plain
    assert registries.VERIFIERS.build("replay", options={"path": str(file)}).fingerprint == plain
    assert json.loads(file.read_text().splitlines()[0]) == FORMAT


def test_a_line_cut_short_is_answered_anew(tmp_path: Path, cases: tuple[Case, Case]) -> None:
    file = tmp_path / "a.jsonl"
    spec = f'replay(path="{file}", of="world")'
    whole = ask_all(cases, spec)
    data = file.read_bytes()
    file.write_bytes(data[:-30])
    assert ask_all(cases, spec) == whole
    assert ask_all(cases, f'replay(path="{file}")') == whole


def test_files_that_are_no_recordings(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"image": "a.jpg"}\n')
    with pytest.raises(StoreError, match="is no recording"):
        registries.VERIFIERS.build("replay", options={"path": str(file)})
    with pytest.raises(ConfigError, match='answers to "verify" of no backend'):
        registries.VERIFIERS.build("replay", options={"path": str(tmp_path / "none.jsonl")})
    with pytest.raises(ConfigError, match="unknown verifier"):
        registries.VERIFIERS.build("replay", options={"path": str(file), "of": "wrld"})


def test_several_recorded_backends_need_a_choice(tmp_path: Path, cases: tuple[Case, Case]) -> None:
    file = tmp_path / "a.jsonl"
    for options in ({}, {"precision": 1.0}):
        made = registries.VERIFIERS.build("replay", options={"path": str(file), "of": "world", "options": options})
        asyncio.run(made.verify(cases[0], seed=0))
    with pytest.raises(ConfigError, match='of 2 backends: set the option "backend"'):
        registries.VERIFIERS.build("replay", options={"path": str(file)})
    chosen = registries.VERIFIERS.build("replay", options={"path": str(file), "backend": made.fingerprint})
    assert chosen.fingerprint == made.fingerprint


class _Failing:
    """Fails as told, beside the world's backends above."""

    fingerprint = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.n_asked = 0

    async def verify(self, case: Case, *, seed: int) -> Reply[Verdict]:
        self.n_asked += 1
        raise self.error


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (Refused("no", usage=Usage(tokens_in=3), raw="r"), True),
        (BadReply("bad"), True),
        (Unavailable("away"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failures_are_recorded_unless_nobody_answered(tmp_path: Path, error: Any, recorded: bool) -> None:
    from repair.backends.replay import Recording, ReplayVerifier

    inner = _Failing(error)
    for n_asked in (1, 1 if recorded else 2):
        made = ReplayVerifier(Recording(str(tmp_path / "a.jsonl")), inner)
        with pytest.raises(type(error)) as caught:
            asyncio.run(made.verify(image_to_text(), seed=0))
        assert inner.n_asked == n_asked
        assert (str(caught.value), caught.value.usage, caught.value.raw) == (str(error), error.usage, error.raw)
