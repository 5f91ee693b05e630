"""Other forms of an exported encoder: files that need no Python class, verified, and the config.json of timm."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ebclab.config import did_you_mean
from ebclab.encoders.timm_encoder import arguments_for, first_and_last_layer, takes_one_size
from ebclab.errors import ExportError, UserError
from ebclab.export.description import EncoderDescription
from ebclab.formatting import how_to_install

Format = Literal["safetensors", "onnx", "torch-export"]
MODEL_FILES: dict[Format, str] = {"onnx": "model.onnx", "torch-export": "model.pt2"}
"""The file that each format adds to a folder, in addition to the weights as safetensors."""
TOLERANCE = 1e-4
"""Largest absolute difference of any feature that is accepted between the module and its file."""

_ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")


Comparison = tuple[Tensor, str]
"""Images (n, C, H, W) uint8, at least two, on which a file is compared with its module, and their description."""


@dataclass(frozen=True)
class Converted:
    """A file in another format, written in addition to the weights."""

    format: Format
    difference: float  # largest absolute difference of a feature to the module's output
    source: str  # description of the images that it was measured on

    @property
    def file(self) -> str:
        return MODEL_FILES[self.format]


def formats_named(names: Sequence[str]) -> list[Format]:
    """Return the requested formats other than safetensors, without duplicates."""
    known: tuple[Format, ...] = get_args(Format)
    for name in names:
        if name not in known:
            raise UserError(f"--format: no such format, got {name!r}; {did_you_mean(name, known, '--format')}")
    asked = [name for name in known if name in names and name in MODEL_FILES]
    missing = [package for package in _ONNX_PACKAGES if importlib.util.find_spec(package) is None]
    if "onnx" in asked and missing:
        raise UserError(
            f"--format: onnx needs packages that are not installed, got no {', '.join(missing)}; "
            f"run {how_to_install('onnx')}"
        )
    return asked


def stand_in(in_channels: int, image_size: int) -> Comparison:
    """Return noise images for a comparison if the images of the run are not available."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (32, in_channels, image_size, image_size), dtype=torch.uint8, generator=generator)
    return images, "32 images of uniform noise, as the run's own were not available"


def convert(encoder: nn.Module, asked: Format, folder: Path, pixels: Tensor, source: str) -> Converted:
    """Write ``encoder`` into ``folder``, read the file back and compare the features of both on ``pixels``.

    The encoder is in eval mode, on the CPU. ``pixels`` are at least two preprocessed images, passed in batches of two
    sizes.
    """
    path = folder / MODEL_FILES[asked]
    run = _onnx(encoder, path, pixels[:2]) if asked == "onnx" else _torch_export(encoder, path, pixels[:2])
    with torch.no_grad():
        expected = encoder(pixels)
        got = torch.cat([run(batch) for batch in torch.split(pixels, [1, len(pixels) - 1])])
    difference = float((got - expected).abs().max())
    if not difference <= TOLERANCE:  # also true for NaN
        shown = f"{difference:.2g}" if math.isfinite(difference) else str(difference)
        raise ExportError(
            f"--format {asked}: the file gives other features than the encoder, got a difference of {shown} on "
            f"{source}; at most {TOLERANCE:g} is accepted, so nothing was written; export without --format {asked}"
        )
    return Converted(asked, difference, source)


def _onnx(encoder: nn.Module, path: Path, example: Tensor) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    torch.onnx.export(
        encoder,
        (example,),
        str(path),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=["images"],
        output_names=["features"],
        dynamic_shapes=_any_batch(),
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda batch: torch.from_numpy(session.run(None, {"images": batch.numpy()})[0])


def _torch_export(encoder: nn.Module, path: Path, example: Tensor) -> Callable[[Tensor], Tensor]:
    with torch.no_grad():
        program = torch.export.export(encoder, (example,), dynamic_shapes=_any_batch())
    torch.export.save(program, str(path))
    return torch.export.load(str(path)).module()


def _any_batch() -> tuple[dict[int, torch.export.Dim]]:
    return ({0: torch.export.Dim("batch", min=1)},)


TIMM_CONFIG = "config.json"
_OF_RESNETS = ("conv1", "fc")


def opens_in_timm(description: EncoderDescription) -> bool:
    """Return whether timm has a network with the parameter names and the computation of this encoder.

    This holds for networks of timm, and for our ResNets with the ImageNet stem and a torchvision counterpart.
    """
    architecture = description.architecture
    return bool(architecture.timm_name or (description.counterpart and architecture.stem == "imagenet"))


def timm_config(description: EncoderDescription) -> str:
    """Return the content of config.json, with which timm opens the folder of an encoder that ``opens_in_timm``.

    The layout is that of the Hugging Face Hub: config.json, model.safetensors and a card.
    """
    name, channels, size = description.architecture.timm_name, description.in_channels, description.input_size
    first, last = first_and_last_layer(name) if name else _OF_RESNETS
    content = {
        "architecture": name or description.architecture.name,
        "num_classes": 0,
        "num_features": description.feature_size,
        "model_args": arguments_for(name, channels, size) if name else {"in_chans": channels, "num_classes": 0},
        "pretrained_cfg": {
            "input_size": [channels, size, size],
            "fixed_input_size": takes_one_size(name) if name else False,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "center" if description.read_size else "squash",
            "mean": list(description.normalisation.mean),
            "std": list(description.normalisation.std),
            "first_conv": first,
            "classifier": last,
        },
    }
    return json.dumps(content, indent=2) + "\n"
