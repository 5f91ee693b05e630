"""How a rank starts: fills the memories of a new run, or restores the run's newest intact checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from ebclab.errors import RunError
from ebclab.optimization.schedules import extensions
from ebclab.runs import checkpoint, environment
from ebclab.runs.folder import ENVIRONMENT, RunFolder
from ebclab.storage import atomic
from ebclab.storage.reading import read_json_object
from ebclab.training.fitting import fitting, load_memories
from ebclab.training.loop import Training
from ebclab.training.recorder import Recorder
from ebclab.training.setup import Prepared, method_problems, neighbours_problem, unscored_problem

_log = logging.getLogger("ebclab.training")


def continue_or_start(run: RunFolder, prepared: Prepared) -> checkpoint.Checkpoint | None:
    """Load the newest intact checkpoint into this rank, or fill the memories of a new run.

    Returns:
        The checkpoint; None for a run that has none yet.
    """
    training = prepared.training
    newest = training.ranks.together(lambda: _sound_checkpoint(run, prepared))
    seen = training.ranks.gather((newest.step if newest else 0, prepared.facts["data_digest"]))
    if len(set(seen)) > 1:
        raise RunError(
            f"{run.address}: the workers do not see the same checkpoint and images, got (step, digest) {seen}; "
            "put runs and datasets where all nodes see the same files"
        )
    if newest is None:
        with method_problems():
            training.method.start(prepared.draw)
    else:
        newest = training.ranks.together(partial(restore, training, newest, newest.step, run.address))
    training.shared = training.ranks.shared(training.method)
    return newest


def restore(training: Training, saved: checkpoint.Checkpoint, step: int, where: str) -> checkpoint.Checkpoint:
    """Load weights, memories, optimizer and generator of a checkpoint; training continues as after ``step`` steps.

    Args:
        step: Optimizer steps that count as done.
        where: The run, for messages.

    Returns:
        The checkpoint, its plain values typed.
    """
    checked = fitting(saved, training, where)
    training.method.load_state_dict(checked.model)
    load_memories(training.method, checked, training.view_shape, where)
    training.load_state(checked.state or {}, step)
    return checked


def write_start(recorder: Recorder, resumed: checkpoint.Checkpoint | None, facts: dict[str, Any]) -> None:
    """Log that the run starts or resumes, at which step, and what has changed since its first launch.

    Args:
        recorder: The run's recorder.
        resumed: The checkpoint from which the run resumes; None for a new run.
        facts: The environment of this launch, as ``describe_environment`` returns it.
    """
    run, training = recorder.run, recorder.training
    path = run.path / ENVIRONMENT
    launch = {"ranks": facts["ranks"], "num_steps": training.num_steps}
    if resumed is None:
        reached, dropped = (
            run.metrics.newest_measured(),
            run.metrics.forget_after(0, partial(_is_undone, {"events": []})),
        )
        lost = {"reached": reached, "dropped_records": dropped} if reached is not None else {}
        atomic.write_json(path, facts)
        run.metrics.append("event", 0, event="started", **lost, **launch)
        if lost:
            recorder.listener.note(f"starts over: it has no checkpoint, and its log reached step {reached}")
        _log_extensions(recorder)
        config = recorder.config
        for problem in (neighbours_problem(config, training.method), unscored_problem(config, recorder.facts)):
            if problem:
                run.metrics.append("event", 0, event="warning", text=problem)
                recorder.listener.note(f"warning: {problem}")
        return
    newest = run.metrics.newest_measured()
    reached = resumed.step if newest is None else newest
    dropped = run.metrics.forget_after(resumed.step, partial(_is_undone, (resumed.state or {}).get("health")))
    remedy = "delete the file, and the run continues without comparing machines"
    before = read_json_object(path, run.address_of(path), remedy=remedy) if path.exists() else {}
    changed = environment.differences(before, facts)
    ranks = run.metrics.newest_ranks()
    if ranks is not None and ranks != facts["ranks"]:
        run.metrics.append("event", resumed.step, event="ranks_changed", before=ranks, now=facts["ranks"])
    progress = {"reached": reached, "dropped_records": dropped, "environment_changes": changed}
    run.metrics.append("event", resumed.step, event="resumed", **progress, **launch)
    recorder.listener.note(f"resuming at step {resumed.step} of {training.num_steps}")
    _log_extensions(recorder)
    for line in changed:
        _log.warning("%s: results may differ in rounding from an undisturbed run; %s", run.path.name, line)


def _log_extensions(recorder: Recorder) -> None:
    """Log and show the extensions of the run that are not in its log yet."""
    config, log = recorder.config, recorder.run.metrics
    if made := extensions(config.optimizer, config.training, recorder.training.data.num_batches):
        known = sum(record.get("event") == "extended" for record in log.records())
        for extension in made[known:]:
            facts = asdict(extension)
            log.append("event", facts.pop("step"), event="extended", **facts, text=extension.in_words())
            recorder.listener.note(extension.in_words())


def _is_undone(health: Mapping[str, Any] | None, event: Mapping[str, Any]) -> bool:
    """Return whether an event is about health and unknown to the checkpoint, so that it will be written again."""
    if health is None or event.get("event") != "health":
        return False
    return {key: value for key, value in event.items() if key not in ("kind", "event")} not in health["events"]


def _sound_checkpoint(run: RunFolder, prepared: Prepared) -> checkpoint.Checkpoint | None:
    """Return the newest intact checkpoint of a run, or None; refuse one of a run on other images."""
    newest = run.load()
    if newest is None:
        return None
    if newest.facts.get("data_digest") != prepared.facts["data_digest"]:
        raise RunError(
            f"{run.address}: the training images are not those the run began with, got digest "
            f"{prepared.facts['data_digest']}, expected {newest.facts.get('data_digest')}; "
            "restore the files or start a new run"
        )
    return newest
