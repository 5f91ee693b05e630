"""Launches a run on Ray Train, which places workers, starts them, watches them and restarts them when one dies.

The run folder stays the only source of truth. Rank 0 writes checkpoints, metrics and the result as in one process, and
restarted workers continue from the run's newest checkpoint. Ray's own files lie in ``<run>/.ray``. No worker calls
``ray.train.report``: it is a barrier for all workers, and would only tell Ray what the run folder already holds. Ray
notices dead workers because it polls them every second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray.data import Dataset
from ray.exceptions import RayError
from ray.train import DataConfig, UserCallback
from ray.train.torch import TorchConfig
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
from ray.train.v2.torch.torch_trainer import TorchTrainer

from ebclab.background import logged, repeating
from ebclab.cluster.death import death_in_words
from ebclab.cluster.join import cluster_session, cluster_size, nodes, nodes_to_come, on_drain, require_cluster
from ebclab.cluster.placement import (
    Placement,
    allowed_sizes,
    cpu_reservation,
    even_share,
    fed_workers,
    places,
    require_cpus,
)
from ebclab.cluster.train_internals import DatasetsCallback, ElasticScalingPolicy, NoopDecision, ScalingDecision
from ebclab.cluster.versions import Origin, require_same_versions
from ebclab.config.sections import BACKEND_ON_RAY, ON_RAY
from ebclab.data.delivery.ray_data.driver import Stream, plan_stream
from ebclab.data.delivery.ray_data.pipeline import build_dataset, execution_options
from ebclab.encoders.build import has_batch_norm
from ebclab.errors import EbclabError, StoreError, TrainingError, UserError
from ebclab.hardware import resolve_device
from ebclab.runs.death import how_it_died
from ebclab.runs.folder import RunFolder
from ebclab.runs.summary import RunSummary
from ebclab.training.callbacks import Scheduled
from ebclab.training.display import Listener
from ebclab.training.process_group import raised_elsewhere
from ebclab.training.ray_train.follow import RunFollower, watch
from ebclab.training.ray_train.streamed import delivery_of, require_labels
from ebclab.training.ray_train.worker import DEATHS, REFUSAL, WorkerOutcome, recorded_refusal, train_on_worker
from ebclab.training.setup import RunSpec, requirements_of
from energy_contrast.method import Requirements

_CHECKPOINT_SECONDS = 5.0  # between two looks of an elastic run into a store
_RESIZE_SECONDS = 60.0  # how often an elastic run looks for CPUs or GPUs that came or went
_LOOK_SECONDS = 15.0  # how often a run looks whether the nodes of the cluster hold its workers


def launch(spec: RunSpec, listener: Listener) -> RunSummary:
    """Train ``spec``, whose folder this process holds, on as many workers as its settings say; return its result.

    An instance of Ray that this process has already joined is used and left running.
    """
    _require_sendable(spec.callbacks)
    resources = spec.config.resources
    requirements = requirements_of(spec.config, spec.method_class)
    sizes = _sizes(spec, requirements)
    require_cluster(resources.cluster)  # before images are read, which may take long
    here = resolve_device("cpu" if resources.device == "cpu" else "auto")  # this node need not have a GPU
    require_labels(spec.config, spec.method_class, spec.images)
    choice = delivery_of(spec.config, spec.images, here)
    listener.note(choice.reason)
    for name in (REFUSAL, DEATHS):
        spec.run.signal(name).clear()
    spec.run.save_now.clear()
    follower = RunFollower(spec.run.metrics, spec.config.training.epochs, listener)
    with cluster_session(resources.cluster, listener) as head:
        require_same_versions()
        streamed = choice.delivery == "stream"
        placement = _place(spec, sizes, streamed=streamed)
        needs = {"num_views": requirements.num_views, "num_proposals": requirements.num_proposals}
        stream = plan_stream(spec.config, **needs) if streamed else None
        listener.note(f"starting {placement.in_words()}")
        trainer = _Trainer(spec, placement, stream)
        try:
            with (
                spec.run.downloading(spec.run.metrics.path.name),
                on_drain(partial(_save_now, spec, listener)),
                repeating(Missing(placement, listener).look, _LOOK_SECONDS),
            ):
                outcome: WorkerOutcome = watch(trainer.fit, follower, spec.run.stop).return_value
        except (TrainingFailedError, RayError) as error:
            raise (head.lost() or _failure(spec, error)) from error
    if outcome.summary is None:
        raise raised_elsewhere(outcome.kind or "EbclabError", outcome.text)
    return outcome.summary


def _require_sendable(callbacks: Sequence[Scheduled]) -> None:
    for each in callbacks:
        try:
            ray.cloudpickle.dumps(each.callback)  # type: ignore[no-untyped-call]
        except Exception as error:  # pickling may raise anything
            raise UserError(
                f"callback {each.name}: workers need a copy of it and it cannot be pickled, got {_first_line(error)}; "
                "keep open files, locks and connections out of it, or train with resources.workers=0"
            ) from error


def _save_now(spec: RunSpec, listener: Listener, machines: list[str]) -> None:
    listener.note(f"{', '.join(machines)} will be taken away: the workers save at their next log step")
    spec.run.save_now.set()


class Missing:
    """Says once, each time that it begins, that the nodes that are there do not hold the workers of a run.

    Ray waits silently, for machines that a cluster has yet to start or for one that is permanently gone.
    """

    def __init__(self, placement: Placement, listener: Listener) -> None:
        self._placement, self._listener, self._is_short = placement, listener, False

    def look(self) -> None:
        """Ask the cluster which nodes it has now."""
        fewest, before = self._placement.sizes[0], self._is_short
        held = places(nodes(), self._placement.cpus, self._placement.gpus)
        self._is_short = held < fewest
        if self._is_short and not before:
            self._listener.note(
                f"the cluster's nodes hold {held:g} of {fewest} workers now: the run waits for machines"
            )


def _sizes(spec: RunSpec, requirements: Requirements) -> tuple[int, ...]:
    config, groups = spec.config, requirements.batch_norm_groups
    if groups > 1 and not has_batch_norm(config.encoder):
        groups = 1
    return allowed_sizes(
        config.resources.workers,
        config.resources.max_workers or config.resources.workers,
        batch_size=config.training.batch_size,
        groups=(groups,),
        chunks=config.training.accumulate,
    )


def _place(spec: RunSpec, sizes: tuple[int, ...], *, streamed: bool) -> Placement:
    """Return the numbers of workers, and what each reserves, on the cluster that this process has joined."""
    resources = spec.config.resources
    cpus, gpus = cluster_size()
    with_gpu = resources.wants_gpu(gpus)
    there, to_come = nodes(), nodes_to_come(sizes[-1])
    share = resources.cpus_per_worker
    if not share:
        reserve = cpu_reservation if streamed else even_share
        share = max(reserve(each, sizes[-1], cpus=cpus, gpus=int(with_gpu)) for each in (there, to_come))
    placement = Placement(sizes, share, int(with_gpu))
    placement.require_room(cpus, gpus)
    require_cpus(cpus, sizes[0], share, streamed=streamed)
    placement.require_places([*there, *to_come])
    return placement


def _train_on_stream(spec: RunSpec, placement: Placement, origin: Origin, stream: Any) -> WorkerOutcome:
    """Train in a worker on its shard of a stream; ``stream`` is a reference to the stream in Ray's object store."""
    return train_on_worker(spec, placement, origin, (ray.get(stream), ray.train.get_dataset_shard("train")))


class _ElasticPolicy(ElasticScalingPolicy):
    """Ray's elastic policy, limited to numbers of workers that split a batch evenly, right after a checkpoint.

    Ray Train's controller asks it every second. Ray's own policy knows neither batch sizes nor the CPUs of Ray Data,
    which needs one that no worker has reserved if it delivers the images (``streamed``).
    """

    def __init__(self, scaling_config: ScalingConfig, placement: Placement, run: RunFolder, streamed: bool) -> None:
        super().__init__(scaling_config)
        self._placement, self._run, self._streamed = placement, run, streamed
        self._seen, self._looked = run.newest_checkpoint(), time.monotonic()

    def _fed(self) -> int:
        cpus = ray.cluster_resources().get("CPU", 0)  # type: ignore[no-untyped-call]
        return fed_workers(cpus, self._placement.cpus, streamed=self._streamed)

    def _count_possible_workers(self, reserved_resources: Any) -> int:
        return self._placement.largest(min(self._fed(), super()._count_possible_workers(reserved_resources)))

    def _newest(self) -> str:
        if self._run.remote is not None and time.monotonic() - self._looked < _CHECKPOINT_SECONDS:
            return self._seen
        self._looked = time.monotonic()
        try:
            return self._run.newest_checkpoint(seconds=0)
        except StoreError:  # the store does not answer, and Ray's controller must not wait
            return self._seen

    def make_decision_for_running_worker_group(
        self, worker_group_state: Any, worker_group_status: Any
    ) -> ScalingDecision:
        """Resize only right after a checkpoint, when little work is lost, or when CPUs for Ray Data are missing."""
        newest = self._newest()
        if newest == self._seen and worker_group_state.num_workers <= self._fed():
            return NoopDecision()
        self._seen = newest
        return super().make_decision_for_running_worker_group(worker_group_state, worker_group_status)


class _Trainer(TorchTrainer):
    """Ray's TorchTrainer for a run, with the elastic policy of this package if the run is elastic."""

    def __init__(self, spec: RunSpec, placement: Placement, stream: Stream | None) -> None:
        self._spec, self._placement = spec, placement
        sizes = placement.sizes
        origin = Origin.here()
        work = partial(train_on_worker, spec, placement, origin)
        ingest: dict[str, Any] = {}
        if stream is not None:
            work = partial(_train_on_stream, spec, placement, origin, ray.put(stream))
            num_batches = len(stream.plan.train) // spec.config.training.batch_size

            def dataset() -> Dataset:
                """Return the stream for a new group of workers, starting at the newest checkpoint."""
                step = spec.run.of("controller").pull(("last",)).newest_step()
                return build_dataset(stream.plan, first_epoch=step // max(1, num_batches))

            ingest["datasets"] = {"train": dataset}
            ingest["dataset_config"] = DataConfig(execution_options=execution_options())
        super().__init__(
            work,
            torch_config=TorchConfig(backend=f"cpu:gloo,{ON_RAY}:{BACKEND_ON_RAY}" if placement.gpus else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=(sizes[0], sizes[-1]) if placement.elastic else sizes[0],
                use_gpu=bool(placement.gpus),
                resources_per_worker={"CPU": placement.cpus} | ({"GPU": placement.gpus} if placement.gpus else {}),
                elastic_resize_monitor_interval_s=_RESIZE_SECONDS,
            ),
            run_config=RunConfig(
                name="train",
                storage_path=str(spec.run.ray),
                failure_config=FailureConfig(max_failures=spec.config.resources.max_failures),
                callbacks=[_TellsDeaths(spec.run)],
            ),
            **ingest,
        )

    def _create_default_callbacks(self) -> list[Any]:
        made = super()._create_default_callbacks()
        if self.datasets:
            return made
        return [each for each in made if not isinstance(each, DatasetsCallback)]  # would start a process for no dataset

    def _initialize_and_run_controller(self, **arguments: Any) -> Any:
        if self._placement.elastic:
            config = arguments["scaling_policy"].scaling_config
            arguments["scaling_policy"] = _ElasticPolicy(config, self._placement, self._spec.run, bool(self.datasets))
        return super()._initialize_and_run_controller(**arguments)


class _TellsDeaths(UserCallback):
    """Writes down why workers ended, for the log of those that are started after them; Ray's controller calls it."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def after_exception(self, run_context: object, worker_exceptions: Mapping[int, Exception]) -> None:
        with logged():  # a store that does not answer must not end the run
            self._run.of("controller").signal(DEATHS).write(_in_words(worker_exceptions, self._run).encode())


def _failure(spec: RunSpec, error: Exception) -> EbclabError:
    """Return an error that says in one sentence why Ray gave up."""
    good = spec.run.newest_checkpoint()
    kept = f"the last checkpoint is {good}; the same command resumes from there" if good else "there is no checkpoint"
    if (refused := recorded_refusal(spec.run, spec.run.signal(REFUSAL))) is not None:
        return raised_elsewhere(refused.kind or "EbclabError", refused.text)
    if not isinstance(error, WorkerGroupError):
        cause = getattr(error, "controller_failure", error)  # the first line of a ControllerError names no cause
        cause = getattr(cause, "cause", cause)  # that of a RayTaskError is where it was
        return TrainingError(f"Ray could not run the workers, got {_first_line(cause)}; {kept}")
    allowed, reasons = spec.config.resources.max_failures, _in_words(error.worker_failures, spec.run)
    return TrainingError(
        f"workers failed {allowed + 1} times, resources.max_failures allows {allowed}; the last time {reasons}; {kept}"
    )


def _in_words(failures: Mapping[int, Exception], run: RunFolder) -> str:
    deaths = {rank: _death(each, run, rank) for rank, each in failures.items()}
    order = sorted(failures, key=lambda rank: (not deaths[rank], rank))  # the others' errors follow from a death
    return "; ".join(f"worker {rank}: {deaths[rank] or _first_line(failures[rank])}" for rank in order)


def _death(error: Exception, run: RunFolder, rank: int) -> str:
    """Return how the process of a worker died; empty if it raised an error instead."""
    inner = getattr(error, "health_check_failure", None)
    died, pid = death_in_words(str(inner)) if isinstance(inner, RayError) else ("", "")
    return died + how_it_died(run.of("worker").ray, rank, pid)


def _first_line(error: BaseException) -> str:
    """Return the type and first line of an exception, without the long text that Ray adds."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no text'}"
