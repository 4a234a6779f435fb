"""Retrieval as a suite: a split of images and captions on a model, with its facts beside every score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repair.core.errors import DataError
from repair.core.identity import derive_rng, hash_value
from repair.core.records import Direction
from repair.evaluation.choice import refuse_missing
from repair.evaluation.document import FromItems, Missing, Outcome, Score, SuiteResult, score_of
from repair.evaluation.embedding import Embedder, Uncertainty
from repair.evaluation.extended import Positives, evaluate_extended
from repair.evaluation.folds import evaluate_folds
from repair.evaluation.pictures import Pictures
from repair.evaluation.results import DirectionResult, RetrievalResult
from repair.evaluation.retrieval import evaluate_retrieval
from repair.evaluation.splits import ALL, MOST, first_captions, problem_with
from repair.numerics.cosines import IntArray

_N_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """One caption of a gallery; `image` is the name of its picture."""

    caption_id: str
    image: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSuite:
    """A split to be searched both ways.

    `known` names a published split whose sizes must be met. `which_captions` is a key of `splits.MOST`.
    `n_images` takes a seeded subset. `n_folds` parts the images, in order, into galleries. `numbers` are COCO ids of
    images and captions by name, for extended `positives`.
    """

    name: str
    split: str
    captions: tuple[Caption, ...]
    known: str | None = None
    which_captions: str = ALL
    n_images: int | None = None
    subset_seed: int = 0
    n_folds: int = 1
    recall_at: tuple[int, ...] = (1, 5, 10)
    positives: Positives | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    set_aside: tuple[str, ...] = ()  # images the data source could not use
    problems: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def evaluate(
        self,
        pictures: Pictures,
        embedder: Embedder,
        *,
        uncertainty: Uncertainty,
        allow_missing: bool = False,
    ) -> tuple[SuiteResult, list[Outcome]]:
        """Both directions.

        Raises:
            DataError: images are missing or a known split has the wrong size, and `allow_missing` is false; or
                embeddings are not as they should be.
        """
        gallery, missing = self.gallery(pictures, allow_missing=allow_missing)
        images = embedder.images([pictures.item(name) for name in gallery.images], label=f"{self.name}: images")
        texts = embedder.texts(gallery.texts, label=f"{self.name}: captions")
        found = self._search(gallery, images, texts, uncertainty)
        result = SuiteResult(
            suite=self.name,
            kind="retrieval",
            partial=bool(missing.n_images or missing.problems),
            n_items=len(self.captions),
            n_run=len(gallery.texts),
            missing=missing,
            headline=f"{Direction.TEXT_TO_IMAGE} / R@{self.recall_at[0]}",
            facts=self._facts(found, gallery, embedder),
            pictures=pictures.facts(),
            scores=[score for side in found.directions.values() for score in _scores(side)],
            from_items=self._from_items(found),
            clip_benchmark=self._exported(found),
        )
        return result, self._outcomes(found, gallery)

    def gallery(self, pictures: Pictures, *, allow_missing: bool) -> tuple["Gallery", Missing]:
        """What of the split can be run, and what is missing. Raises DataError if anything is and may not be."""
        names = tuple(dict.fromkeys(caption.image for caption in self.captions))
        gone = {*pictures.missing(names), *self.set_aside}
        captions = [caption for caption in self.captions if caption.image not in gone]
        n_gone = len(self.captions) - len(captions)
        if self.n_images is not None:
            captions = self._subset(captions)
        gallery = Gallery.of(captions)
        most = MOST[self.which_captions]
        if most is not None and captions:
            gallery = Gallery.of([captions[c] for c in first_captions(gallery.owner, most)])
        problems = list(self.problems)
        if self.known and self.n_images is None:
            size = {"n_images": len(gallery.images), "n_captions": len(gallery.texts)}
            problem = problem_with(self.known, **size, captions=self.which_captions)
            problems += [problem] if problem else []
        missing = Missing(
            n_images=len(gone),
            n_items=n_gone,
            images=sorted(gone)[:_N_NAMED],
            problems=problems,
        )
        n_left = len(gallery.texts)
        refuse_missing(self.name, missing, n_items=len(self.captions), n_left=n_left, allow_missing=allow_missing)
        return gallery, missing

    def _subset(self, captions: Sequence[Caption]) -> list[Caption]:
        """The captions of `n_images` images: those whose seeded number is lowest, so that a bigger subset holds it."""
        names = tuple(dict.fromkeys(caption.image for caption in captions))
        wanted = int(self.n_images or 0)
        if not 1 <= wanted <= len(names):
            raise DataError(f"suite {self.name}: n_images must be from 1 to {len(names)}, not {wanted}")
        draw = {name: derive_rng(self.subset_seed, "subset", name).random() for name in names}
        kept = set(sorted(names, key=lambda name: (draw[name], name))[:wanted])
        return [caption for caption in captions if caption.image in kept]

    def _search(self, gallery: "Gallery", images: Any, texts: Any, uncertainty: Uncertainty) -> RetrievalResult:
        shared: dict[str, Any] = {
            "split": self.split,
            "recall_at": self.recall_at,
            "confidence": uncertainty["confidence"],
            "n_bootstrap": uncertainty["n_resamples"],
            "seed": uncertainty["seed"],
            "owner": gallery.owner,
        }
        if self.positives is not None:
            return evaluate_extended(
                images,
                texts,
                image_ids=[self.numbers[name] for name in gallery.images],
                caption_ids=[self.numbers[caption] for caption in gallery.caption_ids],
                positives=self.positives,
                **shared,
            )
        shared |= {"image_ids": gallery.images, "caption_ids": gallery.caption_ids}
        if self.n_folds > 1:
            return evaluate_folds(images, texts, n_folds=self.n_folds, **shared)
        return evaluate_retrieval(images, texts, **shared)

    def _facts(self, found: RetrievalResult, gallery: "Gallery", embedder: Embedder) -> dict[str, Any]:
        least, mean, most = found.captions_per_image
        return {
            **self.facts,
            "split": self.split,
            "known_split": self.known,
            "which_captions": self.which_captions,
            "n_images": found.n_images,
            "n_captions": found.n_captions,
            "captions_per_image": {"min": least, "mean": mean, "max": most},
            "n_queries": {str(side.direction): side.n_queries for side in found.directions.values()},
            "n_tied_queries": {str(side.direction): side.n_tied_queries for side in found.directions.values()},
            "n_folds": self.n_folds,
            "positives": found.positives,
            "subset": None if self.n_images is None else {"n_images": self.n_images, "seed": self.subset_seed},
            "ids_hash": hash_value([list(gallery.images), list(gallery.caption_ids)]),
            "tie_rule": found.tie_rule,
            "n_texts_cut": embedder.n_cut(gallery.texts),
        }

    def _from_items(self, found: RetrievalResult) -> list[FromItems]:
        """R@k and MRR; of several folds, the mean of the folds."""
        rows = []
        for direction in map(str, found.directions):
            parts = None
            if self.n_folds > 1:
                parts = [[_fold_group(direction, fold)] for fold in range(self.n_folds)]
            rows += [
                FromItems(group=direction, metric=f"R@{k}", task=direction, value="rank", most=k, parts=parts)
                for k in self.recall_at
            ]
            rows.append(FromItems(group=direction, metric="MRR", task=direction, value="1/rank", parts=parts))
        return rows

    def _group(self, direction: Direction, own: int, n_images: int) -> str:
        """What a query's row is of: a direction, or one fold of it."""
        return str(direction) if self.n_folds == 1 else _fold_group(str(direction), own * self.n_folds // n_images)

    def _exported(self, found: RetrievalResult) -> list[dict[str, Any]]:
        names = {Direction.TEXT_TO_IMAGE: "image_retrieval_recall", Direction.IMAGE_TO_TEXT: "text_retrieval_recall"}
        if self.positives is not None or self.n_folds > 1 or self.which_captions != ALL:
            return []  # CLIP_benchmark has no such task
        metrics = {
            f"{names[direction]}@{recall.k}": recall.interval.estimate
            for direction, side in found.directions.items()
            for recall in side.recall
        }
        return [{"dataset": self.known or self.name, "task": "zeroshot_retrieval", "metrics": metrics}]

    def _outcomes(self, found: RetrievalResult, gallery: "Gallery") -> list[Outcome]:
        rows = []
        for direction, side in found.directions.items():
            by_image = direction is Direction.IMAGE_TO_TEXT
            for place, query in enumerate(side.queries.tolist()):
                top, own = int(side.top1[place]), query if by_image else int(gallery.owner[query])
                image = gallery.images[own]
                rows.append(
                    Outcome(
                        suite=self.name,
                        group=self._group(direction, own, len(gallery.images)),
                        task=str(direction),
                        item=image if by_image else gallery.caption_ids[query],
                        cluster=image,
                        image=image,
                        query="" if by_image else gallery.texts[query],
                        expected=gallery.texts[gallery.first[query]] if by_image else image,
                        got=gallery.texts[top] if by_image else gallery.images[top],
                        hit=bool(side.ranks[place] == 1),
                        rank=int(side.ranks[place]),
                        margin=None,
                    )
                )
        return rows


@dataclass(frozen=True, slots=True)
class Gallery:
    """Images and captions of a split, indexed; `first[i]` is the first caption of image i."""

    images: tuple[str, ...]
    caption_ids: tuple[str, ...]
    texts: tuple[str, ...]
    owner: IntArray
    first: tuple[int, ...]

    @classmethod
    def of(cls, captions: Sequence[Caption]) -> "Gallery":
        row: dict[str, int] = {}
        owner = np.array([row.setdefault(caption.image, len(row)) for caption in captions], dtype=np.int64)
        first: dict[int, int] = {}
        for place, image in enumerate(owner.tolist()):
            first.setdefault(image, place)
        return cls(
            tuple(row),
            tuple(caption.caption_id for caption in captions),
            tuple(caption.text for caption in captions),
            owner,
            tuple(first[image] for image in range(len(row))),
        )


def _fold_group(direction: str, fold: int) -> str:
    return f"{direction}, fold {fold + 1}"


def _scores(side: DirectionResult) -> list[Score]:
    group = str(side.direction)
    found = [
        score_of(
            group,
            f"R@{recall.k}",
            recall.interval,
            if_ties_won=recall.if_ties_won,
            if_ties_lost=recall.if_ties_lost,
        )
        for recall in side.recall
    ]
    found += [score_of(group, name, interval) for name, interval in (("MRR", side.mrr),)]
    found.append(Score(group=group, metric="median rank", value=side.median_rank, n=side.n_queries))
    found += [score_of(group, "mAP@R", side.map_at_r), score_of(group, "R-precision", side.r_precision)]
    return found
