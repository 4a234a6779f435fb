"""How likely a caption is as text alone, by what the train captions are like: what a blind model could exploit."""

import math
import re
from collections import Counter
from collections.abc import Iterable

_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[,.;:!?]")
_WEIGHTS = (0.6, 0.3, 0.09)  # of three, two and one words; what is left is spread over unseen words
_UNSEEN = 1e-4
_N_FUNCTION_WORDS = 60
_START, _CONTENT = "\n", "_"

_Counts = tuple[Counter[tuple[str, ...]], ...]
_NOTHING: _Counts = (Counter(), Counter(), Counter(), Counter())


class TextModel:
    """Two scores of a text, both mean log-probabilities of a token under counts of up to three in a row.

    `plausibility` is over words; `grammar` over the skeleton: the most frequent words as they are, all others alike.
    The two stand in for the plausibility model and the grammar classifier of SugarCrepe's refinement, which are not
    to be had offline (ours).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        sentences = [words_of(text) for text in texts]
        counts = Counter(word for words in sentences for word in words)
        self._function_words = {word for word, _ in counts.most_common(_N_FUNCTION_WORDS)}
        self._words = _Ngrams(sentences)
        self._skeletons = _Ngrams(self._skeleton(words) for words in sentences)

    def plausibility(self, text: str) -> float:
        return self._words.score(words_of(text))

    def grammar(self, text: str) -> float:
        return self._skeletons.score(self._skeleton(words_of(text)))

    def gaps(self, caption: str, other: str) -> tuple[float, float]:
        """Plausibility and grammar of the caption minus the other's, each squeezed into [-1, 1].

        `caption` is one of the counted texts. It is left out, once, of the counts that both are scored by: otherwise
        nearly every caption would be likelier than any change of it. Another counted text like it stays, and which
        words are frequent does not depend on it.
        """
        words, others = words_of(caption), words_of(other)
        return (
            math.tanh(self._words.gap(words, others)),
            math.tanh(self._skeletons.gap(self._skeleton(words), self._skeleton(others))),
        )

    def _skeleton(self, words: list[str]) -> list[str]:
        return [word if word in self._function_words else _CONTENT for word in words]


class _Ngrams:
    def __init__(self, sentences: Iterable[list[str]]) -> None:
        self._counts = _counted(sentences)
        self._total = sum(self._counts[1].values())

    def gap(self, words: list[str], others: list[str]) -> float:
        """Score of `words` minus that of `others`, both as if `words` had been counted once less."""
        own = _counted([words])
        return self.score(words, without=own) - self.score(others, without=own)

    def score(self, words: list[str], *, without: _Counts = _NOTHING) -> float:
        """Mean log-probability of a word after the two before it; 0 for no words. `without`: what to count less."""
        n_words = max(self._total - without[1].total(), 0)
        padded = [_START, _START, *words]
        total = 0.0
        for end in range(2, len(padded)):
            p = _UNSEEN
            for n, weight in zip((3, 2, 1), _WEIGHTS, strict=True):
                ngram = tuple(padded[end - n + 1 : end + 1])
                among = self._left(without, 0, ngram[:-1]) if n > 1 else n_words
                if among:
                    p += weight * self._left(without, n, ngram) / among
            total += math.log(p)
        return total / len(words) if words else 0.0

    def _left(self, without: _Counts, n: int, ngram: tuple[str, ...]) -> int:
        """A count less that of what is left out; not below 0, should that never have been counted."""
        return max(self._counts[n].get(ngram, 0) - without[n].get(ngram, 0), 0)


def _counted(sentences: Iterable[list[str]]) -> _Counts:
    """Of one, two and three words in a row at 1, 2 and 3; at 0 how often one or two stand before another."""
    counts: _Counts = (Counter(), Counter(), Counter(), Counter())
    for words in sentences:
        padded = [_START, _START, *words]
        for end in range(2, len(padded)):
            for n in (1, 2, 3):
                counts[n][tuple(padded[end - n + 1 : end + 1])] += 1
                if n > 1:
                    counts[0][tuple(padded[end - n + 1 : end])] += 1
    return counts


def words_of(text: str) -> list[str]:
    """Words and punctuation of a text, lower case.

    Example:
        >>> words_of("A dog, left.")
        ['a', 'dog', ',', 'left', '.']
    """
    return [word.lower() for word in _TOKEN.findall(text)]
