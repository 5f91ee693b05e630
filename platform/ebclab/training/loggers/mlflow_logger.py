"""MLflow: logs to ``MLFLOW_TRACKING_URI``, in the experiment ``MLFLOW_EXPERIMENT_NAME``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

from ebclab.training.loggers.run_logger import PROJECT, Ending, LoggedRun

_MOST_PARAMS = 100  # parameters in one request
_STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MlflowLogger:
    """A run in MLflow. Uses only its client, which does not record the command line or touch a run of the user's.

    Args:
        identity: Id of the MLflow run of an earlier launch; empty makes a new one.
    """

    def __init__(self, run: LoggedRun, identity: str) -> None:
        self._client = MlflowClient()
        if identity:
            self._client.update_run(identity, status="RUNNING")
            self._id = identity
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._id = self._client.create_run(place, run_name=run.name).info.run_id
        params = [Param(key, str(value)) for key, value in run.settings.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MOST_PARAMS])
        if run.sweep:
            self._client.log_batch(self._id, tags=[RunTag("sweep", run.sweep)])

    @property
    def identity(self) -> str:
        """Id of the MLflow run."""
        return self._id

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step in one request."""
        now = round(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    def close(self, ending: Ending) -> None:
        """Report how the launch ended; a resume sets the run to running again."""
        self._client.set_terminated(self._id, _STATUS[ending])
