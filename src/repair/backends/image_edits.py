"""The image editor over `POST /v1/images/edits`: OpenAI, vLLM-Omni, SGLang. One request, one seed, one candidate."""

import asyncio
import base64
import binascii
import io
import json
import re
from typing import Any, Literal

import httpx2
from PIL import Image

from repair.backends.canvas import Canvas, canvas_of
from repair.backends.connection import Connection, place_of
from repair.backends.prompts import load_prompt, plain_line
from repair.backends.registration import QUALITY, register, registered_bytes
from repair.core.calls import CallFacts
from repair.core.errors import BadReply, ConfigError, DataError, Unavailable
from repair.core.identity import canonical_json, hash_value
from repair.core.images import decode
from repair.core.ports import Case, ImageItem, Reply
from repair.core.records import Direction, Instruction, Usage
from repair.core.redaction import redacted

ServerKind = Literal["openai", "vllm-omni", "sglang", "other"]

_SIZE = re.compile(r"(\d+)x(\d+)")
_SEED_BITS = 31
_MULTIPLE = 16  # of the sides of a canvas: latents of 8 pixels, packed two by two
_SET_BY_US = frozenset({"model", "prompt", "image", "seed", "n", "size"})


class ImagesEditor:
    """An `ImageEditor` over a server of images.

    The source is sent as PNG on a canvas: of its own shape with at most `max_area` pixels (`size` = "source"), or of a
    fixed size such as "1024x1024", on which it is centred, never squeezed. What comes back is laid on the source again
    (`registration`). An edit that changed nothing comes back as the source itself. The raw record says what was found.

    `server` decides what is sent: seeds to all but "openai", which takes none; `response_format` to all but "openai",
    which always answers in base64. `steps` and `guidance_scale` go along if they are set; `extra` are more form fields
    (e.g. `input_fidelity`, `quality`, `negative_prompt`, `true_cfg_scale`).
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "http://127.0.0.1:8000/v1",
        server: ServerKind = "other",
        revision: str = "",
        api_key_env: str = "",
        connect_timeout_s: float = 30.0,
        read_timeout_s: float = 600.0,
        size: str = "source",
        max_area: int = 1024 * 1024,
        steps: int | None = None,
        guidance_scale: float | None = None,
        extra: dict[str, Any] = {},  # noqa: B006 (read only)
        prompt: str = "",
    ) -> None:
        if not model:
            raise ConfigError('option "model": the name the server knows the model by; it must not be empty')
        if max_area < 64 * 64:
            raise ConfigError(f'option "max_area": pixels, at least {64 * 64}, not {max_area}')
        if steps is not None and steps < 1:
            raise ConfigError(f'option "steps": 1 or more, not {steps}')
        if taken := sorted(_SET_BY_US & set(extra)):
            raise ConfigError(f'option "extra": "{taken[0]}" is set by RePair itself; leave it out')
        self._size = _fixed_size(size)
        self._max_area = max_area
        self._prompt = load_prompt("edit_image", prompt)
        self._connection = Connection(
            base_url, api_key_env=api_key_env, connect_timeout_s=connect_timeout_s, read_timeout_s=read_timeout_s
        )
        self._fields: dict[str, Any] = {
            "model": model,
            "n": 1,
            **({} if server == "openai" else {"response_format": "b64_json"}),
            **({} if steps is None else {"num_inference_steps": steps}),
            **({} if guidance_scale is None else {"guidance_scale": guidance_scale}),
            **extra,
        }
        self._sends_seed = server != "openai"
        parameters = {**self._fields, "server": server, "revision": revision, "size": size, "max_area": max_area}
        self.place = place_of(self._connection, model)
        self.facts = CallFacts(
            prompt_id=self._prompt.id,
            prompt_version=self._prompt.version,
            model_id=model,
            parameters={**parameters, "prompt_hash": self._prompt.digest},
        )
        self.fingerprint = hash_value(
            {
                "backend": "image_edits",
                "version": 1,
                "prompt": [self._prompt.id, self._prompt.version, self._prompt.digest],
                "jpeg": QUALITY,
                **parameters,
            }
        )

    async def edit_image(self, case: Case, instruction: Instruction, *, seed: int) -> Reply[bytes]:
        """The edited false positive as JPEG, in the source's size and framing.

        Raises DataError if the source cannot be decoded, BadReply if what came back is no usable image, and what
        `Connection.call` raises.
        """
        source = false_image(case)
        data = await asyncio.to_thread(source.read)
        picture = await asyncio.to_thread(decode, data, where=source.key)
        canvas = canvas_of(picture, size=self._size, max_area=self._max_area, multiple=_MULTIPLE)
        _, prompt = self._prompt.fill({"instruction": as_sentence(instruction.instruction)})
        fields = {**self._fields, "prompt": prompt, "size": f"{canvas.image.width}x{canvas.image.height}"}
        if self._sends_seed:
            fields["seed"] = seed & ((1 << _SEED_BITS) - 1)
        sent = await asyncio.to_thread(_png, canvas.image)
        response = await self._connection.call(
            lambda client: client.post(
                "/images/edits",
                cast_to=httpx2.Response,
                body=fields,
                files=[("image", ("image.png", sent, "image/png"))],
                options={"headers": {"Content-Type": "multipart/form-data"}},
            )
        )
        answered, usage = self._read(response.text)
        return await asyncio.to_thread(laid_on_source, answered, canvas, picture, data, usage)

    def _read(self, text: str) -> tuple[bytes, Usage]:
        try:
            value = json.loads(text)
            items = value["data"]
            first = items[0]
        except (ValueError, TypeError, LookupError, RecursionError):
            shown = " ".join(redacted(text[:80]).split())
            raise Unavailable(f'{self._connection.base_url}: the answer holds no image: "{shown}"') from None
        usage = _usage(value.get("usage"), n_images=len(items))
        try:
            return _image_bytes(first), usage
        except (ValueError, TypeError, LookupError, binascii.Error) as error:
            raise BadReply(f"the image cannot be read from the answer: {error}", usage=usage) from None


def false_image(case: Case) -> ImageItem:
    """The image to edit. Raises BadReply for a case of the other direction."""
    if case.direction is not Direction.TEXT_TO_IMAGE or not isinstance(case.false_positive, ImageItem):
        raise BadReply("an image editor edits images only: give an image_to_text case a text editor", usage=Usage())
    return case.false_positive


def as_sentence(instruction: str) -> str:
    """An instruction on one line that ends as a sentence does."""
    line = plain_line(instruction)
    return line if line.endswith((".", "!", "?")) else f"{line}."


def laid_on_source(answered: bytes, canvas: Canvas, picture: Image.Image, source: bytes, usage: Usage) -> Reply[bytes]:
    """The reply of an editor that answered with the encoded image `answered`. Raises BadReply if that is unusable."""
    try:
        edited = decode(answered, where="from the editor")
        registered = register(canvas.taken_off(edited), picture)
    except (DataError, BadReply) as error:
        raise BadReply(str(error), usage=usage) from None
    facts = {"answered": [edited.width, edited.height], **registered.facts()}
    return Reply(registered_bytes(registered, source), usage, canonical_json(facts))


def _fixed_size(size: str) -> tuple[int, int] | None:
    if size == "source":
        return None
    match = _SIZE.fullmatch(size)
    if match is None or not all(64 <= int(side) <= 8192 for side in match.groups()):
        raise ConfigError(f'option "size": "source" or e.g. "1024x1024", sides from 64 to 8192, not "{size}"')
    return int(match[1]), int(match[2])


def _image_bytes(item: dict[str, Any]) -> bytes:
    encoded = item.get("b64_json")
    if not encoded:
        url = item.get("url") or ""
        if not url.startswith("data:"):
            raise ValueError("it holds an address instead of an image; have the server answer in base64")
        encoded = url.split(",", 1)[1]
    return base64.b64decode(encoded, validate=True)


def _usage(counts: Any, *, n_images: int) -> Usage:
    counts = counts if isinstance(counts, dict) else {}
    tokens = [counts.get(name) for name in ("input_tokens", "output_tokens")]
    tokens_in, tokens_out = (number if isinstance(number, int) else 0 for number in tokens)
    return Usage(tokens_in=tokens_in, tokens_out=tokens_out, n_images=n_images)


def _png(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()
