"""An exported encoder: a folder with its weights, their description and a card.

model.safetensors  encoder.json  README.md, for timm config.json, and if requested model.onnx  model.pt2
energies.json  energies.safetensors, if its method has an energy of images
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

from ebclab.config.addresses import expanded
from ebclab.config.encoder import EncoderConfig
from ebclab.data.preprocessing import Preprocessing
from ebclab.encoders.build import DESCRIPTION, WEIGHTS, differences
from ebclab.errors import ConfigError, UserError
from ebclab.export.card import CardFacts, render_card
from ebclab.export.description import EncoderDescription, describe, read_description
from ebclab.export.energies import Energies
from ebclab.export.formats import TIMM_CONFIG, Comparison, Format, convert, opens_in_timm, stand_in, timm_config
from ebclab.export.place import CARD, present_folder, refuse_occupied, replaced_folder
from ebclab.formatting import first_few
from ebclab.hardware import available_devices
from ebclab.storage.tensors import read_tensors


class LoadedEncoder(NamedTuple):
    """An encoder ready for use."""

    encoder: nn.Module  # maps (B, C, H, W) preprocessed images to (B, D) embeddings; in eval mode
    preprocessing: Preprocessing  # maps (B, C, H, W) images, uint8 or float in [0, 1], to what ``encoder`` expects
    info: dict[str, Any]  # the content of `encoder.json`


def save_encoder(
    folder: str | Path,
    encoder: nn.Module,
    *,
    architecture: EncoderConfig,
    in_channels: int,
    preprocessing: Preprocessing,
    facts: CardFacts,
    formats: Sequence[Format] = (),
    comparison: Comparison | None = None,
    energies: Energies | None = None,
    overwrite: bool = False,
) -> Path:
    """Write ``encoder`` with its description and card into ``folder``, atomically; return the folder's path.

    The folder is new, empty, or with ``overwrite`` an earlier export; any other is never replaced.

    Args:
        encoder: A trained encoder from ``new_encoder(architecture, in_channels)``.
        preprocessing: The preprocessing of images at evaluation.
        formats: Formats to write in addition to the weights.
        comparison: Images on which these are compared with ``encoder``; None means noise.
        energies: Energies by the method of ``encoder``, if they are exported too.
    """
    target = expanded(str(folder)).resolve()
    description = describe(encoder, architecture, in_channels, preprocessing)
    weights = _weights(encoder, description)
    if wrong := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
        raise UserError(
            f"{facts.title}: an encoder is exported with finite weights only, got NaN or infinity in "
            f"{first_few(wrong, 1)}; export another checkpoint, such as --checkpoint best"
        )
    refuse_occupied(target, overwrite)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    images, source = comparison or stand_in(in_channels, preprocessing.read_size or preprocessing.image_size)
    with replaced_folder(target) as aside:
        pixels = preprocessing(images)
        converted = [convert(encoder, each, aside, pixels, source) for each in formats]
        card = render_card(facts, description, shapes, converted, energies)
        content = serialise(weights, {"format": "pt"})  # metadata required by Hugging Face's libraries
        (aside / WEIGHTS).write_bytes(content)  # safetensors' save_file makes it unreadable for others
        if opens_in_timm(description):
            (aside / TIMM_CONFIG).write_text(timm_config(description), encoding="utf-8")
        for name, file in (energies.files() if energies else {}).items():
            (aside / name).write_bytes(file)
        (aside / DESCRIPTION).write_text(description.to_json(), encoding="utf-8")
        (aside / CARD).write_text(card, encoding="utf-8")
    return target


def load_encoder(path: str | Path, device: str | torch.device = "cpu") -> LoadedEncoder:
    """Return the encoder in a folder that ``save_encoder`` wrote, in eval mode, with its preprocessing."""
    folder = present_folder(expanded(str(path)))
    missing = [name for name in (DESCRIPTION, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: not an exported encoder, {' and '.join(missing)} not found; "
            "`ebclab export RUN --to DIR` makes one"
        )
    place = device_named(device)
    description, info = read_description(folder / DESCRIPTION)
    encoder = _build(folder, description)
    try:
        weights = read_tensors(folder / WEIGHTS)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / WEIGHTS}: is damaged ({error}); export the encoder again") from error
    if wrong := differences(encoder.state_dict(), weights):
        raise UserError(f"{folder / WEIGHTS}: weights do not match {DESCRIPTION}, got {wrong[0]}")
    encoder.load_state_dict(weights)
    return LoadedEncoder(encoder.to(place).eval(), description.preprocessing, info)


def _weights(encoder: nn.Module, description: EncoderDescription) -> dict[str, Tensor]:
    """Return copies of the weights on the CPU; safetensors refuses tensors that layers share."""
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in encoder.state_dict().items()}
    if wrong := differences(description.build().state_dict(), weights):
        raise ValueError(f"encoder: is not what its architecture describes, got {wrong[0]}")
    return weights


def _build(folder: Path, description: EncoderDescription) -> nn.Module:
    try:
        encoder = description.build()
    except ConfigError as error:
        raise UserError(f"{folder / DESCRIPTION}: architecture: {error}") from error
    if encoder.embedding_size != description.feature_size:
        raise UserError(
            f"{folder / DESCRIPTION}: feature_size: the architecture gives {encoder.embedding_size} features, "
            f"got {description.feature_size}"
        )
    return encoder


def device_named(name: str | torch.device) -> torch.device:
    """Return a device by its name."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device: no such device, got {name!r}; cpu, cuda or cuda:<number>") from error
    there = available_devices()
    if device.type not in there:
        raise UserError(f"device: torch has no such device here, got {name!r}; it has {', '.join(there)}")
    if (device.index or 0) >= (count := torch.get_device_module(device).device_count()):
        raise UserError(f"device: this machine has {count} of {device.type}, got {name!r}; use a lower number")
    return device
