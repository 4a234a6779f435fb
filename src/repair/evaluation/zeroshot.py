"""Guard: zero-shot classification over a folder of images, a sub-folder for each class.

A gain in composition is often bought with forgetting: published hard-negative tuning lost up to 13 points of ImageNet.
The vector of a class is the normalised mean of the unit vectors of its name in several prompts; an image goes to the
class of highest cosine; a tie goes to the class that stands first by name, and ties are counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repair.core.errors import DataError
from repair.evaluation.choice import refuse_missing
from repair.evaluation.document import FromItems, Missing, Outcome, SuiteResult, score_of
from repair.evaluation.embedding import Embedder, Uncertainty
from repair.evaluation.pictures import Pictures
from repair.numerics.cosines import normalise, quantise, tiles
from repair.numerics.statistics import bootstrap_group_mean, bootstrap_means

PROMPTS = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a close photo of a {}.",
    "a photo of a {} seen from afar.",
    "a blurry photo of a {}.",
    "a photo of many {}.",
    "a picture that shows a {}.",
)
_BLOCK = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroShotSuite:
    """Images with their class, classes with the name a prompt says. `prompts` have one {} each."""

    name: str
    images: tuple[tuple[str, str], ...]  # (picture, class)
    classes: Mapping[str, str]  # class to the name in words
    prompts: tuple[str, ...] = PROMPTS
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(f"suite {self.name}: {len(self.classes)} classes, needs at least 2 sub-folders of images")
        for prompt in self.prompts:
            if prompt.count("{}") != 1:
                raise DataError(f'suite {self.name}: prompt "{prompt}" must have one {{}} for the name of the class')

    def usable(self, pictures: Pictures, *, allow_missing: bool) -> tuple[list[tuple[str, str]], Missing]:
        """The images that can be run, and what is missing. Raises DataError if anything is and may not be."""
        gone = set(pictures.missing(name for name, _ in self.images))
        images = [(name, label) for name, label in self.images if name not in gone]
        missing = Missing(n_images=len(gone), n_items=len(gone), images=sorted(gone)[:10])
        refuse_missing(self.name, missing, n_items=len(self.images), n_left=len(images), allow_missing=allow_missing)
        return images, missing

    def evaluate(
        self, pictures: Pictures, embedder: Embedder, *, uncertainty: Uncertainty, allow_missing: bool = False
    ) -> tuple[SuiteResult, list[Outcome]]:
        """Top-1, top-5 (with more than five classes) and the mean of the classes' top-1.

        Raises:
            DataError: images are missing and may not be.
        """
        images, missing = self.usable(pictures, allow_missing=allow_missing)
        classes = sorted(self.classes)
        labels = np.array([classes.index(label) for _, label in images])
        heads = class_vectors([self.classes[label] for label in classes], self.prompts, embedder, name=self.name)
        z = quantise(
            embedder.images([pictures.item(name) for name, _ in images], label=f"{self.name}: images"), what="images"
        )
        order, margin = _ranked(z, quantise(heads, what="classes"), labels)
        rank = (order == labels[:, None]).argmax(axis=1) + 1
        clusters = np.arange(len(images))
        k = [1, 5] if len(classes) > 5 else [1]
        tops = bootstrap_means([rank <= top for top in k], clusters, **uncertainty)
        scores = [
            score_of("all images", f"top-{top}", interval, chance=min(1.0, top / len(classes)))
            for top, interval in zip(k, tops, strict=True)
        ]
        per_class = bootstrap_group_mean(rank == 1, labels, clusters, **uncertainty)
        scores.append(score_of("mean of classes", "top-1", per_class, chance=1 / len(classes)))
        exported = {"acc1": scores[0].value, "mean_per_class_recall": per_class.estimate}
        if len(k) > 1:
            exported["acc5"] = scores[1].value
        result = SuiteResult(
            suite=self.name,
            kind="zeroshot",
            partial=bool(missing.n_images),
            n_items=len(self.images),
            n_run=len(images),
            missing=missing,
            headline="all images / top-1",
            facts={
                **self.facts,
                "classes": {label: self.classes[label] for label in classes},
                "prompts": list(self.prompts),
                "n_images": len(images),
                "n_tied": int((margin == 0).sum()),
                "tie_rule": "a tie goes to the class that stands first by name",
            },
            pictures=pictures.facts(),
            scores=scores,
            from_items=[
                *(
                    FromItems(group="all images", metric=f"top-{top}", task="top-1", value="rank", most=top)
                    for top in k
                ),
                FromItems(
                    group="mean of classes",
                    metric="top-1",
                    task="top-1",
                    parts=[[label] for label in classes if label in {label for _, label in images}],
                ),
            ],
            clip_benchmark=[{"dataset": self.name, "task": "zeroshot_classification", "metrics": exported}],
        )
        return result, [
            Outcome(
                suite=self.name,
                group=label,
                task="top-1",
                item=name,
                cluster=name,
                image=name,
                query="",
                expected=self.classes[label],
                got=self.classes[classes[int(order[row, 0])]],
                hit=bool(rank[row] == 1),
                rank=int(rank[row]),
                margin=float(margin[row]),
            )
            for row, (name, label) in enumerate(images)
        ]


def class_vectors(names: Sequence[str], prompts: Sequence[str], embedder: Embedder, *, name: str) -> Any:
    """(n_classes, dim) unit rows: the normalised mean over prompts of unit vectors."""
    texts = [prompt.format(word) for word in names for prompt in prompts]
    vectors = normalise(embedder.texts(texts, label=f"{name}: prompts"))
    return normalise(vectors.reshape(len(names), len(prompts), -1).astype(np.float64).mean(axis=1))


def _ranked(images: Any, heads: Any, labels: Any) -> tuple[Any, Any]:
    """Classes of each image, best first and ties by number; and by how much the right class is above the others."""
    order = np.empty((len(images), len(heads)), dtype=np.int64)
    margin = np.empty(len(images))
    for tile in tiles(images, heads, block_size=max(_BLOCK, len(heads))):
        rows = slice(tile.row_start, tile.row_start + len(tile.scores))
        order[rows] = np.argsort(-tile.scores, axis=1, kind="stable")
        own = tile.scores[np.arange(len(tile.scores)), labels[rows]].astype(np.float64)
        others = tile.scores.astype(np.float64)
        others[np.arange(len(tile.scores)), labels[rows]] = -np.inf
        margin[rows] = own - others.max(axis=1)
    return order, margin
