"""Steps that are recorded on the device once and then sent as one: a CUDA graph of forward, backward and updates.

A step of a small network is bound by how fast Python sends its operations; a graph sends all of them at once. What a
graph repeats are operations on memory that stays where it is, with the numbers that Python passed when it was recorded.
So the learning rate is a tensor, batches are copied into the one that was recorded, and `obstacle` says which runs
cannot have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ebclab.config import ExperimentConfig
from ebclab.errors import UserError
from ebclab.training.process_group import Ranks
from energy_contrast.method import Batch, Method

AS_THEY_ARE = 3
"""Steps before the recording: in them libraries and optimizers take the memory that they keep."""

Metrics = dict[str, Tensor]


def obstacle(config: ExperimentConfig, method: Method, device: torch.device, ranks: Ranks) -> str:
    """Return why the steps of a run cannot be recorded, one sentence; empty when they can."""
    of_method = method.not_recorded()
    reasons = {
        f"torch has no graphs for {device.type}": not hasattr(torch.get_device_module(device), "CUDAGraph"),
        f"{ranks.world_size} workers exchange gradients in every step": not ranks.alone,
        "training.precision: float16 decides on the host whether to skip a step": config.training.precision
        == "float16",
        "optimizer.name: lars computes its rates on the host": config.optimizer.name == "lars",
        "optimizer.weight_decay_end: gives each step a number of its own, which torch reads on the host": (
            config.optimizer.weight_decay_end is not None
        ),
        f"method.{of_method}": bool(of_method),
        "training.accumulate: a pass that is repeated for its gradient was not tried in a graph": (
            config.training.accumulate > 1
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


@dataclass(frozen=True)
class _Recording:
    """A recorded step."""

    graph: Any  # sends it
    batch: Batch  # what it reads
    metrics: Metrics  # what it writes
    places: list[int]  # where the tensors lay that it changes


class CapturedSteps:
    """Makes the steps of a run: the first few and those that are logged as they are, all others from a recording.

    Args:
        device: Where they are made; torch has graphs for it.
        generator: What the method draws from; the graph moves it on as the step does.
        tensors: Returns what outlives a step: weights, buffers, memories, the optimizer's state. When a step that is
            made as it is leaves one of them at another place, the next step is recorded again.
    """

    def __init__(
        self, device: torch.device, generator: torch.Generator, tensors: Callable[[], Iterable[Tensor]]
    ) -> None:
        self._device, self._generator, self._tensors = device, generator, tensors
        self._recording: _Recording | None = None
        self._made = 0

    def make(self, compute: Callable[[Batch], Metrics], batch: Batch, *, logged: bool) -> Metrics:
        """Make a step and return its metrics; those of a recording are overwritten by the next step.

        A ``logged`` step measures more than others, and may look at the device.
        """
        if logged or self._made < AS_THEY_ARE:
            metrics = compute(batch)
            self._made += 1
            if self._recording is not None and self._recording.places != self._places():
                self._recording = None
            return metrics
        if self._recording is None:
            self._recording = self._record(compute, batch)
        for kept, new in zip(_parts(self._recording.batch), _parts(batch), strict=True):
            if len(new):
                kept.copy_(new)
        self._recording.graph.replay()
        return self._recording.metrics

    def forget(self) -> None:
        """Record again: what outlives a step was replaced, by a checkpoint."""
        self._recording, self._made = None, 0

    def _record(self, compute: Callable[[Batch], Metrics], batch: Batch) -> _Recording:
        module = torch.get_device_module(self._device)
        graph, kept = module.CUDAGraph(), Batch(*(part.clone() for part in _parts(batch)))
        graph.register_generator_state(self._generator)
        try:
            with module.graph(graph, capture_error_mode="thread_local"):
                metrics = compute(kept)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"training.compile: a step cannot be recorded, got graph ({reason}); use default, or false"
            ) from error
        return _Recording(graph, kept, metrics, self._places())

    def _places(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self._tensors() if tensor.device.type == self._device.type]


def _parts(batch: Batch) -> list[Tensor]:
    return [getattr(batch, field.name) for field in fields(batch)]
