"""What a sweep found, with types: confirmed settings, test scores, what early stopping saved, result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ebclab.config.names import is_folder_name
from ebclab.errors import RunError
from ebclab.storage import atomic
from ebclab.storage.checksum import with_checksum
from ebclab.storage.reading import read_json
from ebclab.storage.typed_json import typed
from ebclab.sweeps.log import SweepLog, finite
from ebclab.sweeps.plan import SweepPlan
from ebclab.sweeps.space.check import own_settings
from ebclab.sweeps.trial import Trial

_FORMAT = 1
_NO_RESULT = "not the result of a sweep"
_WAY_OUT = "delete the file and resume the sweep, which writes it again"
BASELINE = "baseline"
"""Source of the settings that the search started from, in place of the id of a search trial."""


@dataclass(frozen=True, kw_only=True)
class ConfirmedSettings:
    """Settings that were run again with other seeds, and what these runs measured.

    Where a sweep confirmed nothing, they are those of a search trial with its one value, and ``seeds_asked`` is 0.

    Attributes:
        source: Id of the search trial that the settings come from, or ``baseline``.
        settings: Searched settings by dotted key.
        seeds: Seeds of the runs that finished.
        values: The objective of each of these runs.
        seeds_asked: Number of seeds that the plan asks for; 0 when nothing was confirmed.
        mean: Mean of ``values``.
        std: Standard deviation of ``values``; None for one seed.
        low: Lower end of Student's 95 % interval of the mean; None for one seed.
        high: Upper end of the interval; None for one seed.
    """

    source: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    seeds_asked: int
    mean: float
    std: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings that no run has measured, and a source that cannot be part of a folder's name.

        Raises:
            ValueError: There is not one value per seed, there is none, or the source is not the name of a folder.
        """
        if not is_folder_name(self.source):
            raise ValueError(f"not the id of a trial, got {self.source!r}")
        if not self.values or len(self.seeds) != len(self.values):
            raise ValueError(f"{self.source}: {len(self.seeds)} seeds and {len(self.values)} values")

    @classmethod
    def of_trial(cls, trial: Trial) -> ConfirmedSettings:
        """Return the settings of a search trial that has measured something, unconfirmed."""
        value = trial.objectives[trial.epochs_done]
        return cls(
            source=trial.id,
            settings=dict(trial.settings),
            seeds=(trial.seed,),
            values=(value,),
            seeds_asked=0,
            mean=value,
        )

    @property
    def is_confirmed(self) -> bool:
        """The settings were run again with other seeds."""
        return self.seeds_asked > 0

    def is_start(self, plan: SweepPlan) -> bool:
        """Return whether these are the settings that the search started from."""
        return self.settings == own_settings(plan.space, plan.config)

    def in_words(self, plan: SweepPlan) -> str:
        """Return a name for people: ``trial 0003``, or ``the starting settings``."""
        if self.source == BASELINE:
            return "the starting settings"
        return f"trial {self.source}" + (", the starting settings" if self.is_start(plan) else "")

    def to_mapping(self) -> dict[str, Any]:
        """Return an entry of result.json; unconfirmed settings have no mean there."""
        entry: dict[str, Any] = {
            "trial": self.source,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "values": list(self.values),
            "seeds_asked": self.seeds_asked,
        }
        if self.is_confirmed:
            entry |= {"mean": self.mean, "std": self.std, "low": self.low, "high": self.high}
        return entry


@dataclass(frozen=True, kw_only=True)
class SeedScores:
    """Test scores of one probe over the winner's seeds.

    Attributes:
        values: Accuracy in [0, 1], one value per seed.
        mean: Mean of ``values``.
        std: Standard deviation of ``values``; None for one seed.
        low: Lower end of Student's 95 % interval of the mean, cut at 0; None for one seed.
        high: Upper end of the interval, cut at 1; None for one seed.
    """

    values: tuple[float, ...]
    mean: float
    std: float | None
    low: float | None
    high: float | None

    def to_mapping(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return {**asdict(self), "values": list(self.values)}


@dataclass(frozen=True)
class WinnerTest:
    """The event in a sweep's log that says that the test set was read.

    Attributes:
        trial: Source of the settings that were tested.
        seeds: Seeds of their runs.
        scores: What was measured, by probe.
    """

    trial: str
    seeds: tuple[int, ...]
    scores: dict[str, SeedScores]

    @classmethod
    def newest(cls, log: SweepLog) -> WinnerTest | None:
        """Return the newest such event; None when the test set has not been read.

        Raises:
            RunError: The event is not what this class writes.
        """
        event = log.last_event("tested")
        if event is None:
            return None
        try:
            return typed(event, cls)
        except ValueError as error:
            raise RunError(
                f"{log.where}: its event `tested` cannot be read, got {error}; restore the file, or delete that line"
            ) from error

    def write(self, log: SweepLog) -> None:
        """Append the event to the sweep's log."""
        scores = {name: score.to_mapping() for name, score in self.scores.items()}
        log.append("tested", trial=self.trial, seeds=list(self.seeds), scores=scores)


@dataclass(frozen=True)
class StoppingSavings:
    """What early stopping saved.

    Attributes:
        trials: Number of trials that were stopped.
        epochs: Epochs that they did not train.
        seconds: Training time that these epochs would have taken, at each trial's own pace.
        seconds_spent: Training time of all trials of the search.
    """

    trials: int
    epochs: int
    seconds: float
    seconds_spent: float

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> StoppingSavings:
        """Return what stopping saved among ``trials``, those of a search."""
        stopped = [trial for trial in trials if trial.state == "stopped" and trial.epochs_done]
        seconds = sum(trial.seconds / trial.epochs_done * (trial.epochs - trial.epochs_done) for trial in stopped)
        return cls(
            trials=len(stopped),
            epochs=sum(trial.epochs - trial.epochs_done for trial in stopped),
            seconds=round(seconds, 1),
            seconds_spent=round(sum(trial.seconds for trial in trials), 1),
        )


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """The result of a finished sweep: the content of its result.json.

    An entry of the file is at hand by its key too: ``result["winner"]["mean"]``.

    Attributes:
        path: Folder of the sweep, or its address in an object store.
        method: Name of the method.
        dataset: Name of the dataset.
        objective: Name of the objective.
        trials: Number of trials of the search by state.
        winner: The best confirmed settings; where nothing was confirmed, the best trial of the search.
        candidates: All confirmed settings, best first.
        test: Test scores of the winner by probe; None when the test set was not read.
        saved: What early stopping saved.
        seconds: Training time of all trials, confirming runs included.
        finished: When the sweep finished, UTC, as ISO 8601.
    """

    path: str
    method: str
    dataset: str
    objective: str
    trials: dict[str, int]
    winner: ConfirmedSettings
    candidates: tuple[ConfirmedSettings, ...]
    test: dict[str, SeedScores] | None
    saved: StoppingSavings
    seconds: float
    finished: str

    def __getitem__(self, key: str) -> Any:
        """Return the entry ``key`` of result.json as plain values."""
        return self.to_mapping()[key]

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of result.json as plain values."""
        return {
            "format": _FORMAT,
            "path": self.path,
            "method": self.method,
            "dataset": self.dataset,
            "objective": self.objective,
            "trials": self.trials,
            "winner": self.winner.to_mapping(),
            "candidates": [entry.to_mapping() for entry in self.candidates],
            "test": None if self.test is None else {name: score.to_mapping() for name, score in self.test.items()},
            "saved": asdict(self.saved),
            "seconds": self.seconds,
            "finished": self.finished,
        }

    @classmethod
    def of_mapping(cls, content: object, where: str) -> SweepResult:
        """Return the result that ``to_mapping`` made ``content`` of.

        Args:
            content: Plain values; numbers that JSON cannot hold may be text.
            where: What messages call the file.

        Raises:
            RunError: A field is missing or has another type.
        """
        if isinstance(content, Mapping):
            content = dict(content)
            if "winner" in content:
                content["winner"] = _by_field(content["winner"])
            if isinstance(content.get("candidates"), list):
                content["candidates"] = [_by_field(entry) for entry in content["candidates"]]
        try:
            return typed(content, cls)
        except ValueError as error:
            raise _not_a_result(where, error) from error

    def write(self, path: Path) -> None:
        """Write the file at ``path`` in one step, with a checksum of its content; numbers JSON lacks become text."""
        atomic.write_json(path, with_checksum(finite(self.to_mapping())))

    @classmethod
    def read(cls, path: Path, where: str = "") -> SweepResult:
        """Return the result in the file at ``path``.

        Args:
            path: The file.
            where: What messages call it; its path when empty.

        Raises:
            RunError: The file is not the result of a sweep.
        """
        content = read_json(path, where, what=_NO_RESULT, way_out=_WAY_OUT)
        return cls.of_mapping(content, where or str(path))


def _by_field(entry: object) -> object:
    """Return an entry of result.json by the names of the fields of ``ConfirmedSettings``."""
    if not isinstance(entry, Mapping):
        return entry
    fields = {"source" if key == "trial" else key: value for key, value in entry.items()}
    values = fields.get("values")
    return {"mean": values[0], **fields} if isinstance(values, list) and values else fields


def _not_a_result(where: str, error: ValueError) -> RunError:
    return RunError(f"{where}: {_NO_RESULT}, got {error}; {_WAY_OUT}")
