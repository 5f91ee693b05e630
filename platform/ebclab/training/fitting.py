"""Checks that an intact checkpoint fits the run that resumes from it: names, shapes, types and plain values.

A checksum only says that a file is as it was written; a checkpoint of another run has valid checksums too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ebclab.encoders import differences
from ebclab.errors import RunError, UserError
from ebclab.optimization.optimizers import state_names
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.summary import BestScore
from ebclab.storage.typed_json import typed
from ebclab.training.health.record import HealthRecord
from ebclab.training.loop import Training
from ebclab.training.loss_scale import ScaleState
from ebclab.training.weight_average import trained
from energy_contrast.method import Method

_SHOWN = 3  # misfits


@dataclass(frozen=True)
class _Manifest:
    """The fields of a checkpoint's manifest that a resume uses."""

    epochs_done: int
    scores: dict[str, float]


@dataclass(frozen=True)
class _State:
    """The plain values of a checkpoint's state."""

    best: dict[str, Any]
    seconds: float
    metrics: dict[str, float] | None
    health: HealthRecord | None = None
    monitor_seconds: float = 0.0
    loss_scale: ScaleState | None = None


def fitting(saved: Checkpoint, training: Training, where: str) -> Checkpoint:
    """Return a checkpoint of kind ``last`` from which ``training`` can resume, its plain values typed.

    Args:
        training: The training that resumes from it.
        where: The run, for messages.
    """
    state = saved.state
    if not isinstance(state, dict):
        raise RunError(f"{where}: the checkpoint at step {saved.step} lacks state.pt; it cannot be continued")
    found = [
        *differences(training.method.state_dict(), saved.model, types=True),
        *_of_memories(training.method, saved),
        *_of_optimizer(training.optimizer, state.get("optimizer")),
        *_of_generator(training.generator, state.get("generator")),
        *_of_weights(training.method, state.get("weights", {})),
    ]
    facts, plain = dict(saved.facts), dict(state)
    try:
        facts |= asdict(typed(saved.facts, _Manifest))
        values = asdict(typed(state, _State))
        values["best"] = asdict(typed(values["best"], BestScore)) if values["best"] else {}
        plain |= {key: value for key, value in values.items() if key in state}
    except ValueError as error:
        found.append(str(error))
    if found:
        raise misfit(found, saved, where)
    return replace(saved, facts=facts, state=plain)


def load_model(method: Method, saved: Checkpoint, where: str) -> None:
    """Load the weights of a checkpoint into a method."""
    if found := differences(method.state_dict(), saved.model, types=True):
        raise misfit(found, saved, where)
    method.load_state_dict(saved.model)


def load_memories(method: Method, saved: Checkpoint, view_shape: tuple[int, int, int] | None, where: str) -> None:
    """Load the memories of a checkpoint into a method whose views have this shape, if it is known."""
    if found := _of_memories(method, saved):
        raise misfit(found, saved, where)
    for name, memory in method.memories.items():
        try:
            memory.load_state_dict(saved.memories[name])
        except ValueError as error:
            raise misfit([f"a memory {name} that cannot be loaded ({error})"], saved, where) from error
    if view_shape is not None:
        try:
            method.require_images_of(view_shape)
        except ValueError as error:
            raise misfit([str(error)], saved, where) from error


def misfit(found: list[str], saved: Checkpoint, where: str) -> RunError:
    """Return the error for a checkpoint whose content is not what this run would write."""
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return RunError(
        f"{where}: the checkpoint at step {saved.step} is not one of this run, got {'; '.join(found[:_SHOWN])}{more}; "
        "delete its folder, and the run resumes from the one before"
    )


def _of_memories(method: Method, saved: Checkpoint) -> list[str]:
    names = sorted(method.memories.keys() ^ saved.memories.keys())
    return [f"{'an unknown' if name in saved.memories else 'no'} memory {name}" for name in names]


def _of_optimizer(optimizer: torch.optim.Optimizer, saved: Any) -> list[str]:
    """Return how a saved optimizer state differs from the state that this optimizer makes."""
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    if not (isinstance(saved, Mapping) and isinstance(saved.get("state"), Mapping)):
        return ["no state of an optimizer"]
    kept = saved.get("param_groups")
    if not isinstance(kept, list) or [_numbers(group) for group in kept] != [
        _numbers(group) for group in optimizer.state_dict()["param_groups"]
    ]:
        return ["other groups of parameters"]
    return [
        f"a state of parameter {number!r} that is none of {type(optimizer).__name__}"
        for number, values in saved["state"].items()
        if number not in range(len(parameters)) or not _is_state_of(parameters[number], values, state_names(optimizer))
    ]


def _numbers(group: Any) -> Any:
    return group.get("params") if isinstance(group, Mapping) else None


def _is_state_of(parameter: Tensor, values: Any, names: tuple[str, ...]) -> bool:
    """Return whether these values are a valid optimizer state of one parameter; no values mean a fresh state."""
    if not isinstance(values, Mapping) or not (values == {} or set(values) == set(names)):
        return False
    return all(
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.shape in ((torch.Size(),) if name == "step" else (parameter.shape,))
        for name, value in values.items()
    )


def _of_weights(method: Method, saved: Any) -> list[str]:
    """Return how the weights behind averaged ones, if there are any, differ from those of this method."""
    if not isinstance(saved, Mapping) or not all(isinstance(value, Tensor) for value in saved.values()):
        return ["weights that are no tensors"]
    return differences(trained(method), saved, types=True) if saved else []


_STATE_BYTES = (5056, 16)  # of a generator of the CPU, of a CUDA device


def _of_generator(generator: torch.Generator, saved: Any) -> list[str]:
    if not isinstance(saved, Tensor):
        return ["no state of a generator"]
    if saved.numel() in _STATE_BYTES and saved.shape != generator.get_state().shape:
        raise UserError(
            "resources.device: the run drew its random numbers on another kind of device, got "
            f"{generator.device.type}; continue there"
        )
    try:
        torch.Generator(device=generator.device).set_state(saved)
    except (RuntimeError, TypeError):
        return ["a state that is none of this generator"]
    return []
