"""The embedded world as a data set: drawn images with five captions each, and the truth about any image and text.

Every image is made from `derive_rng(seed, split, index, …)` alone, so splits do not depend on each other's sizes,
images are drawn when read, and a bigger split begins with the smaller one. No two splits share the facts of a scene: a
scene belongs to the split its facts hash to.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import PIL
from PIL import features

from repair.core.errors import ConfigError, DataError, suggest
from repair.core.identity import derive_rng, hash_bytes, hash_value
from repair.core.records import Pair, SetAside, Shortfall
from repair.world.claims import holds
from repair.world.drawing import read_scene, render
from repair.world.language import parse, write_captions
from repair.world.sampling import redrawn, sample_scene, vary_scene
from repair.world.scenes import Scene
from repair.world.shortfalls import image_shortfall, text_shortfall

WORLD_VERSION = 2  # raise it when the same options give other scenes, captions or pixels
SPLITS = ("train", "val", "test")
N_CAPTIONS = 5
_IMAGES_PER_THEME = 6
_THEME_RATE = 0.6
_MAX_TRIES = 200
_CACHED_IMAGES = 20_000


class WorldSource:
    """A `PairSource` and `EditTruth` (core.ports). Image ids are "train-000123", caption ids "train-000123#0".

    Options (all keyword-only):
        n_train, n_val, n_test: images of the split.
        image_size: side of an image in pixels, 32 to 128.
        seed: of everything.
        annotation_noise_rate: share of captions that are wrong, 0 to 0.5; half of them of a scene one change away, half
            of any other scene.
        near_duplicate_rate: share of images that draw the scene of an earlier image of the split again, 0 to 0.5.
        troubled_splits: splits the two rates apply to. The others are clean: all captions true, no scene repeated on
            purpose.
    """

    def __init__(
        self,
        *,
        n_train: int = 6000,
        n_val: int = 1000,
        n_test: int = 2000,
        image_size: int = 64,
        seed: int = 0,
        annotation_noise_rate: float = 0.03,
        near_duplicate_rate: float = 0.02,
        troubled_splits: tuple[str, ...] = ("train",),
    ) -> None:
        self._sizes = dict(zip(SPLITS, (n_train, n_val, n_test), strict=True))
        _check(self._sizes, image_size, annotation_noise_rate, near_duplicate_rate, troubled_splits)
        self._image_size = image_size
        self._seed = seed
        self._noise_rate = annotation_noise_rate
        self._duplicate_rate = near_duplicate_rate
        self._troubled = frozenset(troubled_splits)
        self._scenes: dict[tuple[str, int], Scene] = {}
        self._pairs: dict[str, tuple[Pair, ...]] = {}
        self._images: OrderedDict[str, bytes] = OrderedDict()
        self._hashes: dict[str, str] = {}
        self.fingerprint = hash_value(
            {
                "world": WORLD_VERSION,
                "sizes": self._sizes,
                "image_size": image_size,
                "seed": seed,
                "annotation_noise_rate": annotation_noise_rate,
                "near_duplicate_rate": near_duplicate_rate,
                "troubled_splits": sorted(self._troubled),
                "drawn_with": [PIL.__version__, features.version("zlib")],
            }
        )

    @property
    def set_aside(self) -> Sequence[SetAside]:
        """Always empty: every drawn item can be used."""
        return ()

    @property
    def image_size(self) -> int:
        """Side of an image in pixels."""
        return self._image_size

    def splits(self) -> Sequence[str]:
        """The splits that have images."""
        return tuple(split for split, n in self._sizes.items() if n)

    def pairs(self, split: str) -> Sequence[Pair]:
        """Five pairs an image, in the order of the images. Raises ConfigError for an unknown split."""
        self._check_split(split)
        if split not in self._pairs:
            self._pairs[split] = tuple(
                Pair(image_id=_image_id(split, i), caption_id=f"{_image_id(split, i)}#{k}", text=text, split=split)
                for i in range(self._sizes[split])
                for k, text in enumerate(self._captions(split, i))
            )
        return self._pairs[split]

    def read_image(self, image_id: str) -> bytes:
        """PNG bytes. Raises DataError for an id this world does not have."""
        if image_id in self._images:
            self._images.move_to_end(image_id)
            return self._images[image_id]
        data = render(self.scene(image_id), size=self._image_size)
        self._images[image_id] = data
        if len(self._images) > _CACHED_IMAGES:
            self._images.popitem(last=False)
        return data

    def image_hash(self, image_id: str) -> str:
        """Content hash of `read_image(image_id)`."""
        if image_id not in self._hashes:
            self._hashes[image_id] = hash_bytes(self.read_image(image_id))
        return self._hashes[image_id]

    def holds(self, image: bytes, text: str) -> bool:
        """Whether `text` is true of the scene in `image`. Raises DataError if either is not of this world."""
        return holds(read_scene(image), parse(text))

    def text_shortfall(self, image: bytes, false_positive: str, edit: str) -> Shortfall | None:
        """As `core.ports.EditTruth` has it."""
        return text_shortfall(read_scene(image), false_positive, edit)

    def image_shortfall(self, text: str, false_positive: bytes, edit: bytes) -> Shortfall | None:
        """As `core.ports.EditTruth` has it."""
        return image_shortfall(text, false_positive, edit)

    def scene(self, image_id: str) -> Scene:
        """What an image shows, without drawing it. Raises DataError for an unknown id."""
        split, _, number = image_id.rpartition("-")
        if split in self._sizes and number.isdecimal() and len(number) == 6 and int(number) < self._sizes[split]:
            return self._scene(split, int(number))
        raise DataError(f'image "{image_id}" is not in this world: ids run from "train-000000", by split and size')

    def is_redrawn(self, image_id: str) -> bool:
        """Whether the image draws an earlier image's scene again (a near-duplicate on purpose)."""
        self.scene(image_id)
        split, _, number = image_id.rpartition("-")
        return self._original(split, int(number)) is not None

    def _check_split(self, split: str) -> None:
        if split not in self.splits():
            raise ConfigError(f'unknown split "{split}" of the embedded world: {suggest(split, self.splits())}')

    def _scene(self, split: str, index: int) -> Scene:
        key = (split, index)
        if key not in self._scenes:
            original = self._original(split, index)
            if original is not None:
                rng = derive_rng(self._seed, split, index, "redraw")
                self._scenes[key] = redrawn(rng, self._scene(split, original))
            else:
                self._scenes[key] = self._fresh_scene(split, index)
        return self._scenes[key]

    def _original(self, split: str, index: int) -> int | None:
        """The earlier image whose scene this one draws again, if it does."""
        if not index or split not in self._troubled or not self._duplicate_rate:
            return None
        rng = derive_rng(self._seed, split, index, "duplicate")
        return int(rng.integers(index)) if rng.random() < self._duplicate_rate else None

    def _fresh_scene(self, split: str, index: int) -> Scene:
        rng = derive_rng(self._seed, split, index, "scene")
        theme = None
        if rng.random() < _THEME_RATE:
            theme = sample_scene(derive_rng(self._seed, split, index // _IMAGES_PER_THEME, "theme"))
        for _ in range(_MAX_TRIES):
            if theme is None:
                scene = sample_scene(rng)
            else:
                scene = vary_scene(rng, theme, n_changes=1 + int(3 * rng.random()))
            if _home(scene) == split:
                return scene
        raise DataError(f"no scene for {_image_id(split, index)} in {_MAX_TRIES} tries: choose another seed")

    def _captions(self, split: str, index: int) -> list[str]:
        scene = self._scene(split, index)
        captions = write_captions(scene, derive_rng(self._seed, split, index, "captions"))
        if split in self._troubled and self._noise_rate:
            rng = derive_rng(self._seed, split, index, "annotation noise")
            for k in range(len(captions)):
                if rng.random() < self._noise_rate:
                    captions[k] = _wrong_caption(scene, captions[k], rng)
        return captions


def _wrong_caption(scene: Scene, caption: str, rng: np.random.Generator) -> str:
    """A caption that is false of `scene`: of a scene that differs by a fact or two, or of any other scene."""
    near = rng.random() < 0.5
    for _ in range(_MAX_TRIES):
        other = vary_scene(rng, scene, n_changes=1) if near else sample_scene(rng)
        for text in write_captions(other, rng):
            if not holds(scene, parse(text)):
                return text
    raise DataError(f'no wrong caption found to stand for "{caption}": choose another seed')


def _home(scene: Scene) -> str:
    """The split whose scenes have these facts."""
    digest = hashlib.blake2b(repr(scene.facts()).encode(), digest_size=1).digest()
    return SPLITS[digest[0] % len(SPLITS)]


def _image_id(split: str, index: int) -> str:
    return f"{split}-{index:06d}"


def _check(
    sizes: dict[str, int], image_size: int, noise_rate: float, duplicate_rate: float, troubled: tuple[str, ...]
) -> None:
    for split, n in sizes.items():
        if not 0 <= n <= 999_999:
            raise ConfigError(f'option "n_{split}" of data source "world": 0 to 999999, not {n}')
    if not 32 <= image_size <= 128:
        raise ConfigError(f'option "image_size" of data source "world": 32 to 128 pixels, not {image_size}')
    for name, rate in (("annotation_noise_rate", noise_rate), ("near_duplicate_rate", duplicate_rate)):
        if not 0 <= rate <= 0.5:
            raise ConfigError(f'option "{name}" of data source "world": 0 to 0.5, not {rate}')
    for split in troubled:
        if split not in sizes:
            raise ConfigError(
                f'option "troubled_splits" of data source "world": {suggest(split, sizes)}, not "{split}"'
            )
