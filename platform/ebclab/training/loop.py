"""The training loop. It knows no method by name and no Ray, and is the same for one process and for many.

Everything between steps (logs, scores, checkpoints, progress) is done by the caller's observer.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor, nn

from ebclab.config.sections import TrainingConfig
from ebclab.errors import DivergedError, MethodError
from ebclab.methods_by_name import own_method_problems
from ebclab.optimization.schedules import scheduled_steps, set_learning_rate, set_weight_decay
from ebclab.runs.summary import Throughput
from ebclab.training.captured import CapturedSteps
from ebclab.training.loss_scale import LossScale
from ebclab.training.lost_state import outside_checkpoints
from ebclab.training.process_group import Ranks
from ebclab.training.weight_average import WeightAverage, put, trained
from energy_contrast.method import Batch, Method, Progress, StepOutput

_log = logging.getLogger("ebclab.training")
_OF_THE_LOG = (
    *("kind", "step", "epoch", "seconds", "loss", "learning_rate", "images_per_second"),
    *("weight_decay", "loss_scale", "skipped_steps", "gradient_norm"),
)
"""Keys of a training record that the loop and the recorder write; a method's metrics may not have these names."""


class BatchSource(Protocol):
    """Returns the batch of any step, without computing those before it."""

    num_batches: int

    def batch(self, epoch: int, position: int) -> Batch: ...


class Observer(Protocol):
    """The caller's work between steps: ``on_epoch`` after a step that ends an epoch, ``on_step`` after any other."""

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None: ...

    def on_epoch(self, step: int, epochs_done: int) -> None: ...

    def on_step(self, step: int) -> None: ...

    def on_stop(self, step: int) -> None: ...

    def should_stop(self) -> bool: ...


class RateMeter:
    """Measures images per second over the intervals between log steps."""

    def __init__(self) -> None:
        self._rates: list[float] = []
        self._start = time.perf_counter()
        self._images = 0

    def count(self, images: int) -> None:
        """Count images of a training step."""
        self._images += images

    def restart(self) -> None:
        """Start an interval now, so that the time before it (scores, checkpoints) does not count."""
        self._start, self._images = time.perf_counter(), 0

    def lap(self) -> float:
        """End the interval and return its rate, images per second."""
        rate = self._images / max(time.perf_counter() - self._start, 1e-9)
        if self._images:
            self._rates.append(rate)
        self.restart()
        return rate

    def summary(self) -> Throughput | None:
        """Return mean and standard deviation; None before the first interval has ended."""
        return Throughput.of(self._rates)


@dataclass
class Training:
    """Everything that a step reads or changes."""

    method: Method  # the module that is trained
    optimizer: torch.optim.Optimizer  # updates the method's parameters
    generator: torch.Generator  # the method's source of randomness
    data: BatchSource  # returns the batches
    learning_rate: Callable[[int], float]  # returns the learning rate of a step; a pure function
    config: TrainingConfig  # training settings
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together, each with its share of every batch
    # ``method`` with gradients averaged over the ranks (``Ranks.shared``); None means ``method`` itself
    shared: nn.Module | None = None
    step: int = 0  # optimizer steps done
    view_shape: tuple[int, int, int] | None = None  # (C, H, W) of the views; None if unknown
    captured: CapturedSteps | None = None  # replays recorded steps; None if steps run eagerly
    not_captured: str = ""  # why steps run eagerly although ``training.compile`` is graph; else empty
    clip_norm: float = 0.0  # ``optimizer.clip_norm``
    weight_decay: Callable[[int], float] | None = None  # returns the weight decay of a step; None if it is constant
    # training images per second between log steps of this launch
    images_per_second: RateMeter = field(default_factory=RateMeter)
    # the average that is scored and saved in place of the weights; None without ``training.average_weights``
    average: WeightAverage | None = field(init=False, default=None)
    # scales the loss and skips steps in float16; does nothing in other precisions
    loss_scale: LossScale = field(init=False)
    attributes: Mapping[str, object] = field(init=False)  # what ``outside_checkpoints`` returned when this was made

    def __post_init__(self) -> None:
        self.attributes = outside_checkpoints(self.method)
        self.loss_scale = LossScale(self.generator.device, self.config.precision)
        if self.config.average_weights:
            self.average = WeightAverage(self.method, self.config.average_weights)

    @property
    def num_steps(self) -> int:
        return self.config.epochs * self.data.num_batches

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs beside the model and its memories."""
        own = {"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}
        weights = {} if self.average is None else {"weights": trained(self.method)}
        return own | self.loss_scale.state() | weights

    def model(self) -> dict[str, Tensor]:
        """Return the method's state as it is scored: with averaged weights, if they are averaged."""
        state: dict[str, Tensor] = self.method.state_dict()
        return state if self.average is None else state | self.average.tensors

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the method holds averaged weights, if they are averaged."""
        return nullcontext() if self.average is None else self.average.in_place()

    def tensors(self) -> list[Tensor]:
        """Return what outlives a step: weights, buffers, memories and the optimizer's state."""
        memories = (value for memory in self.method.memories.values() for value in memory.state_dict().values())
        kept = (value for values in self.optimizer.state.values() for value in values.values())
        return [*self.method.state_dict().values(), *memories, *(value for value in kept if isinstance(value, Tensor))]

    def load_state(self, state: dict[str, Any], step: int) -> None:
        """Continue from ``state`` as saved after ``step`` steps; the method holds the model that was saved with it."""
        if self.average is not None:
            self.average.restart()
        if state.get("weights"):
            put(state["weights"], self.method)
        # momenta come from the checkpoint; learning rates, weight decays and step counters' devices from the settings
        chosen = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        groups = [group | own for group, own in zip(state["optimizer"]["param_groups"], chosen, strict=True)]
        self.optimizer.load_state_dict({**state["optimizer"], "param_groups": groups})
        for group, own in zip(self.optimizer.param_groups, chosen, strict=True):
            group.update(own)  # loading replaces a learning rate that is a tensor by a copy
        self.generator.set_state(state["generator"])
        self.loss_scale.load(state.get("loss_scale"))
        self.step = step
        if self.captured is not None:
            self.captured.forget()


def train(training: Training, observer: Observer) -> bool:
    """Train from ``training.step`` to the end of the run.

    Returns:
        True when the run is complete, False when the observer asked to stop earlier.
    """
    training.method.train()
    training.images_per_second.restart()
    first, before = training.step, _global_generators(training.generator.device)
    while training.step < training.num_steps:
        metrics = train_step(training)
        if training.step == first + 1 and not torch.equal(before, _global_generators(training.generator.device)):
            _log.warning(
                "%s: its steps draw from torch's own generator, so that runs that are repeated, resumed or on several "
                "workers differ; draw from the generator that forward is given",
                type(training.method).__name__,
            )
        epochs_done, position = divmod(training.step, training.data.num_batches)
        if _is_log_step(training, training.step):
            observer.on_log(training.step, (training.step - 1) // training.data.num_batches, _read(training, metrics))
        if position == 0:
            observer.on_epoch(training.step, epochs_done)
            training.images_per_second.restart()
        else:
            observer.on_step(training.step)
        if training.step < training.num_steps and observer.should_stop():
            observer.on_stop(training.step)
            return False
    return True


def _global_generators(device: torch.device) -> Tensor:
    """Return the state of the generators that torch draws from where it is given none."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]
    return torch.cat(states)


def train_step(training: Training) -> dict[str, Tensor]:
    """Make one optimizer step and return its metrics, still on the device."""
    epoch, position = divmod(training.step, training.data.num_batches)
    method = training.method
    batch = training.data.batch(epoch, position)
    set_learning_rate(training.optimizer, training.learning_rate(training.step))
    if training.weight_decay is not None:
        set_weight_decay(training.optimizer, training.weight_decay(training.step))
    method.diagnosing = _is_log_step(training, training.step + 1)
    planned = scheduled_steps(training.step, training.config, training.data.num_batches)  # extensions add steps later
    progress = Progress(training.step + 1, planned, epoch)
    compute = partial(_compute, training, progress)
    if training.captured is None:
        metrics = compute(batch)
    else:
        metrics = training.captured.make(compute, batch, logged=method.diagnosing)
    training.step += 1
    if training.average is not None:
        training.average.update(training.step)
    training.loss_scale.require_useful(training.step)
    training.images_per_second.count(training.ranks.world_size * batch.views.shape[1])
    return metrics


def _compute(training: Training, progress: Progress, batch: Batch) -> dict[str, Tensor]:
    """Run the part of a step that runs on the device: loss, gradients and updates."""
    kind = type(training.method)
    with autocast(batch.views.device, training.config.precision), own_method_problems(kind):
        output = (training.shared or training.method)(batch, training.generator)
    _require_output(training.method, output, batch.views.device)
    training.optimizer.zero_grad(set_to_none=True)
    training.loss_scale.scaled(output.loss).backward()  # type: ignore[no-untyped-call]
    _require_gradients(training)
    training.loss_scale.unscale(training.optimizer)
    clipped = _clip(training)
    if not training.loss_scale.step(training.optimizer):
        clipped = {}  # no number
    with own_method_problems(kind):
        training.method.after_step(progress)
    return {"loss": output.loss.detach(), **output.metrics, **clipped}


def _clip(training: Training) -> dict[str, Tensor]:
    """Scale the gradients down to ``clip_norm`` if they exceed it, and return their norm before that as a metric.

    They are means over the ranks, the same bits on each, and so is their norm.
    """
    if not training.clip_norm:
        return {}
    weights = [weight for group in training.optimizer.param_groups for weight in group["params"]]
    return {"gradient_norm": nn.utils.clip_grad_norm_(weights, training.clip_norm)}


def _require_output(method: Method, output: object, device: torch.device) -> None:
    """Check that loss and metrics are single numbers on ``device``, and that no metric has a name of the log."""
    name = type(method).__name__
    if not isinstance(output, StepOutput) or not isinstance(output.metrics, Mapping):
        got = type(output).__name__
        got += f" with metrics of {type(output.metrics).__name__}" if isinstance(output, StepOutput) else ""
        raise MethodError(
            f"{name}: forward must return StepOutput(loss, metrics by their names), got {got}; return {{}} for none"
        )
    loss = output.loss
    if not _is_number(loss, device) or not loss.requires_grad:
        raise MethodError(
            f"{name}: the loss must be one number that depends on the weights, on {device}, got {_in_words(loss)}; "
            "return the mean of the batch, not detached"
        )
    for key, value in output.metrics.items():
        where = f"metric {key} of {name}"
        if not isinstance(key, str) or key in _OF_THE_LOG:
            raise MethodError(f"{where}: not a text, or the name of another number of the log, got {key!r}; rename it")
        if not _is_number(value, device):
            raise MethodError(
                f"{where}: not a tensor with a single number on {device}, got {_in_words(value)}; return its mean"
            )


def _is_number(value: object, device: torch.device) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.numel() == 1 and value.device == device and not value.is_complex()


def _in_words(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    gradient = "" if value.requires_grad else ", without a gradient"
    return f"{value.dtype} of shape {tuple(value.shape)} on {value.device}{gradient}"


def _require_gradients(training: Training) -> None:
    """Check that the loss depends on the weights: with several ranks, on all, or their gradients are not averaged."""
    weights = [weight for group in training.optimizer.param_groups for weight in group["params"]]
    without = {id(weight) for weight in weights if weight.grad is None}
    if not without or (training.ranks.alone and len(without) < len(weights)):
        return
    names = [name for name, weight in training.method.named_parameters() if id(weight) in without]
    raise MethodError(
        f"{type(training.method).__name__}: the loss must depend on the weights, got no gradient for {len(without)} of "
        f"{len(weights)} weights, such as {names[0]}; freeze them (requires_grad_(False)) or remove them"
    )


def autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    """Return the autocast context of ``precision``; "float32" means none."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision))


def check_weights(method: Method, step: int) -> None:
    """Raise DivergedError when a weight or buffer of ``method`` is not finite.

    It takes one pass over the weights and one transfer from the device.
    """
    state = {name: value for name, value in method.state_dict().items() if value.is_floating_point()}
    finite = torch.stack([torch.isfinite(value).all() for value in state.values()])
    if not finite.all():
        name = list(state)[int((~finite).nonzero()[0])]
        raise DivergedError(f"step {step}: the weights hold numbers that are not finite, first in {name}")


def _is_log_step(training: Training, step: int) -> bool:
    return step % training.config.log_every == 0 or step % training.data.num_batches == 0 or step == 1


def _read(training: Training, metrics: dict[str, Tensor]) -> dict[str, float]:
    """Return a log step's metrics as plain numbers, moved in one transfer, and check that they are finite.

    They are means over the ranks, so all ranks have the same numbers and stop for the same reason at the same step.
    """
    names = list(metrics)
    own = torch.stack([metrics[name].detach().float().reshape(()) for name in names])
    values = training.ranks.mean(own).tolist()
    plain = dict(zip(names, values, strict=True))
    wrong = [f"{name} = {value}" for name, value in plain.items() if not math.isfinite(value)]
    if wrong:
        raise DivergedError(f"step {training.step}: {', '.join(wrong)}")
    plain["learning_rate"] = training.learning_rate(training.step - 1)
    if training.weight_decay is not None:
        plain["weight_decay"] = training.weight_decay(training.step - 1)
    plain["images_per_second"] = training.images_per_second.lap()
    return plain | training.loss_scale.metrics()
