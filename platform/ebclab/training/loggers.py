"""Loggers beside TensorBoard: sends what a run logs to MLflow, Weights & Biases or Trackio.

Each of them gets the same numbers, and none of them can end or change the run.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from types import TracebackType
from typing import Any, Literal

from ebclab.config import ExperimentConfig, to_mapping
from ebclab.config.experiment import flat
from ebclab.config.names import is_folder_name
from ebclab.errors import InterruptedRunError, RunError, UserError
from ebclab.formatting import how_to_install, without_credentials
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.storage.own_folder import own_folder
from ebclab.storage.reading import read_json_object
from ebclab.training.callbacks import random_state_kept

IDENTITIES = "loggers.json"
"""File in a run folder with the identity of the run in each logger."""

_PROJECT = "ebclab"
"""Name of the project or experiment if the library's own environment variable does not name one."""

_Ending = Literal["finished", "stopped", "failed"]
_log = logging.getLogger("ebclab.training")


class _Logger:
    """One run in a logger. An error that it raises ends the logger, not the run."""

    identity: str
    """Id or name by which the library finds the run again when it is resumed."""

    _run: Any  # the library's own

    def __init__(self, run: RunFolder, sweep: str, settings: Mapping[str, Any], identity: str) -> None:
        """Begin, or continue the run of an earlier launch.

        Args:
            sweep: Name of the sweep that the run is a trial of; empty for a run of its own.
            settings: Settings of the run by dotted key.
            identity: Identity of the run of an earlier launch; empty makes a new one.
        """
        raise NotImplementedError

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Hand the numbers of a step to the library's own process or thread."""
        self._run.log(dict(values), step=step)

    def close(self, ending: _Ending) -> None:
        """Send what is left, and report how this launch ended."""
        raise NotImplementedError


class _Mlflow(_Logger):
    """Logs to ``MLFLOW_TRACKING_URI``, in the experiment ``MLFLOW_EXPERIMENT_NAME``.

    Uses only MLflow's client, which does not record the command line or touch a run of the user's.
    """

    _MOST_PARAMS = 100  # in one request

    def __init__(self, run: RunFolder, sweep: str, settings: Mapping[str, Any], identity: str) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param, RunTag

        self._client = MlflowClient()
        self.identity = identity
        if identity:
            self._client.update_run(identity, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.identity = self._client.create_run(place, run_name=run.path.name).info.run_id
        params = [Param(key, str(value)) for key, value in settings.items()]
        for start in range(0, len(params), self._MOST_PARAMS):
            self._client.log_batch(self.identity, params=params[start : start + self._MOST_PARAMS])
        if sweep:
            self._client.log_batch(self.identity, tags=[RunTag("sweep", sweep)])

    def write(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        self._client.log_batch(self.identity, metrics=[Metric(key, value, now, step) for key, value in values.items()])

    def close(self, ending: _Ending) -> None:
        status = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[ending]
        self._client.set_terminated(self.identity, status)  # a resume sets the run to running again


class _Wandb(_Logger):
    """Weights & Biases: configured by its own environment variables, such as ``WANDB_MODE`` and ``WANDB_PROJECT``.

    Only settings and numbers are sent; not console, code, git state or command line. Its process drops steps that a
    resume repeats.
    """

    def __init__(self, run: RunFolder, sweep: str, settings: Mapping[str, Any], identity: str) -> None:
        import wandb

        self.identity = identity or uuid.uuid4().hex
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=run.path.name,
            group=sweep or None,
            id=self.identity,
            resume="allow",
            config=dict(settings),
            dir=str(own_folder(run.path, "wandb").parent),
            reinit="create_new",  # leaves a run of the user's open
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_meta=True,
                x_save_requirements=False,
                silent=True,
            ),
        )

    def close(self, ending: _Ending) -> None:
        self._run.finish(exit_code=0 if ending == "finished" else 1)


class _Trackio(_Logger):
    """Trackio: logs to a database in ``TRACKIO_DIR``, or wherever its own environment variables point.

    It identifies runs by name: a few digits distinguish runs of the same name.
    """

    def __init__(self, run: RunFolder, sweep: str, settings: Mapping[str, Any], identity: str) -> None:
        import trackio

        self.identity = identity or f"{run.path.name}-{uuid.uuid4().hex[:8]}"
        with redirect_stdout(sys.stderr):  # it prints where it logs
            self._run = trackio.init(
                _PROJECT,
                name=self.identity,
                group=sweep or None,
                config=dict(settings),
                resume="allow",
                embed=False,
            )

    def close(self, ending: _Ending) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()


_LOGGERS: dict[str, type[_Logger]] = {"mlflow": _Mlflow, "wandb": _Wandb, "trackio": _Trackio}


def require_installed(names: Sequence[str]) -> None:
    """Check that the libraries of the loggers in ``training.loggers`` can be imported here."""
    problems = []
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            problems.append(
                f"training.loggers: {name} cannot be imported here, got {error}; "
                f"run {how_to_install(name)}, or leave it out"
            )
    if problems:
        raise UserError("\n".join(problems))


class Loggers:
    """The loggers of one launch of a run, open within a ``with`` block; may be none.

    A logger that raises an error is dropped for the rest of the launch, with a warning in the run's log.
    """

    def __init__(self, run: RunFolder, config: ExperimentConfig) -> None:
        self._run, self._config = run, config
        self._open: dict[str, _Logger] = {}

    def __enter__(self) -> Loggers:
        if names := self._config.training.loggers:
            known = self._identities()
            sweep = self._run.sweep().partition("?")[0].rpartition("/")[2]
            settings = flat(to_mapping(self._config))
            for name in dict.fromkeys(names):
                self._guarded(name, self._start, name, sweep, settings, known.get(name, ""))
            identities = {**known, **{name: logger.identity for name, logger in self._open.items()}}
            atomic.write_json(self._run.path / IDENTITIES, identities)
        return self

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step."""
        for name, logger in list(self._open.items()):
            self._guarded(name, logger.write, values, step)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        ending: _Ending = "failed"
        if kind is None:
            ending = "finished"
        elif issubclass(kind, InterruptedRunError | SystemExit):  # SystemExit: its sweep ends a trial
            ending = "stopped"
        for name, logger in list(self._open.items()):
            self._guarded(name, logger.close, ending)

    def _start(self, name: str, sweep: str, settings: Mapping[str, Any], identity: str) -> None:
        self._open[name] = _LOGGERS[name](self._run, sweep, settings, identity)

    def _identities(self) -> dict[str, str]:
        """Return the identities of the run in the loggers of earlier launches; empty if the file cannot be read."""
        path = self._run.path / IDENTITIES
        try:
            content = read_json_object(path) if path.exists() else {}
        except RunError as error:
            _log.warning("%s; its loggers begin new runs", error)
            content = {}
        return {name: each for name, each in content.items() if isinstance(each, str) and is_folder_name(each)}

    def _guarded(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Call a logger: the run's random state is restored afterwards, and a logger that raises is dropped."""
        try:
            with random_state_kept():
                work(*arguments)
        except Exception as error:  # whatever a library raises, the run continues
            self._open.pop(name, None)
            what = without_credentials(f"{type(error).__name__}: {error}").splitlines()[0]
            _log.warning("training.loggers: %s failed, and the run continues without it: %.300s", name, what)
