"""An exponential moving average of the trained weights, which is scored and saved in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from energy_contrast.method import Method


def trained(method: Method) -> dict[str, Tensor]:
    """Return what training moves, by name: the method's own weights, and weights and statistics of networks that learn.

    Queues, banks, controllers and momentum encoders, none of which learns by gradient, are left out.
    """
    own = {name for name, weight in method.named_parameters(recurse=False) if weight.requires_grad}
    learning = tuple(
        f"{name}." for name, part in method.named_children() if any(each.requires_grad for each in part.parameters())
    )
    state: dict[str, Tensor] = method.state_dict()
    return {
        name: value
        for name, value in state.items()
        if value.is_floating_point() and (name in own or name.startswith(learning))
    }


def put(values: Mapping[str, Tensor], method: Method) -> None:
    """Copy values into the tensors of ``trained``, whose memory stays where it is."""
    for name, tensor in trained(method).items():
        tensor.copy_(values[name])


class WeightAverage:
    """The mean of the weights after each step, in which a step counts ``decay`` times as much as the one after it.

    After n steps: ``sum_k decay^(n - k) w_k / sum_k decay^(n - k)``, k from 1 to n. Initial weights have no part in it.
    Running statistics of batch norm are averaged likewise: a layer's means are linear in its weights.
    """

    def __init__(self, method: Method, decay: float) -> None:
        self._method, self._decay = method, decay
        self.restart()

    def restart(self) -> None:
        """Take what the method holds for the average."""
        self.tensors = {name: value.clone() for name, value in trained(self._method).items()}
        places = (name.rpartition(".") for name in self.tensors)
        self._parts = [(self._method.get_submodule(path), own) for path, _, own in places]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after ``step`` steps (from 1)."""
        share = (1 - self._decay) / (1 - self._decay**step)
        weights = [getattr(part, own) for part, own in self._parts]  # at each step: a part may replace a tensor
        torch._foreach_lerp_(list(self.tensors.values()), weights, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the method hold the average meanwhile."""
        weights = {name: value.clone() for name, value in trained(self._method).items()}
        put(self.tensors, self._method)
        try:
            yield
        finally:
            put(weights, self._method)
