"""What happens between the steps of a run: logs, held-out scores, checkpoints, the progress display."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from ebclab.config import ExperimentConfig
from ebclab.storage.keeper import Keeper, NoKeeper
from ebclab.training import checkpoint
from ebclab.training.display import Display
from ebclab.training.health_record import HealthRecord, in_words
from ebclab.training.interrupt import Stop, Wish
from ebclab.training.loop import Training, check_weights
from ebclab.training.run_folder import RunFolder


@dataclass
class Recorder:
    """The loop's observer for one run folder.

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
        keeper: Brings what is written to where the run lives.
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
    keeper: Keeper = field(default_factory=NoKeeper)
    save_now: Wish | None = None
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
        self.keeper.push_soon()
        self.display.update(step, epoch, metrics)
        if self.save_now is not None and self.save_now.is_set:
            self._save_early(self.save_now, step)

    def _save_early(self, wish: Wish, step: int) -> None:
        """Save between epochs; at the end of one it is left to what saves there."""
        if step % self.training.data.num_batches:
            check_weights(self.training.method, step)
            self.save("last", step // self.training.data.num_batches)
            self.run.metrics.append("event", step, event="saved_early", reason="a machine will be taken away")
        wish.clear()

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Score the epoch, write its record, then its checkpoints (in this order: see MetricsLog.forget_after)."""
        check_weights(self.training.method, step)
        final = epochs_done == self.config.training.epochs
        every = self.config.evaluation.knn_every
        scored = self.score is not None and every and (final or epochs_done % every == 0)
        if self.score is not None and scored:
            self._record_scores(step, epochs_done, self.score())
        keep_every = self.config.training.keep_every
        if keep_every and epochs_done % keep_every == 0:
            self.save("kept", epochs_done)
        if final or epochs_done % self.config.training.checkpoint_every == 0 or self.stop.is_set:
            self.save("last", epochs_done)
        if scored:  # last, when all is on disk: whoever watches may end the run here
            seconds = {"seconds": round(self.seconds, 3)}
            self.display.update(step, epochs_done, {**(self.last_metrics or {}), **seconds, **self.last_scores})

    def on_stop(self, step: int) -> None:
        """Save the step at which the run was asked to stop, unless the epoch's end has just saved it."""
        check_weights(self.training.method, step)
        newest = checkpoint.latest_path(self.run.checkpoints)
        if newest is None or not newest.name.endswith(f"{step:010d}"):
            self.save("last", step // self.training.data.num_batches)

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
        self.save("last", event["to_step"] // self.training.data.num_batches)

    def _recall(self, found: checkpoint.Checkpoint) -> None:
        state = found.state or {}
        self.best, self.last_metrics = state["best"], state["metrics"]
        self.last_scores = found.facts["scores"]

    def _record_scores(self, step: int, epochs_done: int, scores: dict[str, float]) -> None:
        self.last_scores = scores
        self.run.metrics.append("epoch", step, epoch=epochs_done, seconds=round(self.seconds, 3), **scores)
        for name, value in scores.items():
            self.writer.add_scalar(f"holdout/{name.removeprefix('holdout_')}", value, step)
        self.writer.flush()
        objective = self.config.evaluation.objective
        if objective in scores and scores[objective] > self.best.get("value", -math.inf):
            self.best.update(objective=objective, value=scores[objective], epoch=epochs_done, step=step)
            self.save("best", epochs_done)

    def save(self, kind: checkpoint.Kind, epochs_done: int) -> None:
        """Save a checkpoint of ``kind`` after ``epochs_done`` epochs."""
        training, health = self.training, self.health
        facts = {**self.facts, "epochs_done": epochs_done, "scores": self.last_scores}
        own: dict[str, Any] = {"best": self.best, "seconds": self.seconds, "metrics": self.last_metrics}
        if health is not None:
            facts["healthy"], own["health"] = health.healthy, health.to_plain()
        state = {**training.state(), **own} if kind == "last" else None
        memories = {name: memory.state_dict() for name, memory in training.method.memories.items()}
        record = checkpoint.Checkpoint(training.step, facts, training.method.state_dict(), state, memories)
        checkpoint.save(self.run.checkpoints, kind, record)
        self.keeper.push()
