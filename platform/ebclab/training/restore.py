"""Restores a run, or its method alone, from a checkpoint: checks that the checkpoint fits, and loads it.

A checksum only says that a file is as it was written; a checkpoint of another run has valid checksums too. So names,
shapes, types and plain values are compared with what the run would write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ebclab.config.experiment import methods_of
from ebclab.encoders.build import differences, first_of
from ebclab.errors import RunError, UserError
from ebclab.methods_by_name import method_problems
from ebclab.optimization.optimizers import state_names
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.summary import BestScore
from ebclab.runs.trained_encoder import TrainedEncoder
from ebclab.storage.reading import typed
from ebclab.training.health.policy import HealthRecord
from ebclab.training.loop import Training
from ebclab.training.loss_scale import ScaleState
from ebclab.training.setup import Prepared, build_method
from ebclab.training.weight_average import trained
from energy_contrast.method import Method


def continue_or_start(run: RunFolder, prepared: Prepared) -> Checkpoint | None:
    """Load the newest intact checkpoint into this rank and return it, or fill the memories of a new run."""
    training = prepared.training
    newest = training.ranks.together(lambda: _sound_checkpoint(run, prepared))
    seen = training.ranks.gather((newest.step if newest else 0, prepared.facts.data_digest))
    if len(set(seen)) > 1:
        raise RunError(
            f"{run.address}: the workers do not see the same checkpoint and images, got (step, digest) {seen}; "
            "put runs and datasets where all nodes see the same files"
        )
    if newest is None:
        with method_problems(type(training.method)):
            training.method.start(prepared.draw)
    else:
        newest = training.ranks.together(partial(restore, training, newest, newest.step, run.address))
    training.shared = training.ranks.shared(training.method)
    return newest


def restore(training: Training, saved: Checkpoint, step: int, where: str) -> Checkpoint:
    """Load weights, memories, optimizer and generator of a checkpoint; training continues as after ``step`` steps.

    Messages call the run ``where``. Returns the checkpoint, its plain values typed.
    """
    checked = _fitting(saved, training, where)
    training.method.load_state_dict(checked.model)
    load_memories(training.method, checked, training.view_shape, where)
    training.load_state(checked.state or {}, step)
    return checked


def _sound_checkpoint(run: RunFolder, prepared: Prepared) -> Checkpoint | None:
    """Return the newest intact checkpoint of a run, or None; refuse one of a run on other images."""
    newest = run.load()
    if newest is None:
        return None
    if newest.facts.get("data_digest") != prepared.facts.data_digest:
        raise RunError(
            f"{run.address}: the training images are not those the run began with, got digest "
            f"{prepared.facts.data_digest}, expected {newest.facts.get('data_digest')}; "
            "restore the files or start a new run"
        )
    return newest


@dataclass(frozen=True)
class _ResumedFacts:
    """The facts in a checkpoint that a resume uses."""

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


def _fitting(saved: Checkpoint, training: Training, where: str) -> Checkpoint:
    """Return a checkpoint of kind ``last`` from which ``training`` can resume, its plain values typed."""
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
        facts |= asdict(typed(saved.facts, _ResumedFacts))
        values = asdict(typed(state, _State))
        values["best"] = asdict(typed(values["best"], BestScore)) if values["best"] else {}
        plain |= {key: value for key, value in values.items() if key in state}
    except ValueError as error:
        found.append(str(error))
    if found:
        raise _misfit(found, saved, where)
    return replace(saved, facts=facts, state=plain)


def load_model(method: Method, saved: Checkpoint, where: str) -> None:
    """Load the weights of a checkpoint into a method."""
    if found := differences(method.state_dict(), saved.model, types=True):
        raise _misfit(found, saved, where)
    method.load_state_dict(saved.model)


def load_memories(method: Method, saved: Checkpoint, view_shape: tuple[int, int, int] | None, where: str) -> None:
    """Load the memories of a checkpoint into a method whose views have this shape, if it is known."""
    if found := _of_memories(method, saved):
        raise _misfit(found, saved, where)
    for name, memory in method.memories.items():
        try:
            memory.load_state_dict(saved.memories[name])
        except ValueError as error:
            raise _misfit([f"a memory {name} that cannot be loaded ({error})"], saved, where) from error
    if view_shape is not None:
        try:
            method.require_images_of(view_shape)
        except ValueError as error:
            raise _misfit([str(error)], saved, where) from error


def load_trained_method(run: RunFolder, trained: TrainedEncoder, device: torch.device) -> Method:
    """Return the method that ``trained`` is the encoder of, from the same checkpoint, in eval mode.

    Its memories (replay buffers) are empty, since filling them would need training images.
    """
    return method_from(weights_behind(run, trained), trained, device, run.address)


def weights_behind(run: RunFolder, trained: TrainedEncoder) -> Checkpoint:
    """Return the checkpoint that an encoder was read from, without the state that only training needs."""
    saved = run.load(trained.kind)
    if saved is None or saved.step != trained.step:
        found = "none" if saved is None else f"step {saved.step}"
        raise RunError(
            f"{run.address}: the {trained.kind} checkpoint was of step {trained.step} a moment ago, got {found}; "
            "the run continues, measure it again when it has finished"
        )
    return replace(saved, state=None, memories={})


def method_from(saved: Checkpoint, trained: TrainedEncoder, device: torch.device, where: str) -> Method:
    """Return the method of a checkpoint, whose encoder is ``trained``, in eval mode, its memories empty."""
    config = replace(trained.config, training=replace(trained.config.training, compile=False))
    preprocessing, classes = trained.preprocessing, trained.num_classes
    method_class = methods_of(config)[config.method_name]
    method = build_method(
        config, method_class, trained.in_channels, device, preprocessing.image_size, num_classes=classes
    )
    load_model(method, saved, where)
    method.pixel_range = preprocessing.pixel_range
    return method.eval()


def _misfit(found: list[str], saved: Checkpoint, where: str) -> RunError:
    return RunError(
        f"{where}: the checkpoint at step {saved.step} is not one of this run, got {first_of(found)}; "
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
