"""What a suite gives away to a model that sees no image.

Two blind scores stand beside every accuracy:

*Blind* is the encoder itself with every picture replaced by the average picture (the normalised mean of the suite's
image embeddings): what it prefers in the texts alone.

*The probe* is no encoder at all: a linear model over words, pairs of words, punctuation and length, fitted on other
images' items (five folds by image) to tell right texts from wrong ones. Well above chance, it says that the wrong texts
bear a mark and that any score on this suite may be of that mark. Above 55 % of two options is worth a warning.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from repair.core.identity import derive_rng
from repair.core.ports import FloatArray
from repair.numerics.cosines import normalise

WARN_ABOVE = 0.55
_FOLDS = 5
_MIN_ITEMS = 20
_MAX_FITTED = 6000  # items a fold is fitted on
_N_FEATURES = 2**18


def average_picture(images: FloatArray) -> FloatArray:
    """The normalised mean of unit rows, shape (1, dim)."""
    return normalise(images.astype(np.float64).mean(axis=0, keepdims=True))


def probe_scores(
    texts: Sequence[tuple[str, ...]], n_right: int, clusters: npt.ArrayLike, *, seed: int = 0
) -> npt.NDArray[np.float64] | None:
    """The probe's score of every text, shape (n, n_texts), each from a model that saw no item of its image.

    Args:
        texts: The items' texts, the right ones first, equally many each.
        n_right: How many of them are right.
        clusters: The items' images, as integers, shape (n,).
        seed: Which items are fitted on where there are very many.

    Returns None for fewer than 20 items or 5 images: there is nothing to learn from.

    Example:
        Wrong texts that all end alike are found out:

        >>> items = [(f"a red {n}", f"a red {n} no") for n in range(40)]
        >>> found = probe_scores(items, 1, np.arange(40))
        >>> float((found[:, 0] > found[:, 1]).mean())
        1.0
    """
    images = np.asarray(clusters)
    if len(texts) < _MIN_ITEMS or len(np.unique(images)) < _FOLDS:
        return None
    n, width = len(texts), len(texts[0])
    features = _features([text for item in texts for text in item])
    scores = np.zeros((n, width))
    rng = derive_rng(seed, "probe")
    for fitted, held in GroupKFold(_FOLDS).split(np.zeros(n), groups=images):
        chosen = fitted if len(fitted) <= _MAX_FITTED else np.sort(rng.permutation(fitted)[:_MAX_FITTED])
        rows = np.concatenate([chosen * width + wrong for _ in range(n_right) for wrong in range(n_right, width)])
        better = np.concatenate([chosen * width + good for good in range(n_right) for _ in range(n_right, width)])
        differences = features[better] - features[rows]
        model = LogisticRegression(fit_intercept=False, solver="liblinear", C=1.0)
        model.fit(
            sparse.vstack([differences, -differences]), np.repeat([1, 0], [differences.shape[0], differences.shape[0]])
        )
        place = (held[:, None] * width + np.arange(width)).ravel()
        scores[held] = (features[place] @ model.coef_[0]).reshape(len(held), width)
    return scores


def _features(texts: Sequence[str]) -> sparse.csr_array:
    """Words and pairs of words (punctuation is a word), and how long the text is."""
    words = HashingVectorizer(
        ngram_range=(1, 2), token_pattern=r"\w+|[^\w\s]", n_features=_N_FEATURES, norm=None, alternate_sign=False
    ).transform(texts)
    length = np.array([[len(text.split()), len(text) / 5.0] for text in texts]) / 10.0
    return sparse.csr_array(sparse.hstack([words, sparse.csr_array(length)]))
