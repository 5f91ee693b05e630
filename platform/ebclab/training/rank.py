"""Trains one rank of a run, in the user's own process or in a worker on a cluster."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

import torch
from torch.utils.tensorboard import SummaryWriter

from ebclab.config import ExperimentConfig
from ebclab.data.class_labels import num_unlabelled
from ebclab.data.sources.location import short_name
from ebclab.data.views.large import are_large
from ebclab.errors import DataError, DivergedError, EbclabError, InterruptedRunError, MethodError
from ebclab.evaluation.features import placed
from ebclab.evaluation.monitor import HoldoutScores, holdout_scores, require_images
from ebclab.evaluation.objectives import NEED_LABELS, OBJECTIVES, labels_problem
from ebclab.formatting import bounded, size
from ebclab.runs.checkpoint import Checkpoint
from ebclab.runs.environment import ONE_BY_ONE, describe_environment
from ebclab.runs.folder import RunFolder, in_place
from ebclab.runs.measured_references import pixel_bytes, reference_encoder
from ebclab.runs.references import PIXELS, REFERENCES, THE
from ebclab.runs.resume import record_images
from ebclab.runs.stop_request import Stop, stop_on_signals
from ebclab.runs.summary import RunSummary
from ebclab.storage import atomic
from ebclab.storage.mirror import Syncer
from ebclab.training.callbacks import Scheduled
from ebclab.training.display import Listener, images_in_words
from ebclab.training.health.findings import COLLAPSE_EPOCHS, FIRST_STEP, FindingRules
from ebclab.training.health.policy import HealthRecord
from ebclab.training.loop import Training, check_weights, train
from ebclab.training.recorder import Recorder, norm_of, on_rank_0
from ebclab.training.restore import continue_or_start
from ebclab.training.rollback import RollbackController
from ebclab.training.setup import Prepared, RunSpec, memory_of
from energy_contrast.sampling_method import SamplingMethod

_KNN: Literal["holdout_knn"] = "holdout_knn"
_MOST_PIXELS = 1 << 30  # bytes of raw pixels as features


def train_rank(spec: RunSpec, prepared: Prepared, listener: Listener, stop: Stop, syncer: Syncer) -> RunSummary | None:
    """Start or continue a run on this rank and train to its end; rank 0, which uses the listener, returns the result.

    Args:
        stop: Set when someone asks the run to stop; only rank 0 reads it.
        syncer: Brings what rank 0 writes to the run's store.
    """
    if prepared.training.ranks.rank == 0:
        return lead_rank(spec, prepared, listener, stop, syncer)
    record = _health_record(spec, prepared, continue_or_start(spec.run, prepared))
    prepared.training.ranks.together(lambda: None)  # rank 0 opens the folder; what it refuses there, all refuse
    _train(spec, prepared, None, _rollback(spec, prepared, record, None))
    return None


def lead_rank(spec: RunSpec, prepared: Prepared, listener: Listener, stop: Stop, syncer: Syncer) -> RunSummary:
    """Do what ``train_rank`` does, as rank 0, which writes the run folder."""
    training, began = prepared.training, time.monotonic()
    run = spec.run
    atomic.make_folder(run.checkpoints)  # a worker's copy of a run in a store may have none
    with in_place(run.path, run.checkpoints) as require_in_place, ExitStack() as opened:
        notes = _first_notes(spec.config, prepared)
        for line in notes:
            listener.note(line)
        resumed = continue_or_start(spec.run, prepared)

        def begin() -> Recorder:
            undone = 1 + (resumed.step if resumed else 0)  # from here on, TensorBoard hides what earlier launches wrote
            writer = opened.enter_context(SummaryWriter(str(run.own("tensorboard")), purge_step=undone))
            recorder = Recorder(
                spec,
                prepared,
                score=_monitor(spec.config, prepared),
                listener=listener,
                stop=stop,
                writer=writer,
                syncer=syncer,
                health=_health_record(spec, prepared, resumed),
                began=began,
                resumed=resumed,
                rules=_finding_rules(spec.config, prepared),
                require_in_place=require_in_place,
            )
            _write_start(recorder, resumed, notes)
            return recorder

        recorder = training.ranks.together(begin)
        rollback = _rollback(spec, prepared, recorder.health, recorder)
        listener.start(training.step, training.num_steps, spec.config.training.epochs)
        try:
            with stop_on_signals(stop, listener.note), recorder.loggers:
                _train(spec, prepared, recorder, rollback)
        finally:
            listener.stop()
        if skipped := training.loss_scale.in_words(training.step):
            listener.note(skipped)
        require_in_place()
        summary = recorder.summary()
        summary.write(spec.run.result)
        if references := _references(spec, prepared, recorder, listener):
            summary = replace(summary, references=references)
            summary.write(spec.run.result)
        return summary


def _write_start(recorder: Recorder, resumed: Checkpoint | None, notes: list[str]) -> None:
    """Write the images' digest into the settings of a new run, and into its log that it starts or resumes."""
    spec, prepared = recorder.spec, recorder.prepared
    if not spec.config.data.digest:
        record_images(spec.run, spec.config, prepared.digest)
    training, device = prepared.training, _device_of(prepared)
    facts = describe_environment(device, torch.get_num_threads(), training.ranks.world_size, spec.command)
    if training.config.compile == "graph":
        facts["steps"] = f"eager: {training.not_captured}" if training.not_captured else "one graph"
    height, width = prepared.bank.images.shape[-2:]
    on_cpu = device.type == "cpu" or spec.config.data.views_on == "pipeline"
    if on_cpu and are_large(height, width, prepared.preprocessing.image_size):
        facts |= ONE_BY_ONE
    recorder.write_start(resumed, facts, notes)


def _device_of(prepared: Prepared) -> torch.device:
    return prepared.training.generator.device


def _first_notes(config: ExperimentConfig, prepared: Prepared) -> list[str]:
    """Return what a launch shows first: the run's images, what its method keeps of them, why steps are not a graph."""
    bank, facts, training = prepared.bank, prepared.facts, prepared.training
    num_classes = len(bank.class_names) or int((torch.unique(bank.labels) >= 0).sum())
    counts = facts.train_images, facts.holdout_images, num_classes, config.training.batch_size
    notes = [f"{short_name(config.data.name)}: {images_in_words(*counts, facts.image_size)}"]
    if needed := memory_of(training.method, facts.in_channels, facts.image_size):
        notes.append(f"the method keeps {size(needed)} of images on each worker")
    if training.not_captured:
        notes.append(f"training.compile=graph: {training.not_captured}; steps run eagerly")
    return notes


def _monitor(config: ExperimentConfig, prepared: Prepared) -> Callable[[bool], HoldoutScores] | None:
    """Return a function that scores the encoder on held-out images; None without such images or their labels."""
    unlabelled = num_unlabelled(prepared.bank.labels)
    if problem := labels_problem(config.evaluation, unlabelled):
        raise DataError(problem)
    if len(prepared.holdout) == 0 or (config.evaluation.objective in NEED_LABELS and unlabelled):
        return None
    if config.evaluation.knn_every:
        require_images(prepared.bank, prepared.holdout, config.evaluation)

    def score(monitored: bool) -> HoldoutScores:
        with prepared.training.averaged():
            return holdout_scores(
                prepared.training.method.encoder,
                prepared.bank,
                prepared.holdout,
                prepared.preprocessing,
                config.evaluation,
                config.views,
                device=_device_of(prepared),
                monitors=config.evaluation.monitor if monitored else (),
                project=prepared.training.method.project,
            )

    return score


def _references(spec: RunSpec, prepared: Prepared, recorder: Recorder, listener: Listener) -> dict[str, float]:
    """Return the held-out kNN of raw pixels and of the untrained encoder; empty unless the spec asks for them.

    Raw pixels of many large images would be features of gigabytes, and are left out.
    """
    if not spec.references or _KNN not in recorder.last_scores:
        return {}
    pixels = pixel_bytes(prepared.bank, prepared.holdout)
    names = [name for name in REFERENCES if name != PIXELS or pixels <= _MOST_PIXELS]
    left_out = "" if PIXELS in names else f" ({PIXELS} would take {size(pixels)} of memory, and are left out)"
    listener.note(f"{OBJECTIVES[_KNN]} of {' and '.join(THE[name] for name in names)}, to compare with{left_out}")
    evaluation = replace(spec.config.evaluation, objective=_KNN)
    device, found = _device_of(prepared), dict[str, float]()
    for name in names:
        encoder, as_input = reference_encoder(name, spec.config, prepared.preprocessing)
        there, parts = placed(encoder, device), (prepared.bank, prepared.holdout)
        try:
            scores = holdout_scores(there, *parts, as_input, evaluation, spec.config.views, device=device)
        except (EbclabError, MemoryError, RuntimeError) as error:  # the run is complete without them
            listener.note(f"{THE[name]}: not measured, {type(error).__name__}: {bounded(str(error), 200)}")
        else:
            found[name] = scores.by_name[_KNN]
    return found


def _health_record(spec: RunSpec, prepared: Prepared, resumed: Checkpoint | None) -> HealthRecord | None:
    """Return the run's health so far; None when ``training.health`` is none."""
    if spec.config.training.health == "none":
        return None
    record = HealthRecord.of_state(resumed.state if resumed else None)
    if resumed is None:
        record.start_norm = norm_of(prepared.training.method)
    return record


def _finding_rules(config: ExperimentConfig, prepared: Prepared) -> FindingRules:
    """Return when this run counts as collapsed or as learning nothing."""
    holdout, warmup = prepared.holdout.labels, math.ceil(config.optimizer.warmup_epochs)
    known = len(holdout) > 0 and bool((holdout >= 0).all())
    return FindingRules(
        has_negatives=prepared.training.method.has_negatives,
        patience=max(1, min(COLLAPSE_EPOCHS, config.training.epochs - warmup)),
        warmup_epochs=warmup,
        first_step=FIRST_STEP,
        chance=int(torch.bincount(holdout).max()) / len(holdout) if known else 1.0,
        images=len(holdout),
    )


def _rollback(
    spec: RunSpec, prepared: Prepared, record: HealthRecord | None, recorder: Recorder | None
) -> RollbackController | None:
    """Return the controller of a run whose health is watched, else None; a new run's first state is saved."""
    if record is None:
        return None
    mode: Literal["act", "watch", "none"] = "watch" if spec.config.training.health == "watch" else "act"
    if not isinstance(prepared.training.method, SamplingMethod):
        mode = "none"
    rollback = RollbackController(spec.run, prepared.training, record, recorder, mode, replayable=prepared.replayable)
    rollback.begin()
    return rollback


def _train(spec: RunSpec, prepared: Prepared, recorder: Recorder | None, rollback: RollbackController | None) -> None:
    """Run the loop; rank 0 logs when it fails or stops early."""
    run, training = spec.run, prepared.training
    observer = RankObserver(training, recorder, spec.callbacks, rollback)
    try:
        on_rank_0(training, recorder, Recorder.require_health)
        complete = rollback.train(observer) if rollback else train(training, observer)
    except (DivergedError, MethodError) as error:
        if training.ranks.rank == 0 and not training.ranks.may_have_lost_another(error):
            run.metrics.append("event", training.step, event="failed", reason=str(error))
        if isinstance(error, MethodError):
            raise
        raise DivergedError(_advice(run, error, sampling=isinstance(training.method, SamplingMethod))) from error
    if complete:
        return
    if training.ranks.rank == 0:
        run.metrics.append("event", training.step, event="stopped")
    raise InterruptedRunError(
        f"stopped at step {training.step} of {training.num_steps}; everything is saved in {run.address}; "
        "the same command resumes from there"
    )


def _advice(run: RunFolder, error: DivergedError, *, sampling: bool) -> str:
    good = run.newest_checkpoint()
    saved = f"the last good checkpoint is {good}" if good else "no checkpoint was made before it"
    sampler = "method.step_size (too large), " if sampling else ""
    return (
        f"{error}\n{saved}\nlikely settings: {sampler}optimizer.learning_rate (too high), "
        "optimizer.warmup_epochs (too short), method.temperature (too low), training.precision (float16, bfloat16)"
    )


class RankObserver:
    """The loop's observer on one rank: rank 0 records, and all ranks wait for it and stop together.

    Several ranks stop at log steps only, because asking rank 0 is an exchange between all ranks, too slow for every
    step. One rank alone can stop after every step. A notice about a machine takes effect at log steps.

    Args:
        training: This rank's training.
        recorder: On rank 0 the run's recorder, else None.
        callbacks: Callbacks, which rank 0 runs while all ranks wait.
        rollback: Keeps the run's health, and may take the run back from the end of an epoch; None if nobody watches it.
    """

    def __init__(
        self,
        training: Training,
        recorder: Recorder | None,
        callbacks: Sequence[Scheduled] = (),
        rollback: RollbackController | None = None,
    ) -> None:
        self._training, self._recorder, self._callbacks, self._rollback = training, recorder, callbacks, rollback
        self._has_logged = False

    def on_log(self, step: int, epoch: int, metrics: dict[str, float]) -> None:
        """Write one training record on rank 0 while the others wait."""
        self._has_logged = True
        if self._rollback is not None:
            self._rollback.add(metrics)
        self._on_rank_0(lambda recorder: recorder.on_log(step, epoch, metrics))

    def on_epoch(self, step: int, epochs_done: int) -> None:
        """Score, record and save on rank 0 while the others wait, unless the run has gone back."""
        if self._rollback is not None and not self._rollback.end_epoch():
            return

        def record() -> None:
            if self._recorder is None:
                check_weights(self._training.method, step)
            else:
                self._recorder.on_epoch(step, epochs_done)

        self._training.ranks.together(record)

    def on_step(self, step: int) -> None:
        """Run the callbacks that are due on rank 0 while the others wait; their time is none of training's rate."""
        if any(callback.is_due(step, None, ends=False) for callback in self._callbacks):
            self._on_rank_0(lambda recorder: recorder.run_callbacks(step))
            self._training.images_per_second.restart()

    def on_stop(self, step: int) -> None:
        """Save on rank 0 while the others wait."""
        self._on_rank_0(lambda recorder: recorder.on_stop(step))

    def should_stop(self) -> bool:
        """Return on every rank whether rank 0 was asked to stop; save first when a machine will be taken away."""
        ranks, recorder, has_logged = self._training.ranks, self._recorder, self._has_logged
        self._has_logged = False
        if not has_logged and not ranks.alone:
            return False
        asked = (False, False)
        if recorder is not None:
            asked = recorder.should_stop(), has_logged and recorder.is_on_notice
        stop, save = ranks.gather(asked)[0]
        if save:
            self._on_rank_0(Recorder.save_early)
        return stop

    def _on_rank_0(self, work: Callable[[Recorder], None]) -> None:
        on_rank_0(self._training, self._recorder, work)
