"""RunFolder: the folder of one run, the only source of truth about it.

config.yaml  environment.json  metrics.jsonl  answers.json  tensorboard/  checkpoints/  result.json
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ebclab.config import ExperimentConfig, load_yaml_file, parse_experiment
from ebclab.errors import ConfigError, RunError, TrainingError
from ebclab.evaluation.answers import Answers
from ebclab.methods_by_name import Methods, catalogue
from ebclab.runs import checkpoint
from ebclab.runs.metrics_log import MetricsLog
from ebclab.runs.stop_request import FileRequest
from ebclab.runs.summary import RunSummary
from ebclab.storage import atomic
from ebclab.storage.kinds import RUN, SWEEP
from ebclab.storage.mirror import CHECKPOINTS, whole_checkpoints
from ebclab.storage.object_store import Store, holds
from ebclab.storage.own_folder import OpenFolder
from ebclab.storage.reading import read_typed, with_checksum
from ebclab.storage.workspace import Workspace

NEEDED: tuple[checkpoint.Kind, ...] = ("last", "best")
"""Kinds of checkpoints that a run needs in order to continue."""

ERROR = RUN.leftover
"""File with the traceback in the run folder of a failed trial."""

ENVIRONMENT = "environment.json"
"""File with versions, machine and device of the run's first launch."""

EVALUATION = "evaluation.json"
"""File with what ``ebclab evaluate`` measured on the run's own dataset."""


class RunFolder(Workspace):
    """Paths and files of one run."""

    kind = RUN

    @property
    def checkpoints(self) -> Path:
        return self.own(CHECKPOINTS)

    def load(self, kind: checkpoint.Kind = "last", step: int | None = None) -> checkpoint.Checkpoint | None:
        """Return the newest intact checkpoint on this disk, as ``checkpoint.load`` does."""
        return checkpoint.load(self.checkpoints, kind, self.address_of(self.checkpoints), step)

    def load_healthy(self) -> checkpoint.Checkpoint | None:
        """Return the newest intact healthy checkpoint on this disk, as ``checkpoint.load_healthy`` does."""
        return checkpoint.load_healthy(self.checkpoints, self.address_of(self.checkpoints))

    def newest_step(self) -> int:
        """Return the step of the newest intact checkpoint on this disk; 0 without one."""
        return checkpoint.newest_step(self.checkpoints, self.address_of(self.checkpoints))

    @property
    def config_path(self) -> Path:
        """The file with the resolved settings, in the form that ``--config`` reads."""
        return self.path / RUN.settings

    @property
    def answers_path(self) -> Path:
        """The file that says which held-out images the finished run classifies correctly, if its objective does so."""
        return self.path / "answers.json"

    def write_answers(self, answers: Answers) -> None:
        """Write which held-out images the run classifies correctly after its last epoch."""
        atomic.write_json(self.answers_path, with_checksum({"format": 1, **answers.to_mapping()}))

    def read_answers(self) -> Answers | None:
        """Return what ``write_answers`` wrote; None if there is nothing."""
        if not self.answers_path.exists():
            return None
        where, remedy = self.address_of(self.answers_path), "delete the file; intervals are then over seeds only"
        return read_typed(self.answers_path, Answers, where, remedy=remedy)

    @property
    def ray(self) -> Path:
        """Folder for files of Ray and its workers; a resume does not need them."""
        return self.own(".ray")

    @property
    def stop(self) -> FileRequest:
        """The request to save and stop."""
        return FileRequest(self.signal(".stop"))

    @property
    def save_now(self) -> FileRequest:
        """The request to save before the end of the epoch and continue."""
        return FileRequest(self.signal(".save"))

    def sweep(self) -> str:
        """Return path or address of the sweep that this run is a trial of; empty for a run of its own."""
        base, mark, options = self.address.partition("?")
        sweep, _, inside = base.rpartition("/")[0].rpartition("/")
        if inside != SWEEP.inside or sweep.endswith("/") or not sweep:
            return ""
        return f"{sweep}{mark}{options}" if holds(f"{sweep}{mark}{options}", SWEEP.settings) else ""

    def has_begun(self) -> bool:
        """Return whether a launch has written down its environment, in the store or on the disk."""
        return holds(self.address, ENVIRONMENT)

    def newest_checkpoint(self, *, seconds: float | None = None) -> str:
        """Return path or address of the newest complete ``last`` checkpoint, without opening it; empty if none exists.

        A request to the store is retried for ``seconds``; None means ``patience_seconds``.
        """
        if self.remote is None:
            path = checkpoint.latest_path(self.checkpoints)
            return str(path) if path else ""
        names = whole_checkpoints(Store(self.remote, seconds=seconds).names(), "last")
        return (self.remote / CHECKPOINTS / names[0]).address if names else ""

    @property
    def metrics(self) -> MetricsLog:
        return MetricsLog(self.path / RUN.log)

    def require_run(self) -> None:
        """Check that the folder holds the settings of a run."""
        if (self.path / SWEEP.settings).is_file() and not self.config_path.is_file():
            trials = sorted(self.path.glob(f"{SWEEP.inside}/*/{RUN.settings}"))
            remedy = f"it is a sweep, whose runs are in {self.path / SWEEP.inside}"
            remedy += f", such as {trials[-1].parent.name}" if trials else ""
            raise RunError(f"{self.address}: no run here, {RUN.settings} is missing; {remedy}")
        self.require_plan()

    def read_config(self, methods: Methods | None = None) -> ExperimentConfig:
        """Return the settings of the run; ``methods`` are known besides the catalogue."""
        self.require_run()
        content = load_yaml_file(self.config_path, self.address_of(self.config_path))
        try:
            return parse_experiment(content, {**catalogue(), **methods} if methods else None)
        except ConfigError as error:
            where = self.address_of(self.config_path)
            raise ConfigError([f"{where}: {line}" for line in error.problems]) from error

    def read_result(self) -> RunSummary | None:
        """Return the result of the finished run, or None if it has not finished."""
        if not self.result.exists():
            return None
        return RunSummary.read(self.result, self.address_of(self.result))


@contextmanager
def in_place(*folders: Path) -> Iterator[Callable[[], None]]:
    """Yield a function that raises if one of ``folders`` is no longer the same folder as at the start of the block.

    Call it before every write: otherwise a missing folder would be created again, or another one damaged. A disk error
    within the block that has this cause is reported in the same way.
    """
    own = {folder: OpenFolder.at(folder) for folder in folders}

    def require() -> None:
        for folder, opened in own.items():
            if opened is None or not opened.is_at(folder):
                raise TrainingError(
                    f"{folder}: the folder was removed, renamed or replaced while this run trained in it, and the run "
                    "has stopped; put it back, and the same command resumes from its last checkpoint"
                )

    before = threading.excepthook

    def of_a_thread(thread: threading.ExceptHookArgs) -> None:
        """Ignore the error in TensorBoard's thread; the run's next record raises it again and reports it."""
        error = thread.exc_value
        file = os.fsdecode(error.filename or "") if isinstance(error, FileNotFoundError) else ""
        if not any(file.startswith(f"{folder}{os.sep}") for folder in folders):
            before(thread)

    threading.excepthook = of_a_thread
    try:
        yield require
    except OSError:
        require()
        raise
    finally:
        threading.excepthook = before
