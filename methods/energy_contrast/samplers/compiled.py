"""Sampler steps compiled together with the gradients that are taken inside them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

_TRACES_GRADIENTS = "trace_autograd_ops"  # a switch of torch 2.11 and later


def compiled(function: Function, **options: Any) -> Function:
    """Return a function compiled by torch, calls of ``torch.autograd.grad`` in it included.

    ``compiled(f)(x) = f(x)`` to rounding.

    The gradient of an energy by the positions is then part of the graph, which computes nothing else. If the network
    alone were compiled, its backward pass would also compute the gradients of all weights, which a chain discards.
    Torch before 2.11 cannot trace the gradient and compiles only the code around it.

    Args:
        function: Takes and returns tensors, alone or in tuples.
        options: Arguments of ``torch.compile``.

    Returns:
        A function of the same arguments; the first call compiles and takes long.

    >>> double = compiled(lambda x: torch.autograd.grad(x.square().sum(), x)[0], backend="eager")
    >>> double(torch.tensor([1.0, 2.0], requires_grad=True))
    tensor([2., 4.])

    Source: ours.
    """
    inner = torch.compile(function, **options)
    switches = {_TRACES_GRADIENTS: True} if hasattr(torch._dynamo.config, _TRACES_GRADIENTS) else {}

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with torch._dynamo.config.patch(switches):
            return inner(*arguments)

    return call  # type: ignore[return-value]
