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
        """Plausibility and grammar of the caption minus the other's, each squeezed into [-1, 1]."""
        return (
            math.tanh(self.plausibility(caption) - self.plausibility(other)),
            math.tanh(self.grammar(caption) - self.grammar(other)),
        )

    def _skeleton(self, words: list[str]) -> list[str]:
        return [word if word in self._function_words else _CONTENT for word in words]


class _Ngrams:
    def __init__(self, sentences: Iterable[list[str]]) -> None:
        self._counts: tuple[Counter[tuple[str, ...]], ...] = (Counter(), Counter(), Counter(), Counter())
        for words in sentences:
            padded = [_START, _START, *words]
            for end in range(2, len(padded)):
                for n in (1, 2, 3):
                    self._counts[n][tuple(padded[end - n + 1 : end + 1])] += 1
                    if n > 1:
                        self._counts[0][tuple(padded[end - n + 1 : end])] += 1
        self._total = sum(self._counts[1].values())

    def score(self, words: list[str]) -> float:
        """Mean log-probability of a word after the two before it; 0 for no words."""
        padded = [_START, _START, *words]
        total = 0.0
        for end in range(2, len(padded)):
            p = _UNSEEN
            for n, weight in zip((3, 2, 1), _WEIGHTS, strict=True):
                history = tuple(padded[end - n + 1 : end])
                among = self._counts[0][history] if history else self._total
                if among:
                    p += weight * self._counts[n][(*history, padded[end])] / among
            total += math.log(p)
        return total / len(words) if words else 0.0


def words_of(text: str) -> list[str]:
    """Words and punctuation of a text, lower case.

    Example:
        >>> words_of("A dog, left.")
        ['a', 'dog', ',', 'left', '.']
    """
    return [word.lower() for word in _TOKEN.findall(text)]
