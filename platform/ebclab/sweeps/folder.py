"""The folder of one sweep, and the rules for entering it again.

sweep.yaml  trials.jsonl  trials/<id>/ (run folders)  best.yaml  result.json  tensorboard/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ebclab.errors import RunError
from ebclab.sweeps.plan import SweepPlan, read_plan, require_same, write_plan
from ebclab.training.lock import held
from energy_contrast.method import Method


@dataclass(frozen=True)
class SweepFolder:
    """Paths of one sweep.

    Attributes:
        path: Absolute path.
    """

    path: Path

    @property
    def plan(self) -> Path:
        """What the sweep is."""
        return self.path / "sweep.yaml"

    @property
    def log(self) -> Path:
        """Everything that happened: the only truth."""
        return self.path / "trials.jsonl"

    @property
    def trials(self) -> Path:
        """Run folders of the trials."""
        return self.path / "trials"

    @property
    def best(self) -> Path:
        """Settings of the winner, as ``--config`` takes them."""
        return self.path / "best.yaml"

    @property
    def result(self) -> Path:
        """Written last: it exists only when the sweep has finished."""
        return self.path / "result.json"


def finished_result(
    folder: SweepFolder, plan: SweepPlan, methods: Mapping[str, type[Method]], *, resume: bool
) -> dict[str, Any] | None:
    """Return the result of a finished sweep of this plan, or None when there is something to do; nothing is written.

    Args:
        folder: The sweep's folder.
        plan: What is asked for now.
        methods: Methods by name.
        resume: The user asked to continue; a missing sweep is then an error.

    Raises:
        RunError: Nothing to resume, another plan, or a folder that holds something else.
    """
    if not folder.plan.exists():
        if resume:
            raise RunError(f"{folder.path}: nothing to resume, no sweep of this name; leave --resume out to start one")
        if folder.path.is_file() or (folder.path.exists() and any(map(_is_visible, folder.path.iterdir()))):
            raise RunError(f"{folder.path}: the folder holds something that is no sweep; choose another --name")
        return None
    before = read_plan(folder.plan, methods)
    require_same(before, plan, folder.path)
    if replace(before, config=plan.config, space=plan.space) != plan or not folder.result.exists():
        return None
    result: dict[str, Any] = json.loads(folder.result.read_text(encoding="utf-8"))
    return result


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".")


@contextmanager
def claim_sweep(folder: SweepFolder, plan: SweepPlan) -> Iterator[None]:
    """Make the sweep's folder if need be, write its plan, and hold it for this process alone.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    with held(folder.path, busy="works on this sweep", option="--sweeps"):
        write_plan(folder.plan, plan)  # first: a folder with anything else but no plan is not taken for a sweep
        folder.trials.mkdir(exist_ok=True)
        folder.result.unlink(missing_ok=True)
        yield
