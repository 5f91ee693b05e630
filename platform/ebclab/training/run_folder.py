"""The folder of one run, the only truth about it, and the rules for entering it again.

config.yaml  environment.json  metrics.jsonl  tensorboard/  checkpoints/  result.json
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ebclab.config import ExperimentConfig, parse_yaml, to_mapping, to_yaml
from ebclab.errors import RunError
from ebclab.training import atomic, checkpoint
from ebclab.training.lock import held
from ebclab.training.metrics_log import MetricsLog
from energy_contrast.method import Method

MAY_CHANGE = ("data.root", "training.epochs", "training.health", "evaluation.", "resources.")
"""Settings that may differ when a run is continued: a key, or a section when it ends in a dot.

The images may lie elsewhere, but must be the same: every checkpoint holds their digest.
"""

State = Literal["new", "unfinished", "finished"]


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run.

    Attributes:
        path: Absolute path of the run folder.
    """

    path: Path

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
    def stop(self) -> Path:
        """Exists when somebody asked workers to save and stop."""
        return self.path / ".stop"

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
            raise RunError(f"{self.path}: no run here, config.yaml is missing; `ebclab pretrain` makes runs")
        return parse_yaml(self.config_path.read_text(encoding="utf-8"), where=str(self.config_path), methods=methods)

    def read_result(self) -> dict[str, Any] | None:
        """Return what the finished run wrote, or None when it has not finished."""
        if not self.result_path.exists():
            return None
        result: dict[str, Any] = json.loads(self.result_path.read_text(encoding="utf-8"))
        return result


def find(
    path: Path, config: ExperimentConfig, methods: Mapping[str, type[Method]] | None = None, *, resume: bool
) -> tuple[RunFolder, State]:
    """Look at the run folder at ``path`` with the eyes of a launch with ``config``; nothing is written.

    Args:
        path: The run folder.
        config: Resolved settings of this launch.
        methods: Methods by name; None means the catalogue.
        resume: The user asked to continue; a missing run is then an error.

    Returns:
        The folder, and whether the run in it is new, unfinished or finished (for as many epochs as ``config`` asks).

    Raises:
        RunError: Nothing to resume, settings that differ, or a folder that holds something else.
    """
    run = RunFolder(path.absolute())
    if not run.config_path.exists():
        if resume:
            raise RunError(f"{run.path}: nothing to resume, no run of this name; leave --resume out to start one")
        if run.path.exists() and any(not entry.name.startswith(".") for entry in run.path.iterdir()):
            raise RunError(f"{run.path}: the folder holds something that is no run; choose another --name")
        return run, "new"
    before, now = to_mapping(run.read_config(methods)), to_mapping(config)
    changed = changed_settings(before, now, MAY_CHANGE, what="run")
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunError(
            f"{run.path}: this name belongs to a run with other settings; "
            f"choose another --name, or use equal settings:{lines}"
        )
    result = run.read_result()
    if result is not None and result["epochs"] >= config.training.epochs:
        return run, "finished"
    started = checkpoint.latest_path(run.checkpoints) is not None
    if resume and not started:
        raise RunError(f"{run.path}: nothing to resume, the run has no checkpoint yet; leave --resume out to start it")
    return run, "unfinished" if started else "new"


@contextmanager
def claim(run: RunFolder, config: ExperimentConfig) -> Iterator[None]:
    """Make the run folder if need be, write its settings, and hold it for this process alone.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    with held(run.path, busy="is training in this folder", option="--runs", within=run.checkpoints.name):
        atomic.write_text(run.config_path, to_yaml(config))
        run.result_path.unlink(missing_ok=True)
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
