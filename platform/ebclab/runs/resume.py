"""The rules for entering the folder of a run again: whether it is new, unfinished or finished, and whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ebclab.config import ExperimentConfig, to_mapping, to_yaml
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import NEEDED, RunFolder
from ebclab.storage import atomic
from ebclab.storage.lock import held
from ebclab.storage.object_store import Store
from ebclab.storage.remote import RemoteFolder
from ebclab.storage.sync import leased
from energy_contrast.method import Method

MAY_CHANGE = ("data.root", "training.epochs", "training.health", "evaluation.", "resources.")
"""Settings that may differ when a run is continued: a key, or a section when it ends in a dot.

The images may lie elsewhere, but must be the same: every checkpoint holds their digest.
"""

State = Literal["new", "unfinished", "finished"]


def find(
    place: Path | RemoteFolder,
    config: ExperimentConfig,
    methods: Mapping[str, type[Method]] | None = None,
    *,
    resume: bool,
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
        if _holds_something(run):
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
    if result is not None and result.epochs >= config.training.epochs:
        return run, "finished"
    started = checkpoint.latest_path(run.checkpoints) is not None
    if resume and not started:
        raise RunError(
            f"{run.address}: nothing to resume, the run has no checkpoint yet; leave --resume out to start it"
        )
    return run, "unfinished" if started else "new"


def _holds_something(run: RunFolder) -> bool:
    """Return whether anything visible lies in a folder; a copy may have empty folders of a run that was deleted."""
    if not run.path.exists():
        return False
    found = run.path.iterdir() if run.remote is None else (path for path in run.path.rglob("*") if path.is_file())
    return any(not path.relative_to(run.path).parts[0].startswith(".") for path in found)


@contextmanager
def claim(run: RunFolder, config: ExperimentConfig) -> Iterator[None]:
    """Make the run folder if need be, write its settings, and hold it for this process alone.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    busy = "is training in this folder"
    with leased(run.remote, busy), held(run.path, busy=busy, option="--runs", within=run.checkpoints.name):
        atomic.write_text(run.config_path, to_yaml(config))
        run.result_path.unlink(missing_ok=True)
        if run.remote is not None:
            Store(run.remote).delete(run.result_path.name)
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
