"""Small generated image files for the tests of this room."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(size: tuple[int, int] = (8, 6), *, seed: int = 0) -> Image.Image:
    """Random RGB pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def write_images(folder: Path, *names: str) -> None:
    """One small PNG (whatever the suffix) a name, all different."""
    for seed, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(seed=seed)))


def write_json_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path
