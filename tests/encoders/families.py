"""Tiny, randomly drawn models of the real classes, saved the way their libraries save them."""

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["a", "red", "dog", "is", "on", "the", "left", "of", "two", "cats", "and", "runs", "blue", "horse", "man", "in"]
WORDS += ["front", "tree", "bird", "three", "chairs"]
OPEN_CLIP_NAME = "repair-test-tiny"


def open_clip_config(*, image_size=32, context_length=16, quick_gelu=False, **top):
    return {
        "embed_dim": 16,
        "quick_gelu": quick_gelu,
        "vision_cfg": {"image_size": image_size, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16},
        "text_cfg": {"context_length": context_length, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
        **top,
    }


def open_clip_name(folder: Path, name=OPEN_CLIP_NAME, **settings) -> str:
    """Make a tiny model known to open_clip by `name`."""
    import open_clip

    if name not in open_clip.list_models():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(open_clip_config(**settings)))
        open_clip.add_model_config(path)
    return name


def open_clip_folder(folder: Path, *, seed=0, preprocess=None, **settings) -> Path:
    """A folder as open_clip's own tools write it, with drawn weights."""
    import open_clip
    import safetensors.torch

    folder.mkdir(parents=True, exist_ok=True)
    config = open_clip_config(**settings)
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": preprocess or {"mean": [0.5] * 3, "std": [0.5] * 3}})
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = open_clip.create_model(f"local-dir:{folder}")
    safetensors.torch.save_file(model.state_dict(), str(folder / "open_clip_model.safetensors"))
    return folder


def word_tokenizer(*, length, eos="</s>", words=WORDS, **kwargs):
    """Whole words; a start and an end token around them."""
    specials = ["<pad>", "<unk>", "<s>", eos]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*specials, *words])}, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=f"<s> $A {eos}", pair=f"<s> $A {eos} $B {eos}", special_tokens=[("<s>", 2), (eos, 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token=eos,
        model_max_length=length,
        **kwargs,
    )


_TINY = {
    "initializer_range": 0.3,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
_EYES = {**_TINY, "image_size": 32, "patch_size": 8}


def _drawn(build, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def siglip2_tokenizer(*, length, words=WORDS):
    """Its own class, which transformers picks for the family: one piece a word, one for what is between words."""
    merges = [(word[:end], word[end]) for word in words for end in range(1, len(word))]
    pieces = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "▁",
        *(c for word in words for c in word),
        *(a + b for a, b in merges),
    ]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    return transformers.Siglip2Tokenizer(vocab=vocab, merges=list(dict.fromkeys(merges)), model_max_length=length)


def _saved(folder, model, processor, *, length=16, words=WORDS, tokenizer=word_tokenizer):
    model.save_pretrained(folder)
    tokenizer(length=length, words=words).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def clip_folder(folder: Path, *, seed=0, size=32, words=WORDS, hidden=16) -> Path:
    text = {**_TINY, "hidden_size": hidden, "vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 3}
    config = transformers.CLIPConfig(
        text_config={**text, "bos_token_id": 2, "pad_token_id": 0},
        vision_config={**_EYES, "image_size": size},
        projection_dim=12,
    )
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": size}, crop_size={"height": size, "width": size})
    return _saved(folder, _drawn(lambda: transformers.CLIPModel(config), seed), processor, words=words)


def siglip_folder(folder: Path, *, seed=0, size=32, words=WORDS, hidden=16) -> Path:
    text = {**_TINY, "vocab_size": 64, "max_position_embeddings": 16, "projection_size": hidden, "hidden_size": hidden}
    config = transformers.SiglipConfig(
        text_config=text, vision_config={**_EYES, "image_size": size, "hidden_size": hidden}
    )
    processor = transformers.SiglipImageProcessor(size={"height": size, "width": size})
    return _saved(folder, _drawn(lambda: transformers.SiglipModel(config), seed), processor, words=words)


def siglip2_folder(folder: Path, *, seed=0, patches=16, words=WORDS, hidden=16) -> Path:
    text = {**_TINY, "vocab_size": 256, "max_position_embeddings": 16, "projection_size": hidden, "hidden_size": hidden}
    vision = {**_TINY, "patch_size": 8, "num_patches": 16, "hidden_size": hidden}
    config = transformers.Siglip2Config(text_config=text, vision_config=vision)
    processor = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=patches)
    model = _drawn(lambda: transformers.Siglip2Model(config), seed)
    return _saved(folder, model, processor, words=words, tokenizer=siglip2_tokenizer)


def dual_folder(folder: Path, *, seed=0, size=32, words=WORDS, hidden=16) -> Path:
    text = transformers.BertConfig(**{**_TINY, "hidden_size": hidden}, vocab_size=64, max_position_embeddings=16)
    vision = transformers.ViTConfig(**{**_EYES, "image_size": size})
    config = transformers.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=12)
    processor = transformers.ViTImageProcessor(size={"height": size, "width": size})
    build = _drawn(lambda: transformers.VisionTextDualEncoderModel(config), seed)
    return _saved(folder, build, processor, words=words)


def clip_processor_folder(folder: Path) -> Path:
    """A CLIP folder with a processor for both, as sentence-transformers loads it."""
    clip_folder(folder)
    processor = transformers.CLIPProcessor(
        image_processor=transformers.AutoImageProcessor.from_pretrained(folder),
        tokenizer=transformers.AutoTokenizer.from_pretrained(folder),
    )
    processor.save_pretrained(folder)
    return folder
