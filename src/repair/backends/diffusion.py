"""The image editor by diffusers, in this process: one picture at a time, one generator a candidate.

Each family of pipelines is called with what it needs to give the source's shape back and to edit at all; the traps are
told where they are handled. Candidates are never batched: then each has its own noise, and one can be made again alone.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import diffusers
import torch
from PIL import Image

from repair.backends.canvas import Canvas, canvas_of
from repair.backends.image_edits import as_sentence, false_image
from repair.backends.prompts import load_prompt
from repair.backends.registration import QUALITY, register, registered_bytes
from repair.core.calls import CallFacts
from repair.core.errors import BadReply, ConfigError, Refused
from repair.core.identity import canonical_json, hash_bytes, hash_value
from repair.core.images import decode
from repair.core.ports import Case, Reply
from repair.core.records import Instruction, Usage

FamilyName = Literal[
    "instruct_pix2pix", "sdxl_instruct_pix2pix", "flux_kontext", "qwen_edit", "qwen_edit_plus", "flux2_klein"
]
Dtype = Literal["float32", "bfloat16", "float16"]

_END_BYTES = 1 << 20
_MIN_SIDE = 64  # FLUX.2 refuses less
_ALLOWED = (
    "steps",
    "guidance_scale",
    "image_guidance_scale",
    "true_cfg_scale",
    "negative_prompt",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How pipelines of one class are called.

    `settings` are its options with their defaults; `min_area` to `max_area` the pixels it works well at; `multiple`
    divides the sides; `sized` pipelines are told the size, the others take the image's; `told_area` ones need the area
    as well; `listed` ones take a list of images; `fixed` are arguments of every call.
    """

    pipeline: str
    settings: Mapping[str, Any]
    max_area: int
    multiple: int = 16
    min_area: int = 512 * 512
    sized: bool = True
    listed: bool = False
    told_area: bool = False
    fixed: Mapping[str, Any]


_MEGAPIXEL = 1024 * 1024

FAMILIES: dict[FamilyName, Family] = {
    # image_guidance_scale is the knob of minimality: higher keeps more of the source.
    "instruct_pix2pix": Family(
        pipeline="StableDiffusionInstructPix2PixPipeline",
        settings={"steps": 50, "guidance_scale": 7.5, "image_guidance_scale": 1.5, "negative_prompt": ""},
        max_area=512 * 512,
        multiple=8,
        sized=False,
        fixed={},
    ),
    "sdxl_instruct_pix2pix": Family(
        pipeline="StableDiffusionXLInstructPix2PixPipeline",
        settings={"steps": 50, "guidance_scale": 5.0, "image_guidance_scale": 1.5, "negative_prompt": ""},
        max_area=768 * 768,
        min_area=768 * 768,
        multiple=8,
        fixed={},
    ),
    # Whatever size is asked, it answers max_area pixels (`_run` sets that); _auto_resize would reshape the image.
    "flux_kontext": Family(
        pipeline="FluxKontextPipeline",
        settings={"steps": 28, "guidance_scale": 3.5, "true_cfg_scale": 1.0, "negative_prompt": ""},
        max_area=_MEGAPIXEL,
        told_area=True,
        fixed={"_auto_resize": False},
    ),
    # Guidance is silently off unless there is a negative prompt, if only a space.
    "qwen_edit": Family(
        pipeline="QwenImageEditPipeline",
        settings={"steps": 50, "true_cfg_scale": 4.0, "negative_prompt": " "},
        max_area=_MEGAPIXEL,
        fixed={},
    ),
    # A list of images means several references of one edit, and a list of prompts is an error: always one of each.
    "qwen_edit_plus": Family(
        pipeline="QwenImageEditPlusPipeline",
        settings={"steps": 40, "true_cfg_scale": 4.0, "negative_prompt": " "},
        max_area=_MEGAPIXEL,
        listed=True,
        fixed={},
    ),
    # Distilled: few steps and no guidance. Sides that are no multiples of 16 would be cropped.
    "flux2_klein": Family(
        pipeline="Flux2KleinPipeline",
        settings={"steps": 4, "guidance_scale": 1.0},
        max_area=_MEGAPIXEL,
        listed=True,
        fixed={},
    ),
}


class DiffusionEditor:
    """An `ImageEditor` over a diffusers pipeline.

    `family` is the kind of pipeline, `model` its folder or repository, `revision` the commit of a repository. `steps`,
    `guidance_scale`, `image_guidance_scale`, `true_cfg_scale` and `negative_prompt` replace the family's values; one
    that the family does not have is refused. `min_area` and `max_area` bound the pixels worked at.
    `device` empty: the GPU if there is one. `cpu_offload` keeps on the GPU only the part at work.

    The pipeline is loaded on the first edit. Edits run one at a time, in a thread; nothing is paid.
    """

    def __init__(
        self,
        *,
        family: FamilyName,
        model: str,
        revision: str = "",
        dtype: Dtype = "bfloat16",
        device: str = "",
        cpu_offload: bool = False,
        min_area: int | None = None,
        max_area: int | None = None,
        steps: int | None = None,
        guidance_scale: float | None = None,
        image_guidance_scale: float | None = None,
        true_cfg_scale: float | None = None,
        negative_prompt: str | None = None,
        prompt: str = "",
    ) -> None:
        if not model:
            raise ConfigError('option "model": the folder or repository of the pipeline; it must not be empty')
        self._family = FAMILIES[family]
        given = dict(
            zip(_ALLOWED, (steps, guidance_scale, image_guidance_scale, true_cfg_scale, negative_prompt), strict=True)
        )
        for name, value in given.items():
            if value is not None and name not in self._family.settings:
                raise ConfigError(f'option "{name}": family {family} has {", ".join(self._family.settings)} only')
        if steps is not None and steps < 1:
            raise ConfigError(f'option "steps": 1 or more, not {steps}')
        self._max_area = max_area or self._family.max_area
        self._min_area = min(self._family.min_area, self._max_area) if min_area is None else min_area
        if self._max_area < 64 * 64:
            raise ConfigError(f'option "max_area": pixels, at least {64 * 64}, not {max_area}')
        if not 0 <= self._min_area <= self._max_area:
            raise ConfigError(f'option "min_area": pixels, at most max_area = {self._max_area}, not {min_area}')
        chosen = {name: value for name, value in given.items() if value is not None}
        self._settings: dict[str, Any] = {**self._family.settings, **chosen}
        self._model = model
        self._revision = revision
        self._dtype: Dtype = dtype
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._cpu_offload = cpu_offload
        self._prompt = load_prompt("edit_image", prompt)
        self._pipeline: Any = None
        self._lock = threading.Lock()
        areas = {"min_area": self._min_area, "max_area": self._max_area}
        parameters = {"family": family, "revision": revision, "dtype": dtype, **areas}
        self.facts = CallFacts(
            prompt_id=self._prompt.id,
            prompt_version=self._prompt.version,
            model_id=model,
            parameters={**parameters, **self._settings, "prompt_hash": self._prompt.digest},
        )
        self.fingerprint = hash_value(
            {
                "backend": "diffusion",
                "version": 1,
                "diffusers": diffusers.__version__,
                "weights": weights_of(model),
                "prompt": [self._prompt.id, self._prompt.version, self._prompt.digest],
                "jpeg": QUALITY,
                **parameters,
                **self._settings,
            }
        )

    async def edit_image(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[bytes]:
        """The edited false positive as JPEG, in the source's size and framing; the source's bytes if nothing changed.

        Raises DataError if the source cannot be decoded, Refused if the pipeline's safety checker blanked the result,
        BadReply if the result is no usable image, ConfigError if the pipeline cannot be loaded.
        """
        source = false_image(case)
        _, prompt = self._prompt.fill({"instruction": as_sentence(instruction.instruction)})
        return await asyncio.to_thread(self._edit, source.read, source.key, prompt, seed)

    def _edit(self, read: Callable[[], bytes], where: str, prompt: str, seed: int) -> Reply[bytes]:
        data = read()
        picture = decode(data, where=where)
        areas = {"min_area": self._min_area, "max_area": self._max_area}
        canvas = canvas_of(picture, size=None, multiple=self._family.multiple, min_side=_MIN_SIDE, **areas)
        with self._lock:
            if self._pipeline is None:
                self._pipeline = self._loaded()
            edited = self._run(canvas, prompt, seed)
        usage = Usage(n_images=1, price_usd=0.0)
        try:
            registered = register(canvas.taken_off(edited), picture)
        except BadReply as error:
            raise BadReply(str(error), usage=usage) from None
        facts = {"answered": [edited.width, edited.height], **registered.facts()}
        return Reply(registered_bytes(registered, data), usage, canonical_json(facts))

    def _run(self, canvas: Canvas, prompt: str, seed: int) -> Image.Image:
        # The noise is drawn on the CPU, so that it does not depend on the device; one generator for one candidate.
        generator = torch.Generator("cpu").manual_seed(seed)
        settings = dict(self._settings)
        width, height = canvas.image.size
        size = {"width": width, "height": height} if self._family.sized else {}
        if self._family.told_area:
            size["max_area"] = width * height
        with torch.inference_mode():
            result = self._pipeline(
                prompt=prompt,
                image=[canvas.image] if self._family.listed else canvas.image,
                num_inference_steps=settings.pop("steps"),
                generator=[generator],
                num_images_per_prompt=1,
                output_type="pil",
                **{name: value for name, value in settings.items() if value != ""},
                **size,
                **self._family.fixed,
            )
        if any(getattr(result, "nsfw_content_detected", None) or ()):
            raise Refused("the pipeline's safety checker blanked the image", usage=Usage(n_images=1, price_usd=0.0))
        image = result.images[0]
        if not isinstance(image, Image.Image):
            raise BadReply(f"the pipeline answered {type(image).__name__} instead of an image")
        return image.convert("RGB")

    def _loaded(self) -> Any:
        kind = getattr(diffusers, self._family.pipeline)
        try:
            pipeline = kind.from_pretrained(
                self._model, revision=self._revision or None, torch_dtype=getattr(torch, self._dtype)
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            why = " ".join(str(error).split())[:300]
            raise ConfigError(
                f'option "model": no {self._family.pipeline} can be loaded from "{self._model}": {why}'
            ) from None
        pipeline.set_progress_bar_config(disable=True)
        if self._cpu_offload:
            pipeline.enable_model_cpu_offload(device=self._device)
            return pipeline
        return pipeline.to(self._device)


def weights_of(model: str) -> str:
    """What identifies the weights: of a folder its files, large ones by size, beginning and end; else the name."""
    folder = Path(model)
    if not folder.is_dir():
        return model
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hash_value({path.relative_to(folder).as_posix(): _file_identity(path) for path in files})


def _file_identity(path: Path) -> list[int | str]:
    size = path.stat().st_size
    with path.open("rb") as file:
        ends = file.read(_END_BYTES)
        if size > 2 * _END_BYTES:
            file.seek(size - _END_BYTES)
        ends += file.read()
    return [size, hash_bytes(ends)]
