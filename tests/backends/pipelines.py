"""The real pipeline classes with random weights of a few kilobytes, saved as folders. Nothing is downloaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import torch
import transformers

_BYTES = [chr(code) for code in range(0x21, 0x7F)] + [chr(0x100 + i) for i in range(162)]
_CHAT_TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def instruct_pix2pix(folder: Path) -> None:
    pipeline = diffusers.StableDiffusionInstructPix2PixPipeline(
        vae=_vae(),
        text_encoder=_clip_text(),
        tokenizer=_clip_tokenizer(),
        unet=_unet(),
        scheduler=diffusers.DDIMScheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)


def sdxl_instruct_pix2pix(folder: Path) -> None:
    unet = _unet(
        addition_embed_type="text_time",
        addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=6 * 8 + 16,
        cross_attention_dim=32,
    )
    pipeline = diffusers.StableDiffusionXLInstructPix2PixPipeline(
        vae=_vae(),
        text_encoder=_clip_text(),
        text_encoder_2=_clip_text(projected=True),
        tokenizer=_clip_tokenizer(),
        tokenizer_2=_clip_tokenizer(),
        unet=unet,
        scheduler=diffusers.EulerDiscreteScheduler(),
    )
    pipeline.save_pretrained(folder)


def flux_kontext(folder: Path) -> None:
    torch.manual_seed(0)
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=1,
        joint_attention_dim=16,
        pooled_projection_dim=16,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    t5 = transformers.T5EncoderModel(
        transformers.T5Config(vocab_size=128, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    pipeline = diffusers.FluxKontextPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=_vae(use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06, scaling_factor=1.5),
        text_encoder=_clip_text(),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=t5,
        tokenizer_2=transformers.T5TokenizerFast(model_max_length=64),
        transformer=transformer,
    )
    pipeline.save_pretrained(folder)


def qwen_edit(folder: Path) -> None:
    diffusers.QwenImageEditPipeline(**_qwen_parts()).save_pretrained(folder)


def qwen_edit_plus(folder: Path) -> None:
    diffusers.QwenImageEditPlusPipeline(**_qwen_parts()).save_pretrained(folder)


def flux2_klein(folder: Path) -> None:
    torch.manual_seed(0)
    transformer = diffusers.Flux2Transformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=1,
        joint_attention_dim=3 * 16,
        timestep_guidance_channels=16,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=False,
    )
    vae = diffusers.AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(4, 4),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
    )
    tokenizer = _qwen_tokenizer()
    language = transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=28,  # the pipeline reads the hidden states of layers 9, 18 and 27
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
        )
    )
    pipeline = diffusers.Flux2KleinPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae,
        text_encoder=language,
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=True,
    )
    pipeline.save_pretrained(folder)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "instruct_pix2pix": instruct_pix2pix,
    "sdxl_instruct_pix2pix": sdxl_instruct_pix2pix,
    "flux_kontext": flux_kontext,
    "qwen_edit": qwen_edit,
    "qwen_edit_plus": qwen_edit_plus,
    "flux2_klein": flux2_klein,
}


def _vae(**options: Any) -> Any:
    torch.manual_seed(0)
    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(4, 4),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=1,
        **options,
    )


def _unet(**options: Any) -> Any:
    torch.manual_seed(0)
    return diffusers.UNet2DConditionModel(
        **{
            "sample_size": 16,
            "in_channels": 8,
            "out_channels": 4,
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
            "block_out_channels": (4, 8),
            "layers_per_block": 1,
            "attention_head_dim": 4,
            "cross_attention_dim": 16,
            "norm_num_groups": 2,
            **options,
        }
    )


def _clip_text(*, projected: bool = False) -> Any:
    torch.manual_seed(0)
    config = transformers.CLIPTextConfig(
        vocab_size=len(_clip_tokenizer()),
        hidden_size=16,
        intermediate_size=16,
        projection_dim=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    kind = transformers.CLIPTextModelWithProjection if projected else transformers.CLIPTextModel
    return kind(config)


def _clip_tokenizer() -> Any:
    names = ["<|startoftext|>", "<|endoftext|>", *_BYTES, *(f"{letter}</w>" for letter in _BYTES)]
    vocab = {name: row for row, name in enumerate(names)}
    return transformers.CLIPTokenizer(vocab=vocab, merges=[], model_max_length=77)


def _qwen_tokenizer() -> Any:
    special = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    vocab = {name: row for row, name in enumerate(["<|endoftext|>", *_BYTES])}
    tokenizer = transformers.Qwen2Tokenizer(vocab=vocab, merges=[], model_max_length=2048)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def _qwen_parts() -> dict[str, Any]:
    torch.manual_seed(0)
    tokenizer = _qwen_tokenizer()
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad")}
    ends = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("vision_start", "vision_end")}
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
            "max_position_embeddings": 4096,
        },
        vision_config={
            "depth": 1,
            "hidden_size": 16,
            "intermediate_size": 16,
            "num_heads": 2,
            "out_hidden_size": 16,
            "fullatt_block_indexes": [0],
        },
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ends["vision_start"],
        vision_end_token_id=ends["vision_end"],
    )
    processor = transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=56 * 56),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(),
    )
    return {
        "scheduler": diffusers.FlowMatchEulerDiscreteScheduler(),
        "vae": diffusers.AutoencoderKLQwenImage(
            base_dim=4,
            z_dim=4,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            temperal_downsample=[False, True, True],
            latents_mean=[0.0] * 4,
            latents_std=[1.0] * 4,
        ),
        "text_encoder": transformers.Qwen2_5_VLForConditionalGeneration(config),
        "tokenizer": tokenizer,
        "processor": processor,
        "transformer": diffusers.QwenImageTransformer2DModel(
            patch_size=2,
            in_channels=16,
            out_channels=4,
            num_layers=1,
            attention_head_dim=16,
            num_attention_heads=1,
            joint_attention_dim=16,
            axes_dims_rope=(4, 6, 6),
        ),
    }
