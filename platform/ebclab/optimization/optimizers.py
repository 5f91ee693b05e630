"""Construction of torch optimizers from settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ebclab.config.sections import OptimizerConfig
from ebclab.optimization.groups import parameter_groups

LARS_TRUST_COEFFICIENT = 0.001  # eta of the LARS and SimCLR papers


def build_optimizer(config: OptimizerConfig, module: nn.Module, *, captured: bool = False) -> torch.optim.Optimizer:
    """Return the optimizer selected by ``config``, over the trainable parameters of ``module``.

    Its learning rate is ``config.learning_rate``, unscaled and without schedule: the training loop sets the rate
    before every step. ``adam`` adds the decay to the gradient (L2 penalty), ``adamw`` uses decoupled weight decay.

    Args:
        config: The run's ``optimizer`` section.
        module: Usually a complete Method: encoder, heads and all other trainable modules.
        captured: Whether its steps are captured, e.g. in a CUDA graph: the learning rate is a tensor on the module's
            device, and the optimizer is fused. Not for ``lars``, which computes its rates on the host.
    """
    if captured and config.name == "lars":
        raise ValueError("optimizer.name: steps of lars cannot be captured")
    groups = parameter_groups(module, config.weight_decay, config.decay_norm_and_bias)
    rate: float | Tensor = config.learning_rate
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


def _lars(groups: list[dict[str, Any]], config: OptimizerConfig) -> torch.optim.Optimizer:
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
