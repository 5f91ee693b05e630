"""`encoder.json`: the description of exported weights, required to load them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter, ValidationError
from torch import nn

from ebclab.config.encoder import EncoderConfig
from ebclab.data.photograph import Decoding
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import new_encoder
from ebclab.errors import UserError
from ebclab.runs.environment import version_of
from ebclab.storage.reading import read_json, with_checksum

FORMAT_VERSION = 1
OF_TORCHVISION = ("resnet18", "resnet50")  # our encoders that have the name of a torchvision model


@dataclass(frozen=True)
class ChannelNormalisation:
    """Per-channel normalisation of images in [0, 1]: subtract ``mean``, then divide by ``std``."""

    mean: tuple[FiniteFloat, ...]
    std: tuple[PositiveFloat, ...]


@dataclass(frozen=True)
class EncoderDescription:
    """The content of `encoder.json`."""

    format_version: int  # version of this layout
    architecture: EncoderConfig  # the run's ``encoder`` section
    in_channels: PositiveInt  # channels of the images
    input_size: PositiveInt  # side of the square images, pixels
    normalisation: ChannelNormalisation  # applied after the resize to ``input_size``
    feature_size: PositiveInt  # length of an embedding
    encoder_class: str  # class of the encoder, importable without ebclab
    # function of torchvision or timm whose network loads the weights under the same names, if any
    counterpart: str | None
    ebclab: str | None  # version that wrote the file; None if it ran from a source folder that is not installed
    torch: str  # version of torch that wrote the weights
    timm: str | None = None  # version of timm that built the network; None if it is not a network of timm
    # side of the squares to which image files were first cropped and scaled, pixels; 0 means neither
    read_size: NonNegativeInt = 0
    decoding: Decoding = "full"  # how JPEG files were decoded for that
    rule: str = ""  # description of the preprocessing of an image file, in words

    @property
    def preprocessing(self) -> Preprocessing:
        mean, std = self.normalisation.mean, self.normalisation.std
        return Preprocessing(self.input_size, mean, std, self.read_size, self.decoding)

    def build(self) -> nn.Module:
        """Return a new encoder with random weights; the state of torch's CPU generator is restored."""
        with torch.random.fork_rng(devices=[]):
            return new_encoder(self.architecture, self.in_channels, self.input_size)

    def to_json(self) -> str:
        """Return the content of `encoder.json` as text, with a checksum."""
        content = asdict(self) | {"architecture": self.architecture.architecture()}
        return json.dumps(with_checksum(content), indent=2) + "\n"


def describe(
    encoder: nn.Module, architecture: EncoderConfig, in_channels: int, preprocessing: Preprocessing
) -> EncoderDescription:
    """Return the description of ``encoder``, which was built from ``architecture`` for ``in_channels`` channels."""
    return EncoderDescription(
        format_version=FORMAT_VERSION,
        architecture=architecture,
        in_channels=in_channels,
        input_size=preprocessing.image_size,
        normalisation=ChannelNormalisation(preprocessing.mean, preprocessing.std),
        feature_size=int(encoder.embedding_size),  # type: ignore[arg-type]
        encoder_class=f"{type(encoder).__module__}.{type(encoder).__qualname__}",
        counterpart=_counterpart(architecture),
        ebclab=version_of("ebclab"),
        torch=str(torch.__version__),
        timm=version_of("timm") if architecture.timm_name else None,
        read_size=preprocessing.read_size,
        decoding=preprocessing.decoding,
        rule=preprocessing.in_words(),
    )


def read_description(path: Path) -> tuple[EncoderDescription, dict[str, Any]]:
    """Return the description in the JSON file at ``path``, and the file's raw content."""
    content = read_json(path, remedy="export the encoder again", error=UserError)
    if not isinstance(content, dict) or not isinstance(content.get("format_version"), int):
        raise UserError(f"{path}: has no format_version, so it does not describe an encoder of ebclab")
    version = content["format_version"]
    if version > FORMAT_VERSION:
        raise UserError(
            f"{path}: written by a newer ebclab, got format_version {version}; this one reads up to {FORMAT_VERSION}, "
            "update ebclab"
        )
    try:
        description = TypeAdapter(EncoderDescription).validate_python(content)
    except ValidationError as error:
        raise UserError("\n".join(_problem_line(path, problem) for problem in error.errors())) from error
    if problems := description.architecture.problems():
        raise UserError("\n".join(f"{path}: architecture.{line}" for line in problems))
    mean, std = description.normalisation.mean, description.normalisation.std
    if not len(mean) == len(std) == description.in_channels:
        raise UserError(
            f"{path}: normalisation: needs one mean and one std for each of the {description.in_channels} channels, "
            f"got {len(mean)} and {len(std)}"
        )
    return description, content


def _problem_line(path: Path, problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    got = "nothing" if problem["type"] == "missing" else repr(problem["input"])
    return f"{path}: {key}: {problem['msg']}, got {got}"


def _counterpart(architecture: EncoderConfig) -> str | None:
    if architecture.timm_name:
        return "timm.create_model"
    layers = architecture.batch_norm == "global" and architecture.activation == "relu"
    same = layers and architecture.pooling == "mean" and architecture.width in (0, 64)
    return f"torchvision.models.{architecture.name}" if architecture.name in OF_TORCHVISION and same else None
