"""What happens between the steps of a run: logs, held-out scores, checkpoints, the progress display."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from ebclab.config import ExperimentConfig
from ebclab.runs import checkpoint
from ebclab.runs.folder import RunFolder
from ebclab.runs.stop_request import FileRequest, Stop
from ebclab.storage.sync import NoSync, Syncer
from ebclab.training.display import Display
from ebclab.training.health.record import HealthRecord, in_words
from ebclab.training.loop import Training, check_weights


@dataclass
class Recorder:
    """What rank 0 writes into one run folder.

    Attributes:
        run: Where everything is written.
        config: Settings of the run.
        training: What is being trained; read when a checkpoint is due.
        facts: What describes the model in every checkpoint (input size, normalisation, data).
        score: Returns what held-out images say of the encoder, by name; None when the run has nothing to ask them.
        display: What the user looks at.
        stop: Set when somebody asks the run to stop.
        writer: TensorBoard.
        best: Best value of ``evaluation.objective`` so far: {"objective", "value", "epoch", "step"}; empty before it.
        seconds_before: Training time of earlier launches of this run.
        health: What is known of the run's health; None where nobody watches it.
        syncer: Brings what is written to where the run lives.
        save_now: Set when a machine will be taken away and a checkpoint is wanted at once; None where nobody asks.
    """

    run: RunFolder
    config: ExperimentConfig
    training: Training
    facts: dict[str, Any]
    score: Callable[[], dict[str, float]] | None
    display: Display
    stop: Stop
    writer: SummaryWriter
    best: dict[str, Any]
    seconds_before: float = 0.0
    health: HealthRecord | None = None
    syncer: Syncer = field(default_factory=NoSync)
    save_now: FileRequest | None = None
    last_metrics: dict[str, float] | None = None
    last_scores: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Training time of the run so far, over all launches."""
        return self.seconds_before + time.monotonic() - self._started

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write one training record."""
        self.last_metrics = metrics
        self.run.metrics.append("train", step, epoch=epoch, seconds=round(self.seconds, 3), **metrics)
        for name, value in metrics.items():
            self.writer.add_scalar(f"train/{name}", value, step)
        self.syncer.push_soon()
        self.display.update(step, epoch, metrics)

    @property
    def is_on_notice(self) -> bool:
        """A machine will be taken away, and nothing has been saved since that was known."""
        return self.save_now is not None and self.save_now.is_set

    def save_early(self) -> None:
        """Save without waiting for the end of the epoch, since a machine will be taken away."""
        step = self.training.step
        check_weights(self.training.method, step)
        self.save(step // self.training.data.num_batches, "last", on_notice=True)

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Score the epoch, write its record, then its checkpoints (in this order: see MetricsLog.forget_after)."""
        check_weights(self.training.method, step)
        final = epochs_done == self.config.training.epochs
        every = self.config.evaluation.knn_every
        scored = self.score is not None and every and (final or epochs_done % every == 0)
        kinds: list[checkpoint.Kind] = []
        if self.score is not None and scored and self._record_scores(step, epochs_done, self.score()):
            kinds.append("best")
        keep_every = self.config.training.keep_every
        if keep_every and epochs_done % keep_every == 0:
            kinds.append("kept")
        on_notice = self.is_on_notice
        due = final or epochs_done % self.config.training.checkpoint_every == 0
        if due or on_notice or self.stop.is_set:
            kinds.append("last")
        self.save(epochs_done, *kinds, on_notice=on_notice)
        if scored:  # last, when all is on disk: whoever watches may end the run here
            seconds = {"seconds": round(self.seconds, 3)}
            self.display.update(step, epochs_done, {**(self.last_metrics or {}), **seconds, **self.last_scores})

    def on_stop(self, step: int) -> None:
        """Save the step at which the run was asked to stop, unless the epoch's end has just saved it."""
        check_weights(self.training.method, step)
        newest = checkpoint.latest_path(self.run.checkpoints)
        if newest is None or not newest.name.endswith(f"{step:010d}"):
            self.save(step // self.training.data.num_batches, "last")

    def should_stop(self) -> bool:
        """Return whether somebody asked the run to stop."""
        return self.stop.is_set

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Continue the run's own counters from its checkpoint."""
        self.seconds_before = (found.state or {})["seconds"]
        self._recall(found)

    def write_health(self, event: dict[str, Any]) -> None:
        """Write and show what was decided on the run's health."""
        self.run.metrics.append("event", event="health", **event)
        self.display.note(in_words(event))

    def go_back(self, found: checkpoint.Checkpoint, event: dict[str, Any]) -> None:
        """Forget what was written since ``found``, to which training has returned, and save where it goes on.

        Args:
            found: The checkpoint.
            event: What was decided, with the step at which training goes on.
        """
        self._recall(found)
        checkpoint.forget_after(self.run.checkpoints, event["to_step"])
        if self.best and not any(self.run.checkpoints.glob(f"best-*{self.best['step']}")):
            self.best = {}  # a later one had taken its place
        self.run.metrics.forget_after(event["to_step"])
        self.write_health(event)
        self.save(event["to_step"] // self.training.data.num_batches, "last")

    def forget_after(self, step: int) -> None:
        """Forget the checkpoints that were made after ``step``, wherever the run lives."""
        checkpoint.forget_after(self.run.checkpoints, step)
        self.syncer.push()

    def _recall(self, found: checkpoint.Checkpoint) -> None:
        state = found.state or {}
        self.best, self.last_metrics = state["best"], state["metrics"]
        self.last_scores = found.facts["scores"]

    def _record_scores(self, step: int, epochs_done: int, scores: dict[str, float]) -> bool:
        """Write down what held-out images say; return whether it is the best so far."""
        self.last_scores = scores
        self.run.metrics.append("epoch", step, epoch=epochs_done, seconds=round(self.seconds, 3), **scores)
        for name, value in scores.items():
            self.writer.add_scalar(f"holdout/{name.removeprefix('holdout_')}", value, step)
        self.writer.flush()
        objective = self.config.evaluation.objective
        is_best = objective in scores and scores[objective] > self.best.get("value", -math.inf)
        if is_best:
            self.best.update(objective=objective, value=scores[objective], epoch=epochs_done, step=step)
        return is_best

    def save(self, epochs_done: int, *kinds: checkpoint.Kind, on_notice: bool = False) -> None:
        """Save checkpoints of ``kinds`` after ``epochs_done`` epochs, and bring all of them home at once.

        Args:
            epochs_done: Whole epochs behind the weights.
            kinds: What to save, in this order; nothing is done for none.
            on_notice: It is done because a machine will be taken away: the log says so, and the wish is granted.

        Raises:
            RunError: The disk is full, or the store refuses.
        """
        if not kinds:
            return
        for kind in kinds:
            checkpoint.save(self.run.checkpoints, kind, self._checkpoint(kind, epochs_done))
        if on_notice:
            self.run.metrics.append(
                "event", self.training.step, event="saved_early", reason="a machine will be taken away"
            )
        self.syncer.push()
        if on_notice and self.save_now is not None:
            self.save_now.clear()

    def _checkpoint(self, kind: checkpoint.Kind, epochs_done: int) -> checkpoint.Checkpoint:
        training, health = self.training, self.health
        facts = {**self.facts, "epochs_done": epochs_done, "scores": self.last_scores}
        own: dict[str, Any] = {"best": self.best, "seconds": self.seconds, "metrics": self.last_metrics}
        if health is not None:
            facts["healthy"], own["health"] = health.healthy, health.to_plain()
        state = {**training.state(), **own} if kind == "last" else None
        memories = {name: memory.state_dict() for name, memory in training.method.memories.items()}
        return checkpoint.Checkpoint(training.step, facts, training.method.state_dict(), state, memories)
