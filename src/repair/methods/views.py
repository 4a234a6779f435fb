"""SimCLR's views of an image: crop, jitter, grey, blur and flip, as SLIP draws them; and what they contradict."""

import io
import re
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

_SIDES = re.compile(r"\b(left|right)\b", re.IGNORECASE)
_COLOURS = re.compile(
    r"\b(red|orange|yellow|golden|green|blue|purple|violet|pink|brown|black|white|gr[ae]y|scarlet|tan|beige|silver|gold|"
    r"colou?rful|colou?red)\b",
    re.IGNORECASE,
)
_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """`crop`: least share of the area kept. Rates are shares of views."""

    crop: float = 0.08
    jitter_rate: float = 0.8
    grey_rate: float = 0.2
    blur_rate: float = 0.5
    flip_rate: float = 0.5


def contradictions(text: str, options: ViewOptions) -> tuple[str, ...]:
    """Which parts of a view can make `text` false: "flip" where it says left or right, "colour" where it names one."""
    found = []
    if options.flip_rate and _SIDES.search(text):
        found.append("flip")
    if (options.jitter_rate or options.grey_rate) and _COLOURS.search(text):
        found.append("colour")
    return tuple(found)


def view_of(image: Image.Image, rng: np.random.Generator, options: ViewOptions) -> bytes:
    """PNG bytes of one view, as large as the image."""
    view = _cropped(image.convert("RGB"), rng, options.crop)
    if rng.random() < options.flip_rate:
        view = ImageOps.mirror(view)
    if rng.random() < options.jitter_rate:
        view = _jittered(view, rng)
    if rng.random() < options.grey_rate:
        view = ImageOps.grayscale(view).convert("RGB")
    if rng.random() < options.blur_rate:
        # σ of 0.1 to 2 is meant for 224 pixels
        view = view.filter(ImageFilter.GaussianBlur(rng.uniform(0.1, 2.0) * max(view.size) / 224))
    buffer = io.BytesIO()
    view.save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def _cropped(image: Image.Image, rng: np.random.Generator, least: float) -> Image.Image:
    width, height = image.size
    for _ in range(_TRIES):
        area = rng.uniform(least, 1.0) * width * height
        ratio = float(np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3))))
        w, h = round(float(np.sqrt(area * ratio))), round(float(np.sqrt(area / ratio)))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            return image.resize((width, height), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    return image


def _jittered(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    for enhancer in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        image = enhancer(image).enhance(rng.uniform(0.6, 1.4))
    hue, saturation, value = image.convert("HSV").split()
    turn = int(rng.uniform(-0.1, 0.1) * 255)
    turned = hue.point([(level + turn) % 256 for level in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")
