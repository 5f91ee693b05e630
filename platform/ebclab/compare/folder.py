"""ComparisonFolder: the folder of one comparison.

comparison.yaml  plans.json  sweeps/<method>-<dataset>-b<batch>/ and sweeps/pilot/ (sweep folders)  references.json
comparison.json  .md  .html
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ebclab.compare.plan import ComparisonPlan
from ebclab.config.names import is_folder_name
from ebclab.errors import RunError
from ebclab.runs.references import FILE
from ebclab.storage import atomic
from ebclab.storage.kinds import COMPARISON
from ebclab.storage.typed_json import read_typed
from ebclab.storage.workspace import Workspace
from ebclab.sweeps.folder import SweepFolder

PILOT = COMPARISON.leftover.rpartition("/")[2]
"""Name of the sweep of the pilot runs."""


@dataclass(frozen=True)
class PlanVersion:
    """A version of the plan of a comparison."""

    digest: str  # digest of the plan
    time: str  # when it was written, UTC, in ISO 8601
    grown: tuple[str, ...] = ()  # additions to the previous version; empty for the first


class ComparisonFolder(Workspace):
    """Paths and files of one comparison. Each sweep synchronizes its own folder."""

    kind = COMPARISON

    @property
    def plan(self) -> Path:
        """The plan of the comparison."""
        return self.path / COMPARISON.settings

    @property
    def versions(self) -> Path:
        """All versions of the plan, oldest first."""
        return self.path / "plans.json"

    @property
    def result(self) -> Path:
        """The numbers of the page, as JSON."""
        return self.path / COMPARISON.result

    @property
    def references(self) -> Path:
        """What raw pixels and untrained encoders score on the test images."""
        return self.path / FILE

    @property
    def table(self) -> Path:
        """The tables of the page as Markdown."""
        return self.path / "comparison.md"

    @property
    def page(self) -> Path:
        """The page."""
        return self.path / "comparison.html"

    def sweep(self, name: str) -> SweepFolder:
        """Return the folder of a sweep of the comparison.

        Raises:
            RunError: ``name`` is not a valid folder name, or the folder is a symbolic link.
        """
        if not is_folder_name(name):
            raise RunError(f"{self.address}: not the name of a sweep, got {name!r}; restore the comparison's files")
        if self.remote is None:
            return SweepFolder(self.own(COMPARISON.inside, name))
        return SweepFolder.at(self.remote / COMPARISON.inside / name)

    @property
    def pilot(self) -> SweepFolder:
        """The folder of the pilot runs."""
        return self.sweep(PILOT)

    def read_versions(self) -> tuple[PlanVersion, ...]:
        """Return all versions of the plan, oldest first."""
        if not self.versions.exists():
            return ()
        where = self.address_of(self.versions)
        return read_typed(self.versions, tuple[PlanVersion, ...], where, what="not the plans of a comparison")

    def add_version(self, plan: ComparisonPlan, grown: list[str]) -> None:
        """Append this plan to the versions of the comparison."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        versions = [*self.read_versions(), PlanVersion(plan.digest, now, tuple(grown))]
        plain: list[dict[str, Any]] = [asdict(version) | {"grown": list(version.grown)} for version in versions]
        atomic.write_json(self.versions, plain)
