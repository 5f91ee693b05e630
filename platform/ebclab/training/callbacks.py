"""Callbacks: the user's own code during training. What it sees, when it runs, and that it does not change the run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ebclab.data.preprocessing import Preprocessing
from ebclab.errors import CallbackError, UserError
from ebclab.hardware import draws_put_back
from ebclab.methods_by_name import raised_at
from energy_contrast.method import Method

_TAKEN = ("train", "holdout")  # prefixes of the run's own numbers in loggers


@dataclass(frozen=True)
class RunView:
    """What a callback sees of the run at one step.

    Attributes:
        step: Optimizer steps done.
        epoch: Whole epochs done.
        metrics: Training metrics of the newest log step; empty before the first.
        scores: Newest held-out scores; empty before the first.
        encoder: The encoder, in eval mode; gradients are off. It maps prepared images to embeddings (B, D). Nothing in
            it may be changed: work on ``copy.deepcopy(run.encoder)``.
        preprocessing: Turns uint8 images (B, C, H, W) into the encoder's input.
        device: Where the encoder is.
        folder: The run's folder, or this machine's copy of it.
    """

    step: int
    epoch: int
    metrics: Mapping[str, float]
    scores: Mapping[str, float]
    encoder: nn.Module
    preprocessing: Preprocessing
    device: torch.device
    folder: Path


class Callback(Protocol):
    """Code of the user's that runs during training, every so many steps or epochs.

    An object has one of the attributes ``every_steps`` and ``every_epochs``, a whole number from 1 on. It runs at the
    multiples, counted from the beginning of the run, and when training ends. Its numbers are logged under its attribute
    ``name`` if it has one, else under the name of its class.
    """

    def measure(self, run: RunView) -> Mapping[str, float] | None:
        """Do the callback's work; return numbers for the log by name, or None."""


@dataclass(frozen=True)
class Scheduled:
    """A callback, its name, and its period in steps or in epochs; the other of the two is 0."""

    callback: Callback
    name: str
    every_steps: int
    every_epochs: int

    def is_due(self, step: int, epochs_done: int | None, *, ends: bool) -> bool:
        """Return whether the callback runs after ``step``, which ``ends`` training or not.

        ``epochs_done`` is None unless the step ends an epoch.
        """
        if self.every_steps:
            return ends or step % self.every_steps == 0
        return epochs_done is not None and (ends or epochs_done % self.every_epochs == 0)

    def run(self, view: RunView, method: Method) -> dict[str, float]:
        """Let the callback measure; return its numbers as NAME/NUMBER."""
        try:
            with undisturbed(method, view.device) as changed:
                found = self.callback.measure(view)
        except Exception as error:  # user code may raise anything: the run ends and names the callback
            raise CallbackError(
                f"callback {self.name} failed at step {view.step}: {type(error).__name__}: {error}"
                f"{raised_at(error, type(self.callback))}"
            ) from error
        if changed:
            raise CallbackError(
                f"callback {self.name} changed what is trained at step {view.step}, got another {changed[0]}; "
                "let it work on copy.deepcopy(run.encoder)"
            )
        return self._numbers(found, view.step)

    def _numbers(self, found: object, step: int) -> dict[str, float]:
        if found is None:
            return {}
        if not isinstance(found, Mapping):
            raise CallbackError(
                f"callback {self.name} returned no mapping at step {step}, got {type(found).__name__}; "
                "return numbers by their names, or None"
            )
        numbers = {}
        for key, value in found.items():
            try:
                numbers[f"{self.name}/{key}"] = float(value)
            except (TypeError, ValueError, RuntimeError):
                raise CallbackError(
                    f"callback {self.name} returned no number at step {step}: {key}, got {value!r:.80}; return numbers"
                ) from None
        return numbers


def scheduled(callbacks: Sequence[Callback]) -> tuple[Scheduled, ...]:
    """Return callbacks with their names and when they run."""
    made, problems = list[Scheduled](), list[str]()
    for number, callback in enumerate(callbacks):
        name = getattr(callback, "name", type(callback).__name__)
        where = f"callbacks[{number}] ({name})"
        every = {key: getattr(callback, key, None) for key in ("every_steps", "every_epochs")}
        given = {key: value for key, value in every.items() if value is not None}
        if not callable(getattr(callback, "measure", None)):
            problems.append(f"{where}: has no method measure, got {type(callback).__name__}; define measure(self, run)")
        if not isinstance(name, str) or not name.strip() or "/" in name or name in _TAKEN:
            problems.append(f"{where}: not a name, got {name!r}; take a word without / that is not train or holdout")
        if name in [each.name for each in made]:
            problems.append(f"{where}: two callbacks have this name; give one of them another attribute name")
        if len(given) != 1:
            problems.append(f"{where}: needs every_steps or every_epochs, got {'both' if given else 'neither'}")
        for key, value in given.items():
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                problems.append(f"{where}: {key} must be a whole number from 1 on, got {value!r}")
        made.append(Scheduled(callback, name, every["every_steps"] or 0, every["every_epochs"] or 0))
    if problems:
        raise UserError("\n".join(problems))
    return tuple(made)


@contextmanager
def random_state_kept(device: torch.device | None = None) -> Iterator[None]:
    """Restore the states of the generators of Python, NumPy and torch, also on ``device``, after the block."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with draws_put_back(device or torch.device("cpu")):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@contextmanager
def undisturbed(method: Method, device: torch.device) -> Iterator[list[str]]:
    """Put the encoder into eval mode without gradients for code that looks at it; afterwards, restore the method.

    Modes, ``requires_grad`` and all generators are restored. Yields a list that holds, after the block, the names of
    tensors that the code has changed.
    """
    modes = [(module, module.training) for module in method.modules()]
    learned = [(parameter, parameter.requires_grad) for parameter in method.parameters()]
    before, changed = _tensors(method), list[str]()
    try:
        with random_state_kept(device), torch.no_grad():
            method.encoder.eval()
            yield changed
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, is_learned in learned:
            parameter.requires_grad_(is_learned)
    after = _tensors(method)
    changed += [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


def _tensors(method: Method) -> dict[str, tuple[int, int, int]]:
    """Return identity, address and version counter of every weight and buffer, to notice changes."""
    state: dict[str, Tensor] = method.state_dict(keep_vars=True)
    return {name: (id(value), value.data_ptr(), value._version) for name, value in state.items()}
