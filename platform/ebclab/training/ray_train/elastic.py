"""Decides how many workers an elastic run has and when that changes; Ray Train's controller asks every second.

Ray Train's own policy knows neither batch sizes nor the CPUs that Ray Data needs.
"""

from __future__ import annotations

import time
from typing import Any

import ray

from ebclab.cluster.placement import Placement, fed_workers
from ebclab.cluster.train_internals import ElasticScalingPolicy, NoopDecision, ScalingConfig, ScalingDecision
from ebclab.errors import StoreError
from ebclab.runs.folder import RunFolder

_LOOK = 5.0  # seconds between two looks into a store


class ElasticPolicy(ElasticScalingPolicy):
    """Ray's elastic policy, limited to numbers of workers that split a batch evenly, right after a checkpoint.

    Args:
        scaling_config: The configuration of Ray's own policy.
        placement: The allowed numbers of workers, and what each worker reserves.
        run: The run whose checkpoints set the moments for a change.
        streamed: Ray Data delivers the images and needs a CPU that no worker has reserved.
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
        if self._run.remote is not None and time.monotonic() - self._looked < _LOOK:
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
