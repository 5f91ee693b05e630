"""ReproductionFolder: the folder of one reproduction.

reproductions/<paper>-<row>-<scale>/
  plan.json         study, scale, and the settings of every run
  runs/<name>/      ordinary runs
  measured/<name>.json   measured values of each run, with a checksum
  references.json   what raw pixels and untrained encoders score
  table.json  table.md  table.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ebclab.config import to_mapping
from ebclab.errors import RunError
from ebclab.reproductions.measure import Found, Wanted
from ebclab.reproductions.plan import StudyPlan
from ebclab.runs.references import FILE
from ebclab.runs.resume import MAY_CHANGE, changed_settings, refuse_changes
from ebclab.storage import atomic
from ebclab.storage.kinds import REPRODUCTION
from ebclab.storage.mirror import Syncer
from ebclab.storage.reading import read_typed, typed, with_checksum
from ebclab.storage.workspace import Workspace

FORMAT = 1
_Plain = dict[str, object]
"""The settings of a run as plain values."""
_SHOWN = 5  # maximum number of changed settings in a message


@dataclass(frozen=True)
class _StoredPlan:
    study: str
    scale: str
    runs: dict[str, _Plain]


@dataclass(frozen=True)
class _StoredNumbers:
    run: str
    finished: str
    numbers: tuple[dict[str, object], ...]  # each what was wanted, and what was found


class ReproductionFolder(Workspace):
    """The folder of one study at one scale. Each run is synced by the process that trains it."""

    kind = REPRODUCTION

    @classmethod
    def of_plan(cls, plan: StudyPlan, to: str | None) -> ReproductionFolder:
        """Return the folder of a plan: ``to``, or a folder in ``reproductions`` in the current folder."""
        usual = f"reproductions/{plan.study.name.replace('/', '-')}-{plan.scale}"
        return cls.at(usual if to is None else to)

    @property
    def references(self) -> Path:
        """What raw pixels and untrained encoders score on the test images."""
        return self.own(FILE)

    @contextmanager
    def enter(self, plan: StudyPlan) -> Iterator[Syncer]:
        """Claim the folder and write the plan; the plan of an existing folder may only be extended by further runs."""
        self.pull_free()._runs_with(plan)  # refused before anything is written
        with self.claim() as syncer:
            runs = self._runs_with(plan)
            content = {"format": FORMAT, "study": plan.study.name, "scale": plan.scale, "runs": runs}
            atomic.write_json(self.plan, with_checksum(content))
            syncer.push()
            yield syncer

    def _runs_with(self, plan: StudyPlan) -> dict[str, _Plain]:
        """Return the settings of the runs there and of those of ``plan``, by name."""
        now = {name: to_mapping(config) for name, config in plan.runs.items()}
        for name in plan.runs:
            self.own(REPRODUCTION.inside, name)
        if not self.has_plan():
            return now
        where, remedy = self.address_of(self.plan), "choose another --to"
        before = read_typed(self.plan, _StoredPlan, where, what="not the plan of a reproduction", remedy=remedy)
        self._require_same(before, plan, now)
        return before.runs | now

    def _require_same(self, before: _StoredPlan, plan: StudyPlan, now: Mapping[str, _Plain]) -> None:
        if (before.study, before.scale) != (plan.study.name, plan.scale):
            raise RunError(
                f"{self.address}: holds {before.study} at scale {before.scale}, not {plan.study.name} at {plan.scale}; "
                "choose another --to"
            )
        changed = [
            f"{name}, {line}"
            for name in now
            if name in before.runs
            for line in changed_settings(before.runs[name], now[name], tuple(MAY_CHANGE), what="folder")
        ]
        refuse_changes(self.address, changed, "holds runs with other settings; choose another --to", most=_SHOWN)

    def write_numbers(self, run: str, finished: str, found: Mapping[Wanted, Found]) -> None:
        """Save the measured values of a run.

        ``finished``, from its result, identifies the training, so that a new one is measured again.
        """
        numbers = [asdict(wanted) | asdict(each) for wanted, each in found.items()]
        file = self._numbers(run)
        content = with_checksum({"format": FORMAT, "run": run, "finished": finished, "numbers": numbers})
        try:
            atomic.make_folder(file.parent)
            atomic.write_json(file, content)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be written, got {error.strerror or error}; free some space") from error

    def read_numbers(self, run: str, finished: str) -> dict[Wanted, Found]:
        """Return the saved values of a run; empty if the file is missing, damaged, or of an earlier training."""
        try:
            stored = read_typed(self._numbers(run), _StoredNumbers)
            numbers = {typed(each, Wanted): typed(each, Found) for each in stored.numbers}
        except (RunError, ValueError):
            return {}
        return numbers if (stored.run, stored.finished) == (run, finished) else {}

    def _numbers(self, run: str) -> Path:
        return self.own("measured") / f"{run}.json"
