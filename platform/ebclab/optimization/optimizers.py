"""Construction of torch optimizers, and of parameter groups with and without weight decay, from settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import NotRequired, TypedDict

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ebclab.config.sections import OptimizerConfig
from ebclab.errors import UserError

_NORM_TYPES = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)  # _NormBase: all batch and instance norms of torch
LARS_TRUST_COEFFICIENT = 0.001  # eta of the LARS and SimCLR papers


class ParameterGroup(TypedDict):
    """A group of an optimizer's parameters, as torch takes it."""

    params: list[nn.Parameter]
    weight_decay: float
    exempt: bool  # from weight decay
    constant_rate: NotRequired[bool]  # its learning rate has no schedule
    lr: NotRequired[float | Tensor]


def build_optimizer(
    config: OptimizerConfig,
    module: nn.Module,
    *,
    captured: bool = False,
    constant: Sequence[nn.Parameter] = (),
    peak: float = 0.0,
) -> torch.optim.Optimizer:
    """Return the optimizer selected by ``config``, over the trainable parameters of ``module``.

    Its learning rate is ``config.learning_rate``, unscaled and without schedule: the training loop sets the rate
    before every step, except that of the parameters in ``constant``, which is ``peak``. ``adam`` adds the decay to the
    gradient (L2 penalty), ``adamw`` uses decoupled weight decay.

    If its steps are ``captured``, e.g. in a CUDA graph, the learning rate is a tensor on the module's device, and the
    optimizer is fused; not for ``lars``, which computes its rates on the host.
    """
    if captured and config.name == "lars":
        raise ValueError("optimizer.name: steps of lars cannot be captured")
    groups = parameter_groups(module, config.weight_decay, config.decay_norm_and_bias, constant)
    rate: float | Tensor = config.learning_rate
    for group in groups:
        if group.get("constant_rate"):
            group["lr"] = torch.tensor(peak, device=group["params"][0].device) if captured else peak
    if captured:
        rate = torch.tensor(config.learning_rate, device=groups[0]["params"][0].device)
    betas, fused = (config.beta1, config.beta2), captured or None
    match config.name:
        case "sgd":
            return eager(torch.optim.SGD)(groups, lr=rate, momentum=config.momentum, fused=fused)
        case "adam":
            return eager(torch.optim.Adam)(groups, lr=rate, betas=betas, fused=fused, capturable=captured)
        case "adamw":
            return eager(torch.optim.AdamW)(groups, lr=rate, betas=betas, fused=fused, capturable=captured)
        case "lars":
            return _lars(groups, config)


def parameter_groups(
    module: nn.Module, weight_decay: float, decay_norm_and_bias: bool, constant: Sequence[nn.Parameter] = ()
) -> list[ParameterGroup]:
    """Split the trainable parameters of ``module`` into a group with weight decay and one without.

    Exempt from decay are all parameters of normalisation layers, every parameter named ``bias``, and every
    parameter with at most one axis, e.g. norms of other libraries, scales and learned temperatures. Frozen
    parameters are omitted; a parameter shared by two layers is listed once, and is exempt if it is exempt in
    either of them. The order within a group is that of ``module.named_parameters()``.

    Returns one or two groups, since empty groups are omitted. ``decay_norm_and_bias`` puts all parameters into the
    group with decay. Those in ``constant`` are split likewise into groups of their own, after the others.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trainable:
        raise UserError(f"{type(module).__name__}: every weight is frozen, got none to train; leave some free")
    exempt = set() if decay_norm_and_bias else _norm_and_bias_ids(module)
    held = {id(parameter) for parameter in constant}
    groups: list[ParameterGroup] = []
    for is_held in (False, True):
        own = [p for p in trainable if (id(p) in held) == is_held]
        groups += [
            {"params": [p for p in own if id(p) not in exempt], "weight_decay": weight_decay, "exempt": False},
            {"params": [p for p in own if id(p) in exempt], "weight_decay": 0.0, "exempt": True},
        ]
        if is_held:
            for group in groups[-2:]:
                group["constant_rate"] = True
    return [group for group in groups if group["params"]]


def _norm_and_bias_ids(module: nn.Module) -> set[int]:
    return {
        id(parameter)
        for layer in module.modules()
        for name, parameter in layer.named_parameters(recurse=False)
        if isinstance(layer, _NORM_TYPES) or name == "bias" or parameter.ndim <= 1
    }


@cache
def eager(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimizer without its decorators for torch's compiler, which they import: that takes over a second.

    Outside compiled functions, in which no optimizer of ours is called, they only turn gradients off during ``step``.
    """
    decorated = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    plain = {name: inspect.unwrap(getattr(kind, name)) for name in decorated}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**plain, "step": step, "__module__": kind.__module__})


def state_names(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """Return the names of an optimizer's state for each parameter after its first step."""
    if isinstance(optimizer, torch.optim.Adam):  # includes AdamW
        return "step", "exp_avg", "exp_avg_sq"
    return ("momentum_buffer",) if any(group["momentum"] for group in optimizer.param_groups) else ()


def _lars(groups: list[ParameterGroup], config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return LARS (You, Gitman & Ginsburg, 2017, algorithm 1), timm's implementation.

    For a weight w with gradient g, with norms over the complete tensor:
    ``v <- momentum * v + trust * (g + decay * w)`` and ``w <- w - rate * v``, with
    ``trust = 0.001 * |w| / (|g| + decay * |w| + 1e-8)``, or 1 if |w| or |g| is 0.

    The rate multiplies v, whereas in the paper it multiplies the gradient within v; for a constant rate, both are
    equal. Parameters exempt from decay have ``trust = 1``, i.e. SGD with momentum. The others are adapted for any
    decay: timm by default does not adapt them at a decay of 0, hence ``always_adapt``.
    """
    from timm.optim.lars import Lars  # imported here: takes seconds

    marked = [{**group, "always_adapt": not group["exempt"]} for group in groups]
    lars: torch.optim.Optimizer = eager(Lars)(
        marked, lr=config.learning_rate, momentum=config.momentum, trust_coeff=LARS_TRUST_COEFFICIENT
    )
    return lars
