"""SweepFolder: the folder of one sweep, and the rules for launching a sweep in an existing folder.

sweep.yaml  trials.jsonl  trials/<id>/ (run folders)  best.yaml  references.json  result.json
init.safetensors  tensorboard/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ebclab.errors import UserError
from ebclab.methods_by_name import Methods
from ebclab.runs.environment import machine_in_words, read_environment
from ebclab.runs.folder import ENVIRONMENT, RunFolder
from ebclab.runs.references import FILE
from ebclab.storage.kinds import SWEEP
from ebclab.storage.mirror import Mirror, Syncer
from ebclab.storage.object_store import RemoteFolder, Role
from ebclab.storage.workspace import Workspace
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, plan_of, require_same, write_plan
from ebclab.sweeps.results import SweepResult

BEST = "best.yaml"
"""Settings of the winner, in the form that ``--config`` reads."""


class SweepFolder(Workspace):
    """Paths and files of one sweep. Each trial's process syncs its own run folder."""

    kind = SWEEP

    @classmethod
    def at(cls, place: str | Path | RemoteFolder) -> Self:
        """Return the sweep at a path, at an address, or of a remote folder."""
        sweep = super().at(place)
        if sweep.remote is not None and not sweep.remote.inside:
            raise UserError(f"{sweep.address}: a whole bucket, not a run or a sweep; name a folder in it")
        return sweep

    @property
    def parent(self) -> str:
        """The folder that holds this sweep and others, for the option ``--sweeps``."""
        return self.remote.root if self.remote else str(self.path.parent)

    def pull_all(self) -> Self:
        """Make the local copy equal to the store, including trials but not checkpoints; return this sweep."""
        if self.remote is not None:
            Mirror(self.remote).pull()
        return self

    def run(self, name: str, role: Role | None = None) -> RunFolder:
        """Return the run of a trial with the local copy of ``role``; None means the role of this folder."""
        return self.member(RunFolder, name, "a trial's run", role)

    def read_plan(self, methods: Methods | None = None) -> SweepPlan:
        return plan_of(self.load_plan(), self.where_of_plan, methods)

    def earlier_plan(self, methods: Methods | None = None, *, resume: bool = False) -> SweepPlan | None:
        """Return the plan of earlier launches; None if there were none, which is an error if asked to ``resume``."""
        return self.read_plan(methods) if self.has_plan(resume=resume) else None

    def read_log(self, syncer: Syncer | None = None) -> SweepLog:
        """Return the log on this disk; ``syncer`` uploads what is appended, None when nothing will be."""
        return SweepLog(self.log, syncer, self.address_of(self.log))

    @property
    def log(self) -> Path:
        """The log of everything that happened: the only source of truth."""
        return self.path / SWEEP.log

    @property
    def trials(self) -> Path:
        return self.own(SWEEP.inside)

    @property
    def initial_weights(self) -> Path:
        """Initial weights of the encoders of all trials, if they are not random."""
        return self.path / "init.safetensors"

    def machines(self, own: Mapping[str, Any]) -> list[str]:
        """Return the machines that trials ran on, in words, from their run folders; else the sweep's own, ``own``."""
        written = [read_environment(path) for path in sorted(self.trials.glob(f"*/{ENVIRONMENT}"))]
        known = dict.fromkeys(machine_in_words(each, "a trial") for each in written if each)
        return list(known) or [name for name in [machine_in_words(own, "a trial")] if name]

    @property
    def references(self) -> Path:
        """What raw pixels and the untrained encoder score on the test set."""
        return self.path / FILE

    @property
    def best(self) -> Path:
        return self.path / BEST

    def finished_result(self, before: SweepPlan | None, plan: SweepPlan) -> SweepResult | None:
        """Return the result of a finished sweep of this plan, or None if there is work left; refuse another plan.

        ``before`` is the plan in the folder, None if there is none.
        """
        if before is None:
            return None
        require_same(before, plan, self.address)
        if replace(before, config=plan.config, space=plan.space) != plan or not self.result.exists():
            return None
        return SweepResult.read(self.result, self.address_of(self.result))

    @contextmanager
    def claim_for(self, plan: SweepPlan) -> Iterator[Syncer]:
        """Claim the folder for this process alone and write the plan; yield the folder's syncer."""
        with self.claim() as syncer:
            for path in self.trials.glob("*"):
                if path.is_symlink():
                    self.run(path.name)  # refuses it here, and not in the process of a trial
            write_plan(self.plan, plan)  # first: a folder with other files and no plan does not count as a sweep
            self.trials.mkdir(exist_ok=True)
            self.result.unlink(missing_ok=True)
            syncer.push()
            yield syncer
