"""What a method's batch is made of, and what it costs to encode."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from repair.core.errors import ConfigError

Term = Literal["views", "focal", "ranked", "intra", "units"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A row is an anchor pair (image, caption). Of each row's samples, as many as there are, up to what is said here:

    - rewrites: the caption is drawn from itself and its T⁺, all alike (LaCLIP);
    - edited_images: the image is drawn from itself and its I⁺ (ALIA);
    - neighbours: one row more, a near image with a caption of its own (NegCLIP);
    - negatives: so many T⁻; with `types`, one for each change named there, in that order (CE-CLIP);
    - columns: whether those T⁻ are columns of the images' softmax;
    - negative_images: so many I⁻, columns of the captions' softmax;
    - pairs: "pooled", counterfactual pairs are rows like any other, in no particular batch; "together", a row's pair is
      a row of the same batch; "triplet", TripletCLIP's second softmax;
    - views: two views of the image beside the row (SimCLR);
    - units: so many units with their foils (CS-CLIP).

    `terms` are losses added to the batch's, with their weights: "views" `nt_xent`, "focal" `focal_negatives_loss`,
    "ranked" `ranking_loss`, "intra" `intra_modal_loss`, "units" `own_foil_loss` (mean over the units).
    Raises ConfigError for a term without its items.
    """

    rewrites: bool = False
    edited_images: bool = False
    neighbours: bool = False
    negatives: int = 0
    types: tuple[str, ...] = ()
    columns: bool = True
    negative_images: int = 0
    pairs: Literal["none", "pooled", "together", "triplet"] = "none"
    views: bool = False
    units: int = 0
    terms: tuple[tuple[Term, float], ...] = ()

    def __post_init__(self) -> None:
        there = {"views": self.views, "units": bool(self.units)}
        for term, _ in self.terms:
            if term not in get_args(Term):
                raise ConfigError(f"composition: unknown term {term}; terms: {', '.join(get_args(Term))}")
            if not there.get(term, bool(self.negatives)):
                raise ConfigError(f'composition: the term "{term}" needs items that no row has')
        if self.types and len(self.types) != self.negatives:
            raise ConfigError(f"composition: {len(self.types)} types for {self.negatives} negatives")

    @property
    def row_images(self) -> int:
        """Images encoded for a row that has all its samples."""
        paired = self.pairs in ("together", "triplet")
        return (1 + self.neighbours) + self.negative_images + paired + 2 * self.views

    @property
    def row_texts(self) -> int:
        """Captions encoded for a row that has all its samples."""
        paired = self.pairs in ("together", "triplet")
        return (1 + self.neighbours) * (1 + self.negatives) + paired + 2 * self.units

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
