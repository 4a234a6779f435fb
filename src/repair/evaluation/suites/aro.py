"""ARO (Yuksekgonul et al. 2023): Visual Genome Relation and Attribution, COCO and Flickr30k Order.

**Relation, Attribution.** A list of {"image_path", "bbox_x", "bbox_y", "bbox_w", "bbox_h", "true_caption",
"false_caption"} with "relation_name" or "attributes": [a, b]. The image is cropped to the box. The published code puts
the false caption first and asks for argmax = 1, so a tie is wrong. Published figures are macro averages: Relation over
relation names, without those of `aro_dropped_relations.txt` and with no least count; Attribution over pairs a_b with at
least 25 items. Micro averages stand beside them: other papers print those.

**Order.** BLIP's list of {"image", "caption": [...]}. The caption against four shuffles of itself; argmax = 0, so a tie
(a shuffle that changes nothing) is right. Shuffles: nouns among themselves and adjectives among themselves; all other
words; words within each three; threes as blocks. Each is made of the raw caption; then caption and shuffles are cleaned
alike (lower case, punctuation out, at most 30 words). As in the published code spaCy cuts words for the first two and
NLTK for the last two, so that full stops are words of a three before they are cleaned away. The shuffles behind the
published figures were never released, and differ by run. Ours depend on the seed and the caption alone, are hashed,
saved, and can be read back.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from repair.core.errors import DataError
from repair.core.identity import derive_rng
from repair.evaluation.items import TASKS, Box, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.suites.files import entries, located, read, text
from repair.evaluation.suites.generated import read_items, texts_hash
from repair.evaluation.tagging import Word, cutter_facts, pieces, tagged, tagger_facts

MIN_CASES = 25  # of an attribute pair
MAX_WORDS = 30
_ACCURACY = TASKS[Rule.STRICT]
_N_RELATION = 23_937
_N_ATTRIBUTION = 28_748
_PUNCTUATION = re.compile(r'[.!"()*#:;~]')


# ------------------------------------------------------------------------------------------ relation, attribution


def dropped_relations() -> frozenset[str]:
    """The relation names that the published average leaves out."""
    listed = resources.files("repair.evaluation.suites").joinpath("aro_dropped_relations.txt").read_text("utf-8")
    return frozenset(line for line in listed.splitlines() if line and not line.startswith("#"))


def aro_relation(*, data: Path) -> ChoiceSuite:
    """VG-Relation from `data`, the file or its folder. Raises DataError for items of another form."""
    path = located(data, ("visual_genome_relation.json",))
    items, digest = _boxed(path, lambda entry, where: text(entry, "relation_name", where))
    groups = tuple(dict.fromkeys(item.group for item in items))
    dropped = dropped_relations()
    kept = tuple(group for group in groups if group not in dropped)
    if not kept:
        raise DataError(f"{path}: all its relations are among those that the published average leaves out")
    return ChoiceSuite(
        name="aro_relation",
        rule=Rule.STRICT,
        items=tuple(items),
        averages=(
            macro("macro over relations kept", kept, _ACCURACY),
            micro("micro over relations kept", kept, _ACCURACY),
            macro("macro over all relations", groups, _ACCURACY),
            micro("micro over all items", groups, _ACCURACY),
        ),
        facts={"files": {path.name: digest}, "n_relations": len(groups), "n_relations_kept": len(kept)},
        problems=_sized(path, len(items), _N_RELATION),
    )


def aro_attribution(*, data: Path) -> ChoiceSuite:
    """VG-Attribution from `data`, the file or its folder. Raises DataError for items of another form."""
    path = located(data, ("visual_genome_attribution.json",))
    items, digest = _boxed(path, _attributes)
    sizes = Counter(item.group for item in items)
    kept = tuple(group for group, n in sizes.items() if n >= MIN_CASES)
    if not kept:
        raise DataError(f"{path}: no pair of attributes has {MIN_CASES} items, so there is no published average")
    return ChoiceSuite(
        name="aro_attribution",
        rule=Rule.STRICT,
        items=tuple(items),
        averages=(
            macro(f"macro over pairs of {MIN_CASES} and more", kept, _ACCURACY),
            micro(f"micro over pairs of {MIN_CASES} and more", kept, _ACCURACY),
            micro("micro over all items", tuple(sizes), _ACCURACY),
        ),
        facts={"files": {path.name: digest}, "n_pairs": len(sizes), "n_pairs_kept": len(kept)},
        problems=_sized(path, len(items), _N_ATTRIBUTION),
    )


def _boxed(path: Path, group: Callable[[Mapping[str, Any], str], str]) -> tuple[list[Item], str]:
    value, digest = read(path)
    items = []
    for key, entry in entries(value, path):
        where = f"suite file {path}, item {key}"
        items.append(
            Item(
                item_id=key,
                group=group(entry, where),
                images=(text(entry, "image_path", where),),
                texts=(text(entry, "true_caption", where), text(entry, "false_caption", where)),
                box=_box(entry, where),
            )
        )
    return items, digest


def _box(entry: Mapping[str, Any], where: str) -> Box:
    sides = [entry.get(f"bbox_{side}") for side in "xywh"]
    if not all(isinstance(side, int | float) and not isinstance(side, bool) and side % 1 == 0 for side in sides):
        raise DataError(f"{where}: bbox_x, bbox_y, bbox_w and bbox_h must be whole numbers, not {sides}")
    x, y, width, height = (int(side) for side in sides)  # type: ignore[arg-type]
    if width < 1 or height < 1:
        raise DataError(f"{where}: its box {width} × {height} is empty")
    return x, y, width, height


def _attributes(entry: Mapping[str, Any], where: str) -> str:
    value = entry.get("attributes")
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(word, str) and word for word in value):
        raise DataError(f'{where}: "attributes" must be a list of two words, not {value!r}')
    return f"{value[0]}_{value[1]}"


def _sized(path: Path, n: int, published: int) -> tuple[str, ...]:
    return () if n == published else (f"{path.name} has {n:,} items, published are {published:,}",)


# ------------------------------------------------------------------------------------------ order


def coco_order(*, data: Path, seed: int = 1, texts: Path | None = None) -> ChoiceSuite:
    """COCO-Order from BLIP's coco_karpathy_test.json (25,010 captions); `texts` are shuffles saved earlier."""
    return _order("coco_order", data, ("coco_karpathy_test.json",), 25_010, seed=seed, texts=texts)


def flickr30k_order(*, data: Path, seed: int = 1, texts: Path | None = None) -> ChoiceSuite:
    """Flickr30k-Order from BLIP's flickr30k_test.json (5,000 captions); `texts` are shuffles saved earlier."""
    return _order("flickr30k_order", data, ("flickr30k_test.json",), 5000, seed=seed, texts=texts)


def _order(name: str, data: Path, names: Sequence[str], n: int, *, seed: int, texts: Path | None) -> ChoiceSuite:
    path = located(data, names)
    captions, digest = blip_captions(path)
    if texts is not None:
        items = read_items(texts)
        wanted = [(key, image) for key, image, _ in captions]
        if [(item.item_id, item.images[0]) for item in items] != wanted:
            raise DataError(f"texts file {texts} is not of the captions in {path}")
    else:
        items = shuffled_items(captions, seed=seed)
    facts = {
        "files": {path.name: digest},
        "seed": seed if texts is None else None,
        "texts_hash": texts_hash(items),
        "texts_from": "made here" if texts is None else str(texts),
        "max_words": MAX_WORDS,
        "n_unchanged_shuffles": sum(other == item.texts[0] for item in items for other in item.texts[1:]),
        **tagger_facts(),
        **cutter_facts(),
    }
    return ChoiceSuite(
        name=name,
        rule=Rule.FIRST,
        items=tuple(items),
        averages=(micro("all captions", ("caption",), _ACCURACY),),
        facts=facts,
        problems=() if len(items) == n else (f"{path.name} has {len(items):,} captions, published are {n:,}",),
        generated=True,
    )


def blip_captions(path: Path) -> tuple[list[tuple[str, str, str]], str]:
    """(item id, image, caption) of BLIP's list of {"image", "caption": [...]}, and the file's content hash."""
    value, digest = read(path)
    found = []
    for key, entry in entries(value, path):
        where = f"suite file {path}, item {key}"
        image, captions = text(entry, "image", where), entry.get("caption")
        if not isinstance(captions, list) or not all(isinstance(text_, str) and text_.strip() for text_ in captions):
            raise DataError(f'{where}: "caption" must be a list of texts, none of them blank, not {captions!r}')
        found += [(f"{key}#{number}", image, caption) for number, caption in enumerate(captions)]
    return found, digest


class Cut(NamedTuple):
    """A caption in words: spaCy's with their tags, and NLTK's."""

    tagged: Sequence[Word]
    pieces: Sequence[str]


def shuffled_items(captions: Sequence[tuple[str, str, str]], *, seed: int) -> list[Item]:
    """Each caption with its four shuffles, all cleaned; a caption's shuffles depend on the seed and its id alone."""
    texts = [caption for _, _, caption in captions]
    items = []
    for (key, image, caption), cut in zip(captions, map(Cut, tagged(texts), pieces(texts)), strict=True):
        shuffles = [
            " ".join(shuffle(cut, derive_rng(seed, "order", name, key, caption))) for name, shuffle in SHUFFLES.items()
        ]
        options = tuple(cleaned(option) for option in (caption, *shuffles))
        items.append(Item(item_id=key, group="caption", images=(image,), texts=options))
    return items


def cleaned(caption: str, max_words: int = MAX_WORDS) -> str:
    """Lower case, `.!"()*#:;~` out, single spaces, at most `max_words` words.

    Example:
        >>> cleaned("A dog: black-and-white; RUNS  (fast).")
        'a dog black-and-white runs fast'
    """
    words = _PUNCTUATION.sub(" ", caption.lower()).split()
    return " ".join(words[:max_words])


def nouns_and_adjectives(cut: Cut, rng: np.random.Generator) -> list[str]:
    """Nouns change places among themselves, and adjectives among themselves."""
    words = [word.text for word in cut.tagged]
    nouns = [place for place, word in enumerate(cut.tagged) if word.is_noun]
    adjectives = [place for place, word in enumerate(cut.tagged) if word.is_adjective]
    return _moved(_moved(words, nouns, rng), adjectives, rng)


def all_but_nouns_and_adjectives(cut: Cut, rng: np.random.Generator) -> list[str]:
    """All other words change places among themselves."""
    others = [place for place, word in enumerate(cut.tagged) if not (word.is_noun or word.is_adjective)]
    return _moved([word.text for word in cut.tagged], others, rng)


def within_threes(cut: Cut, rng: np.random.Generator) -> list[str]:
    """The words of every three change places."""
    return [word for three in _threes(cut.pieces) for word in _moved(three, range(len(three)), rng)]


def threes(cut: Cut, rng: np.random.Generator) -> list[str]:
    """The threes change places as blocks."""
    blocks = _threes(cut.pieces)
    return [word for place in rng.permutation(len(blocks)) for word in blocks[place]]


SHUFFLES: Mapping[str, Callable[[Cut, np.random.Generator], list[str]]] = {
    "nouns_and_adjectives": nouns_and_adjectives,
    "all_but_nouns_and_adjectives": all_but_nouns_and_adjectives,
    "within_threes": within_threes,
    "threes": threes,
}


def _threes(words: Sequence[str]) -> list[list[str]]:
    return [list(words[start : start + 3]) for start in range(0, len(words), 3)]


def _moved(words: Sequence[str], places: Sequence[int], rng: np.random.Generator) -> list[str]:
    found = list(words)
    for place, source in zip(places, rng.permutation(len(places)), strict=True):
        found[place] = words[places[int(source)]]
    return found
