"""Learning rate and weight decay as pure functions of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ebclab.config.sections import OptimizerConfig, TrainingConfig

if TYPE_CHECKING:
    import torch  # imported by summaries of runs, and a list of runs must not import torch

REFERENCE_BATCH_SIZE = 256  # images; the batch size at which `learning_rate` is not scaled


def peak_learning_rate(config: OptimizerConfig, batch_size: int) -> float:
    """Return the learning rate at the end of the warm-up.

    It is ``learning_rate`` scaled by ``batch_size / 256`` (linear), by its square root (sqrt) or not (none).
    """
    ratio = batch_size / REFERENCE_BATCH_SIZE
    factor = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[config.scaling]
    return config.learning_rate * factor


def learning_rate_at(
    step: int,
    *,
    peak: float,
    num_steps: int,
    warmup_steps: int,
    schedule: Literal["cosine", "linear", "step", "constant"],
    final_rate: float = 0.0,
    milestones: Sequence[float] = (),
    step_factor: float = 1.0,
) -> float:
    """Return the learning rate of one optimizer step.

    Warm-up, ``step < warmup_steps``: ``peak * (step + 1) / warmup_steps``. Step 0 has ``peak / warmup_steps``
    (not 0, which would have no effect) and step ``warmup_steps - 1`` has ``peak``.

    Cosine, from ``step = warmup_steps`` on, with ``t = (step - warmup_steps) / (num_steps - warmup_steps)``:
    ``peak * (final_rate + (1 - final_rate) * (1 + cos(pi * t)) / 2)``. It starts at ``peak`` and would reach
    ``final_rate * peak`` at step ``num_steps``, one past the last, so that the last step has an effect, too.
    Linear has ``1 - t`` in place of ``(1 + cos(pi * t)) / 2``. Step multiplies ``peak`` by ``step_factor`` at step
    ``round(m * num_steps)`` for each milestone m; the warm-up does not move milestones.

    Steps are counted from 0. With ``num_steps`` or more warm-up steps, all steps are warm-up; 0 means none.
    """
    if not 0 <= step < num_steps:
        raise ValueError(f"step: must be in [0, {num_steps}), got {step}")
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if schedule == "constant":
        return peak
    if schedule == "step":
        passed = sum(step >= round(share * num_steps) for share in milestones)
        return peak * float(step_factor**passed)
    progress = (step - warmup_steps) / (num_steps - warmup_steps)
    left = 1 - progress if schedule == "linear" else half_cosine(progress)
    return peak * (final_rate + (1 - final_rate) * left)


def half_cosine(share: float) -> float:
    """Return ``(1 + cos(pi * share)) / 2``, which falls from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * share))


def scheduled_steps(step: int, training: TrainingConfig, num_batches: int) -> int:
    """Return the total number of optimizer steps of the schedule that applies at step ``step`` (from 0).

    Each extension of a run replaces the schedule by one for the new total, from the first additional step on.
    """
    ends = [end * num_batches for end in training.ends]
    return next((end for end in ends if step < end), ends[-1])


def learning_rates(optimizer: OptimizerConfig, training: TrainingConfig, num_batches: int) -> Callable[[int], float]:
    """Return the learning rate of a run, with ``num_batches`` steps an epoch, as a function of the step."""
    peak = peak_learning_rate(optimizer, training.batch_size)
    warmup_steps = round(optimizer.warmup_epochs * num_batches)

    def rate(step: int) -> float:
        return learning_rate_at(
            step,
            peak=peak,
            num_steps=scheduled_steps(step, training, num_batches),
            warmup_steps=warmup_steps,
            schedule=optimizer.schedule,
            final_rate=optimizer.final_rate,
            milestones=optimizer.milestones,
            step_factor=optimizer.step_factor,
        )

    return rate


def weight_decays(
    optimizer: OptimizerConfig, training: TrainingConfig, num_batches: int
) -> Callable[[int], float] | None:
    """Return the weight decay of a run as a function of the step; None if it is constant.

    ``end + (start - end) * (1 + cos(pi * step / num_steps)) / 2``, as in DINO (arXiv:2104.14294).
    """
    start, end = optimizer.weight_decay, optimizer.weight_decay_end
    if end is None:
        return None

    def decay(step: int) -> float:
        progress = step / scheduled_steps(step, training, num_batches)
        return end + (start - end) * half_cosine(progress)

    return decay


@dataclass(frozen=True)
class Extension:
    """An extension of a run, and its effect on the learning rate."""

    before: int  # total epochs of the run before
    epochs: int  # total epochs of the run afterwards
    step: int  # index of the first step with the new schedule
    rate_before: float  # learning rate of the last step with the old schedule
    rate_after: float  # learning rate of the first step with the new one

    def in_words(self) -> str:
        """Return the extension and the jump of the learning rate as text."""
        return (
            f"extended from {self.before} to {self.epochs} epochs: "
            f"at step {self.step} the learning rate went from {self.rate_before:.3g} to {self.rate_after:.3g}"
        )


def extensions(optimizer: OptimizerConfig, training: TrainingConfig, num_batches: int) -> list[Extension]:
    """Return the extensions of a run, oldest first."""
    rate = learning_rates(optimizer, training, num_batches)
    return [
        Extension(before, epochs, before * num_batches, rate(before * num_batches - 1), rate(before * num_batches))
        for before, epochs in pairwise(training.ends)
    ]


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the learning rate of every parameter group of ``optimizer``, except those whose rate is constant."""
    for group in optimizer.param_groups:
        if group.get("constant_rate"):
            continue
        if isinstance(group["lr"], int | float):
            group["lr"] = value
        else:
            group["lr"].fill_(value)  # in place, since captured steps read this tensor


def set_weight_decay(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Set the weight decay of the parameter groups of ``optimizer`` that have one."""
    for group in optimizer.param_groups:
        if not group.get("exempt", False):
            group["weight_decay"] = value
