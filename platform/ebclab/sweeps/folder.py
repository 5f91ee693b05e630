"""The folder of one sweep, and the rules for entering it again.

sweep.yaml  trials.jsonl  trials/<id>/ (run folders)  best.yaml  result.json  init.safetensors  tensorboard/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ebclab.errors import RunError, UserError
from ebclab.runs.folder import RunFolder
from ebclab.storage.lock import held
from ebclab.storage.mirror import Mirror
from ebclab.storage.remote import RemoteFolder, Role, remote_at
from ebclab.storage.sync import Syncer, leased, synced
from ebclab.sweeps.log import SweepLog
from ebclab.sweeps.plan import SweepPlan, read_plan, require_same, write_plan
from ebclab.sweeps.results import SweepResult
from energy_contrast.method import Method

TRIALS = "trials"


@dataclass(frozen=True)
class SweepFolder:
    """Paths of one sweep.

    Attributes:
        path: Absolute path.
        remote: Where the sweep lives when ``path`` is this process's copy of it; None when it lives here.
    """

    path: Path
    remote: RemoteFolder | None = None

    @classmethod
    def at(cls, place: str | Path | RemoteFolder) -> SweepFolder:
        """Return the sweep at a path, an address or a home.

        Raises:
            UserError: The address is that of a whole bucket.
        """
        remote = place if isinstance(place, RemoteFolder) else remote_at(place)
        if remote is not None and not remote.inside:
            raise UserError(f"{remote.address}: a whole bucket, not a run or a sweep; name a folder in it")
        return cls(Path(str(place)).absolute()) if remote is None else cls(remote.cache, remote)

    def of(self, role: Role) -> SweepFolder:
        """Return the sweep as processes of ``role`` have it."""
        return self if self.remote is None else SweepFolder.at(self.remote.of(role))

    @property
    def address(self) -> str:
        """Where the sweep lives, as every verb takes it."""
        return self.remote.address if self.remote else str(self.path)

    @property
    def parent(self) -> str:
        """Where it lives among other sweeps, as ``--sweeps`` takes it."""
        return self.remote.root if self.remote else str(self.path.parent)

    def pull(self) -> SweepFolder:
        """Make this process's copy what the store holds, trials left out; return this sweep.

        Raises:
            RunError: The store refuses, or has not answered for long.
        """
        if self.remote is not None:
            Mirror(self.remote, without=(TRIALS,)).pull()
        return self

    def pull_all(self) -> SweepFolder:
        """Make this process's copy what the store holds, but for checkpoints; return this sweep.

        Raises:
            RunError: The store refuses, or has not answered for long.
        """
        if self.remote is not None:
            Mirror(self.remote).pull()
        return self

    def run(self, name: str, role: Role | None = None) -> RunFolder:
        """Return the run of a trial, as processes of ``role`` have it; None means whose this folder is."""
        if self.remote is None:
            return RunFolder(self.trials / name)
        return RunFolder.at(self.remote.of(role or self.remote.role) / TRIALS / name)

    def read_plan(self, methods: Mapping[str, type[Method]] | None = None) -> SweepPlan:
        """Return what the sweep is.

        Raises:
            UserError: There is no sweep, or its plan cannot be read.
        """
        return read_plan(self.plan, methods, self.address)

    def read_log(self, syncer: Syncer | None = None) -> SweepLog:
        """Return the log as this process's copy has it.

        Args:
            syncer: Brings what is added to where the sweep lives; None when nothing will be.
        """
        return SweepLog(self.log, syncer, (self.remote / self.log.name).address if self.remote else "")

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
        return self.path / TRIALS

    @property
    def initial_weights(self) -> Path:
        """What the encoders of all trials start from, when it is not random."""
        return self.path / "init.safetensors"

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
) -> SweepResult | None:
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
            raise RunError(
                f"{folder.address}: nothing to resume, no sweep of this name; leave --resume out to start one"
            )
        if folder.path.is_file() or any(_is_visible(path.relative_to(folder.path)) for path in _files(folder.path)):
            raise RunError(f"{folder.address}: the folder holds something that is no sweep; choose another --name")
        return None
    before = folder.read_plan(methods)
    require_same(before, plan, folder.address)
    if replace(before, config=plan.config, space=plan.space) != plan or not folder.result.exists():
        return None
    return SweepResult.read(folder.result, (folder.remote / folder.result.name).address if folder.remote else "")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not path.is_dir())


def _is_visible(inside: Path) -> bool:
    return not any(part.startswith(".") for part in inside.parts)


@contextmanager
def claim_sweep(folder: SweepFolder, plan: SweepPlan) -> Iterator[Syncer]:
    """Make the sweep's folder if need be, write its plan, hold it for this process alone; yield what keeps its home.

    Raises:
        RunError: The folder cannot be written, or another process holds it.
    """
    busy = "works on this sweep"
    with (
        leased(folder.remote, busy),
        held(folder.path, busy=busy, option="--sweeps"),
        synced(folder.remote, without=(TRIALS,)) as syncer,
    ):
        write_plan(folder.plan, plan)  # first: a folder with anything else but no plan is not taken for a sweep
        folder.trials.mkdir(exist_ok=True)
        folder.result.unlink(missing_ok=True)
        syncer.push()
        yield syncer
