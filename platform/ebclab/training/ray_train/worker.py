"""Runs in every worker on a cluster: trains one rank of a run and returns how it ended as plain values."""

from __future__ import annotations

import json
import os
import socket
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ebclab.cluster.placement import Placement
from ebclab.cluster.versions import Origin
from ebclab.errors import DataError, EbclabError, RunError, UserError
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.metrics_log import LogEvents
from ebclab.runs.summary import RunSummary
from ebclab.storage import atomic
from ebclab.storage.reading import json_value
from ebclab.storage.signal_file import SignalFile
from ebclab.storage.sync import Syncer
from ebclab.storage.typed_json import typed
from ebclab.training.listener import Listener
from ebclab.training.process_group import Ranks
from ebclab.training.rank import DeviceAssignment, RunSpec, train_rank
from ebclab.training.ray_train.streamed import prepare_streamed
from ebclab.training.setup import Prepared, prepare

if TYPE_CHECKING:
    from ebclab.data.delivery.ray_data import Stream


REFUSAL = ".refused"
"""File in the run folder that says why restarted workers must not continue."""


@dataclass(frozen=True)
class StreamPart:
    """A worker's part of a stream."""

    stream: Stream  # the plan, and the images that selection needs in memory
    shard: Any  # the images of this worker, a ``ray.data.DataIterator``


@dataclass(frozen=True)
class WorkerOutcome:
    """How a worker's part of a run ended."""

    exit_code: int  # 0, or the exit code of the error that ended it
    text: str = ""  # the error's sentence for the user; empty without one
    summary: RunSummary | None = None  # the run's result, from rank 0 of a finished run


def train_on_worker(
    spec: RunSpec, placement: Placement, origin: Origin, part: StreamPart | None = None
) -> WorkerOutcome:
    """Train the rank that torch's process group gives to this process.

    Args:
        placement: The resources that this worker has reserved.
        origin: The machine that launched the run; this one must have the same versions.
        part: This worker's part of the stream; None if images are resident.

    Returns:
        How it ended. Errors of ebclab are returned, not raised, because
        Ray would restart the workers and they would fail again.
    """
    ranks = Ranks.of_process_group()
    spec = replace(spec, run=spec.run.of("worker"))
    refusal = spec.run.signal(REFUSAL)
    if (earlier := _recorded(refusal, spec.run)) is not None:
        return earlier
    try:
        assignment, prepared = ranks.together(lambda: _prepared(spec, placement, origin, ranks, part))
        who = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "ranks": ranks.world_size,
            "threads": assignment.threads,
        }
        spec.run.ray.mkdir(exist_ok=True)
        atomic.write_json(spec.run.ray / f"worker-{ranks.rank}.json", who)
        is_first = ranks.rank == 0
        with (
            LogEvents(spec.run.metrics, active=is_first),
            spec.run.sync(spec.token) if is_first else nullcontext(Syncer()) as syncer,
        ):
            summary = train_rank(spec, prepared, assignment, Listener(), spec.run.stop, syncer)
    except DataError as error:
        if part is None or ranks.alone:
            return _refused(error)
        refusal.write(json.dumps({"exit_code": error.exit_code, "text": str(error)}).encode())
        raise RuntimeError(str(error)) from error
    except EbclabError as error:
        return _refused(error)
    return WorkerOutcome(0, summary=summary)


def _recorded(refusal: SignalFile, run: RunFolder) -> WorkerOutcome | None:
    """Return the outcome that a worker wrote down before all workers were restarted; None if there is none."""
    try:
        text = refusal.read()
        return None if text is None else typed(json_value(text), WorkerOutcome)
    except ValueError as error:
        return _refused(
            RunError(f"{run.address}: {REFUSAL} cannot be read, got {error}; delete it, and repeat the command")
        )
    except EbclabError as error:
        return _refused(error)


def _refused(error: EbclabError) -> WorkerOutcome:
    return WorkerOutcome(error.exit_code, str(error))


def _prepared(
    spec: RunSpec, placement: Placement, origin: Origin, ranks: Ranks, part: StreamPart | None
) -> tuple[DeviceAssignment, Prepared]:
    origin.require_same_here()
    if not spec.run.pull(NEEDED).config_path.exists():
        raise UserError(
            f"{spec.run.path}: the worker on {socket.gethostname()} does not see the run folder; "
            "put --runs on storage that all nodes share, or into an object store"
        )
    resources = spec.config.resources
    device = resolve_device("cuda" if placement.gpus else "cpu", deterministic=resources.deterministic)
    assignment = DeviceAssignment(device, set_threads(resources.threads, placement.threads))
    if part is None:
        return assignment, prepare(spec.config, device, spec.images, spec.method_class, ranks, spec.weights)
    step = spec.run.newest_step()
    return assignment, prepare_streamed(
        spec.config, device, spec.method_class, ranks, part.stream, part.shard, step, spec.weights
    )
