"""Shows the progress of a run: a bar in a terminal, plain lines elsewhere; both are listeners of the run."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from ebclab.formatting import clock, count, fitted, is_terminal, rate
from ebclab.terminal import console, say, write


class Listener:
    """Receives the start, the numbers and the end of a run; this one ignores them.

    What a call reports is on disk already, so a listener may end the run in ``start`` or ``on_epoch`` by raising.
    """

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        """Training begins at ``step`` of ``num_steps``."""

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Metrics of a training step were logged."""

    def on_epoch(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """An epoch was scored and saved; ``metrics`` holds its scores and the newest metrics of training."""
        self.on_log(step, epoch, metrics)

    def note(self, text: str) -> None:
        """A message for the user."""

    def stop(self) -> None:
        """Nothing more follows, or a message from elsewhere does."""


_LINE_SECONDS = 10.0
_SCORE_LINE_SECONDS = 3.0
_MUCH = 0.1  # share of the images


def choose_display(stream: TextIO | None = None) -> Listener:
    """Return a progress bar when ``stream`` (default: standard error) is a terminal, else plain lines."""
    stream = stream or sys.stderr
    return BarDisplay() if is_terminal(stream) else LineDisplay(stream)


class LineDisplay(Listener):
    """One plain line every ten seconds, or every three when there are scores, for logs and pipes."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._num_steps = self._epochs = 0
        self._written = self._started = 0.0
        self._first_step = 0
        self._knn: float | None = None

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        """Begin at ``step`` of ``num_steps``."""
        self._first_step, self._num_steps, self._epochs = step, num_steps, epochs
        self._started = time.monotonic()

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Print a line if enough time has passed since the last one, or if the run is complete."""
        now = time.monotonic()
        self._knn = metrics.get("holdout_knn", self._knn)
        wait = _SCORE_LINE_SECONDS if "holdout_knn" in metrics else _LINE_SECONDS
        if now - self._written < wait and step < self._num_steps:
            return
        self._written = now
        left = (now - self._started) / max(step - self._first_step, 1) * (self._num_steps - step)
        self.note(
            f"epoch {epoch}/{self._epochs}  step {step}/{self._num_steps}  {describe(metrics, self._knn)}  "
            f"{clock(left)} left"
        )

    def note(self, text: str) -> None:
        """Print one line."""
        write(f"{text}\n", self._stream)


class BarDisplay(Listener):
    """A progress bar on standard error with rate, time left, InfoNCE and the held-out kNN."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._epochs = 0
        self._knn: float | None = None

    def start(self, step: int, num_steps: int, epochs: int) -> None:
        """Begin at ``step`` of ``num_steps``."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._epochs = epochs
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[facts]}"),
            console=console(err=True),
        )
        self._task = self._progress.add_task(f"epoch 0/{epochs}", total=num_steps, completed=step, facts="")
        self._progress.start()

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Move the bar."""
        self._knn = metrics.get("holdout_knn", self._knn)
        self._progress.update(
            self._task,
            completed=step,
            description=f"epoch {epoch}/{self._epochs}",
            facts=describe(metrics, self._knn),
        )

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        if self._progress is None:
            say(fitted(text, sys.stderr), err=True)
        else:
            self._progress.console.print(text)

    def stop(self) -> None:
        """Stop the bar where it is."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def images_in_words(train: int, held_out: int, num_classes: int, batch_size: int, side: int) -> str:
    """Return in words how many images a run has, how many an epoch of whole batches leaves out, and the side of views.

    0 classes mean that labels are unknown.
    """
    kinds = f" of {count(num_classes, 'class', 'classes')}" if num_classes else " without labels"
    if num_classes == 1:
        kinds += " (any kNN is right about it, so none is measured)"
    batches, left = divmod(train, batch_size)
    words = (
        f"{count(train + held_out, 'image')}{kinds}, {held_out:,} held out; {count(batches, 'batch', 'batches')} of "
        f"{batch_size} images an epoch, views of {side} x {side} pixels"
    )
    if left:
        are = "is" if left == 1 else "are"
        words += f"; {count(left, 'image')} ({left / train:.0%}) {are} left out of each epoch, because "
        words += "batches are whole"
    return words + ("; a smaller training.batch_size leaves out fewer" if left > _MUCH * train else "")


def describe(metrics: dict[str, float], knn: float | None) -> str:
    """Return speed, InfoNCE, accuracy on the batch and held-out kNN as short text, leaving out unknown ones."""
    parts = []
    if "images_per_second" in metrics:
        parts.append(f"{rate(metrics['images_per_second'])} img/s")
    if "info_nce" in metrics:
        parts.append(f"info_nce {metrics['info_nce']:{'.3f' if abs(metrics['info_nce']) < 1e6 else '.3g'}}")
    if "accuracy" in metrics:
        parts.append(f"accuracy {metrics['accuracy']:.1%}")
    if knn is not None:
        parts.append(f"kNN {knn:.1%}")
    return "  ".join(parts)
