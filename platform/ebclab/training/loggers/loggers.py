"""All loggers of a run: each gets the same numbers, and none of them can end or change the run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

from ebclab.config import ExperimentConfig, to_mapping
from ebclab.config.addresses import without_credentials
from ebclab.config.names import is_folder_name
from ebclab.config.overrides import flat
from ebclab.errors import InterruptedRunError, RunError, UserError
from ebclab.formatting import how_to_install
from ebclab.runs.folder import RunFolder
from ebclab.storage import atomic
from ebclab.storage.reading import read_json_object
from ebclab.training.loggers.run_logger import Ending, LoggedRun, RunLogger
from ebclab.training.random_state import random_state_kept

IDENTITIES = "loggers.json"
"""File in a run folder with the identity of the run in each logger."""

_HOMES = {
    "mlflow": "ebclab.training.loggers.mlflow_logger:MlflowLogger",
    "wandb": "ebclab.training.loggers.wandb_logger:WandbLogger",
    "trackio": "ebclab.training.loggers.trackio_logger:TrackioLogger",
}
_log = logging.getLogger("ebclab.training")


def require_installed(names: Sequence[str]) -> None:
    """Check that the libraries of the named loggers can be imported here.

    Args:
        names: The value of ``training.loggers``.
    """
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
        self._open: dict[str, RunLogger] = {}

    def __enter__(self) -> Loggers:
        if names := self._config.training.loggers:
            known = self._identities()
            sweep = self._run.sweep().partition("?")[0].rpartition("/")[2]
            run = LoggedRun(self._run.path.name, sweep, self._run.path, flat(to_mapping(self._config)))
            for name in dict.fromkeys(names):
                self._guarded(name, self._started, name, run, known.get(name, ""))
            identities = {**known, **{name: logger.identity for name, logger in self._open.items()}}
            atomic.write_json(self._run.path / IDENTITIES, identities)
        return self

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step."""
        for name, logger in list(self._open.items()):
            self._guarded(name, logger.write, values, step)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        ending: Ending = "failed"
        if kind is None:
            ending = "finished"
        elif issubclass(kind, InterruptedRunError):
            ending = "stopped"
        for name, logger in list(self._open.items()):
            self._guarded(name, logger.close, ending)

    def _started(self, name: str, run: LoggedRun, identity: str) -> None:
        module, _, logger = _HOMES[name].partition(":")
        self._open[name] = getattr(import_module(module), logger)(run, identity)

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
