"""Every choice a config can name, and where it lives. Nothing is imported until it is asked for."""

from repair.config import Config
from repair.core.registry import Registry

NONE = "none"  # no editor for this modality

_CHAT = "any OpenAI-compatible chat server: vLLM, SGLang, llama.cpp, Ollama, OpenAI"

SOURCES = Registry("data source")
SOURCES.add("world", "repair.world.source:WorldSource", "a drawn world whose truth is known exactly (the demo)")
SOURCES.add("jsonl", "repair.data.jsonl:jsonl_source", "one JSON row an image, with its captions")
SOURCES.add("csv", "repair.data.csv:csv_source", "a CSV or TSV table of images and captions")
SOURCES.add("karpathy", "repair.data.karpathy:karpathy_source", "Karpathy's split files of Flickr8k/30k and COCO")
SOURCES.add("coco", "repair.data.coco:coco_source", "COCO captions_*.json")
SOURCES.add("folder", "repair.data.folder:folder_source", "a folder of images, each with a .txt of captions beside it")

ENCODERS = Registry("encoder")
ENCODERS.add(
    "small",
    "repair.encoders.small:small",
    "the world's two-tower encoder, about 1M parameters",
    argument="checkpoint",
)
ENCODERS.add(
    "towers",
    "repair.encoders.towers:towers",
    "EfficientNet-lite2 and MiniLM with trained heads",
    extra="towers",
    argument="checkpoint",
)
ENCODERS.add(
    "open_clip",
    "repair.encoders.open_clip:open_clip",
    "open_clip:NAME/PRETRAINED_OR_PATH or open_clip:FOLDER, any open_clip model",
    extra="open-clip",
    argument="model",
)
ENCODERS.add(
    "hf",
    "repair.encoders.hf:hf",
    "hf:REPO_OR_PATH, CLIP, SigLIP, SigLIP 2 or VisionTextDualEncoder of transformers",
    extra="hf",
    argument="model",
)

VERIFIERS = Registry("verifier")
VERIFIERS.add("world", "repair.world.backends:WorldVerifier", "knows the world's truth; errs at set rates")
VERIFIERS.add("lexical", "repair.backends.lexical:LexicalVerifier", "offline rules over captions", extra="lexical")
VERIFIERS.add("chat", "repair.backends.chat:ChatVerifier", _CHAT, extra="chat")

INSTRUCTORS = Registry("instructor")
INSTRUCTORS.add("world", "repair.world.backends:WorldInstructor", "knows the world's truth; errs at set rates")
INSTRUCTORS.add("lexical", "repair.backends.lexical:LexicalInstructor", "offline rules over captions", extra="lexical")
INSTRUCTORS.add("chat", "repair.backends.chat:ChatInstructor", _CHAT, extra="chat")

TEXT_EDITORS = Registry("text editor")
TEXT_EDITORS.add("world", "repair.world.backends:WorldTextEditor", "minimal true edits; errs at set rates")
TEXT_EDITORS.add(
    "lexical", "repair.backends.lexical:LexicalTextEditor", "replaces contradicted phrases", extra="lexical"
)
TEXT_EDITORS.add("chat", "repair.backends.chat:ChatTextEditor", _CHAT, extra="chat")

IMAGE_EDITORS = Registry("image editor")
IMAGE_EDITORS.add("world", "repair.world.backends:WorldImageEditor", "redraws the changed things; errs at set rates")
IMAGE_EDITORS.add(
    "image_edits",
    "repair.backends.image_edits:ImagesEditor",
    "an image server with /v1/images/edits: OpenAI, vLLM-Omni, SGLang",
    extra="chat",
)
IMAGE_EDITORS.add(
    "diffusion",
    "repair.backends.diffusion:DiffusionEditor",
    "diffusers in this process: InstructPix2Pix, FLUX.1 Kontext, Qwen-Image-Edit, FLUX.2 Klein",
    extra="diffusion",
)

PLANNERS = Registry("planner")
PLANNERS.add("world", "repair.world.backends:WorldPlanner", "verdict, instruction and edits in one call")
PLANNERS.add("lexical", "repair.backends.lexical:LexicalPlanner", "the lexical backends in one call", extra="lexical")
PLANNERS.add("chat", "repair.backends.chat:ChatPlanner", _CHAT, extra="chat")

METHODS = Registry("method")
METHODS.add("repair", "repair.methods.recipes:repair", "failures repaired into hard pairs, trained on in grids")
METHODS.add("vanilla", "repair.methods.recipes:vanilla", "fine-tuning on the pairs as they are")
METHODS.add("negclip", "repair.methods.recipes:negclip", "T⁻ by swapping words, and near images")
METHODS.add("sugarcrepe", "repair.methods.recipes:sugarcrepe", "T⁻ replaced, swapped or added to; no give-away text")
METHODS.add("laclip", "repair.methods.recipes:laclip", "T⁺ rewritten")
METHODS.add("simclr", "repair.methods.recipes:simclr", "I⁺ as two views, and NT-Xent")
METHODS.add("tripletclip", "repair.methods.recipes:tripletclip", "T⁻ and a picture of it")
METHODS.add("alia", "repair.methods.recipes:alia", "I⁺ in another setting, filtered")
METHODS.add("coco_cf", "repair.methods.recipes:coco_cf", "counterfactual pairs: a noun replaced, the image edited")
METHODS.add("cs_clip", "repair.methods.recipes:cs_clip", "units of a caption, and their foils")
METHODS.add("fsc_clip", "repair.methods.recipes:fsc_clip", "T⁻ by rules under a focal loss of each image")
METHODS.add("ce_clip", "repair.methods.recipes:ce_clip", "T⁻ of four types; cross-modal rank, intra-modal contrast")
METHODS.add("fp_as_hn", "repair.methods.recipes:fp_as_hn", "false positives as hard negatives, unedited")
METHODS.add("la_sc", "repair.methods.recipes:la_sc", "LaCLIP and SugarCrepe")
METHODS.add("la_sc_cf", "repair.methods.recipes:la_sc_cf", "LaCLIP, SugarCrepe and COCO-CF")
METHODS.add("la_sc_al", "repair.methods.recipes:la_sc_al", "LaCLIP, SugarCrepe and ALIA")

WRITERS = Registry("caption writer")
WRITERS.add("world", "repair.world.synthesis:WorldWriter", "any change, over the world's truth; errs at set rates")
WRITERS.add("world_rules", "repair.world.synthesis:world_rules", "the same as a program: it does what it is told")
WRITERS.add(
    "lexical", "repair.backends.lexical.writer:LexicalWriter", "rules and a lexicon; calls nothing", extra="lexical"
)
WRITERS.add("chat", "repair.backends.chat.writer:ChatWriter", _CHAT, extra="chat")
WRITERS.add("masked_lm", "repair.backends.masked_lm:MaskFiller", "a word masked and filled; replacements", extra="hf")

MAKERS = Registry("image maker")
MAKERS.add("editor", "repair.pipeline.editor_maker:EditorMaker", "editing.image_editor, on the anchor's image")
MAKERS.add("world", "repair.world.synthesis:WorldMaker", "draws and redraws scenes; errs at set rates")

_REPLAY = "recorded answers: replay(path=…, of=…) records what another backend answers, replay(path=…) replays"
VERIFIERS.add("replay", "repair.pipeline.replaying:verifier", _REPLAY)
INSTRUCTORS.add("replay", "repair.pipeline.replaying:instructor", _REPLAY)
TEXT_EDITORS.add("replay", "repair.pipeline.replaying:text_editor", _REPLAY)
IMAGE_EDITORS.add("replay", "repair.pipeline.replaying:image_editor", _REPLAY)
PLANNERS.add("replay", "repair.pipeline.replaying:planner", _REPLAY)

SUITES = Registry("suite")
_FORMATS = "repair.evaluation.suites"
SUITES.add("retrieval", "repair.pipeline.suites:retrieval", "retrieval both ways on any caption set")
SUITES.add("coco_5k", "repair.pipeline.suites:coco_5k", "COCO's 5,000 test images, 25,010 captions")
SUITES.add("coco_1k", "repair.pipeline.suites:coco_1k", "the same in five folds of 1,000 images, averaged")
SUITES.add("flickr30k", "repair.pipeline.suites:flickr30k", "Flickr30K's test split: 1,000 images, 5,000 captions")
SUITES.add(
    "flickr30k_val", "repair.pipeline.suites:flickr30k_val", "Flickr30K's val split: 1,014 images, 5,070 captions"
)
SUITES.add("flickr8k", "repair.pipeline.suites:flickr8k", "Flickr8k's test split: 1,000 images, 5,000 captions")
SUITES.add("flickr8k_val", "repair.pipeline.suites:flickr8k_val", "Flickr8k's val split: 1,000 images, 5,000 captions")
SUITES.add("eccv", "repair.pipeline.suites:eccv", "COCO 5k with ECCV Caption's extended positives")
SUITES.add("cxc", "repair.pipeline.suites:cxc", "COCO 5k with CxC's extended positives")
SUITES.add("aro_relation", f"{_FORMATS}.aro:aro_relation", "ARO: Visual Genome Relation")
SUITES.add("aro_attribution", f"{_FORMATS}.aro:aro_attribution", "ARO: Visual Genome Attribution")
SUITES.add("coco_order", f"{_FORMATS}.aro:coco_order", "ARO: COCO-Order, with our own shuffles", extra="suites")
SUITES.add("flickr30k_order", f"{_FORMATS}.aro:flickr30k_order", "ARO: Flickr30k-Order, likewise", extra="suites")
SUITES.add("sugarcrepe", f"{_FORMATS}.sugarcrepe:sugarcrepe", "SugarCrepe: seven splits, three averages")
SUITES.add("sugarcrepe_pp", f"{_FORMATS}.sugarcrepe:sugarcrepe_pp", "SugarCrepe++: five splits, two right captions")
SUITES.add("winoground", f"{_FORMATS}.pairs:winoground", "Winoground: text, image and group score")
SUITES.add("cola", f"{_FORMATS}.pairs:cola", "COLA's multi-object items")
SUITES.add("valse", f"{_FORMATS}.valse:valse", "VALSE: caption against foil, eleven files")
SUITES.add(
    "halftruth",
    "repair.pipeline.suites:halftruth",
    "does a wrong detail raise the score? Made from captions",
    extra="suites",
)
SUITES.add(
    "halftruth_matched",
    "repair.pipeline.suites:halftruth_matched",
    "a wrong detail against a right one of the same length",
    extra="suites",
)
SUITES.add("world", "repair.pipeline.suites:world", "the drawn world: one wrong fact of each error type, exact")
SUITES.add("world_pairs", "repair.pipeline.suites:world_pairs", "the same as pairs of images and captions")
SUITES.add("zeroshot", "repair.pipeline.suites:zeroshot", "guard: classification over a folder of class folders")

ALL = (
    SOURCES,
    ENCODERS,
    VERIFIERS,
    INSTRUCTORS,
    TEXT_EDITORS,
    IMAGE_EDITORS,
    PLANNERS,
    METHODS,
    WRITERS,
    MAKERS,
    SUITES,
)


def require_choices(config: Config) -> None:
    """Every name in the config is one there is. Raises ConfigError for the first that is not, before any work (and
    before any call is paid for): TrainingError or MissingDependency for what only training would notice."""
    from repair.training.adapters import require_peft
    from repair.training.compilation import require_backend

    METHODS.require(config.method.name)
    for registry, name in (
        (WRITERS, config.method.writer),
        (WRITERS, config.method.rules),
        (MAKERS, config.method.maker),
    ):
        if name != NONE:
            registry.require(name)
    if config.training.lora_rank:
        require_peft()
    if config.training.compile:
        require_backend(config.training.compile)
    SOURCES.require(config.data.source)
    ENCODERS.require(config.encoder.name)
    VERIFIERS.require(config.verification.verifier)
    INSTRUCTORS.require(config.instruction.instructor)
    PLANNERS.require(config.calls.planner)
    if config.editing.text_editor != NONE:
        TEXT_EDITORS.require(config.editing.text_editor)
    if config.editing.image_editor != NONE:
        IMAGE_EDITORS.require(config.editing.image_editor)
