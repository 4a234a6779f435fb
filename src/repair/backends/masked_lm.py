"""A caption writer by mask filling, as COCO-Counterfactuals and CE-CLIP use one: a word is masked, the model fills it.

Which word: a noun, an adjective or a verb by the tags of spaCy, drawn by the seed; what fills it: one of the model's
`top_k` likeliest single words that are neither the word itself nor another form of it. The model is a folder or a hub
name that transformers can load as a masked language model, e.g. RoBERTa or DistilRoBERTa.
"""

from functools import cached_property
from typing import Any

from repair.backends.lexical.parsing import analyse
from repair.core.errors import ConfigError
from repair.core.identity import canonical_json, derive_rng, hash_value
from repair.core.ports import Reply
from repair.core.records import Usage
from repair.core.synthesis import Change, WritingTask

_TAGS: dict[Change, tuple[str, ...]] = {
    Change.REPLACE_OBJECT: ("NN", "NNS"),
    Change.REPLACE_ATTRIBUTE: ("JJ", "JJR", "JJS"),
    Change.REPLACE_RELATION: ("VBG", "VBZ", "VBD", "VBN", "VBP", "VB", "IN"),
}


class MaskFiller:
    """A `core.synthesis.CaptionWriter` for the three replacements.

    `revision` names the weights where `model` does not. The tokenizer must know a mask token.
    """

    changes = frozenset(_TAGS)

    def __init__(self, *, model: str, revision: str = "", top_k: int = 10) -> None:
        if top_k < 1:
            raise ConfigError(f'option "top_k" of writer "masked_lm": at least 1, not {top_k}')
        self._model, self._revision, self._top_k = model, revision, top_k
        self.fingerprint = hash_value(
            {"writer": "masked_lm", "version": 1, "model": model, "revision": revision, "top_k": top_k}
        )

    async def write(self, task: WritingTask, *, seed: int) -> Reply[tuple[str, ...]]:
        caption = analyse(task.text)
        places = [i for i, token in enumerate(caption.tokens) if token.tag in _TAGS[task.change]]
        rng = derive_rng(seed, "masked_lm", str(task.change), task.text)
        for place in rng.permutation(len(places)):
            token = caption.tokens[places[int(place)]]
            fillers = [word for word in self._fill(task.text, token.start, token.end) if _is_another(word, token.lemma)]
            if fillers:
                word = fillers[int(rng.integers(len(fillers)))]
                text = f"{task.text[: token.start]}{word}{task.text[token.end :]}"
                return Reply((text,), Usage(price_usd=0.0), canonical_json([text]))
        return Reply((), Usage(price_usd=0.0), "[]")

    def _fill(self, text: str, start: int, end: int) -> list[str]:
        """The likeliest words for a span, best first."""
        import torch

        tokenizer, model = self._loaded
        masked = f"{text[:start]}{tokenizer.mask_token}{text[end:]}"
        inputs = tokenizer(masked, return_tensors="pt", truncation=True)
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        at = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        if not len(at):
            return []
        best = logits[int(at[0])].topk(min(self._top_k, logits.shape[-1])).indices.tolist()
        words = [str(tokenizer.decode([index])).strip() for index in best]
        return [word for word in words if word.isalpha()]

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        revision = self._revision or None
        try:
            tokenizer = AutoTokenizer.from_pretrained(self._model, revision=revision)
            model = AutoModelForMaskedLM.from_pretrained(self._model, revision=revision).eval()
        except (OSError, ValueError) as error:
            raise ConfigError(f'writer "masked_lm": cannot load {self._model}: {error}') from error
        if tokenizer.mask_token is None:
            raise ConfigError(f'writer "masked_lm": the tokenizer of {self._model} knows no mask token')
        return tokenizer, model


def _is_another(word: str, lemma: str) -> bool:
    """Not the word itself, nor one of its forms (as far as a shared beginning tells)."""
    low = word.lower()
    return low != lemma and not low.startswith(lemma) and not lemma.startswith(low)
