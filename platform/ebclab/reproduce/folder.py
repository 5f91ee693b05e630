"""The folder of a reproduction on disk.

reproductions/<paper>-<row>-<scale>/
  plan.json         study, scale, and the settings of every run
  runs/<name>/      ordinary runs
  measured/<name>.json   measured values of each run, with a checksum
  table.json  table.md  table.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ebclab.config import to_mapping
from ebclab.config.addresses import expanded, is_address
from ebclab.errors import RunError, UserError
from ebclab.evaluation.answers import Answers
from ebclab.reproduce.measure import Found, Wanted
from ebclab.reproduce.plan import StudyPlan
from ebclab.runs.resume import MAY_CHANGE, changed_settings
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.storage.own_folder import own_folder
from ebclab.storage.reading import read_json
from ebclab.storage.typed_json import typed

FORMAT = 1
_SHOWN = 5  # maximum number of changed settings in a message


@dataclass(frozen=True)
class _StoredPlan:
    study: str
    scale: str
    runs: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class _StoredNumber:
    measure: str
    dataset: str
    value: float
    detail: str
    answers: Answers | None
    epoch: int = 0
    outside: str = ""
    attacked: int = Wanted.attacked
    protocol: str = Wanted.protocol

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.measure, self.dataset, self.epoch, self.outside, self.attacked, self.protocol)


@dataclass(frozen=True)
class _StoredNumbers:
    run: str
    finished: str
    numbers: tuple[_StoredNumber, ...]


class ReproductionFolder:
    """The folder of one study at one scale."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, plan: StudyPlan, to: str | None) -> ReproductionFolder:
        """Return the folder of a plan: ``to``, or a folder in ``reproductions`` in the current folder."""
        if to is not None and is_address(to):
            raise UserError(f"--to: a folder on a disk is needed, got {to}")
        usual = Path("reproductions") / f"{plan.study.name.replace('/', '-')}-{plan.scale}"
        return cls((usual if to is None else expanded(to)).absolute())

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return own_folder(self.path, "runs")

    @property
    def page(self) -> Path:
        """Path of the HTML page."""
        return self.path / "table.html"

    def enter(self, plan: StudyPlan) -> None:
        """Write the plan into the folder; the plan of an existing folder may only be extended by further runs."""
        file = self.path / "plan.json"
        now = {name: to_mapping(run.config) for name, run in plan.runs.items()}
        for name in plan.runs:
            own_folder(self.path, "runs", name)
        try:
            before = self._plan_before(file)
            if before is not None:
                self._require_same(before, plan, now)
                now = before.runs | now
            atomic.make_folder(self.path)
            content = {"format": FORMAT, "study": plan.study.name, "scale": plan.scale, "runs": now}
            atomic.write_json(file, with_checksum(content))
        except OSError as error:
            raise RunError(
                f"{error.filename or self.path}: cannot be written, got {error.strerror or error}; choose another --to"
            ) from error

    def _plan_before(self, file: Path) -> _StoredPlan | None:
        if not file.exists():
            if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
                raise RunError(f"{self.path}: the folder holds something that is no reproduction; choose another --to")
            return None
        way_out = "choose another --to"
        content = read_json(file, what="not the plan of a reproduction", way_out=way_out)
        try:
            return typed(content, _StoredPlan)
        except ValueError as error:
            raise RunError(f"{file}: not the plan of a reproduction, got {error}; {way_out}") from error

    def _require_same(self, before: _StoredPlan, plan: StudyPlan, now: Mapping[str, dict[str, Any]]) -> None:
        if (before.study, before.scale) != (plan.study.name, plan.scale):
            raise RunError(
                f"{self.path}: holds {before.study} at scale {before.scale}, not {plan.study.name} at {plan.scale}; "
                "choose another --to"
            )
        changed = [
            f"{name}, {line}"
            for name in now
            if name in before.runs
            for line in changed_settings(before.runs[name], now[name], tuple(MAY_CHANGE), what="folder")
        ]
        if changed:
            more = f"\n  and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            lines = "".join(f"\n  {line}" for line in changed[:_SHOWN])
            raise RunError(f"{self.path}: holds runs with other settings; choose another --to:{lines}{more}")

    def write_numbers(self, run: str, finished: str, found: Mapping[Wanted, Found]) -> None:
        """Save the measured values of a run.

        Args:
            finished: When it finished, from its result; identifies the training, so that a new one is measured again.
        """
        numbers = [
            {
                **asdict(wanted),
                "value": each.value,
                "detail": each.detail,
                "answers": each.answers and each.answers.to_mapping(),
            }
            for wanted, each in found.items()
        ]
        file = self._numbers(run)
        atomic.make_folder(file.parent)
        atomic.write_json(file, with_checksum({"format": FORMAT, "run": run, "finished": finished, "numbers": numbers}))

    def read_numbers(self, run: str, finished: str) -> dict[Wanted, Found]:
        """Return the saved values of a run; empty if the file is missing, damaged, or of an earlier training."""
        try:
            stored = typed(read_json(self._numbers(run)), _StoredNumbers)
        except (RunError, ValueError):
            return {}
        if (stored.run, stored.finished) != (run, finished):
            return {}
        return {each.wanted: Found(each.value, each.detail, each.answers) for each in stored.numbers}

    def _numbers(self, run: str) -> Path:
        return own_folder(self.path, "measured") / f"{run}.json"
