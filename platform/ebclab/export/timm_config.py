"""Writes config.json, with which ``timm.create_model("local-dir:DIR", pretrained=True)`` opens an exported folder.

The layout is that of the Hugging Face Hub: config.json, model.safetensors and a card.
"""

from __future__ import annotations

import json

from ebclab.encoders.timm_encoder import arguments_for, first_and_last_layer, takes_one_size
from ebclab.export.description import EncoderDescription

TIMM_CONFIG = "config.json"
_OF_RESNETS = ("conv1", "fc")


def opens_in_timm(description: EncoderDescription) -> bool:
    """Return whether timm has a network with the parameter names and the computation of this encoder.

    This holds for networks of timm, and for our ResNets with the ImageNet stem and a torchvision counterpart.
    """
    architecture = description.architecture
    return bool(architecture.timm_name or (description.counterpart and architecture.stem == "imagenet"))


def timm_config(description: EncoderDescription) -> str:
    """Return the content of config.json for ``timm.create_model``.

    Args:
        description: An encoder for which ``opens_in_timm`` is true.
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
