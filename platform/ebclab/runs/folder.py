"""The folder of one run, the only truth about it, and the rules for entering it again.

config.yaml  environment.json  metrics.jsonl  tensorboard/  checkpoints/  result.json
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ebclab.config import ExperimentConfig, parse_yaml
from ebclab.config.names import other_folder
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.metrics_log import MetricsLog
from ebclab.runs.stop_request import FileRequest
from ebclab.runs.summary import RunSummary
from ebclab.storage.mirror import MANIFEST, Mirror, whole_checkpoints
from ebclab.storage.object_store import Store, send
from ebclab.storage.remote import RemoteFolder, Role, remote_at
from ebclab.storage.signal_file import LocalSignal, SignalFile, StoredSignal
from energy_contrast.method import Method

NEEDED: tuple[checkpoint.Kind, ...] = ("last", "best")
"""Checkpoints that a run needs to go on."""


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run.

    Attributes:
        path: Absolute path of the run folder.
        remote: Where the run lives when ``path`` is this process's copy of it; None when it lives here.
    """

    path: Path
    remote: RemoteFolder | None = None

    @classmethod
    def at(cls, place: str | Path | RemoteFolder) -> RunFolder:
        """Return the run at a path, an address or a home."""
        remote = place if isinstance(place, RemoteFolder) else remote_at(place)
        return cls(Path(str(place)).absolute()) if remote is None else cls(remote.cache, remote)

    def of(self, role: Role) -> RunFolder:
        """Return the run as processes of ``role`` have it."""
        return self if self.remote is None else RunFolder.at(self.remote.of(role))

    @property
    def address(self) -> str:
        """Where the run lives, as every verb takes it."""
        return self.remote.address if self.remote else str(self.path)

    def pull(self, kinds: tuple[checkpoint.Kind, ...] = ()) -> RunFolder:
        """Make this process's copy what the store holds, with checkpoints of ``kinds``; return this run.

        Raises:
            RunError: The store refuses, or has not answered for long.
        """
        if self.remote is not None:
            Mirror(self.remote).pull(kinds)
        return self

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

    def load(self, kind: checkpoint.Kind = "last") -> checkpoint.Checkpoint | None:
        """Return the newest sound checkpoint of this process's copy, as ``checkpoint.load`` does.

        Raises:
            RunError: As there.
        """
        return checkpoint.load(self.checkpoints, kind, self._address_of(self.checkpoints))

    def load_healthy(self) -> checkpoint.Checkpoint | None:
        """Return the newest sound healthy one, as ``checkpoint.load_healthy`` does."""
        return checkpoint.load_healthy(self.checkpoints, self._address_of(self.checkpoints))

    def newest_step(self) -> int:
        """Return the step from which this process's copy goes on, as ``checkpoint.newest_step`` does.

        Raises:
            RunError: As there.
        """
        return checkpoint.newest_step(self.checkpoints, self._address_of(self.checkpoints))

    def _address_of(self, path: Path) -> str:
        """Return what messages call something directly in the folder."""
        return (self.remote / path.name).address if self.remote else str(path)

    @property
    def config_path(self) -> Path:
        """The resolved settings, as ``--config`` takes them."""
        return self.path / "config.yaml"

    @property
    def result_path(self) -> Path:
        """Written last: it exists only when the run has finished."""
        return self.path / "result.json"

    @property
    def ray(self) -> Path:
        """Where Ray and its workers may write what they need; of no use to a resume."""
        return self.path / ".ray"

    @property
    def stop(self) -> FileRequest:
        """Whether somebody asked workers to save and stop."""
        return FileRequest(self.note(".stop"))

    @property
    def save_now(self) -> FileRequest:
        """Whether somebody asked workers to save without waiting for the end of the epoch."""
        return FileRequest(self.note(".save"))

    def send(self, *names: str) -> None:
        """Add files of this process's copy to the store; none named means all. Nothing there is deleted."""
        if self.remote is None:
            return
        if names:
            send(self.remote, *names)
        else:
            Mirror(self.remote).push()

    def has_begun(self) -> bool:
        """Return whether workers have written anything, wherever the run lives."""
        if self.remote is None:
            return self.metrics.path.exists()
        return Store(self.remote).stored(self.metrics.path.name) is not None

    def remove(self) -> None:
        """Delete the run, wherever it lives."""
        self.clear_store()
        shutil.rmtree(self.path)

    def clear_store(self) -> None:
        """Delete what a store holds of the run, manifests first."""
        if self.remote is not None:
            store = Store(self.remote)
            for name in sorted(store.names(), key=lambda name: not name.endswith(MANIFEST)):
                store.delete(name)

    def newest_checkpoint(self, *, seconds: float | None = None) -> str:
        """Return where the newest whole ``last`` checkpoint lies, without opening it; empty when there is none.

        Args:
            seconds: For how long a store that does not answer is asked again; None means as long as the user says.
        """
        if self.remote is None:
            path = checkpoint.latest_path(self.checkpoints)
            return str(path) if path else ""
        names = whole_checkpoints(Store(self.remote, seconds=seconds).names(), "last")
        return (self.remote / self.checkpoints.name / names[0]).address if names else ""

    def note(self, name: str) -> SignalFile:
        """Return a note between this run's processes."""
        return StoredSignal(self.remote, name) if self.remote else LocalSignal(self.path / name)

    @property
    def metrics(self) -> MetricsLog:
        """The run's own log."""
        return MetricsLog(self.path / "metrics.jsonl")

    def read_config(self, methods: Mapping[str, type[Method]] | None = None) -> ExperimentConfig:
        """Return the settings this run was made with.

        Args:
            methods: Methods by name; None means the catalogue.

        Raises:
            RunError: There is no run here.
        """
        if not self.config_path.is_file():
            way_out = other_folder(self.address, self.config_path.name, "`ebclab pretrain` makes runs")
            raise RunError(f"{self.address}: no run here, config.yaml is missing; {way_out}")
        text = self.config_path.read_text(encoding="utf-8")
        return parse_yaml(text, where=self._address_of(self.config_path), methods=methods)

    def read_result(self) -> RunSummary | None:
        """Return what the finished run wrote, or None when it has not finished.

        Raises:
            RunError: The file is not the result of a run.
        """
        if not self.result_path.exists():
            return None
        return RunSummary.read(self.result_path, self._address_of(self.result_path))
