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
ENCODERS.add("small", "repair.encoders.small:small", "the world's two-tower encoder, about 1M parameters")
ENCODERS.add(
    "towers", "repair.encoders.towers:towers", "EfficientNet-lite2 and MiniLM with trained heads", extra="towers"
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

PLANNERS = Registry("planner")
PLANNERS.add("world", "repair.world.backends:WorldPlanner", "verdict, instruction and edits in one call")
PLANNERS.add("lexical", "repair.backends.lexical:LexicalPlanner", "the lexical backends in one call", extra="lexical")
PLANNERS.add("chat", "repair.backends.chat:ChatPlanner", _CHAT, extra="chat")

ALL = (SOURCES, ENCODERS, VERIFIERS, INSTRUCTORS, TEXT_EDITORS, IMAGE_EDITORS, PLANNERS)


def require_choices(config: Config) -> None:
    """Every name in the config is one there is. Raises ConfigError for the first that is not, before any work."""
    SOURCES.require(config.data.source)
    ENCODERS.require(config.encoder.name)
    VERIFIERS.require(config.verification.verifier)
    INSTRUCTORS.require(config.instruction.instructor)
    PLANNERS.require(config.calls.planner)
    if config.editing.text_editor != NONE:
        TEXT_EDITORS.require(config.editing.text_editor)
    if config.editing.image_editor != NONE:
        IMAGE_EDITORS.require(config.editing.image_editor)
