"""Parameter groups with and without weight decay."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

NORM_TYPES = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)  # _NormBase: all batch and instance norms of torch


def parameter_groups(module: nn.Module, weight_decay: float, decay_norm_and_bias: bool) -> list[dict[str, Any]]:
    """Split the trainable parameters of ``module`` into a group with weight decay and one without.

    Exempt from decay are all parameters of normalisation layers, every parameter named ``bias``, and every
    parameter with at most one axis, e.g. norms of other libraries, scales and learned temperatures. Frozen
    parameters are omitted; a parameter shared by two layers is listed once, and is exempt if it is exempt in
    either of them. The order within a group is that of ``module.named_parameters()``.

    Args:
        weight_decay: Weight decay of the first group.
        decay_norm_and_bias: Whether to put all parameters into the group with decay.

    Returns:
        One or two groups, each ``{"params": [...], "weight_decay": ..., "exempt": <bool>}``; empty groups are omitted.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trainable:
        raise ValueError(f"module: has no trainable parameter, got {type(module).__name__}")
    exempt = set() if decay_norm_and_bias else _norm_and_bias_ids(module)
    groups = [
        {"params": [p for p in trainable if id(p) not in exempt], "weight_decay": weight_decay, "exempt": False},
        {"params": [p for p in trainable if id(p) in exempt], "weight_decay": 0.0, "exempt": True},
    ]
    return [group for group in groups if group["params"]]


def _norm_and_bias_ids(module: nn.Module) -> set[int]:
    return {
        id(parameter)
        for layer in module.modules()
        for name, parameter in layer.named_parameters(recurse=False)
        if isinstance(layer, NORM_TYPES) or name == "bias" or parameter.ndim <= 1
    }
