"""Every suite that `repair eval --suite` can name, opened: published files, retrieval, what is made here, guards."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, get_type_hints

from pydantic import TypeAdapter, ValidationError

from repair.core.errors import ConfigError, DataError
from repair.core.identity import hash_bytes, hash_value
from repair.core.ports import ImageItem, PairSource
from repair.core.records import ErrorType, SetAside
from repair.data.files import existing, read_json_object
from repair.evaluation.choice import evaluate_choice, runnable
from repair.evaluation.document import Outcome, SuiteResult
from repair.evaluation.embedding import Embedder, Uncertainty
from repair.evaluation.extended import read_positives
from repair.evaluation.gallery import Caption, RetrievalSuite
from repair.evaluation.items import TASKS, Box, ChoiceSuite, Item, Rule, macro, micro
from repair.evaluation.pictures import FolderPictures, Pictures, SourcePictures
from repair.evaluation.splits import require_unmixed
from repair.evaluation.suites.files import read
from repair.evaluation.suites.generated import rows_of, texts_hash
from repair.evaluation.suites.halftruth import half_truths
from repair.evaluation.suites.halftruth_matched import matched_half_truths
from repair.evaluation.zeroshot import PROMPTS, ZeroShotSuite
from repair.pipeline.opening import chosen_split, open_data
from repair.pipeline.registries import SOURCES, SUITES
from repair.world.foils import Foil, foils
from repair.world.source import WorldSource

_FORMATS = "repair.evaluation.suites"
NEEDS_NO_DATA = frozenset({"world", "world_pairs"})
_NAME = re.compile(r"\w[\w.-]*")
_PICTURES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


class Runnable(Protocol):
    """A suite with its pictures, ready to run on a model."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Of its items and what defines it: equal for suites that ask the same."""
        ...

    def run(
        self, embedder: Embedder, *, uncertainty: Uncertainty, allow_missing: bool
    ) -> tuple[SuiteResult, list[Outcome]]:
        """Raises DataError: something is missing and may not be."""
        ...

    def require(self, *, allow_missing: bool) -> None:
        """Raises DataError as `run` would, before anything is embedded: something is missing and may not be."""
        ...

    def texts(self) -> list[dict[str, Any]]:
        """Texts that were made here; empty for published ones."""
        ...


@dataclass(frozen=True)
class WithPictures:
    """A suite of any kind and where its pictures are."""

    suite: ChoiceSuite | RetrievalSuite | ZeroShotSuite
    pictures: Pictures

    @property
    def name(self) -> str:
        return self.suite.name

    @property
    def fingerprint(self) -> str:
        """Of names, texts and rules, and of where the pictures are; not of the pictures themselves."""
        kind = type(self.suite).__name__
        return hash_value({"kind": kind, "suite": asdict(self.suite), "pictures": self.pictures.facts()})

    def run(
        self, embedder: Embedder, *, uncertainty: Uncertainty, allow_missing: bool
    ) -> tuple[SuiteResult, list[Outcome]]:
        options: dict[str, Any] = {"uncertainty": uncertainty, "allow_missing": allow_missing}
        if isinstance(self.suite, ChoiceSuite):
            return evaluate_choice(self.suite, self.pictures, embedder, **options)
        return self.suite.evaluate(self.pictures, embedder, **options)

    def require(self, *, allow_missing: bool) -> None:
        if isinstance(self.suite, ChoiceSuite):
            runnable(self.suite, self.pictures, allow_missing=allow_missing)
        elif isinstance(self.suite, RetrievalSuite):
            self.suite.gallery(self.pictures, allow_missing=allow_missing)
        else:
            self.suite.usable(self.pictures, allow_missing=allow_missing)

    def texts(self) -> list[dict[str, Any]]:
        return rows_of(self.suite) if isinstance(self.suite, ChoiceSuite) and self.suite.generated else []


def open_suite(
    spec: str,
    *,
    data: str | None,
    images: Path | None,
    split: str | None,
    cache: Path,
    n_workers: int,
) -> Runnable:
    """The suite named by `spec` over `data`; pictures of published files are below `images`, else beside them.

    Raises:
        ConfigError: an unknown suite or option, or a suite that needs data and got none.
        DataError: its files cannot be read.
    """
    name = SUITES.require(spec)
    provided: dict[str, Any] = {
        "images": images,
        "split": split,
        "cache": cache,
        "n_workers": n_workers,
    }
    if data is not None:
        published = SUITES.entries[name].target.startswith(_FORMATS)
        provided["data"] = Path(data).expanduser() if published else data
    elif name not in NEEDS_NO_DATA:
        raise ConfigError(f'suite "{name}" needs --data: the file or folder that holds it')
    built = SUITES.build(spec, **provided)
    if isinstance(built, ChoiceSuite):
        place = Path(str(data)).expanduser()
        beside = place if place.is_dir() else place.parent
        default = beside / "images" if (beside / "images").is_dir() else beside
        return WithPictures(built, FolderPictures(images.expanduser() if images else default))
    suite: Runnable = built
    if not _NAME.fullmatch(suite.name):
        raise ConfigError(
            f'suite name "{suite.name}": letters, digits, "_", "-" and "." only, as files are called after it'
        )
    return suite


# ---------------------------------------------------------------------------------------------- retrieval


def _retrieval(
    default: str, *, known: str | None = None, usual_split: str = "test", folds: int = 1
) -> Callable[..., Any]:
    """The factory of a retrieval suite."""

    def factory(
        *,
        data: str,
        cache: Path,
        images: Path | None = None,
        split: str | None = None,
        n_workers: int = 2,
        captions: Literal["all", "first_five", "first"] = "all",
        n_images: int | None = None,
        subset_seed: int = 0,
        n_folds: int = folds,
        allow_mixed: bool = False,
        name: str = default,
    ) -> WithPictures:
        """`captions`: all, or each image's first five, or first; `n_images`: a seeded subset;
        `n_folds`: contiguous galleries of equal size, averaged; `allow_mixed`: run although other splits hold some of
        the same pictures; `name`: what the results call it."""
        if n_folds < 1:
            raise ConfigError(f'option "n_folds" of suite "{name}": must be at least 1, not {n_folds}')
        if known is not None and (n_images is not None or n_folds != folds):
            raise ConfigError(
                f'suite "{default}" is a published split, whole: for a subset or other folds of it say '
                f"retrieval(n_images=…, n_folds=…)"
            )
        source, place = open_data(data, images=images, any_bad=True, cache=cache, n_workers=n_workers)
        chosen = chosen_split(source, split, usual=usual_split)
        pairs = source.pairs(chosen)
        n_shared = _shared(source, chosen, allow_mixed=allow_mixed)
        bad = _set_aside(source, chosen)
        suite = RetrievalSuite(
            name=name,
            split=chosen,
            captions=tuple(Caption(caption_id=p.caption_id, image=p.image_id, text=p.text) for p in pairs),
            known=known,
            which_captions=captions,
            n_images=n_images,
            subset_seed=subset_seed,
            n_folds=n_folds,
            set_aside=tuple(item.item for item in bad if not item.is_caption),
            problems=_problems(bad),
            facts={"data": data, "data_fingerprint": source.fingerprint, "n_images_in_other_splits": n_shared},
        )
        ids = frozenset(pair.image_id for pair in pairs)
        return WithPictures(suite, SourcePictures(source, ids, {**place, "split": chosen}))

    return factory


retrieval = _retrieval("retrieval")
coco_5k = _retrieval("coco_5k", known="coco_5k")
coco_1k = _retrieval("coco_1k", known="coco_5k", folds=5)
flickr30k = _retrieval("flickr30k", known="flickr30k")
flickr30k_val = _retrieval("flickr30k_val", known="flickr30k_val", usual_split="val")
flickr8k = _retrieval("flickr8k", known="flickr8k")
flickr8k_val = _retrieval("flickr8k_val", known="flickr8k_val", usual_split="val")


def _set_aside(source: PairSource, split: str) -> list[SetAside]:
    """What of a split cannot be used; with what may be of any split."""
    return [item for item in source.set_aside if item.split in (None, split)]


def _problems(bad: Sequence[SetAside]) -> tuple[str, ...]:
    """Counts, and the first reason of each kind."""
    kinds = {"images": [b for b in bad if not b.is_caption], "captions": [b for b in bad if b.is_caption]}
    return tuple(
        f"{len(found)} {kind} cannot be used, e.g. {found[0].item}: {found[0].reason}"
        for kind, found in kinds.items()
        if found
    )


def _shared(source: PairSource, split: str, *, allow_mixed: bool) -> int:
    """How many of the split's pictures other splits have as well. Raises DataError if any and they may not."""
    if isinstance(source, WorldSource):
        return 0  # no two of its splits share a scene, by construction; hashing would draw all of them
    hashes = {
        name: [source.image_hash(image) for image in dict.fromkeys(pair.image_id for pair in source.pairs(name))]
        for name in source.splits()
    }
    own = hashes.pop(split)
    if not allow_mixed:
        require_unmixed(split, own, hashes)
    others = {digest for found in hashes.values() for digest in found}
    return sum(digest in others for digest in own)


def _extended(
    which: str,
    *,
    data: str,
    images: Path | None = None,
    positives: Path | None = None,
    captions: Literal["all", "first_five"] = "all",
) -> WithPictures:
    """COCO 5k from Karpathy's dataset_coco.json, whose sentence ids are COCO's caption ids. `positives` is the folder
    of the published maps; by default that of the installed package eccv_caption."""
    path = existing(Path(data).expanduser())
    found: list[Caption] = []
    numbers: dict[str, int] = {}
    for number, entry in enumerate(read_json_object(path, key="images")["images"]):
        try:
            if entry["split"] != "test":
                continue
            image = f"{entry['filepath']}/{entry['filename']}" if entry.get("filepath") else str(entry["filename"])
            numbers[image] = int(entry["cocoid"])
            for sentence in entry["sentences"]:
                caption_id = f"{image}#{int(sentence['sentid'])}"
                numbers[caption_id] = int(sentence["sentid"])
                found.append(Caption(caption_id=caption_id, image=image, text=str(sentence["raw"])))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path} images[{number}]: needs cocoid, filename, split and sentences: {error!r}"
            ) from error
    suite = RetrievalSuite(
        name=which,
        split="test",
        captions=tuple(found),
        known="coco_5k",
        which_captions=captions,
        positives=read_positives(positives.expanduser() if positives else _packaged_positives(), which),
        numbers=numbers,
        facts={"data": data},
    )
    return WithPictures(suite, FolderPictures(images.expanduser() if images else path.parent))


def eccv(
    *,
    data: str,
    images: Path | None = None,
    positives: Path | None = None,
    captions: Literal["all", "first_five"] = "all",
) -> WithPictures:
    """ECCV Caption; see `_extended`."""
    return _extended("eccv", data=data, images=images, positives=positives, captions=captions)


def cxc(
    *,
    data: str,
    images: Path | None = None,
    positives: Path | None = None,
    captions: Literal["all", "first_five"] = "all",
) -> WithPictures:
    """Crisscrossed Captions; see `_extended`."""
    return _extended("cxc", data=data, images=images, positives=positives, captions=captions)


def _packaged_positives() -> Path:
    spec = find_spec("eccv_caption")
    if spec is None or spec.origin is None:
        raise ConfigError(
            "no folder of extended positives: pip install eccv_caption, or give the option positives=FOLDER"
        )
    return Path(spec.origin).parent / "data"


# ---------------------------------------------------------------------------------------------- made here


def _half_truths(default: str, make: Callable[..., ChoiceSuite]) -> Callable[..., WithPictures]:
    """The factory of a suite that `make` makes of the captions of one split."""

    def factory(
        *,
        data: str,
        cache: Path,
        images: Path | None = None,
        split: str | None = None,
        n_workers: int = 2,
        max_items: int = 2000,
        seed: int = 0,
        name: str = default,
    ) -> WithPictures:
        """`max_items`: at most so many of each kind; `name`: what results call it."""
        if max_items < 2:
            raise ConfigError(f"max_items of a half-truth suite: at least 2 of each kind, not {max_items}")
        source, place = open_data(data, images=images, any_bad=True, cache=cache, n_workers=n_workers)
        chosen = chosen_split(source, split)
        pairs = source.pairs(chosen)
        suite = make(pairs, name=name, seed=seed, max_items=max_items)
        suite = replace(suite, problems=_problems(_set_aside(source, chosen)))
        ids = frozenset(pair.image_id for pair in pairs)
        return WithPictures(suite, SourcePictures(source, ids, {**place, "split": chosen}))

    return factory


halftruth = _half_truths("halftruth", half_truths)
halftruth_matched = _half_truths("halftruth_matched", matched_half_truths)


def world(
    *, split: str | None = None, n: int = 500, seed: int = 0, source: Mapping[str, Any] | None = None
) -> WithPictures:
    """`n` foils of each error type from the drawn world's test split; `source` are options of the world."""
    return _world("world", split=split, n=n, seed=seed, options=source or {}, pairs=False)


def world_pairs(
    *, split: str | None = None, n: int = 500, seed: int = 0, source: Mapping[str, Any] | None = None
) -> WithPictures:
    """The foils that have an image where they are true: two images, two captions; no hallucinations."""
    return _world("world_pairs", split=split, n=n, seed=seed, options=source or {}, pairs=True)


def _world(name: str, *, split: str | None, n: int, seed: int, options: Mapping[str, Any], pairs: bool) -> WithPictures:
    # Six images for each foil of a type: not every caption has a count or an action. Which ones is in the fingerprint.
    known = {"n_train": 0, "n_val": 0, "n_test": max(60, 6 * n), **options}
    drawn = _drawn(known, where=f'option "source" of suite "{name}"')
    chosen = split or "test"
    found = foils(drawn, chosen, n=n, seed=seed)
    if pairs:
        found = [foil for foil in found if foil.counterfactual is not None]
    rule = Rule.PAIRS if pairs else Rule.STRICT
    items = tuple(
        Item(
            item_id=f"{foil.error_type}/{foil.caption_id}",
            group=str(foil.error_type),
            images=(foil.image_id, f"{foil.image_id}/{foil.error_type}") if pairs else (foil.image_id,),
            texts=(foil.text, foil.foil),
        )
        for foil in found
    )
    types = tuple(str(error) for error in ErrorType if any(item.group == str(error) for item in items))
    facts = {"split": chosen, "seed": seed, "world": drawn.fingerprint, "texts_hash": texts_hash(items)}
    suite = ChoiceSuite(
        name=name,
        rule=rule,
        items=items,
        averages=(
            macro("mean of error types", types, TASKS[rule]),
            micro("micro over all items", types, TASKS[rule]),
        ),
        facts=facts,
        generated=True,
    )
    return WithPictures(suite, _WorldPictures(drawn, {"kind": "world", "options": known}, found))


def _drawn(options: Mapping[str, Any], *, where: str) -> WorldSource:
    """The world of these options. Raises ConfigError for one that there is not, or of another type: no text or truth
    value for a number."""
    hints = get_type_hints(WorldSource.__init__)
    for key, value in options.items():
        try:
            TypeAdapter(hints.get(key, Any)).validate_json(json.dumps(value, default=str), strict=True)
        except ValidationError as error:
            raise ConfigError(f"{where}: {key}: {error.errors()[0]['msg'].lower()}, not {value!r}") from None
    try:
        drawn: WorldSource = SOURCES.build("world", options=options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return drawn


class _WorldPictures:
    """Drawn images by id, and counterfactual ones by "ID/ERROR TYPE"."""

    def __init__(self, source: WorldSource, place: Mapping[str, Any], found: Sequence[Foil]) -> None:
        self._source = source
        self._place = dict(place)
        self._edited = {
            f"{foil.image_id}/{foil.error_type}": foil.counterfactual
            for foil in found
            if foil.counterfactual is not None
        }

    def missing(self, names: Any) -> list[str]:  # noqa: ARG002
        return []

    def item(self, name: str, box: Box | None = None) -> ImageItem:  # noqa: ARG002
        if name in self._edited:
            data = self._edited[name]
            return ImageItem(key=name, content_hash=hash_bytes(data), captions=(), read=lambda: data)
        read = partial(self._source.read_image, name)
        return ImageItem(key=name, content_hash=self._source.image_hash(name), captions=(), read=read)

    def facts(self) -> dict[str, Any]:
        return self._place


# ---------------------------------------------------------------------------------------------- guards


def zeroshot(
    *, data: str, names: Path | None = None, prompts: tuple[str, ...] = PROMPTS, name: str = "zeroshot"
) -> WithPictures:
    """A folder with a sub-folder of images for each class. `names`: a JSON object from sub-folder to the name in words
    (by default the sub-folder's own, underscores as spaces); `prompts`: texts with one {} for the name."""
    root = Path(data).expanduser()
    if not root.is_dir():
        raise DataError(f"suite {name}: {root} is no folder; it needs one with a sub-folder of images for each class")
    given = read(names.expanduser())[0] if names else {}
    if not isinstance(given, Mapping) or not all(isinstance(word, str) and word.strip() for word in given.values()):
        raise DataError(f"suite {name}: {names} must be a JSON object from sub-folder to the name in words")
    images, classes = [], {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in _PICTURES]
        if found:
            classes[folder.name] = str(given.get(folder.name, folder.name.replace("_", " ")))
            images += [(path.relative_to(root).as_posix(), folder.name) for path in found]
    suite = ZeroShotSuite(name=name, images=tuple(images), classes=classes, prompts=prompts, facts={"data": data})
    return WithPictures(suite, FolderPictures(root))
