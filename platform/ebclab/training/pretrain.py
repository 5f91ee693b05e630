"""One pretraining run, from settings to a finished run folder, in this process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from ebclab.config import ExperimentConfig
from ebclab.data.image_set import ImageSet
from ebclab.errors import InterruptedRunError, RunError, TrainingError
from ebclab.evaluation.monitor import holdout_knn
from ebclab.training import atomic, checkpoint, environment
from ebclab.training.device import resolve_device
from ebclab.training.display import Display, choose_display
from ebclab.training.interrupt import StopFlag, stop_on_signals
from ebclab.training.loop import train
from ebclab.training.prepare import Prepared, prepare
from ebclab.training.recorder import Recorder
from ebclab.training.run_folder import RunFolder, claim, find
from ebclab.training.threads import set_threads
from energy_contrast.catalog import METHODS
from energy_contrast.method import Method

_log = logging.getLogger("ebclab.training")


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        path: Its folder.
        result: What result.json says.
        was_finished: The run had already finished before this call.
    """

    path: Path
    result: dict[str, Any]
    was_finished: bool


def default_name(config: ExperimentConfig) -> str:
    """Return the name of a run that was given none: method, dataset and seed."""
    return f"{config.method_name}-{config.data.name}-seed{config.seed}"


def pretrain(
    config: ExperimentConfig,
    *,
    runs: str | Path = "runs",
    name: str | None = None,
    resume: bool = False,
    images: ImageSet | None = None,
    method: type[Method] | None = None,
    display: Display | None = None,
) -> RunResult:
    """Pretrain an encoder, or continue, or return what an equal run has already found.

    Args:
        config: Resolved settings.
        runs: Folder that holds run folders.
        name: Name of the run; None makes one of method, dataset and seed.
        resume: Insist on continuing: a missing run is then an error.
        images: Own training images in place of the dataset named in ``config``.
        method: Own Method class in place of the catalogue's ``config.method_name``.
        display: Where progress is shown; None chooses by the terminal.

    Raises:
        UserError: The run cannot be made as asked.
        TrainingError: Numbers stopped being finite.
        InterruptedRunError: Somebody asked to stop; everything is saved.
    """
    method_class = method or METHODS[config.method_name]
    device = resolve_device(config.resources.device, deterministic=config.resources.deterministic)
    methods = {**METHODS, config.method_name: method_class}
    run, state = find(Path(runs) / (name or default_name(config)), config, methods, resume=resume)
    result = run.read_result()
    if state == "finished" and result is not None:
        return RunResult(run.path, result, was_finished=True)
    threads = set_threads(config.resources.threads)
    prepared = prepare(config, device, images, method_class)
    display = display or choose_display()
    with claim(run, config), SummaryWriter(str(run.path / "tensorboard")) as writer:
        recorder = _recorder(run, config, prepared, device, display, writer)
        _restore_or_start(recorder, prepared, environment.describe_environment(device, threads))
        return RunResult(run.path, _train(recorder, prepared), was_finished=False)


def _recorder(
    run: RunFolder,
    config: ExperimentConfig,
    prepared: Prepared,
    device: torch.device,
    display: Display,
    writer: SummaryWriter,
) -> Recorder:
    return Recorder(
        run=run,
        config=config,
        training=prepared.training,
        facts=prepared.facts,
        score=_monitor(config, prepared, device),
        display=display,
        stop=StopFlag(),
        writer=writer,
        best={},
    )


def _monitor(config: ExperimentConfig, prepared: Prepared, device: torch.device) -> Callable[[], float] | None:
    """Return the held-out kNN score, or None when nothing is held out or nothing is labelled."""
    if len(prepared.holdout) == 0 or bool((prepared.train.labels < 0).any()):
        return None

    def score() -> float:
        return holdout_knn(
            prepared.training.method.encoder,
            prepared.train,
            prepared.holdout,
            prepared.preprocessing,
            config.evaluation,
            device=device,
            bank_limit=config.evaluation.knn_bank_limit,
        )

    return score


def _restore_or_start(recorder: Recorder, prepared: Prepared, facts: dict[str, Any]) -> None:
    """Load the newest sound checkpoint into the run, or prepare a new run's memories."""
    run, training = recorder.run, prepared.training
    found = checkpoint.load(run.checkpoints)
    environment_path = run.path / "environment.json"
    if found is None:
        run.metrics.forget_after(0)
        training.method.start(prepared.data.draw)
        atomic.write_json(environment_path, facts)
        return
    if found.facts["data_digest"] != prepared.facts["data_digest"]:
        raise RunError(
            f"{run.path}: the training images are not those the run began with, got digest "
            f"{prepared.facts['data_digest']}, expected {found.facts['data_digest']}; "
            "restore the files or start a new run"
        )
    if found.state is None:
        raise RunError(f"{run.path}: the checkpoint at step {found.step} lacks state.pt; it cannot be continued")
    training.method.load_state_dict(found.model)
    for name, memory in training.method.memories.items():
        memory.load_state_dict(found.memories[name])
    training.load_state(found.state, found.step)
    recorder.restore(found)
    dropped = run.metrics.forget_after(found.step)
    before = json.loads(environment_path.read_text(encoding="utf-8")) if environment_path.exists() else {}
    changed = environment.differences(before, facts)
    run.metrics.append("event", found.step, event="resumed", dropped_records=dropped, environment_changes=changed)
    recorder.display.note(f"resuming at step {found.step} of {training.num_steps}")
    for line in changed:
        _log.warning("%s: results may differ in rounding from an undisturbed run; %s", run.path.name, line)


def _train(recorder: Recorder, prepared: Prepared) -> dict[str, Any]:
    run, training, display = recorder.run, prepared.training, recorder.display
    epochs = recorder.config.training.epochs
    display.start(training.step, training.num_steps, epochs)
    try:
        with stop_on_signals(recorder.stop):
            complete = train(training, recorder)
    except TrainingError as error:
        run.metrics.append("event", training.step, event="failed", reason=str(error))
        raise TrainingError(_advice(run, error)) from error
    finally:
        display.stop()
    if not complete:
        run.metrics.append("event", training.step, event="stopped")
        raise InterruptedRunError(
            f"stopped at step {training.step} of {training.num_steps}; everything is saved in {run.path}; "
            "the same command goes on from there"
        )
    result = _result(recorder, prepared)
    atomic.write_json(run.result_path, result)
    return result


def _result(recorder: Recorder, prepared: Prepared) -> dict[str, Any]:
    config, training = recorder.config, prepared.training
    newest = checkpoint.latest_path(recorder.run.checkpoints)
    return {
        "format": 1,
        "method": config.method_name,
        "dataset": config.data.name,
        "seed": config.seed,
        "epochs": config.training.epochs,
        "steps": training.step,
        "batch_size": config.training.batch_size,
        "train_images": len(prepared.train),
        "holdout_images": len(prepared.holdout),
        "holdout_knn": recorder.last_score,
        "best": recorder.best or None,
        "metrics": recorder.last_metrics,
        "images_per_second": training.images_per_second.summary(),
        "seconds": round(recorder.seconds, 2),
        "parameters": sum(p.numel() for p in training.method.encoder.parameters()),
        "checkpoint": str(newest.relative_to(recorder.run.path)) if newest else None,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _advice(run: RunFolder, error: TrainingError) -> str:
    good = checkpoint.latest_path(run.checkpoints)
    kept = f"the last good checkpoint is {good}" if good else "no checkpoint was made before it"
    return (
        f"{error}\n{kept}\nlikely settings: optimizer.learning_rate (too high), optimizer.warmup_epochs (too short), "
        "method.temperature (too low), training.precision (bfloat16)"
    )
