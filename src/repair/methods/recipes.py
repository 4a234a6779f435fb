"""The methods by name: what each is made of. A factory's options are those of its builders and batches."""

from repair.core.composition import Composition
from repair.core.synthesis import Change
from repair.methods.builders import Counterfactuals, Domains, HalfTruths, Rewrites, Rules, SugarCrepe, Triplets, Views
from repair.methods.method import Method
from repair.methods.views import ViewOptions

_SWAP_TYPES = (Change.SWAP_OBJECT, Change.REPLACE_ATTRIBUTE, Change.REPLACE_OBJECT, Change.REPLACE_RELATION)


def repair() -> Method:
    return Method(title="RePair", types=("I⁺", "I⁻", "T⁺", "T⁻"))


def vanilla() -> Method:
    return Method(title="Vanilla", composition=Composition())


def negclip(*, neighbours: int = 3) -> Method:
    """`neighbours`: near images kept for each image, of which a batch draws one."""
    return Method(
        title="NegCLIP",
        types=("T⁻",),
        builders=(Rules(name="swap", ruled=(Change.SWAP,)),),
        composition=Composition(neighbours=True, negatives=1),
        neighbours=neighbours,
        notes="one swap of a caption, not one of each category of words",
    )


def sugarcrepe(*, refine: bool = True) -> Method:
    """`refine`: whether samples that text alone gives away are dropped."""
    return Method(
        title="SugarCrepe",
        types=("T⁻",),
        builders=(SugarCrepe(name="sugarcrepe", refine=refine),),
        composition=Composition(negatives=1),
        notes="the benchmark's generator run on train captions; text scores from train captions, not Vera and CoLA; "
        "no human check of validity",
    )


def laclip(*, n_rewrites: int = 1) -> Method:
    """`n_rewrites`: of each caption."""
    return Method(
        title="LaCLIP",
        types=("T⁺",),
        builders=(Rewrites(name="rewrite", n_calls=n_rewrites, n_samples=n_rewrites, n=n_rewrites),),
        composition=Composition(rewrites=True),
        notes="no random resized crop of the images",
    )


def simclr(*, careful: bool = False, crop: float = 0.08, weight: float = 1.0) -> Method:
    """`careful`: no flip or colour change where a caption speaks of it. `weight` of NT-Xent."""
    return Method(
        title="SimCLR",
        types=("I⁺",),
        builders=(Views(name="views", careful=careful, options=ViewOptions(crop=crop)),),
        composition=Composition(views=True, terms=(("views", weight),)),
        notes="NT-Xent on the encoder's features: no projection head; two fixed views of an image, not fresh ones each "
        "step; no weak crop for the CLIP term",
    )


def tripletclip(*, from_anchor: bool = False) -> Method:
    """`from_anchor`: pictures are made out of the anchor's image, where there is only an editor."""
    return Method(
        title="TripletCLIP",
        types=("T⁻", "I⁻"),
        builders=(Triplets(name="triplets", from_anchor=from_anchor),),
        composition=Composition(pairs="triplet"),
        notes="made for pre-training, used for fine-tuning here",
    )


def alia(*, top_k: int = 10) -> Method:
    """`top_k`: where the own caption of an edited image must rank."""
    return Method(
        title="ALIA",
        types=("I⁺",),
        builders=(Domains(name="domains", top_k=top_k),),
        composition=Composition(edited_images=True),
        notes="ported from classification: confidence is the rank of the own caption",
    )


def coco_cf(
    *,
    together: bool = False,
    text_band: tuple[float, float] = (0.8, 0.91),
    min_fit: float = 0.2,
    min_image: float = 0.7,
    min_direction: float = 0.2,
) -> Method:
    """`together`: a pair and its anchor share a batch (as published they do not). The rest: see `Counterfactuals`."""
    return Method(
        title="COCO-CF",
        types=("T⁻", "I⁻"),
        builders=(_counterfactuals(text_band, min_fit, min_image, min_direction),),
        composition=Composition(pairs="together" if together else "pooled"),
        notes="the first image of a pair is the anchor's own, not a drawn one",
    )


def _counterfactuals(
    text_band: tuple[float, float], min_fit: float, min_image: float, min_direction: float
) -> Counterfactuals:
    return Counterfactuals(
        name="counterfactuals",
        text_band=text_band,
        min_fit=min_fit,
        min_image=min_image,
        min_direction=min_direction,
    )


def cs_clip(*, units: int = 2, weight: float = 0.5) -> Method:
    """`units` drawn of each caption; `weight` of their loss."""
    return Method(
        title="CS-CLIP",
        types=("T⁺", "T⁻"),
        builders=(HalfTruths(name="half-truths"),),
        composition=Composition(negatives=1, units=units, terms=(("units", weight),)),
        notes="only part of the published rules on foils: no lists of synonyms, no stems, no share of words in common",
    )


def fsc_clip(*, weight: float = 0.5) -> Method:
    """`weight` of the focal loss."""
    return Method(
        title="FSC-CLIP",
        types=("T⁻",),
        builders=(Rules(name="focal", ruled=(Change.SWAP, Change.REPLACE_OBJECT), shuffle=True, n_samples=3),),
        composition=Composition(negatives=3, columns=False, terms=(("focal", weight),)),
        notes="without its loss over patches and tokens, whose features a dual encoder does not give",
    )


def ce_clip(*, ranked: float = 0.2, intra: float = 0.3) -> Method:
    """`ranked` and `intra`: weights of the cross-modal rank and the intra-modal contrast."""
    return Method(
        title="CE-CLIP",
        types=("T⁻",),
        builders=(Rules(name="typed", ruled=_SWAP_TYPES, n_samples=len(_SWAP_TYPES)),),
        composition=Composition(
            negatives=4, types=tuple(map(str, _SWAP_TYPES)), terms=(("ranked", ranked), ("intra", intra))
        ),
        notes="margins are the batch's own, so that resuming is exact; invalid negatives are masked; with a masked "
        "language model a word is drawn from its top k, not the fourth",
    )


def fp_as_hn(*, captions: bool = True, images: bool = True) -> Method:
    """`captions` and `images`: which false positives stand in a batch. With neither, what remains is that of an image's
    captions those with failures are drawn."""
    return Method(
        title="FP as HN",
        types=(*(("T⁻",) if captions else ()), *(("I⁻",) if images else ())),
        composition=Composition(negatives=int(captions), negative_images=int(images)),
        failures=True,
        notes="negatives stand in the batch's softmax, not in a 2×2 grid",
    )


def la_sc(*, refine: bool = True) -> Method:
    return Method(
        title="La+SC",
        types=("T⁺", "T⁻"),
        builders=(Rewrites(name="rewrite", n_calls=1), SugarCrepe(name="sugarcrepe", refine=refine)),
        composition=Composition(rewrites=True, negatives=1),
    )


def la_sc_cf(
    *,
    refine: bool = True,
    text_band: tuple[float, float] = (0.8, 0.91),
    min_fit: float = 0.2,
    min_image: float = 0.7,
    min_direction: float = 0.2,
) -> Method:
    return Method(
        title="La+SC+CF",
        types=("T⁺", "T⁻", "I⁻"),
        builders=(*la_sc(refine=refine).builders, _counterfactuals(text_band, min_fit, min_image, min_direction)),
        composition=Composition(rewrites=True, negatives=1, pairs="together"),
    )


def la_sc_al(*, refine: bool = True, top_k: int = 10) -> Method:
    return Method(
        title="La+SC+AL",
        types=("T⁺", "T⁻", "I⁺"),
        builders=(*la_sc(refine=refine).builders, Domains(name="domains", top_k=top_k)),
        composition=Composition(rewrites=True, negatives=1, edited_images=True),
    )
