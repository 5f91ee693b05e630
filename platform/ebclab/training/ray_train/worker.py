"""Runs in every worker on a cluster: trains one rank of a run and returns how it ended as plain values."""

from __future__ import annotations

import json
import logging
import socket
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ebclab.cluster.placement import Placement
from ebclab.cluster.versions import Origin
from ebclab.config.sections import ON_RAY
from ebclab.errors import DataError, EbclabError, MethodError, RunError, UserError
from ebclab.hardware import resolve_device, set_threads
from ebclab.runs.death import watched
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.runs.metrics_log import LogEvents
from ebclab.runs.summary import RunSummary
from ebclab.storage.mirror import Syncer
from ebclab.storage.reading import json_value, typed
from ebclab.storage.signal_file import SignalFile
from ebclab.training.display import Listener
from ebclab.training.process_group import ErrorKind, Ranks, kind_of
from ebclab.training.rank import train_rank
from ebclab.training.ray_train.streamed import prepare_streamed
from ebclab.training.setup import Prepared, RunSpec, prepare

if TYPE_CHECKING:
    from ebclab.data.delivery.ray_data.driver import Stream

StreamPart: TypeAlias = "tuple[Stream, Any]"
"""A stream, and a worker's part of it: a ``ray.data.DataIterator``."""

REFUSAL = ".refused"
"""File in the run folder that says why restarted workers must not continue."""

DEATHS = ".deaths"
"""File in the run folder that says how workers ended; those that are started after them log it."""

_log = logging.getLogger("ebclab.training")


@dataclass(frozen=True)
class WorkerOutcome:
    """How a worker's part of a run ended."""

    kind: ErrorKind | None  # that of the error that ended it; None without one
    text: str = ""  # the error's sentence for the user; empty without one
    summary: RunSummary | None = None  # the run's result, from rank 0 of a finished run


def train_on_worker(
    spec: RunSpec, placement: Placement, origin: Origin, part: StreamPart | None = None
) -> WorkerOutcome:
    """Train the rank that torch's process group gives to this process.

    Errors of ebclab are returned, not raised, because Ray would restart the workers and they would fail again.

    Args:
        placement: The resources that this worker has reserved.
        origin: The machine that launched the run; this one must have the same versions.
        part: None if images are resident.
    """
    ranks = Ranks.of_process_group()
    spec = replace(spec, run=spec.run.of("worker"))
    refusal = spec.run.signal(REFUSAL)
    if (earlier := recorded_refusal(spec.run, refusal)) is not None:
        return earlier
    try:
        ranks.together(lambda: _require_run(spec, origin))
        with watched(spec.run.ray, ranks.rank, ranks=ranks.world_size):
            prepared = ranks.together(lambda: _prepared(spec, placement, ranks, part))
            is_first = ranks.rank == 0
            with (
                LogEvents(spec.run.metrics, active=is_first),
                spec.run.sync(spec.token) if is_first else nullcontext(Syncer()) as syncer,
            ):
                if is_first:
                    _log_deaths(spec.run)
                summary = train_rank(spec, prepared, Listener(), spec.run.stop, syncer)
    except (DataError, MethodError) as error:  # of one rank: the others wait for it until all are started again
        if ranks.alone or (part is None and isinstance(error, DataError)):
            return _refused(error)
        if not ranks.may_have_lost_another(error):
            refusal.write(json.dumps({"kind": kind_of(error), "text": str(error)}).encode())
        raise RuntimeError(str(error)) from error
    except EbclabError as error:
        return _refused(error)
    return WorkerOutcome(None, summary=summary)


def recorded_refusal(run: RunFolder, refusal: SignalFile) -> WorkerOutcome | None:
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


def _log_deaths(run: RunFolder) -> None:
    deaths = run.signal(DEATHS)
    if (text := deaths.read()) is not None:
        _log.warning("%s; the workers were started again", text.decode(errors="replace"))
        deaths.clear()


def _refused(error: EbclabError) -> WorkerOutcome:
    return WorkerOutcome(kind_of(error), str(error))


def _require_run(spec: RunSpec, origin: Origin) -> None:
    origin.require_same_here()
    if not spec.run.pull(NEEDED).config_path.exists():
        raise UserError(
            f"{spec.run.path}: the worker on {socket.gethostname()} does not see the run folder; "
            "put --runs on storage that all nodes share, or into an object store"
        )


def _prepared(spec: RunSpec, placement: Placement, ranks: Ranks, part: StreamPart | None) -> Prepared:
    resources = spec.config.resources
    device = resolve_device(ON_RAY if placement.gpus else "cpu", deterministic=resources.deterministic)
    set_threads(resources.threads, placement.threads)
    with LogEvents(spec.run.metrics, active=ranks.rank == 0):
        if part is None:
            return prepare(spec.config, device, spec.images, spec.method_class, ranks, spec.weights)
        step = spec.run.newest_step()
        return prepare_streamed(spec.config, device, spec.method_class, ranks, *part, step, spec.weights)
