"""The rules for entering the folder of a run again: its state, its settings, and the process that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from ebclab.config import ExperimentConfig, to_mapping, to_yaml
from ebclab.errors import RunError
from ebclab.runs import checkpoint
from ebclab.runs.folder import ERROR, NEEDED, RunFolder
from ebclab.storage import atomic
from ebclab.storage.sync import Syncer
from energy_contrast.method import Method

MAY_CHANGE = ("data.root", "training.epochs", "training.health", "evaluation.", "resources.")
"""Settings that may differ when a run is continued: a key, or a section when it ends in a dot.

The images may lie elsewhere, but must be the same: every checkpoint holds their digest.
"""

State = Literal["new", "unfinished", "finished"]


def find(
    run: RunFolder,
    config: ExperimentConfig,
    methods: Mapping[str, type[Method]] | None = None,
    *,
    resume: bool,
) -> State:
    """Return the state of a run that a launch with ``config`` is about to enter; only files on this disk are read.

    Args:
        run: The run; one in a store was pulled with the checkpoints that it needs.
        config: Resolved settings of this launch.
        methods: Methods by name; None means the catalogue.
        resume: Whether the user asked to continue; a missing run is then an error.

    Returns:
        Whether the run is new, unfinished or finished (for as many epochs as ``config`` says).

    Raises:
        RunError: Nothing to resume, settings that differ, or a folder that holds something else.
    """
    if not run.config_path.exists():
        if resume:
            raise RunError(f"{run.address}: nothing to resume, no run of this name; leave --resume out to start one")
        if _holds_something(run):
            raise RunError(f"{run.address}: the folder holds something that is no run; choose another --name")
        return "new"
    before, now = to_mapping(run.read_config(methods)), to_mapping(config)
    changed = changed_settings(before, now, MAY_CHANGE, what="run")
    if changed:
        lines = "".join(f"\n  {line}" for line in changed)
        raise RunError(
            f"{run.address}: this name belongs to a run with other settings; "
            f"choose another --name, use equal settings, or replace it by --overwrite:{lines}"
        )
    result = run.read_result()
    if result is not None and result.epochs >= config.training.epochs:
        return "finished"
    started = checkpoint.latest_path(run.checkpoints) is not None
    if resume and not started:
        raise RunError(
            f"{run.address}: nothing to resume, the run has no checkpoint yet; leave --resume out to start it"
        )
    return "unfinished" if started else "new"


def _holds_something(run: RunFolder) -> bool:
    """Return whether the folder holds a file that no launch which ended before it wrote its settings can have made.

    Such a launch leaves empty folders and hidden files, and in a sweep the traceback of the trial.
    """
    if run.path.is_file():
        return True
    files = (path.relative_to(run.path) for path in run.path.rglob("*") if path.is_symlink() or not path.is_dir())
    return any(str(path) != ERROR and not any(part.startswith(".") for part in path.parts) for path in files)


@contextmanager
def claim(run: RunFolder, config: ExperimentConfig) -> Iterator[Syncer]:
    """Hold the run folder for this process alone and write its settings; yield the folder's syncer.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    with run.claim(() if config.resources.workers else NEEDED) as syncer:  # workers pull checkpoints themselves
        write_settings(run, config, syncer)
        yield syncer


def write_settings(run: RunFolder, config: ExperimentConfig, syncer: Syncer) -> None:
    """Write the settings of this launch into a run folder that this process has claimed.

    Workers that train the run write into the store from then on, and ``syncer`` does no more.
    """
    run.result_path.unlink(missing_ok=True)
    syncer.push()  # before the settings: an old result must never stand beside new settings
    atomic.write_text(run.config_path, to_yaml(config))
    atomic.make_folder(run.checkpoints)
    checkpoint.tidy(run.checkpoints)
    if config.resources.workers:
        syncer.hand_over()
    else:
        syncer.push()


def changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], may_change: tuple[str, ...], *, what: str
) -> list[str]:
    """Return ``key: old in the run, new now`` for each setting that differs and may not.

    Args:
        before: Nested settings of the run or sweep that is continued.
        now: Nested settings of this launch.
        may_change: Keys, or sections that end in a dot, that may differ.
        what: "run" or "sweep".
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
