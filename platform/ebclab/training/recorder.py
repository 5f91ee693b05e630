"""Writes the run folder on rank 0: log, held-out scores, checkpoints and the result; also tells the listener."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import InitVar, asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from ebclab.config.yaml_text import JsonObject
from ebclab.errors import CallbackError, DivergedError
from ebclab.evaluation.monitor import HoldoutScores
from ebclab.methods_by_name import method_problems
from ebclab.optimization.schedules import extensions
from ebclab.runs import checkpoint, environment
from ebclab.runs.folder import ENVIRONMENT
from ebclab.runs.stop_request import Stop
from ebclab.runs.summary import BestScore, RunSummary
from ebclab.storage import atomic
from ebclab.storage.mirror import Syncer
from ebclab.storage.reading import read_json_object
from ebclab.training.callbacks import RunView, Scheduled
from ebclab.training.display import Listener
from ebclab.training.health.findings import GROWTH, KNN, FindingRules
from ebclab.training.health.policy import HealthRecord, in_words, open_findings
from ebclab.training.loggers import Loggers
from ebclab.training.loop import Training, check_weights
from ebclab.training.lost_state import lost_at_a_resume
from ebclab.training.setup import (
    Prepared,
    RunSpec,
    names_problem,
    neighbours_problem,
    repeated_problem,
    unscored_problem,
)
from energy_contrast.method import Method

_log = logging.getLogger("ebclab.training")


@dataclass
class Recorder:
    """Writes one run folder, on rank 0."""

    spec: RunSpec
    prepared: Prepared
    # returns the scores of the encoder on held-out images, with those of monitors if its argument is True; None if the
    # run has no such scores
    score: Callable[[bool], HoldoutScores] | None
    listener: Listener  # receives the progress; may end the run at the end of an epoch
    stop: Stop  # set when someone asks the run to stop
    writer: SummaryWriter  # TensorBoard
    syncer: Syncer  # uploads what is written when the run lives in an object store
    health: HealthRecord | None  # the run's health so far; None if it is not watched
    began: float  # ``time.monotonic()`` at the start of this launch
    resumed: InitVar[checkpoint.Checkpoint | None]  # the checkpoint from which this launch resumes; None for a new run
    rules: FindingRules  # when the run counts as collapsed or as learning nothing
    require_in_place: Callable[[], None]  # called before a write; raises if the run folder is no longer there
    best: BestScore | None = field(init=False, default=None)  # best value of ``evaluation.objective`` so far
    last_metrics: dict[str, float] | None = field(init=False, default=None)  # metrics of the newest log step
    # scores of the newest epoch that was scored
    last_scores: dict[str, float] = field(init=False, default_factory=dict)
    seconds_before: float = field(init=False, default=0.0)  # training time of earlier launches, seconds
    # part of the training time that was spent in monitors, over all launches, seconds
    monitor_seconds: float = field(init=False, default=0.0)
    _saved: int = field(init=False, default=-1)  # the step that this launch saved last
    _has_warned: bool = field(init=False, default=False)  # whether this launch has named attributes that it will lose

    def __post_init__(self, resumed: checkpoint.Checkpoint | None) -> None:
        self.run, self.config, self.training = self.spec.run, self.spec.config, self.prepared.training
        self.loggers = Loggers(self.run, self.config)
        self.save_now = self.run.save_now  # set when a machine will be taken away and the run must save soon
        if resumed is not None:
            self.seconds_before = (resumed.state or {})["seconds"]
            self.monitor_seconds = (resumed.state or {}).get("monitor_seconds", 0.0)
            self.return_to(resumed)

    @property
    def seconds(self) -> float:
        """Training time of the run over all launches, seconds."""
        return self.seconds_before + time.monotonic() - self.began

    def write_start(self, resumed: checkpoint.Checkpoint | None, facts: dict[str, Any], notes: list[str]) -> None:
        """Log that the run starts or resumes, at which step, and what has changed since its first launch.

        Args:
            facts: The environment of this launch, as ``describe_environment`` returns it.
            notes: What this launch shows first; who follows the run from another process reads it in the log.
        """
        run, log, path = self.run, self.run.metrics, self.run.path / ENVIRONMENT
        launch = {"ranks": facts["ranks"], "num_steps": self.training.num_steps, "notes": notes}
        step, changed = 0, list[str]()
        health: dict[str, Any] | None = {"events": []}
        if resumed is not None:
            step, health = resumed.step, (resumed.state or {}).get("health")
        reached = log.newest_measured()
        dropped = log.forget_after(step, partial(_is_undone, health))
        if resumed is None:
            lost = {"reached": reached, "dropped_records": dropped} if reached is not None else {}
            atomic.write_json(path, facts)
            log.append("event", 0, event="started", **lost, **launch)
            if lost:
                self.listener.note(f"starts over: it has no checkpoint, and its log reached step {reached}")
        else:
            remedy = "delete the file, and the run continues without comparing machines"
            before = read_json_object(path, run.address_of(path), remedy=remedy) if path.exists() else {}
            changed = environment.differences(before, facts)
            ranks = log.newest_ranks()
            if ranks is not None and ranks != facts["ranks"]:
                log.append("event", step, event="ranks_changed", before=ranks, now=facts["ranks"])
            progress = {"reached": step if reached is None else reached, "dropped_records": dropped}
            log.append("event", step, event="resumed", **progress, environment_changes=changed, **launch)
            self.listener.note(f"resuming at step {step} of {self.training.num_steps}")
        self._log_extensions()
        if resumed is None:
            self._warn(neighbours_problem(self.config, self.training.method))
            self._warn(unscored_problem(self.config, self.prepared.facts))
            self._warn(names_problem(self.config, self.prepared.bank.class_names))
            self._warn(repeated_problem(self.config, self.prepared.bank, self.prepared.holdout))
        for line in changed:
            _log.warning("%s: results may differ in rounding from an undisturbed run; %s", run.path.name, line)

    def _warn(self, problem: str | None) -> None:
        if problem:
            self.run.metrics.append("event", self.training.step, event="warning", text=problem)
            self.listener.note(f"warning: {problem}")

    def _log_extensions(self) -> None:
        """Log and show the extensions of the run that are not in its log yet."""
        config, log = self.config, self.run.metrics
        if made := extensions(config.optimizer, config.training, self.training.data.num_batches):
            known = sum(record.get("event") == "extended" for record in log.records())
            for extension in made[known:]:
                facts = asdict(extension)
                log.append("event", facts.pop("step"), event="extended", **facts, text=extension.in_words())
                self.listener.note(extension.in_words())

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write one training record."""
        self.require_in_place()
        self.last_metrics = metrics
        self.run.metrics.append("train", step, epoch=epoch, seconds=round(self.seconds, 3), **metrics)
        self._tell({f"train/{name}": value for name, value in metrics.items()}, step)
        self.syncer.push_soon()
        self.listener.on_log(step, epoch, metrics)

    @property
    def is_on_notice(self) -> bool:
        """Whether a machine will be taken away and the run has not been saved since the notice."""
        return self.save_now.is_set

    def save_early(self) -> None:
        """Save before the epoch's end, because a machine will be taken away."""
        step = self.training.step
        check_weights(self.training.method, step)
        self.save(step // self.training.data.num_batches, "last", on_notice=True)

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Score the epoch and write its record, then its checkpoints.

        Records are always written before the checkpoint that covers them: a resume keeps records up to its checkpoint.
        """
        self.require_in_place()
        check_weights(self.training.method, step)
        final = epochs_done in self.config.training.ends
        every = self.config.evaluation.knn_every
        scored = self.score is not None and every and (final or epochs_done % every == 0)
        kinds: list[checkpoint.Kind] = []
        measured = None
        if self.score is not None and scored:
            measured = self.score(final or epochs_done % self.config.evaluation.monitor_every == 0)
            if final and measured.answers is not None:
                self.run.write_answers(measured.answers)
            if self._record_scores(step, epochs_done, measured):
                kinds.append("best")
        self._examine(step, measured.by_name if measured else {})
        self.run_callbacks(step, epochs_done)
        keep_every = self.config.training.keep_every
        if keep_every and epochs_done % keep_every == 0:
            kinds.append("kept")
        on_notice = self.is_on_notice
        due = final or epochs_done % self.config.training.checkpoint_every == 0
        if due or on_notice or self.stop.is_set or self._must_stop():
            kinds.append("last")
        self.save(epochs_done, *kinds, on_notice=on_notice)
        if scored:  # last, after everything is on disk: the listener of a trial may end the run here
            seconds = {"seconds": round(self.seconds, 3)}
            self.listener.on_epoch(step, epochs_done, {**(self.last_metrics or {}), **seconds, **self.last_scores})
        self.require_health()

    def _examine(self, step: int, scores: Mapping[str, float]) -> None:
        """Look for signs of collapse in the epoch that has ended; log and show them."""
        if self.health is None:
            return
        measured = {KNN: scores[KNN]} if KNN in scores else {}
        if self.health.start_norm:
            measured[GROWTH] = norm_of(self.training.method) / self.health.start_norm
        stops = self.config.training.health == "stop"
        for event in self.health.examine(step, measured, self.rules, stops=stops):
            self.write_health(event)

    def _must_stop(self) -> str:
        """Return why ``training.health`` stop ends the run now; empty if it does not."""
        if self.health is None or self.config.training.health != "stop":
            return ""
        return "; ".join(open_findings(self.health.events).values())

    def require_health(self) -> None:
        """Stop a run that has collapsed or learns nothing, if ``training.health`` is stop."""
        if why := self._must_stop():
            raise DivergedError(f"step {self.training.step}: {why} (training.health=stop)")

    def run_callbacks(self, step: int, epochs_done: int | None = None) -> None:
        """Run the callbacks that are due, and log their numbers; without ``epochs_done``, the step ends no epoch."""
        ends = epochs_done in self.config.training.ends
        for callback in self.spec.callbacks:
            if callback.is_due(step, epochs_done, ends=ends):
                self.require_in_place()
                self._measure(callback, step)

    def _measure(self, callback: Scheduled, step: int) -> None:
        method, epoch = self.training.method, step // self.training.data.num_batches
        view = RunView(
            step=step,
            epoch=epoch,
            metrics=MappingProxyType(dict(self.last_metrics or {})),
            scores=MappingProxyType(dict(self.last_scores)),
            encoder=method.encoder,
            preprocessing=self.prepared.preprocessing,
            device=next(method.parameters()).device,
            folder=self.run.path,
        )
        try:
            with self.training.averaged():
                numbers = callback.run(view, method)
        except CallbackError as error:
            self.run.metrics.append("event", step, event="failed", reason=str(error))
            raise
        if numbers:
            self.run.metrics.append("callback", step, epoch=epoch, seconds=round(self.seconds, 3), **numbers)
            self._tell(numbers, step)

    def on_stop(self, step: int) -> None:
        """Save the step at which the run stops, unless the epoch's end has just saved it."""
        check_weights(self.training.method, step)
        if step != self._saved:  # an earlier checkpoint of this step may be damaged, so it does not count
            self.save(step // self.training.data.num_batches, "last")

    def should_stop(self) -> bool:
        """Return whether someone asked the run to stop."""
        return self.stop.is_set

    def write_health(self, event: dict[str, Any]) -> None:
        """Log and show a decision or a finding about the run's health."""
        self.run.metrics.append("event", event="health", **event)
        self.listener.note(in_words(event))

    def return_to(self, saved: checkpoint.Checkpoint) -> None:
        """Restore the best value and the newest metrics and scores from ``saved``, from which training continues.

        The best value counts only if its checkpoint still exists: a later one may have replaced it.
        """
        state = saved.state or {}
        self.best, self.last_metrics = BestScore(**state["best"]) if state["best"] else None, state["metrics"]
        self.last_scores = saved.facts["scores"]
        if self.best and not checkpoint.holds(self.run.checkpoints, "best", self.best.step):
            self.best = None

    def forget_checkpoints_after(self, step: int) -> None:
        """Remove the checkpoints of later steps than ``step``, also from the store."""
        checkpoint.forget_after(self.run.checkpoints, step)
        self.syncer.push()

    def _record_scores(self, step: int, epochs_done: int, measured: HoldoutScores) -> bool:
        """Log the scores on held-out images; return whether the objective is the best so far."""
        self.last_scores = scores = measured.by_name
        cost = self._note_cost(measured.seconds)
        self.run.metrics.append("epoch", step, epoch=epochs_done, seconds=round(self.seconds, 3), **scores, **cost)
        self._tell({f"holdout/{name.removeprefix('holdout_')}": value for name, value in (scores | cost).items()}, step)
        self.writer.flush()
        objective = self.config.evaluation.objective
        is_best = objective in scores and scores[objective] > (self.best.value if self.best else -math.inf)
        if is_best:
            self.best = BestScore(objective, scores[objective], epochs_done, step)
        return is_best

    def _tell(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.loggers.write(values, step)

    def _note_cost(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Add up the time of monitors, show it the first time, and return what is logged about it."""
        if not seconds:
            return {}
        if self.monitor_seconds == 0.0:
            each = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
            self.listener.note(f"monitors take {sum(seconds.values()):.1f} s each time: {each}")
        self.monitor_seconds += sum(seconds.values())
        return {"monitor_seconds": round(sum(seconds.values()), 3)}

    def save(self, epochs_done: int, *kinds: checkpoint.Kind, on_notice: bool = False) -> None:
        """Save checkpoints of ``kinds``, in this order, after ``epochs_done`` whole epochs, and upload them together.

        ``on_notice``, a machine will be taken away: that is logged, and the request to save cleared.
        """
        if not kinds:
            return
        self.require_in_place()
        if not self._has_warned:
            self._warn(lost := lost_at_a_resume(self.training.method, self.training.attributes))
            self._has_warned = bool(lost)
        self.run.metrics.sync()  # records must be on disk before the checkpoint that covers them
        for kind in kinds:
            checkpoint.save(self.run.checkpoints, kind, self._checkpoint(kind, epochs_done))
        if "last" in kinds:
            self._saved = self.training.step
        if on_notice:
            self.run.metrics.append(
                "event", self.training.step, event="saved_early", reason="a machine will be taken away"
            )
        self.syncer.push()
        if on_notice:
            self.save_now.clear()

    def _checkpoint(self, kind: checkpoint.Kind, epochs_done: int) -> checkpoint.Checkpoint:
        training, health = self.training, self.health
        facts = {**asdict(self.prepared.facts), "epochs_done": epochs_done, "scores": self.last_scores}
        own: JsonObject = {
            "best": asdict(self.best) if self.best else {},
            "seconds": self.seconds,
            "metrics": self.last_metrics,
        }
        if self.monitor_seconds:
            own["monitor_seconds"] = self.monitor_seconds
        if health is not None:
            facts["healthy"], own["health"] = health.healthy, asdict(health)
            if findings := list(open_findings(health.events).values()):
                facts["findings"] = findings
        state = {**training.state(), **own} if kind == "last" else None
        with method_problems(type(training.method)):
            memories = {name: memory.state_dict() for name, memory in training.method.memories.items()}
        return checkpoint.Checkpoint(training.step, facts, training.model(), state, memories)

    def summary(self) -> RunSummary:
        """Return the result of the run that is complete."""
        config, training, facts = self.config, self.training, self.prepared.facts
        newest = checkpoint.latest_path(self.run.checkpoints)
        return RunSummary(
            method=config.method_name,
            dataset=config.data.name,
            seed=config.seed,
            epochs=config.training.epochs,
            steps=training.step,
            batch_size=config.training.batch_size,
            train_images=facts.train_images,
            holdout_images=facts.holdout_images,
            average_weights=config.training.average_weights,
            scores=self.last_scores,
            best=self.best,
            metrics=self.last_metrics,
            health=self.health.events if self.health else [],
            extensions=extensions(config.optimizer, config.training, training.data.num_batches),
            images_per_second=training.images_per_second.summary(),
            seconds=round(self.seconds, 2),
            monitor_seconds=round(self.monitor_seconds, 2),
            parameters=sum(p.numel() for p in training.method.encoder.parameters()),
            checkpoint=str(newest.relative_to(self.run.path)) if newest else None,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def on_rank_0(training: Training, recorder: Recorder | None, work: Callable[[Recorder], None]) -> None:
    """Do ``work`` on rank 0, which alone has a recorder, while the others wait; what it refuses is refused on all."""
    training.ranks.together(lambda: work(recorder) if recorder is not None else None)


def norm_of(method: Method) -> float:
    """Return the norm of all weights that are trained."""
    trained = [weight.detach().double().norm() for weight in method.parameters() if weight.requires_grad]
    return float(torch.stack(trained).norm()) if trained else 0.0


def _is_undone(health: Mapping[str, Any] | None, event: Mapping[str, Any]) -> bool:
    """Return whether an event is about health and unknown to the checkpoint, so that it will be written again."""
    if health is None or event.get("event") != "health":
        return False
    return {key: value for key, value in event.items() if key not in ("kind", "event")} not in health["events"]
