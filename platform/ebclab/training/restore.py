"""How a rank begins: with a new run's memories, or from the run's newest sound checkpoint."""

from __future__ import annotations

import json
import logging
from typing import Any

from ebclab.errors import ConfigError, RunError
from ebclab.runs import checkpoint, environment
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.training.loop import Training
from ebclab.training.recorder import Recorder
from ebclab.training.setup import Prepared

_log = logging.getLogger("ebclab.training")


def continue_or_start(run: RunFolder, prepared: Prepared) -> checkpoint.Checkpoint | None:
    """Load the newest sound checkpoint into this rank, or prepare a new run's memories.

    Returns:
        The checkpoint, or None for a run that has none yet.

    Raises:
        RunError: The checkpoint does not belong to these images, cannot be continued, or is not the other ranks'.
        ConfigError: The method's settings do not fit these images or this machine.
    """
    training = prepared.training
    found = training.ranks.together(lambda: _sound_checkpoint(run, prepared))
    seen = training.ranks.gather((found.step if found else 0, prepared.facts["data_digest"]))
    if len(set(seen)) > 1:
        raise RunError(
            f"{run.address}: the workers do not see the same checkpoint and images, got (step, digest) {seen}; "
            "put runs and datasets where all nodes see the same files"
        )
    if found is None or found.state is None:
        _start(prepared)
    else:
        restore(training, found, found.step)
    training.shared = training.ranks.shared(training.method)
    return found


def restore(training: Training, found: checkpoint.Checkpoint, step: int) -> None:
    """Take weights, memories, optimizer and generator from a checkpoint and go on as after ``step`` steps."""
    training.method.load_state_dict(found.model)
    for name, memory in training.method.memories.items():
        memory.load_state_dict(found.memories[name])
    training.load_state(found.state or {}, step)


def _start(prepared: Prepared) -> None:
    """Let the method prepare what it keeps of the training images, and put a refusal into the user's words."""
    try:
        prepared.training.method.start(prepared.draw)
    except ValueError as error:
        raise ConfigError([f"method.{error}"]) from error


def write_start(recorder: Recorder, found: checkpoint.Checkpoint | None, facts: dict[str, Any]) -> None:
    """Write down that the run starts or goes on, where, and what has changed since it began."""
    run, training = recorder.run, recorder.training
    path = run.path / "environment.json"
    launch = {"ranks": facts["ranks"], "num_steps": training.num_steps}
    if found is None:
        run.metrics.forget_after(0)
        atomic.write_json(path, facts)
        run.metrics.append("event", 0, event="started", **launch)
        return
    recorder.restore(found)
    reached = max((r["step"] for r in run.metrics.records() if r["kind"] != "event"), default=found.step)
    dropped = run.metrics.forget_after(found.step)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    changed = environment.differences(before, facts)
    launches = [record["ranks"] for record in run.metrics.records() if "ranks" in record]
    if launches and launches[-1] != facts["ranks"]:
        run.metrics.append("event", found.step, event="ranks_changed", before=launches[-1], now=facts["ranks"])
    told = {"reached": reached, "dropped_records": dropped, "environment_changes": changed}
    run.metrics.append("event", found.step, event="resumed", **told, **launch)
    recorder.display.note(f"resuming at step {found.step} of {training.num_steps}")
    for line in changed:
        _log.warning("%s: results may differ in rounding from an undisturbed run; %s", run.path.name, line)


def _sound_checkpoint(run: RunFolder, prepared: Prepared) -> checkpoint.Checkpoint | None:
    """Return the newest sound checkpoint of a run with these images, or None when it has none."""
    found = run.load()
    if found is None:
        return None
    if found.facts["data_digest"] != prepared.facts["data_digest"]:
        raise RunError(
            f"{run.address}: the training images are not those the run began with, got digest "
            f"{prepared.facts['data_digest']}, expected {found.facts['data_digest']}; "
            "restore the files or start a new run"
        )
    if found.state is None:
        raise RunError(f"{run.address}: the checkpoint at step {found.step} lacks state.pt; it cannot be continued")
    return found
