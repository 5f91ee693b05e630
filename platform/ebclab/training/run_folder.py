"""The folder of one run, the only truth about it, and the rules for entering it again.

config.yaml  environment.json  metrics.jsonl  tensorboard/  checkpoints/  result.json
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ebclab.config import ExperimentConfig, parse_yaml, to_mapping, to_yaml
from ebclab.errors import RunError
from ebclab.storage.home import Home, Role, home_at
from ebclab.storage.keeper import leased
from ebclab.storage.mirror import Mirror, whole_checkpoints
from ebclab.storage.note import LocalNote, Note, StoredNote
from ebclab.storage.store import Store, send
from ebclab.training import atomic, checkpoint
from ebclab.training.interrupt import Wish
from ebclab.training.lock import held
from ebclab.training.metrics_log import MetricsLog
from energy_contrast.method import Method

MAY_CHANGE = ("data.root", "training.epochs", "training.health", "evaluation.", "resources.")
"""Settings that may differ when a run is continued: a key, or a section when it ends in a dot.

The images may lie elsewhere, but must be the same: every checkpoint holds their digest.
"""

NEEDED: tuple[checkpoint.Kind, ...] = ("last", "best")
"""Checkpoints that a run needs to go on."""

State = Literal["new", "unfinished", "finished"]


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run.

    Attributes:
        path: Absolute path of the run folder.
        home: Where the run lives when ``path`` is this process's copy of it; None when it lives here.
    """

    path: Path
    home: Home | None = None

    @classmethod
    def at(cls, place: str | Path | Home) -> RunFolder:
        """Return the run at a path, an address or a home."""
        home = place if isinstance(place, Home) else home_at(place)
        return cls(Path(str(place)).absolute()) if home is None else cls(home.copy, home)

    def of(self, role: Role) -> RunFolder:
        """Return the run as processes of ``role`` have it."""
        return self if self.home is None else RunFolder.at(self.home.of(role))

    @property
    def address(self) -> str:
        """Where the run lives, as every verb takes it."""
        return self.home.address if self.home else str(self.path)

    def pull(self, kinds: tuple[checkpoint.Kind, ...] = ()) -> RunFolder:
        """Make this process's copy what the store holds, with checkpoints of ``kinds``; return this run.

        Raises:
            RunError: The store refuses, or has not answered for long.
        """
        if self.home is not None:
            Mirror(self.home).pull(kinds)
        return self

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints lie."""
        return self.path / "checkpoints"

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
    def stop(self) -> Wish:
        """Whether somebody asked workers to save and stop."""
        return Wish(self.note(".stop"))

    @property
    def save_now(self) -> Wish:
        """Whether somebody asked workers to save without waiting for the end of the epoch."""
        return Wish(self.note(".save"))

    def send(self, *names: str) -> None:
        """Add files of this process's copy to the store; none named means all. Nothing there is deleted."""
        if self.home is None:
            return
        if names:
            send(self.home, *names)
        else:
            Mirror(self.home).push()

    def remove(self) -> None:
        """Delete the run, wherever it lives."""
        if self.home is not None:
            store = Store(self.home)
            for name in store.names():
                store.delete(name)
        shutil.rmtree(self.path)

    def newest_checkpoint(self) -> str:
        """Return where the newest whole ``last`` checkpoint lies, without opening it; empty when there is none."""
        if self.home is None:
            path = checkpoint.latest_path(self.checkpoints)
            return str(path) if path else ""
        names = whole_checkpoints(Store(self.home).names(), "last")
        return f"{(self.home / self.checkpoints.name).address}/{names[0]}" if names else ""

    def note(self, name: str) -> Note:
        """Return a note between this run's processes."""
        return StoredNote(self.home, name) if self.home else LocalNote(self.path / name)

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
            raise RunError(f"{self.address}: no run here, config.yaml is missing; `ebclab pretrain` makes runs")
        return parse_yaml(self.config_path.read_text(encoding="utf-8"), where=str(self.config_path), methods=methods)

    def read_result(self) -> dict[str, Any] | None:
        """Return what the finished run wrote, or None when it has not finished."""
        if not self.result_path.exists():
            return None
        result: dict[str, Any] = json.loads(self.result_path.read_text(encoding="utf-8"))
        return result


def find(
    place: Path | Home, config: ExperimentConfig, methods: Mapping[str, type[Method]] | None = None, *, resume: bool
) -> tuple[RunFolder, State]:
    """Look at the run at ``place`` with the eyes of a launch with ``config``; nothing but a copy is written.

    Args:
        place: The run folder.
        config: Resolved settings of this launch.
        methods: Methods by name; None means the catalogue.
        resume: The user asked to continue; a missing run is then an error.

    Returns:
        The folder, and whether the run in it is new, unfinished or finished (for as many epochs as ``config`` asks).

    Raises:
        RunError: Nothing to resume, settings that differ, or a folder that holds something else.
    """
    run = RunFolder.at(place).pull(NEEDED)
    if not run.config_path.exists():
        if resume:
            raise RunError(f"{run.address}: nothing to resume, no run of this name; leave --resume out to start one")
        if run.path.exists() and any(not entry.name.startswith(".") for entry in run.path.iterdir()):
            raise RunError(f"{run.address}: the folder holds something that is no run; choose another --name")
        return run, "new"
    before, now = to_mapping(run.read_config(methods)), to_mapping(config)
    changed = changed_settings(before, now, MAY_CHANGE, what="run")
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunError(
            f"{run.address}: this name belongs to a run with other settings; "
            f"choose another --name, or use equal settings:{lines}"
        )
    result = run.read_result()
    if result is not None and result["epochs"] >= config.training.epochs:
        return run, "finished"
    started = checkpoint.latest_path(run.checkpoints) is not None
    if resume and not started:
        raise RunError(
            f"{run.address}: nothing to resume, the run has no checkpoint yet; leave --resume out to start it"
        )
    return run, "unfinished" if started else "new"


@contextmanager
def claim(run: RunFolder, config: ExperimentConfig) -> Iterator[None]:
    """Make the run folder if need be, write its settings, and hold it for this process alone.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    busy = "is training in this folder"
    with leased(run.home, busy), held(run.path, busy=busy, option="--runs", within=run.checkpoints.name):
        atomic.write_text(run.config_path, to_yaml(config))
        run.result_path.unlink(missing_ok=True)
        if run.home is not None:
            Store(run.home).delete(run.result_path.name)
            run.send(run.config_path.name)
        yield


def changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], may_change: tuple[str, ...], *, what: str
) -> list[str]:
    """Return ``key: old in the run, new now`` for each setting that differs and may not.

    Args:
        before: Nested settings of what is to be continued.
        now: Those of this launch.
        may_change: Keys, or sections that end in a dot, that may differ.
        what: What is to be continued, in a word.
    """
    old, new = _flat(before), _flat(now)
    return [
        f"{key}: {old.get(key, 'absent')} in the {what}, {new.get(key, 'absent')} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not key.startswith(may_change)
    ]


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
